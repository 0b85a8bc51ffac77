test_that("terms that depend on other rows are refused by name", {
  skip_on_cran()
  data <- rows_data(120)[-c(3, 60), ]
  source <- rows_chunked(chunks_of(data))
  for (term in c("scale(z - mean(z))", "I(z - mean(z))", "rank(z)", "splines::ns(rank(z), 3)", "cut(z, range(z) + c(-1, 1) * sd(x))",
                 "cumsum(z)", "c(NA, z[-length(z)])", "I(trials/max(trials))", "I(z - min(z))")) {
    expect_error(elvi(reformulate(term, "real"), data = source), term, fixed = TRUE, class = "elvi_error_argument")
  }
  expect_error(elvi(count ~ x, data = source, family = poisson(), weights = z / mean(z)), "`weights = z/mean(z)` depends on other rows", fixed = TRUE)
  expect_error(elvi(real ~ x + ar1(z | g), data = source), "in memory for", class = "elvi_error_argument")
  expect_error(elvi(count ~ x, data = source, family = neg_binomial_2(), method = "nested"), "needs all rows in memory")
  expect_message(elvi(count ~ x, data = source, family = neg_binomial_2()), "phi is fitted by method = \"mpsgd\"", class = "elvi_message_not_nested")
  expect_no_message(elvi(count ~ x, data = source, family = neg_binomial_2(), method = "mpsgd"), class = "elvi_message_not_nested")
})

test_that("terms that depend on rows of other chunks are refused by name", {
  skip_on_cran()
  parts <- years_parts()
  one_row_first <- c(list(parts[[1]][1, ]), parts)
  for (name in names(collective_cases)) {
    for (pieces in list(parts, one_row_first, rev(parts))) {
      expect_refused(fit_years(collective_cases[[name]], rows_files(pieces, function(piece) piece)), name)
    }
  }
  expect_error(fit_years(quote(list(late ~ factor(year > median(year)))), rows_files(parts, identity)),
               "`factor(year > median(year))` has only one level", fixed = TRUE, class = "elvi_error_argument")
})

test_that("terms that each row has by itself give the fit of memory", {
  skip_on_cran()
  data <- years_data()
  parts <- years_parts(data)
  one_row_first <- c(list(data[1, ]), list(data[2:100, ]), parts[-1])
  for (case in every(rowwise_cases, 5)) {
    reference <- suppressMessages(fit_years(case, data))
    for (pieces in list(parts, if (!any(grepl("relevel", deparse(case)))) one_row_first)) {
      if (length(pieces)) expect_same_fit(suppressMessages(fit_years(case, rows_files(pieces, function(piece) piece))), reference)
    }
  }
})

test_that("one odd chunk among hundreds is found, and few rows are kept", {
  skip_on_cran()
  n <- if (long_tests()) 2000 else 600
  recipe_for <- function(formula) formula_recipe(formula, as.call(list(quote(elvi), formula)), globalenv(), chunk(1), "bernoulli")
  chunk <- function(i, low = 0) data.frame(y = 0:2, x = c(low, 1 + (i * 0.618) %% 1, 5), g = paste0("g", i))
  sample_of <- function(recipe, odd) {
    sample <- NULL
    for (i in seq_len(n)) sample <- add_to_sample(recipe, sample, chunk(i, if (i %in% odd) 0.5 else 0), i)
    sample
  }
  before <- if (exists(".Random.seed", globalenv())) get(".Random.seed", globalenv())
  sample <- sample_of(recipe_for(y ~ log1p(x) + substr(g, 1, 1)), NULL)
  if (!is.null(before)) expect_identical(get(".Random.seed", globalenv()), before)
  expect_lte(nrow(sample$rows), 256)
  expect_lt(as.numeric(object.size(sample)), 1e5)
  expect_gt(length(unique(sample$rows$g)), 100)   # not only of the first chunks
  expect_error(sample_of(recipe_for(y ~ I(x - ifelse(length(x) > 2, min(x), 0))), round(0.85 * n)), "depends on other rows", class = "elvi_error_argument")
})

