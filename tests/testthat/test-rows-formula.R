test_that("terms that depend on other rows are refused by name", {
  skip_on_cran()
  data <- rows_data(120)[-c(3, 60), ]
  source <- rows_chunked(chunks_of(data))
  for (term in c("poly(x, 2)", "scale(z)", "cut(z, 3)", "I(z - mean(z))", "rank(z)", "splines::ns(z, 3)",
                 "cumsum(z)", "c(NA, z[-length(z)])", "I(trials/max(trials))", "I(z - min(z))")) {
    expect_error(elvi(reformulate(term, "real"), data = source), term, fixed = TRUE, class = "elvi_error_argument")
  }
  expect_error(elvi(count ~ x, data = source, family = poisson(), weights = z / mean(z)), "`(weights)` depends on other rows", fixed = TRUE)
  expect_error(elvi(real ~ x + (1 | g), data = source), "group-level")
  expect_error(elvi(count ~ x, data = source, family = neg_binomial_2(), method = "nested"), "nested fits need all rows at once")
  expect_message(elvi(count ~ x, data = source, family = neg_binomial_2()), "phi is fitted by method = \"mpsgd\"", class = "elvi_message_not_nested")
  expect_no_message(elvi(count ~ x, data = source, family = neg_binomial_2(), method = "mpsgd"), class = "elvi_message_not_nested")
})

test_that("levels are those of memory, whatever chunk they are in", {
  skip_on_cran()
  data <- rows_data(120)[-c(3, 60), ]
  data$f <- factor(data$g, levels = c("unused", "only here", "c", "b", "a"))
  data$h <- factor(data$trials)
  data$l <- data$z > 0.95
  data$q <- ordered(data$g)
  for (formula in list(count ~ f, count ~ g, count ~ factor(trials), count ~ h, count ~ l + x, count ~ q,
                       count ~ factor(g, levels = c("b", "only here", "a", "c")), count ~ 0 + g, count ~ .)) {
    reference <- elvi(formula, data = data, family = poisson())
    fit <- elvi(formula, data = rows_chunked(chunks_of(data)), family = poisson())
    expect_same_fit(fit, reference)
    expect_equal(fit$xlevels, reference$xlevels)
  }
  sums <- elvi(count ~ g, data = rows_chunked(chunks_of(data)), family = poisson(), contrasts = list(g = "contr.sum"))
  expect_same_fit(sums, elvi(count ~ g, data = data, family = poisson(), contrasts = list(g = "contr.sum")))
  # factors that know only the levels of their chunk, as files give them
  own <- rows_files(split(seq_len(118), rep(1:4, length.out = 118)), function(i) {
    transform(data[sort(i), ], g = factor(g), yes = factor(as.character(yes)))
  })
  expect_setequal(names(coef(elvi(yes ~ g, data = own, family = binomial()))),
                  names(coef(elvi(yes ~ g, data = data, family = binomial()))))
})

test_that("levels that are given need no pass", {
  skip_on_cran()
  data <- rows_data(120)
  reads <- 0
  source <- function(levels) {
    rows_files(split(1:120, rep(1:3, each = 40)), function(i) {
      reads <<- reads + 1
      transform(data[i, ], n = trials %% 3)
    }, levels = levels)
  }
  passes <- function(levels, formula = count ~ g + factor(n)) {
    reads <<- 0
    fit <- elvi(formula, data = source(levels), family = poisson())
    list(fit = fit, passes = reads / 3)
  }
  found <- passes(NULL)
  given <- passes(list(g = c("a", "b", "c", "only here"), `factor(n)` = c("0", "1", "2"), x = "unused"))
  expect_identical(given$fit$mu, found$fit$mu)
  expect_equal(given$passes, found$passes - 1)
  some <- passes(list(g = c("c", "b", "a", "only here")))   # another order: c is the reference
  expect_true("ga" %in% names(coef(some$fit)))
  expect_equal(some$passes, found$passes)
  expect_error(passes(list(g = c("a", "b", "c"))), "Chunk 3: .*new level")
  expect_error(passes(list(gg = "a")), "`levels` must be of variables of the formula or columns of the source, not of `gg`")
  expect_error(source(c(g = "a")), "`levels` must be a list of levels")
  expect_error(source(list(g = c("a", "a"))), "different strings for each variable, and so for `g`")
  expect_error(source(list("a")), "with the names of their variables")
})

