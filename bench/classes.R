# categorical() against importance sampling of the same posterior (means in sds, sds as ratios; 20,000 draws of a student
# proposal at the mode), and CPU time as a ratio to nnet::multinom(). Rscript bench/classes.R; about half a minute of CPU time.

suppressMessages(library(elvi))

reference <- function(problem, draws = 20000L) {
  rows <- problem$rows
  L <- length(problem$family$levels) - 1L
  p <- ncol(rows$X) / L
  shift <- if (is.null(rows$shift)) numeric(p) else rows$shift[seq_len(p)]
  X <- sweep(rows$X[, seq_len(p)], 2L, shift)
  observed <- outer(rows$y, seq_len(L) + 1, "==")
  joint <- problem$priors$joint
  log_p <- function(v) {
    eta <- X %*% matrix(v, p)
    sum(rows$weight * (rowSums(eta * observed) - log1p(rowSums(exp(eta))))) + sum(dnorm(v, joint$location, joint$scale, log = TRUE))
  }
  mode <- optim(numeric(L * p), log_p, method = "BFGS", control = list(fnscale = -1, maxit = 500), hessian = TRUE)
  root <- chol(solve(-mode$hessian))
  set.seed(1)
  z <- matrix(rt(L * p * draws, 7), draws)
  v <- rep(mode$par, each = draws) + z %*% root
  log_w <- apply(v, 1L, log_p) - rowSums(dt(z, 7, log = TRUE))
  w <- exp(log_w - max(log_w))
  w <- w / sum(w)
  for (l in seq_len(L)) {   # intercepts of predictors that are not centred
    at <- (l - 1L) * p
    v[, at + 1L] <- v[, at + 1L] - v[, at + seq_len(p)[-1L], drop = FALSE] %*% shift[-1L]
  }
  mean <- colSums(w * v)
  list(mean = mean, sd = sqrt(colSums(w * sweep(v, 2L, mean)^2)), effective = 1 / sum(w^2) / draws)
}

cpu <- function(run, repeats = 3L) {
  run()   # once to load and to compile
  median(replicate(repeats, sum(system.time(run())[1:2])))
}

cases <- list(
  housing = list(formula = factor(Sat, ordered = FALSE) ~ Infl + Cont, data = MASS::housing, weights = MASS::housing$Freq),
  infert = list(formula = education ~ age + parity + induced, data = infert, weights = rep(1, nrow(infert))))

for (name in names(cases)) {
  case <- cases[[name]]
  case$data$w <- case$weights
  environment(case$formula) <- globalenv()
  fit_call <- function() do.call(elvi, list(case$formula, data = case$data, family = categorical(), weights = quote(w)))
  fit <- fit_call()
  ref <- reference(do.call(elvi_problem, list(case$formula, data = case$data, family = categorical(), weights = quote(w))))
  peer <- function() do.call(nnet::multinom, list(case$formula, data = case$data, weights = quote(w), Hess = TRUE, trace = FALSE))
  words <- "%-8s means within %.3f sd, sds within %.1f %% (%.0f %% effective draws); %.1f times the CPU time of nnet::multinom()\n"
  cat(sprintf(words, name, max(abs(coef(fit) - ref$mean) / ref$sd), 100 * max(abs(sqrt(diag(vcov(fit))) / ref$sd - 1)),
              100 * ref$effective,
              cpu(fit_call) / cpu(peer)))
}
