# What every fit promises, whatever has made it: one of each kind, and each promise for all of them.

contract_store <- new.env(parent = emptyenv())

# made once: tests below change the kind of R's generator
contract_data <- function() {
  if (is.null(contract_store$data)) contract_store$data <- make_contract_data()
  contract_store$data
}

make_contract_data <- function() {
  withr_seed(21, {
    n <- 120
    d <- data.frame(x = rnorm(n), t = runif(n), g = factor(sample(letters[1:6], n, TRUE)))
    eta <- 0.4 + 0.5 * d$x + rnorm(6, 0, 0.5)[d$g]
    d$y <- eta + rnorm(n, 0, 0.7)
    d$b <- rbinom(n, 1, plogis(eta))
    d$count <- rpois(n, exp(eta))
    d$size <- rgamma(n, 3, 3 / exp(eta))
    d$time <- rweibull(n, 1.5, exp(eta))
    d$hits <- rbinom(n, 5, rbeta(n, 4 * plogis(eta), 4 * plogis(-eta)))
    d$seen <- rbinom(n, 1, 0.8)
    d$class <- cut(eta + rlogis(n), c(-Inf, -0.5, 1, Inf), ordered_result = TRUE)
    d$zeros <- ifelse(runif(n) < 0.3, 0, d$count)
    d$sort <- factor(sample(c("a", "b", "c"), n, TRUE, c(2, 1, 1)))
    d$month <- rep(1:20, length.out = n)
    d
  })
}

# what a kind needs beside elvi
contract_needs <- c(survival = "survival", groups = "reformulas", inflated = "reformulas", slopes = "reformulas",
                    prior_groups = "reformulas", smooth = "mgcv", group_chunks = "reformulas", group_reloaded = "reformulas",
                    tmb_tape = "RTMB")

contract_kinds <- list(
  binomial = function(d) elvi(b ~ x, d, family = binomial()),
  mpsgd = function(d) elvi(count ~ x, d, family = neg_binomial_2(), method = "mpsgd"),
  robust = function(d) elvi(y ~ x, d, family = robust()),
  gaussian = function(d) elvi(y ~ x, d),
  known = function(d) elvi(y ~ x, d, dispersion = 0.5),
  gamma = function(d) elvi(size ~ x, d, family = Gamma("log")),
  negbin = function(d) elvi(count ~ x, d, family = neg_binomial_2()),
  survival = function(d) elvi(survival::Surv(time, seen) ~ x, d, family = weibull()),
  trials = function(d) elvi(cbind(hits, 5 - hits) ~ x, d, family = beta_binomial()),
  truncated = function(d) elvi(count + 1 ~ x, d, family = truncated_negbinomial()),
  lognormal = function(d) elvi(size ~ x, d, family = lognormal()),
  ordinal = function(d) elvi(class ~ x, d, family = cumulative()),
  groups = function(d) elvi(count ~ x + (1 | g), d, family = poisson()),
  slopes = function(d) elvi(y ~ x + (x | g), d, control = elvi_control(nodes = 3)),   # draws over more nodes take long
  smooth = function(d) elvi(y ~ x + s(t), d),
  series = function(d) elvi(y ~ x + ar1(month), d, dispersion = 0.5),
  categorical = function(d) elvi(sort ~ x, d, family = categorical()),
  hurdle = function(d) elvi(zeros ~ x, d, family = hurdle_poisson(), ziformula = ~ t),
  prior = function(d) elvi(b ~ x, d, family = binomial(), prior_only = TRUE),
  prior_groups = function(d) elvi(y ~ x + (1 | g), d, prior_aux = normal(1, 0.2), prior_only = TRUE),
  inflated = function(d) elvi(zeros ~ x + (1 | g), d, family = zero_inflated_poisson(), ziformula = ~ t),
  scaled = function(d) elvi(y ~ x, d, dispformula = ~ t),
  quadratic = function(d) elvi(model_quadratic(matrix(c(2, 1, 1, 3), 2), m = c(a = 1, b = -1)), budget = 500),
  density = function(d) {
    elvi(model_density(function(x) colSums(x^2) / 2 + log(cosh(colSums(x))), function(x) x + rep(tanh(colSums(x)), each = 2), dim = 2,
                       names = c("a", "b"), vectorized = TRUE), budget = 500, starts = 1)
  },
  # corrected by importance weights
  corrected = function(d) {
    elvi(model_density(function(x) x[1, ]^2 / 8 + (x[2, ] - 0.3 * x[1, ]^2)^2 / 2, dim = 2, names = c("a", "b"), vectorized = TRUE), tol = 0.1)
  },
  # objects of other packages, or what they look like: see helper-targets.R
  stan = function(d) elvi(model_stan(cmdstan_double()), tol = 0.05),
  tmb = function(d) elvi(model_tmb(tmb_double()), tol = 0.05),
  tmb_tape = function(d) {
    y <- d$y[1:10]
    nll <- function(p) sum((y - p$b)^2) / (2 * exp(2 * p$log_sigma)) + length(y) * p$log_sigma + sum(p$b^2) / 200 + exp(p$log_sigma)
    elvi(model_tmb(RTMB::MakeADFun(nll, list(b = 0, log_sigma = 0), silent = TRUE)), tol = 0.05)
  },
  laplace = function(d) elvi(model_density(function(x) sum(cosh(x)), dim = 2, names = c("a", "b")), method = "laplace"),
  stack = function(d) {
    two <- function(x) -log(0.6 * exp(-colSums((x - 4)^2) / 2) + 0.4 * exp(-colSums((x + 4)^2) / 2))
    elvi(model_density(two, dim = 2, names = c("a", "b"), vectorized = TRUE), tol = 0.1, combine = "stack")
  },
  continued = function(d) {
    elvi(elvi(b ~ x, d, family = binomial(), budget = 400, control = elvi_control(iterations = 5)))
  },
  reloaded = function(d) {
    file <- tempfile()
    on.exit(unlink(file))
    saveRDS(elvi(y ~ x, d), file)
    readRDS(file)
  },
  group_reloaded = function(d) unserialize(serialize(elvi(count ~ x + (1 | g), d, family = poisson()), NULL)),
  chunks = function(d) elvi(b ~ x, rows_chunked(split_rows(d)), family = binomial()),
  gaussian_chunks = function(d) elvi(y ~ x, rows_chunked(split_rows(d))),
  group_chunks = function(d) elvi(count ~ x + (1 | g), rows_chunked(split_rows(d)), family = poisson()))

