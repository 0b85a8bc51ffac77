#' Simulation-based calibration of a regression
#'
#' Do 90 % intervals of this model, for these predictors, cover 90 % of the true values? `calibrate()` draws parameters, simulates
#' responses from them, fits the model again and computes where the drawn parameters lie in the new posterior. If the posterior is right,
#' they lie anywhere in it with equal probability.
#'
#' The position of a drawn parameter is its PIT value (probability integral transform): the probability that the new posterior
#' gives to smaller values. If the posterior is right, PIT values are uniform on (0, 1). Too many values near 0 and 1 mean that
#' the posterior is too narrow. Too many near 0.5 mean that it is too wide, and too many on one side that it is biased.
#'
#' @section What is simulated:
#' * `from = "posterior"`: parameters are drawn from the posterior of the fit, effects of groups included. Responses are
#'   simulated for the rows of the data, and the model is fitted to observed and simulated responses together. This tests the
#'   parameter values that matter for these data, and needs no proper prior (Säilynoja and others 2025). The refits have twice
#'   the rows; the test is of the posterior of the fit and of those of the refits together.
#' * `from = "prior"`: parameters are drawn from the prior as the fit used it, and the model is fitted to the simulated
#'   responses alone (Talts and others 2018). Priors must be proper. Wide priors often simulate unrealistic responses.
#'
#' Refits have the design, offset, trials, weights and priors of the fit, as the fit used them: nothing is rescaled to simulated
#' responses. A row that counts several times (`frequency`, or `weights` of most families) is simulated as often. Simulated times are
#' not censored.
#'
#' @section Which parameters:
#' By default all coefficients (20 of them, if there are more), standard deviations, correlations and dispersion, three of the
#' effects of groups or smooths, and three expected responses: of the rows with the smallest, the middle and the largest linear
#' predictor, as `mu[row]`.
#'
#' @section The test:
#' The distribution function of the PIT values of a parameter is compared with the uniform one at up to 100 points. The band has a
#' simultaneous level, by the exact algorithm of Säilynoja, Bürkner and Vehtari (2022): a calibrated parameter stays
#' inside everywhere with probability 95 %. `p` is the smallest level at which the PIT values leave the band. `adjusted` is `p` times the
#' number of parameters (Bonferroni), and the band of `print()` and `plot()` is adjusted likewise.
#'
#' Passing the test proves nothing: few replications detect only large departures. The Monte Carlo errors in the table say how large.
#'
#' @param fit a fit by [elvi()] from a formula, with its data in memory.
#' @param n number of replications, at least 10.
#' @param from `"posterior"` or `"prior"`.
#' @param pars optional names or numbers of the parameters to test, as in [summary()][elvi_fit].
#' @param seed optional number, as for [set.seed()]: the same seed gives the same answer, whatever `cores` is, and R's generator does not
#'   change. Without a seed, one is drawn from it.
#' @param cores number of processes of package 'parallel': forked ones, on Windows a cluster of R sessions.
#' @param progress show progress when it takes more than two seconds?
#' @param x,object what `calibrate()` returned.
#' @param ... passed on from `plot()` to `autoplot()`; otherwise nothing.
#' @return An object of class `elvi_calibration`, a list with
#' * `pit`: a data frame with a row for each replication, its number and the PIT value of each parameter;
#' * `coverage`: a data frame with the share of 50, 90 and 95 % intervals that hold the drawn value, for each parameter and
#'   for all of them. `mc_error` is the Monte Carlo standard error: of a single parameter, that of the nominal level;
#' * `test`: a data frame with `p` and `adjusted` of each parameter, and whether it leaves the adjusted 95 % band;
#' * `failures` and `warnings`: data frames with the number and the message of replications whose refit failed, which are left
#'   out of the rest, or gave a warning;
#' * `n`, `from`, `formula`, `family`, `interrupted` and `seconds`.
#'
#' An interrupt ends the simulation and returns the replications so far, if there are at least 10.
#' @references Säilynoja, T., Bürkner, P.-C. and Vehtari, A. (2022) Graphical test for discrete uniformity and its applications
#' in goodness-of-fit evaluation and multiple sample comparison. *Statistics and Computing* 32, 32.
#' \doi{10.1007/s11222-022-10090-6}
#'
#' Säilynoja, T., Schmitt, M., Bürkner, P.-C. and Vehtari, A. (2025) Posterior SBC: simulation-based calibration checking conditional on
#' data. \doi{10.48550/arXiv.2502.03279}
#'
#' Talts, S., Betancourt, M., Simpson, D., Vehtari, A. and Gelman, A. (2018) Validating Bayesian inference algorithms with
#' simulation-based calibration. \doi{10.48550/arXiv.1804.06788}
#' @seealso [pareto_k()] and [loo()][loo.elvi_fit], which judge a single fit.
#' @examples
#' fit <- elvi(am ~ wt, data = mtcars, family = binomial())
#' checked <- calibrate(fit, n = 20, seed = 1)
#' checked
#' checked$coverage
#' \donttest{
#' checked <- calibrate(fit, seed = 1)
#' if (requireNamespace("ggplot2", quietly = TRUE)) plot(checked)
#' }
#' @export
calibrate <- function(fit, n = 200, from = c("posterior", "prior"), pars = NULL, seed = NULL, cores = 1,
                      progress = interactive()) {
  check_class(fit, "fit", "elvi_glm", "elvi() from a formula")
  refuse_prior(fit, "fit", "it is refitted to simulated responses, from = \"prior\" too")
  from <- check_choice(from, "from", c("posterior", "prior"))
  n <- check_count(n, "n", lower = fewest_replications)
  cores <- check_count(cores, "cores")
  progress <- check_flag(progress, "progress")
  if (cores > 1) need_package("parallel", "`cores`")
  plan <- calibration_plan(fit, from, pars, if (is.null(seed)) draw_key() else key_of_seed(seed))
  started <- proc.time()[["elapsed"]]
  ran <- run_replications(plan, n, cores, if (progress) patient_voice())
  new_calibration(plan, n, ran, proc.time()[["elapsed"]] - started)
}

