# calibrate() on these models: are posteriors as wide as they should be, in every parameter?
#
#   Rscript bench/calibrate.R [replications, 400] [processes, 1] [pattern of models] [folder for plots]
#
# One line a model and source of parameters: how much of 50, 90 and 95 % intervals hold the drawn value, over all parameters
# (Monte Carlo error of the 90 % one beside it), the smallest p of a parameter after adjusting for their number, and which
# parameters leave the simultaneous band. Seconds are elapsed ones.
suppressMessages(library(elvi))
args <- commandArgs(TRUE)
n <- if (length(args) > 0) as.integer(args[1]) else 400L
cores <- if (length(args) > 1) as.integer(args[2]) else 1L
pattern <- if (length(args) > 2) args[3] else ""
folder <- if (length(args) > 3) args[4]

set.seed(27)
small <- data.frame(matrix(rnorm(15 * 3), 15, dimnames = list(NULL, c("a", "b", "c"))))
small$y <- rbinom(15, 1, plogis(0.3 + small$a))
cells <- data.frame(cell = factor(letters[1:5]), count = c(1, 3, 6, 19, 108))
lines <- data.frame(x = rnorm(25), z = rnorm(25))
lines$y <- 1 + 0.5 * lines$x + rnorm(25)
lines$size <- rgamma(25, 2, 2 / exp(0.5 + 0.4 * lines$x))
lines$count <- rnbinom(25, mu = exp(0.5 + 0.4 * lines$x), size = 1.5)
times <- data.frame(x = rnorm(40))
times$time <- rweibull(40, 1.5, exp(0.3 + 0.5 * times$x))
times$seen <- as.integer(times$time < 1)
times$time <- pmin(times$time, 1)
curve <- data.frame(x = runif(40))
curve$y <- sin(6 * curve$x) + rnorm(40, 0, 0.4)

grouped <- data.frame(x = rnorm(48), g = factor(rep(1:8, 6)))
grouped$eta <- 0.4 + 0.5 * grouped$x + rnorm(8, 0, 0.5)[grouped$g]
grouped$hits <- rbinom(48, 6, rbeta(48, 4 * plogis(grouped$eta), 4 * plogis(-grouped$eta)))
grouped$size <- rlnorm(48, grouped$eta, 0.5)
grouped$count <- qnbinom(runif(48, dnbinom(0, size = 2, mu = exp(grouped$eta)), 1), size = 2, mu = exp(grouped$eta))
grouped$class <- cut(grouped$eta + rlogis(48), c(-Inf, 0, 1.2, Inf), labels = FALSE)

models <- list(
  "logit, n = 15, p = 4" = function() elvi(y ~ a + b + c, small, family = binomial()),
  "poisson, thin cells" = function() elvi(count ~ cell, cells, family = poisson()),
  "gaussian" = function() elvi(y ~ x + z, lines),
  "Gamma" = function() elvi(size ~ x, lines, family = Gamma("log")),
  "negative binomial" = function() elvi(count ~ x, lines, family = neg_binomial_2()),
  "weibull, censored" = function() elvi(survival::Surv(time, seen) ~ x, times, family = weibull()),
  "cbpp, (1 | herd)" = function() {
    elvi(cbind(incidence, size - incidence) ~ period + (1 | herd), lme4::cbpp, family = binomial(), prior = normal(0, 1.5),
         prior_intercept = normal(0, 1.5))
  },
  "gaussian, s(x)" = function() elvi(y ~ s(x), curve),
  "lognormal" = function() elvi(size ~ x, grouped, family = lognormal()),
  "lognormal, (1 | g)" = function() elvi(size ~ x + (1 | g), grouped, family = lognormal()),
  "beta_binomial" = function() elvi(cbind(hits, 6 - hits) ~ x, grouped, family = beta_binomial()),
  "beta_binomial, (1 | g)" = function() elvi(cbind(hits, 6 - hits) ~ x + (1 | g), grouped, family = beta_binomial()),
  "truncated_negbin" = function() elvi(count ~ x, grouped, family = truncated_negbinomial()),
  "truncated_negbin, (1 | g)" = function() elvi(count ~ x + (1 | g), grouped, family = truncated_negbinomial()),
  "sratio" = function() elvi(class ~ x, grouped, family = sratio()),
  "sratio, (1 | g)" = function() elvi(class ~ x + (1 | g), grouped, family = sratio()))

run <- function(name, from) {
  fit <- suppressWarnings(models[[name]]())
  # calibrate() draws no parameters of these families from their priors
  if (from == "prior" && fit$family$family %in% c("lognormal", "beta_binomial", "truncated_negbinomial", "sratio")) return(invisible())
  out <- calibrate(fit, n = n, from = from, seed = 1, cores = cores, progress = FALSE)
  if (!is.null(folder)) {
    file <- file.path(folder, paste0(gsub("[^a-z0-9]+", "-", tolower(name)), "-", from, ".png"))
    ggplot2::ggsave(file, ggplot2::autoplot(out), width = 8, height = 6, dpi = 80)
  }
  all <- out$coverage[out$coverage$parameter == "(all)", ]
  outside <- out$test$parameter[out$test$outside]
  cat(sprintf("| %-20s | %-9s | %2d | %.1f | %.1f (%.1f) | %.1f | %-6s | %s | %d | %d | %.0f |\n", name, from, nrow(out$test),
              100 * all$coverage[1], 100 * all$coverage[2], 100 * all$mc_error[2], 100 * all$coverage[3],
              format(min(out$test$adjusted), digits = 2), if (length(outside)) toString(outside) else "none",
              nrow(out$failures), nrow(out$warnings), out$seconds))
}

cat("| model | from | parameters | 50 % | 90 % (error) | 95 % | smallest adjusted p | outside the band | failed | warned | s |\n")
cat("|---|---|---|---|---|---|---|---|---|---|---|\n")
for (name in grep(pattern, names(models), value = TRUE)) for (from in c("posterior", "prior")) run(name, from)