# a reader of three chunks of a data frame, by the rules of package 'biglm'
split_rows <- function(d) {
  parts <- split(d, rep(1:3, length.out = nrow(d)))
  i <- 0
  function(reset = FALSE) {
    i <<- if (reset) 0 else i + 1
    if (i > 0 && i <= length(parts)) parts[[i]]
  }
}

# fits whose rows are in memory, or all of the verbs that need them there
in_memory <- function(kind) !endsWith(kind, "chunks")

contract_fit <- function(kind) {
  if (is.null(contract_store[[kind]])) {
    contract_store[[kind]] <- suppressMessages(suppressWarnings(withr_seed(22, contract_kinds[[kind]](contract_data()))))
  }
  contract_store[[kind]]
}

# kinds whose packages are here
contract_names <- function() {
  there <- vapply(contract_needs, requireNamespace, NA, quietly = TRUE)
  setdiff(names(contract_kinds), names(contract_needs)[!there])
}

# Half of the kinds by default, the first or the second of each two: tests that draw much take one half each.
half_of <- function(kinds, which) if (long_tests()) kinds else kinds[seq_along(kinds) %% 2 == which %% 2]

regression_names <- function() Filter(function(kind) inherits(contract_fit(kind), "elvi_glm") && in_memory(kind), contract_names())

# the same expression under several kinds of R's generator
under_kinds <- function(run) {
  kinds <- RNGkind()
  on.exit(suppressWarnings(RNGkind(kinds[1], kinds[2], kinds[3])))
  lapply(list(c("Mersenne-Twister", "Inversion", "Rejection"), c("Wichmann-Hill", "Box-Muller", "Rounding")), function(kind) {
    suppressWarnings(RNGkind(kind[1], kind[2], kind[3]))
    set.seed(1)
    before <- globalenv()$.Random.seed
    out <- run()
    expect_identical(globalenv()$.Random.seed, before)
    out
  })
}