fewest_replications <- 10L

# ---- what to simulate and to look at --------------------------------------------------------------------

# All that a replication needs. `design` is shared by the refits, `looked_at` are the quantities with PIT values.
calibration_plan <- function(fit, from, pars, key) {
  if (is_out_of_memory(fit)) bad_argument("fit", "a fit with its data in memory", "one with out-of-memory data")
  if (!is.null(fit$pieces)) {
    refuse_argument("fit", "`fit`: calibrate() does not support piecewise_exponential(), as simulated times would change the rows ",
                    "of the design.")
  }
  if (from == "prior" && is_nested_only(fit$family) && length(family_parameter_names(fit))) {
    bad_argument("from", paste0("\"posterior\" for a fit with ", fit$family$family, "()"), "\"prior\"")
  }
  if (from == "prior") check_proper_priors(fit)
  counts <- row_counts(fit) %||% rep(1, nobs.elvi_glm(fit))
  if (any(counts %% 1 != 0)) {
    elvi_abort("`fit` has rows that count a fractional number of times (weights or frequency), so that responses cannot be ",
               "simulated. Calibration needs whole numbers.", class = "elvi_error_argument", data = list(argument = "fit"))
  }
  rows <- prediction_rows(fit, NULL)
  design <- list(rows = rows, counts = counts, trials = response_trials(fit), precision = precisions(fit),
                 y = observed_response(fit), simulated = rep(seq_along(counts), counts),
                 shift = if (!is.null(fit$posterior$shift)) -colSums(fit$posterior$shift$by)[fit$posterior$coefficients],
                 control = refit_control(fit), correct = call_argument(fit, "correct", TRUE))
  list(fit = fit, from = from, key = key, design = design, looked_at = looked_at(fit, rows, counts, pars))
}

# places of parameters, and a few rows whose predictors stand for expected responses
looked_at <- function(fit, rows, counts, pars) {
  posterior <- fit$posterior
  d <- posterior_dim(posterior)
  if (!is.null(pars)) {
    which <- check_parameters(fit, pars, "pars")
    return(list(which = which, rows = NULL, names = posterior$shown[which]))
  }
  coefficients <- c(posterior$coefficients, if (posterior$logged) posterior$logged)
  effects <- setdiff(seq_len(d), coefficients)
  which <- c(evenly(coefficients, 20L), setdiff(seq_along(posterior$shown), seq_len(d)), evenly(effects, 3L))
  centre <- drop(linear_predictor(fit, rows)$mean %*% posterior$weight)
  counting <- which(counts > 0)
  at <- evenly(counting[order(centre[counting])], 3L)
  list(which = which, rows = chosen_rows(rows, at), names = c(posterior$shown[which], paste0("mu[", rownames(rows$X)[at], "]")))
}

