# Invented targets of many parameters with known moments: elvi's answer, and what it says of it.
#
#   Rscript bench/targets.R [largest dimension] [pattern of names]
#
# Good is: every known mean within 0.3 sd, every known sd within a factor of 1.5. A fit assures when it converged and its verdict has no
# objection; a false assurance is one of a fit that is not good, a false alarm an objection to one that is.
suppressMessages(library(elvi))
source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))), "../tests/testthat/helper-wide.R"))
args <- commandArgs(TRUE)
largest <- if (length(args)) as.numeric(args[1]) else 6000
pattern <- if (length(args) > 1) args[2] else ""

# 2 independent parts: a funnel's mouth and neck, and d - 1 normal parameters of that scale
funnel <- function(d, s = 0.5) {
  list(dim = d, value = function(x) x[1]^2 / (2 * s^2) + sum(x[-1]^2) * exp(-2 * x[1]) / 2 + (d - 1) * x[1],
       gradient = function(x) c(x[1] / s^2 - sum(x[-1]^2) * exp(-2 * x[1]) + d - 1, x[-1] * exp(-2 * x[1])),
       mean = numeric(d), sd = c(s, rep(exp(s^2), d - 1)))
}

targets <- list(
  "log-gamma 200" = function() log_gamma(200), "log-gamma 1000" = function() log_gamma(1000), "walk 2000" = function() walk(2000),
  "walk 5000" = function() walk(5000), "funnel 10" = function() funnel(10), "funnel 50" = function() funnel(50),
  "groups 50" = function() normal_groups(50), "groups 500" = function() normal_groups(500), "groups 5000" = function() normal_groups(5000))

cat("| target | d | evaluations | CPU s | mean off, sd | sd off, factor | good | assures |\n|---|---|---|---|---|---|---|---|\n")
for (name in grep(pattern, names(targets), value = TRUE)) {
  t <- targets[[name]]()
  if (t$dim > largest) next
  set.seed(1)
  said <- FALSE
  time <- system.time(fit <- withCallingHandlers(elvi(model_density(t$value, t$gradient, dim = t$dim, names = t$names), tol = NULL),
                                                 warning = function(w) {
                                                   said <<- TRUE
                                                   invokeRestart("muffleWarning")
                                                 }, message = function(m) invokeRestart("muffleMessage")))
  table <- summary(fit)$table
  known <- if (is.null(t$names)) seq_len(t$dim) else t$names[seq_along(t$mean)]
  off <- max(abs(table[known, 1] - t$mean) / t$sd)
  factor <- max(exp(abs(log(table[known, 2] / t$sd))))
  good <- off < 0.3 && factor < 1.5
  cat(sprintf("| %s | %d | %s | %.1f | %.2f | %.2f | %s | %s |\n", name, as.integer(t$dim),
              format(as.numeric(c(fit$account$evaluations, fit$nested$evaluations, fit$state$evals))[1], big.mark = ","), sum(time[1:2]), off, factor,
              if (good) "yes" else "no", if (isFALSE(fit$converged) || said) "no" else "yes"))
}
