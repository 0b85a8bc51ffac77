# Data and sources for tests of data larger than memory.

rows_data <- function(n = 400) {
  withr_seed(3, {
    d <- data.frame(x = rnorm(n, 5), z = runif(n), g = sample(letters[1:3], n, TRUE), trials = rpois(n, 3) + 1,
                    w = sample(c(0, 0.5, 1, 2), n, TRUE), o = runif(n))
    d$count <- rpois(n, exp(0.3 * d$x - 1 + d$z))
    d$hits <- rbinom(n, d$trials, plogis(d$x - 5))
    d$share <- d$hits / d$trials
    d$yes <- factor(ifelse(rbinom(n, 1, plogis(d$x - 5)) == 1, "yes", "no"))
    d$real <- d$x + rnorm(n) * (1 + (d$g == "a"))
  })
  d$g[n - 5L] <- "only here"       # a level of one chunk
  d$x[c(3L, n %/% 2L)] <- NA
  d
}

# next_chunk() for pieces that are given as row numbers
chunks_of <- function(data, pieces = split(seq_len(nrow(data)), (seq_len(nrow(data)) - 1L) %/% 70L)) {
  at <- 0L
  function(reset = FALSE) {
    if (reset) at <<- 0L
    if (reset || at == length(pieces)) return(NULL)
    at <<- at + 1L
    data[pieces[[at]], , drop = FALSE]
  }
}

# models of every family, with whatever a row can have: quoted arguments of elvi()
rows_cases <- list(
  logit = quote(list(yes ~ x + g, family = binomial(), offset = o)),
  probit = quote(list(cbind(hits, trials - hits) ~ x * z + g, family = binomial("probit"), frequency = w)),
  cloglog = quote(list(share ~ x + g, family = binomial("cloglog"), weights = trials)),
  poisson = quote(list(count ~ z + factor(trials) + offset(o), family = poisson(), weights = w)),
  known = quote(list(real ~ log(x) + g, family = gaussian(), dispersion = 2, weights = w, subset = z > 0.2)),
  gaussian = quote(list(real ~ x + g, family = gaussian(), weights = w)),
  robust = quote(list(real ~ x + z, family = robust(), prior = student_t(3, 0, 2))),   # without student priors memory integrates
  size = quote(list(count ~ x + z, family = neg_binomial_2(), prior = student_t(3, 0, 2))))

fit_rows <- function(case, source, ...) {
  call <- as.call(c(quote(elvi), as.list(rows_cases[[case]])[-1L], list(data = quote(source)), list(...)))
  withr_seed(5, eval(call))
}

expect_same_fit <- function(fit, reference, tolerance = 1e-8) {
  sd <- sqrt(diag(reference$Sigma))
  testthat::expect_lt(max(abs(fit$mu - reference$mu) / sd), tolerance)
  testthat::expect_lt(max(abs(fit$Sigma - reference$Sigma)) / max(reference$Sigma), tolerance)
  testthat::expect_identical(names(fit$mu), names(reference$mu))
  testthat::expect_identical(nobs(fit) + 0, nobs(reference) + 0)
  if (reference$method == "exact") {
    testthat::expect_identical(fit$optimum$certificate_kind, reference$optimum$certificate_kind)
    testthat::expect_lt(fit$optimum$certificate, max(2 * reference$optimum$certificate, 1e-20))
  }
}

# five entries a row
wide_sparse <- function(n, d) {
  set.seed(6)
  Matrix::sparseMatrix(i = rep(seq_len(n), 5), j = sample(d, 5 * n, TRUE), x = rnorm(5 * n), dims = c(n, d))
}

# A year in each of four chunks; missing values, weights other than 1 and a second time some ids in later chunks only.
years_data <- function(n = 400) {
  withr_seed(4, {
    d <- data.frame(year = rep(2013:2016, each = n / 4), x = rexp(n), g = sample(letters[1:4], n, TRUE), id = sprintf("i%04d", sample(n)),
                    w = 1, month = sample(12, n, TRUE), size = rpois(n, 5) + 1)
    d$late <- rbinom(n, 1, plogis(d$x - 1))
    d$gap <- replace(d$x, sample((n / 2):n, n / 10), NA)
    d$w[(n / 4 + 1):n] <- runif(0.75 * n)
    d$id[(0.75 * n + 1):(0.85 * n)] <- d$id[1:(0.1 * n)]   # text, and again in the last chunk
  })
  d$f <- factor(d$g)
  d$h <- ifelse(d$year > 2014, paste0("z", d$g), d$g)
  d
}

years_parts <- function(data = years_data()) unname(split(data, data$year))

