# Many hyperparameters: points, CPU time against lmer and gam, and error against the same rule with ten times the points.
# Rscript bench/terms.R [model ...]; all but `twenty` take about three minutes.

suppressMessages(library(elvi))

smooth_data <- function(n, p) {   # as mgcv::gamSim(1) does, with more covariates
  set.seed(1)
  x <- matrix(runif(n * p), n, dimnames = list(NULL, paste0("x", seq_len(p) - 1L)))
  f <- 2 * sin(pi * x[, 1]) + exp(2 * x[, 2]) + 0.2 * x[, 3]^11 * (10 * (1 - x[, 3]))^6 + 10 * (10 * x[, 3])^3 * (1 - x[, 3])^10
  data.frame(y = f + 2 * rnorm(n), x)
}

crossed_data <- function(n, levels, sd, draw) {
  set.seed(1)
  d <- data.frame(lapply(levels, function(k) factor(sample(k, n, TRUE))))
  names(d) <- paste0("g", seq_along(levels))
  d$y <- draw(Reduce(`+`, Map(function(g, k, s) s * rnorm(k)[g], d, levels, sd)))
  d
}

slope_data <- function(groups = 60, size = 20) {
  set.seed(1)
  g <- factor(rep(seq_len(groups), each = size))
  x <- matrix(rnorm(groups * size * 3), ncol = 3, dimnames = list(NULL, c("x1", "x2", "x3")))
  u <- matrix(rnorm(groups * 4), groups) %*% chol(0.3 + 0.5 * diag(4)) * 0.7
  data.frame(y = rowSums(cbind(1, x) * u[g, ]) + x[, 1] + rnorm(groups * size), x, g = g)
}

formula_of <- function(terms) stats::as.formula(paste("y ~ 1 +", paste(terms, collapse = " + ")))
smooths <- function(p) formula_of(paste0("s(x", seq_len(p) - 1L, ")"))
groups <- function(p) formula_of(paste0("(1 | g", seq_len(p), ")"))
lmer <- function(formula, data) suppressMessages(suppressWarnings(lme4::lmer(formula, data)))
gam <- function(formula, data) mgcv::gam(formula, data = data, method = "REML")

models <- list(
  sleepstudy = list(Reaction ~ Days + (Days | Subject), function() lme4::sleepstudy, gaussian(), lmer),
  Oats = list(yield ~ nitro + (1 | Block) + (1 | Block:Variety),
              function() transform(nlme::Oats, Block = factor(Block, ordered = FALSE)), gaussian(), lmer),
  smooths4 = list(smooths(4), function() smooth_data(400, 4), gaussian(), gam),
  smooths8 = list(smooths(8), function() smooth_data(400, 8), gaussian(), gam),
  slopes4 = list(y ~ x1 + x2 + x3 + (x1 + x2 + x3 | g), function() slope_data(), gaussian(), lmer),
  crossed6 = list(groups(6), function() crossed_data(150, rep(8, 6), c(0.5, 0.5, 0.5, 0, 0, 0), function(e) rpois(150, exp(0.5 + e))),
                  poisson(), function(formula, data) suppressMessages(lme4::glmer(formula, data, family = poisson()))),
  cbpp = list(cbind(incidence, size - incidence) ~ period + (1 | herd), function() lme4::cbpp, binomial(),
              function(formula, data) lme4::glmer(formula, data, family = binomial())),
  twenty = list(groups(19), function() crossed_data(800, 6 + 1:19, (1:19 %% 4) / 4, function(e) e + rnorm(800)), gaussian(), lmer))

cpu <- function(code) sum(system.time(code)[c("user.self", "sys.self")])

# ten times the points of the fit, or of the rule's first step where it is another rule
with_more_points <- function(points, code) {
  number <- elvi:::score_number
  utils::assignInNamespace("score_number", function(setup) list(first = points, most = points, enough = 0), "elvi")
  on.exit(utils::assignInNamespace("score_number", number, "elvi"))
  code
}

row_of <- function(name) {
  model <- models[[name]]
  data <- model[[2L]]()
  fit <- function(...) suppressWarnings(elvi(model[[1L]], data, family = model[[3L]], ...))
  small <- fit()
  other <- model[[4L]](model[[1L]], data)
  times <- replicate(if (name == "twenty") 1L else 3L, c(cpu(fit()), cpu(model[[4L]](model[[1L]], data))))
  K <- length(small$posterior$weight)
  large <- if (small$posterior$hyper$rule == "scores") {
    if (name != "twenty") with_more_points(min(10 * K, 8000), fit())
  } else fit(control = elvi_control(nodes = 60))
  error <- c(NA, NA)
  if (!is.null(large)) {
    here <- elvi:::posterior_moments(small$posterior)
    there <- elvi:::posterior_moments(large$posterior)
    error <- c(max(abs(here$mean - there$mean) / there$sd), max(abs(here$sd / there$sd - 1)))
  }
  change <- unlist(small$nested$change)
  cat(sprintf("%-11s %2d hyperparameters %5d points %5.2f s CPU, %4.1f x; means %.3f sd (reported %.3f), sds %.1f %% (reported %.1f %%)\n", name,
              ncol(small$posterior$hyper$theta), K, stats::median(times[1L, ]), stats::median(times[1L, ] / times[2L, ]), error[1L],
              change[["mean"]], 100 * error[2L], 100 * change[["sd"]]))
}

asked <- commandArgs(TRUE)
for (name in if (length(asked)) asked else setdiff(names(models), "twenty")) row_of(name)