# draws that a fit can give, all from the fit's own sequence
contract_draws <- function(fit, ..., n = 6) {
  new <- contract_data()[1:3, ]
  out <- list(matrix = as.matrix(fit, draws = n, ...))
  if (!inherits(fit, "elvi_glm") || is_out_of_memory(fit)) return(out)
  c(out, list(linpred = posterior_linpred(fit, draws = n, ...), epred = posterior_epred(fit, new, draws = n, ...),
              predict = posterior_predict(fit, draws = n, ...), new = posterior_predict(fit, new, draws = n, ...),
              log_lik = log_lik(fit, draws = n, ...)))
}

test_that("draws are the same in every call, and R's generator neither changes them nor is changed", {
  skip_on_cran()
  for (kind in half_of(contract_names(), 1)) {
    fit <- contract_fit(kind)   # before the generator is changed
    own <- under_kinds(function() contract_draws(fit))
    expect_identical(own[[2]], own[[1]], info = kind)
    seeded <- under_kinds(function() contract_draws(fit, seed = 3))
    expect_identical(seeded[[2]], seeded[[1]], info = kind)
    for (what in names(own[[1]])) expect_false(identical(own[[1]][[what]], seeded[[1]][[what]]), info = paste(kind, what))
  }
})

test_that("seeds are those of set.seed(), for every fit and every verb that draws", {
  skip_on_cran()
  for (kind in half_of(contract_names(), 2)) {
    fit <- contract_fit(kind)
    verbs <- list(function(seed) as.matrix(fit, draws = 4, seed = seed))
    if (inherits(fit, "elvi_glm") && in_memory(kind)) {
      verbs <- c(verbs, lapply(list(posterior_linpred, posterior_epred, posterior_predict, log_lik), function(draw) {
        function(seed) draw(fit, draws = 4, seed = seed)
      }))
    }
    for (verb in verbs) {
      negative <- verb(-1)
      expect_identical(verb(-1), negative, info = kind)
      for (other in 0:1) expect_false(identical(verb(other), negative), info = kind)
      for (bad in every(list(2^31, -2^31, NA_real_, "a", c(1, 2)), 3)) {
        error <- expect_error(verb(bad), class = "elvi_error_argument", info = kind)
        expect_identical(error$argument, "seed", info = kind)
      }
    }
  }
})

# of classes 1, 2, ...: draws x rows x classes to draws x rows
mean_number <- function(expected) {
  if (length(dim(expected)) == 2L) return(expected)
  structure(apply(expected * rep(seq_len(dim(expected)[3L]), each = prod(dim(expected)[1:2])), 1:2, sum), dimnames = NULL)
}

test_that("the noise of two new rows is independent, in one call and in two", {
  skip_on_cran()
  d <- contract_data()
  draws <- if (long_tests()) 4000 else 1500
  limit <- 4 / sqrt(draws)   # four standard errors
  for (kind in half_of(regression_names(), 1)) {
    fit <- contract_fit(kind)
    noise <- function(rows, ...) {
      posterior_predict(fit, rows, draws = draws, ...) - mean_number(posterior_epred(fit, rows, draws = draws, ...))
    }
    a <- d[3, ]
    b <- d[17, ]
    group <- transform(a, g = setdiff(levels(d$g), as.character(a$g))[1])   # another group, the same predictors
    scaled <- transform(a, x = x + 1e-6)
    others <- if (any(has_levels(fit$groups))) list(b, group, scaled) else list(b, scaled)
    at_a <- noise(a)
    for (other in others) {
      expect_lt(abs(cor(at_a, noise(other))), limit, label = paste("correlation of noise,", kind))
      expect_lt(abs(cor(noise(rbind(a, other)))[1, 2]), limit, label = paste("correlation of noise,", kind))
    }
    expect_lt(abs(cor(at_a, noise(a, seed = 1))), limit, label = paste("correlation of noise with seeds,", kind))
    expect_identical(noise(a), at_a, info = kind)
    # at the data, and at the same rows given anew
    if (kind != "smooth") {
      trials <- if (kind == "trials") 5   # of new data they have to be given
      expect_equal(unname(posterior_predict(fit, draws = 3)), unname(posterior_predict(fit, d, draws = 3, trials = trials)), info = kind)
    }
  }
})