# arguments of elvi() that depend on other rows, each with what it must be called in the error
collective_cases <- list(
  "I(year - min(year))" = quote(list(late ~ I(year - min(year)))),
  "I(year - mean(year))" = quote(list(late ~ I(year - mean(year)))),
  "I(year/max(year))" = quote(list(late ~ I(year / max(year)))),
  "as.integer(factor(year))" = quote(list(late ~ as.integer(factor(year)))),
  "as.numeric(as.factor(h))" = quote(list(late ~ as.numeric(as.factor(h)))),
  "match(year, unique(year))" = quote(list(late ~ match(year, unique(year)))),
  "factor(year > median(year))" = quote(list(late ~ factor(year > median(year)))),
  "factor(x > median(x), labels = 1:2)" = quote(list(late ~ factor(x > median(x), labels = 1:2))),
  "I(ifelse(is.na(gap), mean(gap, na.rm = TRUE), gap))" = quote(list(late ~ I(ifelse(is.na(gap), mean(gap, na.rm = TRUE), gap)))),
  "rank(x)" = quote(list(late ~ rank(x))),
  "cumsum(x)" = quote(list(late ~ cumsum(x))),
  "c(0, diff(x))" = quote(list(late ~ c(0, diff(x)))),
  "c(0, x[-length(x)])" = quote(list(late ~ c(0, x[-length(x)]))),
  "I(x - x[1])" = quote(list(late ~ I(x - x[1]))),
  "seq_along(x)" = quote(list(late ~ seq_along(x))),
  "ave(x, id)" = quote(list(late ~ ave(x, id))),
  "log(x/sum(x))" = quote(list(late ~ log(x / sum(x)))),
  "rev(x)" = quote(list(late ~ rev(x))),
  "offset(x - mean(x))" = quote(list(late ~ g + offset(x - mean(x)))),
  "I(year - min(year) + late)" = quote(list(I(year - min(year) + late) ~ x, family = gaussian())),
  "reorder(g, x)" = quote(list(late ~ reorder(g, x))),
  "reorder(h, -x)" = quote(list(late ~ reorder(h, -x))),
  "C(f, contr.sum)" = quote(list(late ~ C(f, contr.sum))),
  "weights = w/mean(w)" = quote(list(late ~ x, weights = w / mean(w))),
  "frequency = ifelse(w == min(w), 2, 1)" = quote(list(late ~ x, frequency = ifelse(w == min(w), 2, 1))),
  "offset = year - mean(year)" = quote(list(late ~ x, offset = year - mean(year))),
  "subset = year == max(year)" = quote(list(late ~ x, subset = year == max(year))),
  "subset = !duplicated(id)" = quote(list(late ~ x, subset = !duplicated(id))),
  "subset = rank(x) > 3" = quote(list(late ~ x, subset = rank(x) > 3)),
  "subset = c(TRUE, FALSE)" = quote(list(late ~ x, subset = c(TRUE, FALSE))))
# arguments whose constants a first pass finds
constant_cases <- list(
  quote(list(late ~ ns(x, 3))),
  quote(list(late ~ bs(x, 4) + scale(year, scale = FALSE))),
  quote(list(late ~ ns(x, knots = 1) + factor(year))),   # the boundary knots are not given
  quote(list(late ~ 0 + splines::ns(log(x), df = 4, intercept = TRUE))),
  quote(list(late ~ ns(gap, 3))),   # with missing values
  quote(list(late ~ bs(x, df = 5, degree = 2, Boundary.knots = c(0, 9)))),
  quote(list(late ~ poly(x, 2) + poly(month, degree = 3))),
  quote(list(late ~ scale(gap) + scale(x, center = FALSE) + scale(month, center = 6))),
  quote(list(late ~ cut(x, 3) + g)),
  quote(list(late ~ cut(x, quantile(x), include.lowest = TRUE))),
  quote(list(late ~ cut(month, quantile(month, c(0, 0.5, 1)), include.lowest = TRUE) * scale(x), subset = year > 2013)))   # ties
# arguments that give each row its own value
rowwise_cases <- list(
  quote(list(late ~ log(x) + I(x^2) + sqrt(month))),
  quote(list(late ~ poly(month, 2, raw = TRUE))),
  quote(list(late ~ ns(x, knots = c(0.5, 1), Boundary.knots = c(0, 9)) + bs(month, knots = 6, Boundary.knots = c(1, 12)))),
  quote(list(late ~ factor(g, levels = c("c", "d", "a", "b")) + cut(x, c(-1, 0.5, 1, Inf)))),
  quote(list(late ~ factor(year) + factor(h) + factor(month > 6))),
  quote(list(late ~ x * g + x:month)),
  quote(list(late ~ g * factor(month > 6), contrasts = list(g = "contr.sum"))),
  quote(list(late ~ x + offset(log(size)))),
  quote(list(late ~ x, offset = log(size), weights = 2 * w, subset = x > 0.3 & !is.na(gap))),
  quote(list(late ~ I(x > 3) + (month > 3))),
  quote(list(late ~ ifelse(is.na(gap), 0, gap) + is.na(gap))),
  quote(list(late ~ round(x) + pmin(x, 2) + pmax(x, month))),
  quote(list(late ~ relevel(factor(g), ref = "b") + interaction(g, month > 6))),
  quote(list(late ~ ordered(h) + substr(h, 1, 1))),
  quote(list(late ~ I((year - 2013) / 3) + scale(x, center = 1, scale = 2))),
  quote(list(late ~ as.integer(factor(g, levels = letters[1:4])) + match(g, letters))),
  quote(list(late ~ g, subset = TRUE, frequency = size)),
  quote(list(log(size) ~ sin(2 * pi * month / 12), family = gaussian(), dispersion = 0.2)))

fit_years <- function(case, source, ...) {
  given <- as.list(case)[-1L]
  if (is.null(given$family)) given$family <- quote(binomial())
  call <- as.call(c(quote(elvi), given, list(data = quote(source)), list(...)))
  env <- list2env(list(source = source, ns = splines::ns, bs = splines::bs), parent = environment())
  eval(call, env)
}

expect_refused <- function(fit, name, argument = sub(" =.*", "", if (grepl("^(weights|subset|offset|frequency) = ", name)) name else "object")) {
  error <- tryCatch({ fit; NULL }, error = function(e) e)
  testthat::expect_s3_class(error, "elvi_error_argument")
  testthat::expect_match(conditionMessage(error), paste0("`", name, "`"), fixed = TRUE)
  testthat::expect_identical(error$argument, argument)
}
