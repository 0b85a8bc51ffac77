# calibrate() on every family, with and without (1 | g): 300 replications each, a batch at a time into a file, so that a run that was
# stopped goes on where it ended.
#
#   nice -n 15 Rscript bench/calibrate-families.R [replications, 300] [file, calibrate-families.rds] [pattern of models]
#
# Data are simulated from draws of a fit to 40 rows and fitted again. One line a model: how much of 50 and 90 % intervals hold the drawn
# value over all parameters, the smallest p of a parameter after adjusting for their number (Kolmogorov's test of PIT values, Holm),
# and CPU seconds of a refit. piecewise_exponential() is not among them: calibrate() refuses it.
suppressMessages(library(elvi))
args <- commandArgs(TRUE)
wanted <- if (length(args) > 0) as.integer(args[1]) else 300L
file <- if (length(args) > 1) args[2] else "calibrate-families.rds"
pattern <- if (length(args) > 2) args[3] else ""
batch <- 25L

set.seed(28)
n <- 40
d <- data.frame(x = rnorm(n), g = factor(rep(1:8, 5)))
eta <- 0.4 + 0.5 * d$x + rnorm(8, 0, 0.4)[d$g]
d$number <- eta + 0.5 * rt(n, 6)
d$hit <- rbinom(n, 1, plogis(eta))
d$hits <- rbinom(n, 6, rbeta(n, 4 * plogis(eta), 4 * plogis(-eta)))
d$size <- rlnorm(n, eta, 0.5)
d$count <- rnbinom(n, size = 2, mu = exp(eta))
d$seen <- qnbinom(runif(n, dnbinom(0, size = 2, mu = exp(eta)), 1), size = 2, mu = exp(eta))
d$zeros <- ifelse(runif(n) < 0.3, 0, d$count)
d$share <- rbeta(n, 5 * plogis(eta), 5 * plogis(-eta))
d$class <- factor(cut(eta + rlogis(n), c(-Inf, 0, 1.2, Inf), labels = c("low", "middle", "high")), ordered = TRUE)
d$kind <- factor(as.character(d$class))

cases <- list(
  cauchit = list("hit", binomial("cauchit")), truncated_poisson = list("seen", truncated_poisson()),
  truncated_negbinomial = list("seen", truncated_negbinomial()), neg_binomial_2 = list("count", neg_binomial_2()),
  lognormal = list("size", lognormal()), "Gamma, log" = list("size", Gamma("log")), "Gamma, inverse" = list("size", Gamma()),
  inverse.gaussian = list("size", inverse.gaussian("log")), weibull = list("size", weibull()),
  "gaussian, log" = list("size", gaussian("log")),
  robust = list("number", robust()), student = list("number", student()), Beta = list("share", Beta()),
  beta_binomial = list("cbind(hits, 6 - hits)", beta_binomial()), cumulative = list("class", cumulative()),
  sratio = list("class", sratio()),
  cratio = list("class", cratio()), acat = list("class", acat()), categorical = list("kind", categorical()),
  zero_inflated_poisson = list("zeros", zero_inflated_poisson()), hurdle_poisson = list("zeros", hurdle_poisson()),
  zero_inflated_negbinomial = list("zeros", zero_inflated_negbinomial()), hurdle_negbinomial = list("zeros", hurdle_negbinomial()),
  "gaussian, dispformula" = list("number", gaussian(), ~ x), "Beta, dispformula" = list("share", Beta(), ~ x))

fit_case <- function(case, groups) {
  formula <- stats::as.formula(paste(case[[1L]], "~ x", if (groups) "+ (1 | g)"))
  # proper priors about as wide as the data, so that simulated data are fitted in the same way
  call <- list(formula, data = d, family = case[[2L]], prior = normal(0, 1), prior_intercept = normal(0, 1))
  if (length(case) > 2L) call$dispformula <- case[[3L]]
  suppressWarnings(do.call(elvi, call))
}

# a further batch: draws, ranks and coverage of `batch` replications under a seed of its own
one_batch <- function(fit, from) {
  started <- sum(proc.time()[1:2])
  out <- suppressWarnings(calibrate(fit, n = batch, seed = 1000 + from, progress = FALSE))
  list(pit = as.matrix(out$pit[setdiff(names(out$pit), "replication")]), seconds = (sum(proc.time()[1:2]) - started) / batch)
}

report <- function(name, batches) {
  pit <- do.call(rbind, lapply(batches, `[[`, "pit"))
  p <- stats::p.adjust(apply(pit, 2L, function(u) suppressWarnings(stats::ks.test(u[!is.na(u)], "punif")$p.value)), "holm")
  within <- function(level) 100 * mean(abs(pit - 0.5) < level / 2, na.rm = TRUE)
  cat(sprintf("%-38s %4d replications: %4.1f %% in 50 %%, %4.1f %% in 90 %%, smallest p %.3f (%s), %.2f s a refit\n", name, nrow(pit),
              within(0.5), within(0.9), min(p), names(which.min(p)), mean(vapply(batches, `[[`, 0, "seconds"))))
}

done <- if (file.exists(file)) readRDS(file) else list()
models <- expand.grid(groups = c(FALSE, TRUE), case = names(cases), stringsAsFactors = FALSE)
models <- models[order(models$groups), ]
models$name <- paste0(models$case, ifelse(models$groups, ", (1 | g)", ""))
models <- models[grepl(pattern, models$name), ]
# Everything a little before anything much, so that what is stopped says something of all models.
for (goal in unique(pmin(c(50L, 150L, wanted), wanted))) for (k in seq_len(nrow(models))) {
  name <- models$name[k]
  fit <- NULL
  while (length(done[[name]]) * batch < goal) {
    if (is.null(fit)) {
      set.seed(1)   # of the fit's draws
      fit <- fit_case(cases[[models$case[k]]], models$groups[k])
    }
    done[[name]] <- c(done[[name]], list(one_batch(fit, length(done[[name]]))))
    saveRDS(done, file)
  }
  report(name, done[[name]])
}