test_that("the order of levels is that of memory, or refused", {
  skip_on_cran()
  data <- years_data()
  data$g[data$year < 2015 & data$g == "d"] <- "a"     # a level of later chunks
  parts <- years_parts(data)
  # before, levels of a call that differ between chunks were sorted, and the reference level was a
  expect_same_fit(fit_years(quote(list(late ~ relevel(factor(g), ref = "c"))), rows_files(parts, identity)),
                  fit_years(quote(list(late ~ relevel(factor(g), ref = "c"))), data))
  given <- rows_files(parts, identity, levels = list("reorder(g, x)" = c("b", "a", "d", "c")))
  expect_identical(names(coef(fit_years(quote(list(late ~ reorder(g, x))), given))), c("(Intercept)", paste0("reorder(g, x)", c("a", "d", "c"))))
  sizes <- list(c("low", "high"), c("low", "mid", "high"))
  ordered_parts <- function(levels) rows_files(1:2, function(i) transform(parts[[i]], q = ordered(rep_len(levels[[i]], 100), levels[[i]])), levels = NULL)
  expect_error(elvi(late ~ q, data = ordered_parts(sizes), family = binomial()), "order of the levels of `q` cannot be determined", class = "elvi_error_argument")
  expect_named(coef(elvi(late ~ q, data = ordered_parts(rev(sizes)), family = binomial())), c("(Intercept)", "q.L", "q.Q"))
})

test_that("contrasts of a factor itself are refused, those of the argument are used", {
  skip_on_cran()
  data <- years_data()
  contrasts(data$f) <- "contr.sum"
  parts <- years_parts(data)
  later <- c(list(transform(parts[[1]], f = factor(as.character(f)))), parts[-1])
  for (pieces in list(parts, later)) expect_refused(fit_years(quote(list(late ~ f)), rows_files(pieces, identity)), "f")
  for (contrasts in list("contr.sum", contr.sum(4), contr.helmert(4))) {
    expect_same_fit(elvi(late ~ f, data = rows_files(parts, identity), family = binomial(), contrasts = list(f = contrasts)),
                    elvi(late ~ f, data = data, family = binomial(), contrasts = list(f = contrasts)))
  }
})

test_that("a column that a chunk lacks is not taken from the workspace", {
  skip_on_cran()
  parts <- years_parts()
  without <- function(k, name) replace(parts, k, list(parts[[k]][setdiff(names(parts[[k]]), name)]))
  x <- parts[[1]]$x
  size <- parts[[1]]$size
  month <- 3
  fit <- function(formula, parts, ...) eval.parent(substitute(elvi(formula, data = rows_files(parts, function(p) p), family = binomial(), ...)))
  expect_missing <- function(fit, pattern) expect_error(fit, pattern, fixed = TRUE, class = "elvi_error_argument")
  for (k in 2:4) {
    missing <- paste0("Chunk ", k, ": column `x` is missing")
    expect_missing(fit(late ~ x, without(k, "x")), missing)
    expect_missing(fit(late ~ x + g, without(k, "x")), missing)
    expect_missing(fit(late ~ I(x^2), without(k, "x")), missing)
    expect_missing(fit(late ~ g, without(k, "x"), subset = x > 1), missing)
    expect_missing(fit(late ~ g, without(k, "x"), offset = x), missing)
    expect_missing(fit(late ~ I(month * year), without(k, "month")), paste0("Chunk ", k, ": column `month` is missing"))
  }
  expect_missing(fit(late ~ x, without(1, "x")), "`x` is not a column of the data")
  expect_missing(fit(late ~ g, without(1, "size"), weights = size), "`size` is not a column")
  late <- "Chunk 2: column `month` is here, but missing in the first chunk"
  expect_missing(fit(late ~ I(month * year), without(1, "month")), late)
  selecting <- function(parts) rows_files(parts, function(p, columns) if (is.null(columns)) p else p[columns])
  expect_missing(elvi(late ~ I(month * year), data = selecting(without(1, "month")), family = binomial()), late)
  expect_missing(fit(late ~ ., list(parts[[1]][c("late", "x")], parts[[2]][c("late", "x", "month")])), late)
  expect_missing(fit(late ~ I(nowhere * x), parts), "nowhere")
})