# at most `most` of x, the first and the last among them
evenly <- function(x, most) if (length(x) <= most) x else x[round(seq(1, length(x), length.out = most))]

chosen_rows <- function(rows, at) {
  list(X = rows$X[at, , drop = FALSE], Z = if (!is.null(rows$Z)) rows$Z[at, , drop = FALSE], offset = rows$offset[at], new = list(),
       second = if (!is.null(rows$second)) chosen_rows(rows$second, at),
       lines = if (!is.null(rows$lines)) lapply(rows$lines, chosen_rows, at = at))
}

# ---- replications -----------------------------------------------------------------------------------------

# In rounds, so that an interrupt keeps what is done. Each replication is a function of the plan's key and of its number.
run_replications <- function(plan, n, cores, say) {
  done <- list()
  size <- if (cores > 1) 10 * cores else 1
  workers <- start_workers(cores)
  on.exit(stop_workers(workers))
  interrupted <- tryCatch({
    for (first in seq(1, n, by = size)) {
      round <- first:min(n, first + size - 1)
      done <- c(done, over_workers(workers, round, plan))
      if (!is.null(say)) say(paste("replication", max(round), "of", n))
    }
    FALSE
  }, interrupt = function(e) TRUE)
  list(done = done, interrupted = interrupted)
}

start_workers <- function(cores, fork = .Platform$OS.type == "unix") {
  if (cores == 1) return(list(kind = "own"))
  if (fork) return(list(kind = "fork", cores = cores))
  cluster <- parallel::makePSOCKcluster(cores)
  parallel::clusterCall(cluster, .libPaths, .libPaths())
  list(kind = "cluster", cluster = cluster)
}

stop_workers <- function(workers) if (workers$kind == "cluster") parallel::stopCluster(workers$cluster)

over_workers <- function(workers, numbers, plan) {
  out <- switch(workers$kind,
    own = lapply(numbers, replicate_once, plan),
    fork = parallel::mclapply(numbers, replicate_once, plan, mc.cores = workers$cores, mc.set.seed = FALSE),
    cluster = parallel::parLapply(workers$cluster, numbers, replicate_once, plan))
  Map(function(number, x) if (is.list(x)) x else list(number = number, error = "the process that fitted it ended"), numbers, out)
}

# list(number, pit), or list(number, error); with the first warning
replicate_once <- function(number, plan) {
  said <- NULL
  out <- tryCatch(
    withCallingHandlers(
      suppressMessages(list(number = number, pit = with_key(replication_keys(plan, number)$refit, pit_of_one(plan, number)))),
      warning = function(w) {
        # the fit has warned already
        if (!inherits(w, "elvi_warning_flat_prior")) said <<- said %||% conditionMessage(w)
        invokeRestart("muffleWarning")
      }),
    error = function(e) if (is_time_limit(e)) stop(e) else list(number = number, error = conditionMessage(e)))
  c(out, list(warning = said))
}

# Uniform and independent: the first number of a key picks the quadrature point of a draw, so that keys made by key_for(), which
# move smoothly with a number, will not do.
replication_keys <- function(plan, number) {
  keys <- with_key(plan$key, matrix(stats::runif(6 * number), 6L)[, number])
  keys <- matrix(floor(2^32 * keys), 2L)
  list(parameters = keys[, 1L], responses = keys[, 2L], refit = keys[, 3L])
}

pit_of_one <- function(plan, number) {
  keys <- replication_keys(plan, number)
  drawn <- if (plan$from == "prior") with_key(keys$parameters, prior_draw(plan$fit))
           else posterior_draws(plan$fit$posterior, 1L, keys$parameters)
  y <- with_key(keys$responses, simulated_responses(plan$fit, plan$design, drawn))
  pit_values(refit_posterior(plan$fit, plan$design, y, alone = plan$from == "prior"), plan$looked_at, drawn)
}

# as counts, for the rows that are simulated
simulated_responses <- function(fit, design, drawn) {
  at <- design$simulated
  means <- response_parameters(fit, chosen_rows(design$rows, at), drawn, fit$posterior$key, design$precision[at])
  y <- family_record(fit$family)$draws(means$mu, means$dispersion, design$trials[at], fit$family)
  y <- if (length(dim(y)) == 3L) matrix(y, dim(y)[2L]) else as.double(y)   # counts of classes
  if (!all(is.finite(y))) stop("a simulated response is not finite", call. = FALSE)
  y
}