test_that("the formula's environment is seen", {
  data <- rows_data(120)
  by <- 2
  twice <- function(v) by * v
  expect_same_fit(elvi(count ~ twice(x), data = rows_chunked(chunks_of(data)), family = poisson()),
                  elvi(count ~ twice(x), data = data, family = poisson()))
})

test_that("relatives of data frames are data frames", {
  skip_on_cran()
  data <- rows_data(120)
  reference <- elvi(count ~ x + g, data = data, family = poisson())
  for (package in c("tibble", "data.table")) {
    skip_if_not_installed(package)
    make <- if (package == "tibble") tibble::as_tibble else data.table::as.data.table
    expect_same_fit(elvi(count ~ x + g, data = rows_files(list(1:60, 61:120), function(i) make(data[i, ])), family = poisson()), reference)
  }
})

test_that("missing values are dropped and counted, or refused", {
  data <- rows_data(120)
  fit <- elvi(count ~ x, data = rows_chunked(chunks_of(data)), family = poisson())
  expect_equal(c(nobs(fit), fit$dropped), c(118, 2))
  expect_error(elvi(count ~ x, data = rows_chunked(chunks_of(data)), family = poisson(), na.action = na.fail), "missing values")
  data$x <- NA_real_
  expect_error(elvi(count ~ x, data = rows_chunked(chunks_of(data)), family = poisson()), "at least one complete row")
})

test_that("a first chunk without a complete row does not decide what columns are", {
  data <- rows_data(120)[-c(3, 60), ]
  data$z[1:40] <- NA
  data$g[1:40] <- NA
  text <- rows_files(list(1:40, 41:80, 81:118), function(i) transform(data[i, ], z = if (anyNA(z)) NA else z, g = if (anyNA(g)) NA else g))
  expect_same_fit(elvi(count ~ x + z + g, data = text, family = poisson()), elvi(count ~ x + z + g, data = data, family = poisson()))
})

test_that("64-bit integers are numbers", {
  skip_if_not_installed("bit64")
  data <- rows_data(120)[-c(3, 60), ]
  long <- rows_files(list(1:60, 61:118), function(i) transform(data[i, ], trials = bit64::as.integer64(trials), count = bit64::as.integer64(count)))
  fit <- elvi(count ~ trials + z, data = long, family = poisson())
  expect_same_fit(fit, elvi(count ~ trials + z, data = data, family = poisson()))
  expect_length(fitted(fit), 118)
})

test_that("odd chunks are errors that say which", {
  data <- rows_data(120)[-c(3, 60), ]
  bad <- function(odd) rows_files(1:3, function(i) if (i == 2) odd else data)
  expect_error(elvi(count ~ x, data = bad(1:3), family = poisson()), "Chunk 2: `data` must be a source whose chunks are data frames")
  expect_error(elvi(count ~ x, data = rows_files(1, function(i) as.matrix(data[c("count", "x")])), family = poisson()),
               "`data` must be a source whose chunks are data frames")
  expect_error(elvi(count ~ x, data = bad(data["count"]), family = poisson()), "'x' not found")
  expect_error(elvi(count ~ x, data = bad(transform(data, x = Inf)), family = poisson()), "Chunk 2: `data` must be free of")
  expect_error(elvi(count ~ x, data = bad(transform(data, count = -1)), family = poisson()), "Chunk 2: `y` must be counts")
  expect_error(elvi(count ~ x, data = bad(transform(data, x = g)), family = poisson()), "Chunk 2")
  expect_error(elvi(count ~ x, data = rows_files(1, function(i) data[0, ]), family = poisson()), "without rows")
  expect_error(elvi(~ x, data = bad(data)), "response on its left")
  expect_warning(elvi(rep(1, length(x)) ~ x, data = rows_files(1:2, function(i) data), dispersion = 1), class = "elvi_warning_constant_response")
})
