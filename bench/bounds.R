# Bounds beside measured gaps on the paper's Figures 1 to 3 (first data set): the gap of the start, guarantee() for the paper's
# presets, and schedule_certified() in each coordinates, with the gap at which one run of it ended.
# usage: R_LIBS=build/lib Rscript bench/bounds.R [figure ...]
suppressMessages(library(elvi))
figures <- list(figure1 = list(base = base_laplace(), rows = 300, alpha = 0.1),
                figure2 = list(base = base_gaussian(), rows = 1000, alpha = 0.1),
                figure3 = list(base = base_uniform(), rows = 2000, alpha = 0.5))
dim <- 200
wanted <- commandArgs(trailingOnly = TRUE)
if (!length(wanted)) wanted <- names(figures)
for (name in wanted) {
  figure <- figures[[name]]
  set.seed(1)
  U <- matrix(runif(figure$rows * dim), figure$rows, dim)
  y <- rbinom(figure$rows, 1, 0.5)
  model <- model_glm(U, y, prior = normal(0, 1 / sqrt(figure$alpha)))
  for (coordinates in c("raw", "whitened", "majorant")) {
    control <- elvi_control(coordinates = coordinates, estimator = "reparam", trace_draws = 0)
    presets <- vapply(c("case1", "case2"), function(preset) {
      guarantee(model, figure$base, schedule_fixed(5000, preset), control = control)$bounds[["distance"]]
    }, 0)
    certified <- guarantee(model, figure$base, schedule_certified(5000), control = control)
    by_distance <- elvi:::minimise_distance_bound(certified$constants, 5000)$value
    later <- elvi:::numbered_schedule(schedule_certified(50000), certified$constants, NULL)
    ends <- vapply(list(certified$schedule, later), function(schedule) {
      set.seed(1)
      fit <- suppressMessages(elvi(model, figure$base, schedule = schedule, control = control))
      g <- guarantee(fit)
      c(g$bound, g$gap)
    }, numeric(2))
    cat(sprintf(paste0("%s %-8s  start %.4g  case 1 / 2 %.4g / %.4g  by distance, minimised %.4g  ",
                       "E = 5,000: %.4g, run %.3g, ratio %.2g  E = 50,000: %.4g, run %.3g, ratio %.2g\n"),
                name, coordinates, certified$gap_start, presets[1], presets[2], by_distance,
                ends[1, 1], ends[2, 1], ends[1, 1] / ends[2, 1], ends[1, 2], ends[2, 2], ends[1, 2] / ends[2, 2]))
  }
}
