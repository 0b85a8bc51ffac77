# Data and sources for tests of rows that live elsewhere.

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
  robust = quote(list(real ~ x + z, family = robust())),
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