test_that("tidy(exponentiate = TRUE) exponentiates the coefficients, and nothing else", {
  skip_on_cran()
  skip_if_not_installed("generics")
  for (kind in contract_names()) {
    fit <- contract_fit(kind)
    plain <- as.data.frame(generics::tidy(fit, conf.int = TRUE))
    out <- as.data.frame(generics::tidy(fit, conf.int = TRUE, exponentiate = TRUE))
    coefficients <- fixef(fit)
    at <- plain$effect == "fixed"
    expect_identical(sum(at), length(coefficients), info = kind)
    expect_equal(unname(plain$estimate[at]), unname(coefficients), info = kind)
    for (column in c("estimate", "conf.low", "conf.high")) {
      expect_identical(out[[column]][at], exp(plain[[column]][at]), info = kind)
      expect_identical(out[[column]][!at], plain[[column]][!at], info = kind)
    }
    expect_identical(out$std.error, plain$std.error, info = kind)
    expect_identical(as.data.frame(generics::tidy(fit, exponentiate = TRUE))$estimate, out$estimate, info = kind)
  }
})

test_that("tables have the same columns, and k-hat the same fields, for every fit", {
  skip_on_cran()
  skip_if_not_installed("generics")
  fields <- names(pareto_k(contract_fit("binomial")))
  for (kind in contract_names()) {
    fit <- contract_fit(kind)
    expect_identical(colnames(summary(fit)$table), c("mean", "sd", "2.5 %", "50 %", "97.5 %"), info = kind)
    expect_identical(names(generics::tidy(fit)),
                     c(if (has_shared(fit)) "y.level", "effect", if (!is.null(fit$second)) "component",
                       "group", "term", "estimate", "std.error"), info = kind)
    expect_identical(names(elbo(fit)), names(elbo(contract_fit("binomial"))), info = kind)
    expect_identical(names(suppressWarnings(pareto_k(fit))), fields, info = kind)
    expect_s3_class(fit$posterior, "elvi_posterior")
    one <- as.data.frame(generics::glance(fit))
    expect_identical(names(one), c("elbo", "elbo.se", "log_evidence", "log_evidence.se", "method", "base", "converged", "certificate", "points", "quadrature_error",
                                   "evaluations", "nobs"), info = kind)
    expect_identical(nrow(one), 1L, info = kind)
    expect_identical(one$method, contract_fit(kind)$method, info = kind)
    expect_gt(one$evaluations, 0)
  }
})

test_that("estimates, covariances, intervals, marginals and draws agree", {
  skip_on_cran()
  for (kind in contract_names()) {
    fit <- contract_fit(kind)
    table <- summary(fit)$table
    fixed <- fixef(fit)
    V <- vcov(fit)
    expect_identical(dimnames(V), list(names(fixed), names(fixed)), info = kind)
    expect_equal(table[names(fixed), "mean"], fixed, info = kind)
    expect_equal(table[names(fixed), "sd"], sqrt(diag(V)), tolerance = 1e-6, info = kind)
    expect_equal(unname(confint(fit)), unname(table[, c("2.5 %", "97.5 %")]), info = kind)
    expect_equal(unname(posterior_interval(fit, prob = 0.95)), unname(confint(fit)), info = kind)
    drawn <- as.matrix(fit, draws = 4000)
    for (name in intersect(rownames(table), colnames(drawn))) {
      label <- paste(kind, name)
      expect_lt(abs(mean(drawn[, name]) - table[name, "mean"]) / table[name, "sd"], 0.1, label = label)
      expect_lt(abs(log(sd(drawn[, name]) / table[name, "sd"])), 0.15, label = label)
    }
    # what the help page promises of every fit: the approximation, and its parts
    expect_identical(length(fit$mu), nrow(fit$Sigma), info = kind)
    expect_equal(unname(fit$sd), sqrt(diag(unname(fit$Sigma %*% fit$Sigma))), tolerance = 1e-6, info = kind)
    expect_identical(dimnames(fit$Sigma), list(names(fit$mu), names(fit$mu)), info = kind)
    first <- rownames(table)[1]
    q <- q_quantile(fit, first, c(0.2, 0.7))
    expect_equal(q_probability(fit, first, q), c(0.2, 0.7), tolerance = 1e-6, info = kind)
  }
})

