# Bounds beside measured gaps on the paper's Figures 1 to 3 (first data set), in nats: the gap of the start, guarantee() for the paper's
# presets, the paper's bound minimised over preconditioner, batch and iterations, and schedule_certified() for budgets of 5,000 and 50,000
# gradients with the gap at which a run of it ended. Prints the rows of the table in bench/README.md.
# usage: R_LIBS=build/lib Rscript bench/bounds.R [figure ...] [coordinates ...]
suppressMessages(library(elvi))
figures <- list(figure1 = list(base = base_laplace(), rows = 300, alpha = 0.1),
                figure2 = list(base = base_gaussian(), rows = 1000, alpha = 0.1),
                figure3 = list(base = base_uniform(), rows = 2000, alpha = 0.5))
frames <- c("raw", "whitened", "majorant")
dim <- 200
wanted <- commandArgs(trailingOnly = TRUE)
chosen <- function(all) if (any(all %in% wanted)) intersect(all, wanted) else all

# the paper's bound for a preset, with the constants of another guarantee in the same coordinates
preset_bound <- function(g, preset) {
  g$schedule <- schedule_fixed(5000, preset)
  plan <- elvi:::replan(g, 5000)
  elvi:::evaluate_bounds(elvi:::in_metric(g, plan$lambda), plan)[["distance"]]
}

# bound of a certified schedule / gap of the average of one run of it
beside <- function(schedule, model, base, control, best) {
  set.seed(1)
  fit <- suppressMessages(elvi(model, base, schedule = schedule, control = control))
  average <- elvi:::to_user(elvi:::run_model(fit), "symmetric", fit$state$average_mu, fit$state$average_scale)
  gap <- objective(list(mu = average$mu, Sigma = average$scale), model, base)$estimate - best$objective
  n <- schedule$numbers
  sprintf("%.3g (%s; N %d, K %d) / %.3g = %.2g", n$value, n$by, n$N, n$K, gap, n$value / gap)
}

row_of <- function(name, coordinates, model, base, best) {
  control <- elvi_control(coordinates = coordinates, estimator = "reparam", trace_draws = 0)
  g <- guarantee(model, base, schedule_certified(5000), control = control)
  later <- elvi:::numbered_schedule(schedule_certified(50000), g$constants, NULL)
  cat(sprintf("| %s | %s | %.3g | %.4g / %.4g | %.3g | %s | %s | %s |\n", name, coordinates, g$gap_start,
              preset_bound(g, "case1"), preset_bound(g, "case2"), elvi:::minimise_distance_bound(g$constants, 5000)$value,
              g$constants$s2$how, beside(g$schedule, model, base, control, best), beside(later, model, base, control, best)))
}

for (name in chosen(names(figures))) {
  figure <- figures[[name]]
  set.seed(1)
  U <- matrix(runif(figure$rows * dim), figure$rows, dim)
  y <- rbinom(figure$rows, 1, 0.5)
  model <- model_glm(U, y, prior = normal(0, 1 / sqrt(figure$alpha)))
  best <- elvi_optimum(model, figure$base)
  for (coordinates in chosen(frames)) row_of(name, coordinates, model, figure$base, best)
}