test_that("vectors of the workspace are not rows of chunks, constants and functions are", {
  skip_on_cran()
  data <- years_data()
  parts <- years_parts(data)
  z <- data$x[1:100]            # as long as a chunk
  keep <- rep(c(TRUE, FALSE), 50)
  power <- 2
  knots <- c(0.5, 1)
  value <- c(a = 1, b = 3, c = 2, d = 5)
  twice <- function(v) power * v
  fit <- function(data, formula, ...) elvi(formula, data = data, family = binomial(), ...)
  source <- rows_files(parts, function(p) p)
  expect_error(fit(source, late ~ z), "`z` is not a column of the data", class = "elvi_error_argument")
  expect_error(fit(source, late ~ I(x * z)), "`I(x * z)` depends on other rows", fixed = TRUE, class = "elvi_error_argument")
  expect_error(elvi(late ~ x, data = source, family = binomial(), weights = z), "`z` is not a column", class = "elvi_error_argument")
  expect_error(elvi(late ~ x, data = source, family = binomial(), subset = keep), "`keep` is not a column", class = "elvi_error_argument")
  expect_error(elvi(late ~ x, data = source, family = binomial(), subset = 1:10), "`subset` must be TRUE or FALSE for each row", class = "elvi_error_argument")
  expect_error(do.call(elvi, list(late ~ x, data = source, family = binomial(), weights = z)), "`weights = ", class = "elvi_error_argument")
  expect_error(elvi(late ~ gap, data = source, family = binomial(), na.action = function(frame) frame), "`na.action` must be na.omit", class = "elvi_error_argument")
  formula <- late ~ I(x^power) + twice(x) + value[g] + splines::ns(month, knots = 6 * knots, Boundary.knots = c(1, 12))
  expect_same_fit(fit(source, formula), fit(data, formula))
})

test_that("a column that is text in one chunk and a number in another is an error", {
  parts <- years_parts()
  parts[[3]]$x <- as.character(parts[[3]]$x)
  expect_error(elvi(late ~ I(x > 0.5), data = rows_files(parts, function(p) p), family = binomial()),
               "File number 3: column `x` is character here, but numeric in file number 1", class = "elvi_error_argument")
})

test_that("levels are those of memory, whatever chunk they are in", {
  skip_on_cran()
  data <- rows_data(120)[-c(3, 60), ]
  data$f <- factor(data$g, levels = c("unused", "only here", "c", "b", "a"))
  data$h <- factor(data$trials)
  data$l <- data$z > 0.95
  data$q <- ordered(data$g)
  for (formula in every(list(count ~ f, count ~ g, count ~ factor(trials), count ~ h, count ~ l + x, count ~ q,
                             count ~ factor(g, levels = c("b", "only here", "a", "c")), count ~ 0 + g, count ~ .), 4)) {
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
  expect_error(elvi(count ~ x, data = rows_chunked(chunks_of(data)), family = poisson()), "no complete rows")
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
  expect_error(elvi(count ~ x, data = bad(data["count"]), family = poisson()), "Chunk 2: column `x` is missing")
  expect_error(elvi(count ~ x, data = bad(transform(data, x = Inf)), family = poisson()), "Chunk 2: `data` has a non-finite value")
  expect_error(elvi(count ~ x, data = bad(transform(data, count = -1)), family = poisson()), "Chunk 2: `count` must be counts")
  expect_error(elvi(count ~ x, data = bad(transform(data, x = g)), family = poisson()), "File number 2: column `x` is character here, but numeric")
  expect_error(elvi(count ~ x, data = rows_files(1, function(i) data[0, ]), family = poisson()), "no rows")
  expect_error(elvi(~ x, data = bad(data)), "response on its left")
  expect_warning(elvi(rep(1, length(x)) ~ x, data = rows_files(1:2, function(i) data), dispersion = 1), class = "elvi_warning_constant_response")
})