# ---- refits -----------------------------------------------------------------------------------------------

# The posterior given the observed rows and simulated responses y, or given these alone. The design, with its centring and its smooths,
# and the priors are those of the fit.
refit_posterior <- function(fit, design, y, alone) {
  at <- c(if (!alone) seq_along(design$counts), design$simulated)
  rows <- chosen_rows(design$rows, at)
  trials <- design$trials[at]
  observed <- if (!alone) design$y * design$trials
  if (!is.null(rows$second) || has_shared(fit)) rows[c("X", "Z")] <- sum_of_rows(rows)[c("X", "Z")]
  together <- if (is.matrix(y)) rbind(observed, y) else c(observed, y)
  given <- list(X = rows$X, y = stacked_response(fit, together, trials), offset = rows$offset, weights = design$precision[at],
                frequency = c(if (!alone) design$counts, rep(1, NROW(y))), shift = design$shift)
  checked <- check_rows(given, family_record(fit$family))
  if (!is.null(rows$second) && weights_are_precisions(fit)) checked <- precisions_as_offsets(checked, given)
  problem <- structure(list(call = fit$call, family = fit$family, dispersion = fit$dispersion, shift = design$shift, Z = rows$Z,
                            intercepts = fit$posterior$shift$at,
                            lines = lines_of_fit(fit, checked$offset, (rows$second$offset %||% 0) + (checked$second_offset %||% 0)),
                            rows = checked, terms = fit$groups, priors = fit$priors,
                            regression = fit$regression), class = "elvi_problem")
  refit <- solve_problem(problem, fit$base, fit$method, list(schedule = fit$given$schedule, tol = fit$given$tol), design$control,
                         design$correct)
  # solvers catch an interrupt and return what they have
  if (identical(refit$status, "interrupted")) stop(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  refit$posterior
}

# counts of successes and other responses, as check_response() takes them
stacked_response <- function(fit, y, trials) {
  record <- family_record(fit$family)
  if (is.matrix(y)) return(round(y))
  if (record$trials) return(cbind(round(y), trials - round(y)))
  if (!any(record$display_response(y)$censored)) return(y)
  structure(cbind(time = abs(y), status = y > 0), type = "right", class = "Surv")
}

# an argument of the fit's call
call_argument <- function(fit, name, default) {
  if (is.null(fit$call[[name]])) default else eval(fit$call[[name]], environment(fit$formula))
}

# as the call has it, but silent, and without a checkpoint, which is the fit's own
refit_control <- function(fit) {
  control <- call_argument(fit, "control", elvi_control())
  control$progress <- FALSE
  control["checkpoint"] <- list(NULL)
  control
}

# ---- PIT values ---------------------------------------------------------------------------------------------

# Probabilities of a posterior below drawn parameters, those that are looked at and the predictors of a few rows.
pit_values <- function(posterior, looked_at, drawn) {
  out <- posterior_probability(posterior, looked_at$which, drawn)
  stats::setNames(c(out, row_probability(posterior, looked_at$rows, drawn)), looked_at$names)
}

# the link rises, so that the expected response has the predictor's value
row_probability <- function(posterior, rows, drawn) {
  if (is.null(rows)) return(numeric())
  value <- drop(linpred_draws(rows, list(x = drawn$x, hyper = drawn$hyper), posterior$key))
  linear_probability(posterior, as.matrix(design_columns(rows)), rows$offset, value,
                     linear_predictor(list(posterior = posterior), rows, shapes = TRUE))
}

# ---- draws from the prior -------------------------------------------------------------------------------------

check_proper_priors <- function(fit) {
  structured <- Filter(Negate(is_independent_term), fit$groups)
  if (length(structured)) {
    elvi_abort("from = \"prior\" is not available with the term `", structured[[1L]]$label, "`: its effects cannot be drawn from their ",
               "prior. Use from = \"posterior\".", class = "elvi_error_argument", data = list(argument = "from"))
  }
  flat <- coefficient_names(fit)[rep_len(is.infinite(fit$priors$joint$scale), length(coefficient_names(fit)))]
  aux <- fit$priors$aux
  if (!is.null(aux) && !has_rate(aux) && any(is.infinite(aux$scale))) flat <- c(flat, dispersion_name_of(fit))
  if (!length(flat)) return(invisible())
  elvi_abort("from = \"prior\" needs proper priors, and ", if (length(flat) == 1L) "that of " else "those of ",
             paste0("`", utils::head(flat, 5L), "`", collapse = ", "), if (length(flat) > 5L) ", ...",
             if (length(flat) == 1L) " is" else " are", " flat. Use from = \"posterior\", or give proper priors.",
             class = "elvi_error_argument", data = list(argument = "from"))
}

# one draw in the form of posterior_draws()
prior_draw <- function(fit) {
  posterior <- fit$posterior
  joint <- fit$priors$joint
  x <- matrix(0, posterior_dim(posterior), 1L)
  p <- length(posterior$coefficients)
  x[posterior$coefficients, 1L] <- rep_len(joint$location, p) + rep_len(joint$scale, p) * draw_standard(rep_len(joint$df, p))
  hyper <- numeric()
  for (i in seq_along(fit$groups)) {
    term <- fit$groups[[i]]
    own <- prior_covariance(term, term$prior_sd, fit$priors$cor)
    hyper <- c(hyper, own$hyper)
    k <- length(term$coefs)
    x[p + term$columns, 1L] <- t(own$root) %*% matrix(stats::rnorm(length(term$columns)), k)
  }
  if (!is.null(fit$priors$aux)) {
    aux <- draw_positive(fit$priors$aux)
    if (posterior$logged) x[posterior$logged, 1L] <- log(aux) else hyper <- c(hyper, stats::setNames(aux, dispersion_name_of(fit)))
  }
  list(x = in_user_rows(posterior, x),
       hyper = hyper_row(posterior, hyper))
}

draw_standard <- function(df) stats::qt(stats::runif(length(df)), df)

# hyperparameters of a term, by name, and the upper triangular root of its covariance
prior_covariance <- function(term, prior_sd, prior_cor) {
  k <- length(term$coefs)
  names <- sd_names(term)
  sd <- vapply(seq_along(names), function(j) draw_positive(prior_of_one(prior_sd, j)), 0)
  if (!term$correlated || k == 1L) return(list(hyper = stats::setNames(sd, names), root = diag(rep_len(sd, k), k)))
  L <- draw_lkj_root(k, prior_cor$eta)
  R <- tcrossprod(L)
  lower <- which(lower.tri(R), arr.ind = TRUE)
  correlations <- stats::setNames(R[lower], apply(lower, 1L, function(at) cor_name(term, at[1L], at[2L])))
  list(hyper = c(stats::setNames(sd, names), correlations), root = t(sd * L))
}

# Partial correlations of a vine are independent beta variables (Lewandowski, Kurowicka and Joe, 2009).
draw_lkj_root <- function(k, eta) {
  L <- diag(k)
  left <- rep(1, k)   # variance of each row that is not yet explained
  for (j in seq_len(k - 1L)) {
    below <- (j + 1L):k
    a <- eta + (k - 1 - j) / 2
    partial <- 2 * stats::rbeta(length(below), a, a) - 1
    L[j, j] <- sqrt(left[j])
    L[below, j] <- partial * sqrt(left[below])
    left[below] <- left[below] * (1 - partial^2)
  }
  L[k, k] <- sqrt(left[k])
  L
}

# of a positive parameter, the part of the prior's distribution above 0
draw_positive <- function(prior) {
  if (has_rate(prior)) return((prior$unit %||% 1) * stats::rexp(1L, prior$rate)^(1 / exponent_of(prior)))
  below <- stats::pt(-prior$location / prior$scale, prior$df)
  prior$location + prior$scale * stats::qt(below + (1 - below) * stats::runif(1L), prior$df)
}

# ---- the answer -------------------------------------------------------------------------------------------------

new_calibration <- function(plan, n, ran, seconds) {
  failed <- vapply(ran$done, function(x) !is.null(x$error), NA)
  messages <- function(which, field) {
    data.frame(replication = vapply(ran$done[which], `[[`, 0, "number"), message = vapply(ran$done[which], `[[`, "", field))
  }
  failures <- messages(failed, "error")
  good <- ran$done[!failed]
  if (length(good) < fewest_replications) refuse_too_few(length(good), length(ran$done), failures)
  pit <- do.call(rbind, lapply(good, `[[`, "pit"))
  structure(list(
    pit = data.frame(replication = vapply(good, `[[`, 0, "number"), pit, check.names = FALSE),
    coverage = coverage_table(pit), test = uniformity_table(pit), failures = failures,
    warnings = messages(!failed & vapply(ran$done, function(x) !is.null(x$warning), NA), "warning"),
    n = n, from = plan$from, formula = plan$fit$formula, family = plan$fit$family$family, interrupted = ran$interrupted,
    seconds = seconds), class = "elvi_calibration")
}

refuse_too_few <- function(good, done, failures) {
  elvi_abort("Only ", good, " of ", done, " replications could be fitted, and calibration needs ", fewest_replications, ".",
             if (nrow(failures)) paste0(" The first failure: ", failures$message[1L]), class = "elvi_error_calibration")
}

coverage_levels <- c(0.5, 0.9, 0.95)

# The error of all parameters together is that of replications, within which they depend on each other.
coverage_table <- function(pit) {
  n <- nrow(pit)
  one <- function(level) {
    hit <- abs(pit - 0.5) <= level / 2
    data.frame(parameter = c(colnames(pit), "(all)"), level = level, coverage = c(colMeans(hit), mean(hit)),
               mc_error = c(rep(sqrt(level * (1 - level) / n), ncol(pit)), stats::sd(rowMeans(hit)) / sqrt(n)))
  }
  out <- do.call(rbind, lapply(coverage_levels, one))
  rownames(out) <- NULL
  out
}

uniformity_table <- function(pit, level = 0.95) {
  p <- unname(apply(pit, 2L, uniformity_p))
  adjusted <- pmin(1, ncol(pit) * p)
  data.frame(parameter = colnames(pit), p = p, adjusted = adjusted, outside = adjusted <= 1 - level)
}

# ---- simultaneous bands -------------------------------------------------------------------------------------------
# Säilynoja, Bürkner and Vehtari (2022): counts of PIT values up to each of the points z stay between the binomial quantiles of
# gamma / 2 and 1 - gamma / 2 with a probability that a recursion over the points gives.

band_points <- function(n) {
  K <- min(n, 100L)
  seq_len(K - 1L) / K
}

# counts that are allowed: both tails have more than gamma / 2
band_counts <- function(n, z, gamma) {
  tail <- gamma * (1 + 1e-7) / 2
  list(low = stats::qbinom(tail, n, z), high = n - stats::qbinom(tail, n, 1 - z))
}

# P(all counts of n uniform numbers are within the band)
band_probability <- function(n, z, gamma) {
  band <- band_counts(n, z, gamma)
  if (any(band$low > band$high)) return(0)
  step <- diff(c(0, z)) / (1 - c(0, z[-length(z)]))
  at <- 0
  mass <- 1
  for (i in seq_along(z)) {
    to <- band$low[i]:band$high[i]
    moves <- stats::dbinom(outer(to, at, `-`), rep(n - at, each = length(to)), step[i])
    mass <- drop(matrix(moves, length(to)) %*% mass)
    at <- to
  }
  sum(mass)
}

# the smallest level at which the counts leave their band
uniformity_p <- function(u) {
  n <- length(u)
  z <- band_points(n)
  counts <- findInterval(z, sort(u))
  gamma <- min(1, 2 * stats::pbinom(counts, n, z), 2 * stats::pbinom(counts - 1, n, z, lower.tail = FALSE))
  min(1, max(0, 1 - band_probability(n, z, gamma)))
}

# gamma of a band that holds with at least this probability
band_gamma <- function(n, z, probability) {
  low <- log((1 - probability) / length(z) / 2)
  high <- log(1 - probability)
  for (halving in 1:20) {
    middle <- (low + high) / 2
    if (band_probability(n, z, exp(middle)) >= probability) low <- middle else high <- middle
  }
  exp(low)
}

# ---- print and plot -------------------------------------------------------------------------------------------------

#' @rdname calibrate
#' @export
print.elvi_calibration <- function(x, ...) {
  check_dots(list(...), names(formals()), "print()")
  done <- nrow(x$pit)
  cat("Calibration of ", abbreviated(deparse_one(x$formula)), " (", x$family, "): ", done, " replications ",
      if (x$from == "prior") "from the prior" else "from the posterior, refitted with the observed data", " (",
      format(x$seconds, digits = 2), " s)\n", sep = "")
  all <- x$coverage[x$coverage$parameter == "(all)", ]
  held <- sprintf("%g %% intervals hold %.1f %%", 100 * all$level, 100 * all$coverage)
  cat("Coverage, mean of ", nrow(x$test), " parameter(s): ", paste(held, collapse = ", "),
      sprintf(" (Monte Carlo error %s points)\n", paste(sprintf("%.1f", 100 * all$mc_error), collapse = ", ")), sep = "")
  cat(band_sentence(x$test), "\n", sep = "")
  if (x$interrupted) cat("Interrupted: ", done + nrow(x$failures), " of ", x$n, " replications were made\n", sep = "")
  say_first(x$failures, "failed and are left out", x$n)
  say_first(x$warnings, "gave a warning", x$n)
  invisible(x)
}

band_sentence <- function(test) {
  out <- test[test$outside, ]
  band <- sprintf("the simultaneous 95 %% band (adjusted for %d parameter%s)", nrow(test), if (nrow(test) == 1L) "" else "s")
  if (!nrow(out)) return(paste0("Every parameter stays within ", band, "; smallest adjusted p ", format(min(test$adjusted), digits = 2)))
  out <- utils::head(out[order(out$p), ], 5L)
  paste0("Problem: ", sum(test$outside), " of ", nrow(test), " parameters leave ", band, ": ",
         paste0(out$parameter, " (adjusted p ", format(out$adjusted, digits = 2, trim = TRUE), ")", collapse = ", "),
         if (sum(test$outside) > 5L) ", ...")
}

say_first <- function(what, verb, n) {
  if (nrow(what)) cat(nrow(what), " of ", n, " refits ", verb, "; the first: ", what$message[1L], "\n", sep = "")
}

abbreviated <- function(text, most = 60L) if (nchar(text) > most) paste0(substr(text, 1L, most - 3L), "...") else text

#' @rdname calibrate
#' @exportS3Method ggplot2::autoplot
autoplot.elvi_calibration <- function(object, ...) {
  check_dots(list(...), names(formals()), "autoplot()")
  need_package("ggplot2", "Plotting a calibration")
  data <- ecdf_differences(object)
  names <- object$test$parameter
  data$parameter <- factor(data$parameter, names)
  data$outside <- object$test$outside[data$parameter]
  ggplot2::ggplot(data, ggplot2::aes(x = .data$z)) +
    ggplot2::geom_ribbon(ggplot2::aes(ymin = .data$low, ymax = .data$high), fill = "grey85") +
    ggplot2::geom_hline(yintercept = 0, colour = "grey60") +
    ggplot2::geom_step(ggplot2::aes(y = .data$difference, colour = .data$outside)) +
    ggplot2::scale_colour_manual(values = c(`FALSE` = plot_blue, `TRUE` = "#D55E00"), guide = "none") +
    ggplot2::facet_wrap(ggplot2::vars(.data$parameter), labeller = ggplot2::as_labeller(wrapped_names(names, 22L))) +
    ggplot2::scale_x_continuous(breaks = c(0, 0.5, 1), labels = c("0", "0.5", "1")) +
    ggplot2::labs(x = "PIT value", y = "ECDF minus uniform", subtitle = abbreviated(deparse_one(object$formula)),
                  caption = sprintf("%d replications from the %s; grey: simultaneous 95 %% band, adjusted for %d parameter%s",
                                    nrow(object$pit), object$from, length(names), if (length(names) == 1L) "" else "s")) +
    ggplot2::theme_minimal()
}

#' @rdname calibrate
#' @export
plot.elvi_calibration <- function(x, ...) {
  need_package("ggplot2", "Plotting a calibration")
  p <- autoplot.elvi_calibration(x, ...)
  print(p)
  invisible(p)
}

# ECDF minus z at the points of the test, with the adjusted band, for each parameter
ecdf_differences <- function(x) {
  n <- nrow(x$pit)
  z <- band_points(n)
  band <- band_counts(n, z, band_gamma(n, z, 1 - 0.05 / nrow(x$test)))
  one <- function(name) {
    data.frame(parameter = name, z = c(0, z, 1), difference = c(0, findInterval(z, sort(x$pit[[name]])) / n - z, 0),
               low = c(0, band$low / n - z, 0), high = c(0, band$high / n - z, 0))
  }
  do.call(rbind, lapply(x$test$parameter, one))
}