test_that("every fit prints what was fitted, its estimates, and how it was solved", {
  skip_on_cran()
  for (kind in contract_names()) {
    text <- capture.output(print(contract_fit(kind)))
    at <- grep("^(Posterior|Prior) mean and standard deviation", text)
    expect_length(at, 1)
    expect_match(text[at + 1], "mean +sd", info = kind)
    expect_true(any(grepl("[Cc]onverged|CONVERGED|Run |Laplace approximation|This is the prior", text[-seq_len(at)])), info = kind)
    expect_output(print(summary(contract_fit(kind))), "2.5 %", info = kind)
  }
})

test_that("a fit that is saved and read again gives the same answers", {
  skip_on_cran()
  for (kind in half_of(contract_names(), 1)) {
    fit <- contract_fit(kind)
    again <- unserialize(serialize(fit, NULL))
    expect_identical(coef(again), coef(fit), info = kind)
    expect_identical(vcov(again), vcov(fit), info = kind)
    expect_identical(as.matrix(again, draws = 5), as.matrix(fit, draws = 5), info = kind)
  }
})

test_that("predict() agrees with draws, and draws of different verbs belong together", {
  skip_on_cran()
  d <- contract_data()
  for (kind in Filter(function(kind) !has_classes(contract_fit(kind)), half_of(regression_names(), 2))) {   # of classes: test-family-ordinal.R
    fit <- contract_fit(kind)
    new <- d[c(2, 5, 40, 77), ]
    eta <- posterior_linpred(fit, new, draws = 4000)
    mu <- posterior_epred(fit, new, draws = 4000)
    # the mean of some depends on more than the predictor
    if (!kind %in% c("inflated", "truncated", "hurdle")) expect_identical(unname(mu), unname(array(family(fit)$linkinv(eta), dim(eta))), info = kind)
    for (type in c("link", "response")) {
      drawn <- if (type == "link") eta else mu
      at <- predict(fit, new, type = type, se.fit = TRUE)
      label <- paste(kind, type)
      expect_lt(max(abs(colMeans(drawn) - at$fit) / at$se.fit), 0.1, label = label)
      expect_lt(max(abs(log(apply(drawn, 2L, sd) / at$se.fit))), 0.15, label = label)
      limits <- predict(fit, new, type = type, interval = "credible", level = 0.8)[, c("lwr", "upr")]
      expect_lt(max(abs(t(apply(drawn, 2L, quantile, c(0.1, 0.9))) - limits) / at$se.fit), 0.15, label = label)
    }
    # the mean of new responses is the expected one
    y <- posterior_predict(fit, new, draws = 4000)
    expect_lt(max(abs(colMeans(y - mu)) / (apply(y - mu, 2L, sd) / sqrt(4000))), 5, label = kind)
    # a shorter call gives the first rows of a longer one
    expect_equal(posterior_linpred(fit, new, draws = 5), eta[1:5, , drop = FALSE], info = kind)
    if (!length(fit$groups)) {
      b <- as.matrix(fit, draws = 5)[, seq_len(ncol(model.matrix(fit))), drop = FALSE]
      expect_equal(unname(posterior_linpred(fit, draws = 5)), unname(b %*% t(model.matrix(fit))), info = kind)
    }
  }
})

test_that("groups can be left out under either name, also where there are none", {
  skip_on_cran()
  d <- contract_data()[1:3, ]
  for (kind in union("groups", half_of(regression_names(), 2))) {
    fit <- contract_fit(kind)
    calls <- list(function(...) predict(fit, d, ...), function(...) posterior_linpred(fit, d, draws = 4, ...),
                  function(...) posterior_epred(fit, d, draws = 4, ...), function(...) posterior_predict(fit, d, draws = 4, ...),
                  function(...) log_lik(fit, d, draws = 4, ...), function(...) simulate(fit, 2, seed = 1, ...))
    if (is_prior(fit)) calls <- calls[-1]   # effects have mean 0
    for (call in calls) {
      expect_identical(call(re_formula = NA), call(re.form = NA), info = kind)
      expect_identical(call(re_formula = NULL), call(), info = kind)
      expect_identical(identical(call(re.form = NA), call()), !any(has_levels(fit$groups)), info = kind)
    }
  }
})
