# What the experiments' files share. They are loaded on demand, by R/experiment.R.

# By name, each with a title, run(...) that returns list(data =, numbers =), and
# draw(x, ...) that makes a ggplot of the result. Where there is shrink(x), it leaves out what need not be stored.
experiments <- function() {
  c(paper_experiments(), rate_experiments(), nonconvex_experiments(), base_experiments(), pass_experiments())
}

experiment_interrupted <- function() elvi_abort("The experiment was interrupted.")

# Evaluates code after set.seed(seed) and leaves R's generator as it was.
seeded <- function(seed, code) {
  before <- random_state()
  on.exit(set_random_state(before))
  set.seed(seed, kind = "default", normal.kind = "default", sample.kind = "default")
  code
}

check_choices <- function(x, name, choices) {
  if (!length(x)) {
    bad_argument(name, paste("some of", paste0("\"", choices, "\"", collapse = ", ")), describe(x))
  }
  vapply(x, check_choice, "", name = name, choices = choices, USE.NAMES = FALSE)
}

check_counts <- function(x, name) {
  x <- check_vector(x, name)
  if (!length(x)) bad_argument(name, "one or more whole numbers", describe(x))
  vapply(x, check_count, 0, name = name)
}

# What the theory covers: raw coordinates, the plain gradient, the theorem's average.
# Without draws for a trace its CPU seconds are those of the algorithm alone.
theory_control <- function(..., coordinates = "raw") {
  elvi_control(coordinates = coordinates, estimator = "reparam", average = "theorem",
               trace_draws = 0, ...)
}

# F - F*, exactly, at the last iterate of a run or at its average, whether or not
# the start was better
gap_at <- function(fit, iterate, optimum) {
  fit$theta <- switch(iterate, last = fit$state[c("mu", "scale")],
                      average = list(mu = fit$state$average_mu, scale = fit$state$average_scale))
  objective(fit)$estimate - optimum
}

# lapply() on several processes where they can be forked. The longest jobs should
# come first. With several processes BLAS has one thread in each, which can change the
# last digits of the results; nothing else depends on their number.
on_cores <- function(jobs, f, cores) {
  if (cores == 1 || .Platform$OS.type == "windows") return(lapply(jobs, f))
  # A garbage collection in a forked process copies what the parent has in memory, rstanarm for one: more CPU time than a
  # run of MPSGD takes. So once, before a clock is read.
  alone <- function(job) {
    .Call(elvi_r_blas_alone)
    gc()
    f(job)
  }
  out <- parallel::mclapply(jobs, alone, mc.cores = cores, mc.preschedule = FALSE)
  failed <- vapply(out, function(x) is.null(x) || inherits(x, "try-error"), NA)
  if (any(failed)) stop(attr(out[[which(failed)[1L]]], "condition") %||% "A process of this experiment died.")
  out
}

# Measures a run at its start and at the iterations that `pick` chooses from its
# plan: one row each.
measure_along <- function(model, base, schedule, control, pick, measure) {
  control$iterations <- 1
  fit <- suppressMessages(elvi(model, base, schedule, control = control))
  row <- function(fit) {
    data.frame(evaluations = fit$state$evals, seconds = fit$cpu, measure(fit))
  }
  rows <- list(row(at_start(fit)))
  law <- law_of(base, model$dim)
  journal <- open_journal(fit, law)
  for (k in pick(fit$plan)) {
    if (k > fit$state$k) fit <- iterate(fit, law, k, journal)
    if (fit$status == "interrupted") experiment_interrupted()
    rows <- c(rows, list(row(fit)))
  }
  bind_rows(rows)
}

# a run as it was before its first step
at_start <- function(fit) {
  fit$state <- initial_state(fit$plan$start, fit$given$control, fit$plan$smoothness)
  fit$result$cpu <- 0
  fit
}

bind_rows <- function(rows) {
  out <- do.call(rbind, rows)
  rownames(out) <- NULL
  out
}

# mean, lowest and highest of `value` over the seeds, for each combination of `by`
over_seeds <- function(data, value, by) {
  groups <- split(data, interaction(data[by], drop = TRUE, lex.order = TRUE))
  bind_rows(lapply(groups, function(g) {
    v <- g[[value]]
    data.frame(g[1L, by, drop = FALSE], mean = mean(v), low = min(v), high = max(v))
  }))
}

# Slope of log y on log x
log_slope <- function(x, y) stats::coef(stats::lm(log(y) ~ log(x)))[[2L]]

# Labels at the right ends of lines: moved apart, in order, until no two are closer
# than `apart`.
spread_out <- function(y, apart) {
  order <- order(y)
  target <- y[order]
  # least squares subject to y[i+1] - y[i] >= apart is isotonic in y[i] - i apart
  shift <- apart * seq_along(target)
  y[order] <- stats::isoreg(target - shift)$yf + shift
  y
}

experiment_theme <- function() {
  ggplot2::theme_minimal(base_size = 11) +
    ggplot2::theme(legend.position = "none", panel.grid.minor = ggplot2::element_blank())
}

# two significant digits, each number for itself: 630, 7.2, 0.56, 17,000
format_each <- function(x) vapply(signif(x, 2), plain_number, "")

plain_number <- function(x) {
  text <- format(x, big.mark = ",", scientific = FALSE, trim = TRUE, drop0trailing = TRUE)
  ifelse(is.na(x), "", text)
}

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow is left
# out because it is too pale for lines.
experiment_colours <- c("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")

method_labels <- c(case1 = "MPSGD", case2 = "MPSGD, scaled", psgd = "PSGD",
                   psgd_scaled = "PSGD, scaled", tuned = "elvi's default", advi = "Stan's ADVI")

method_colours <- function() {
  stats::setNames(experiment_colours[c(3, 2, 1, 6, 4, 7)], names(method_labels))
}
