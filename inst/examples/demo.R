# The main job on R's own infert data: a Bayesian logistic regression, its exact
# optimum, and how close each method comes to it for the same number of gradient
# evaluations. usage: Rscript demo.R out.png
library(elvi)
library(ggplot2)

out <- commandArgs(trailingOnly = TRUE)
out <- if (length(out)) out[1] else "demo.png"

X <- model.matrix(~ education + age + parity + induced + spontaneous, data = infert)
model <- model_glm(X, infert$case, family = binomial(), prior = normal(0, 2.5))
base <- base_laplace()

set.seed(1)
fit <- elvi(model, base, budget = 5000)
print(summary(fit))

best <- elvi_optimum(model, base)$objective
gap <- function(fit) {
  last <- objective(list(mu = fit$last$mu, Sigma = fit$last$scale), model, base)
  max(last$estimate - best, 1e-8)
}

# the last iterate's exact gap along a run, by stopping and continuing it
follow <- function(name, schedule, control) {
  set.seed(1)
  control$iterations <- 1
  fit <- elvi(model, base, schedule, control = control)
  K <- fit$plan$iterations
  stops <- unique(round(10^seq(0, log10(K), length.out = 25)))
  path <- data.frame(evaluations = fit$state$evals, gap = gap(fit))
  for (k in stops[-1]) {
    fit <- elvi(fit, iterations = k)
    path <- rbind(path, data.frame(evaluations = fit$state$evals, gap = gap(fit)))
  }
  cbind(method = name, path)
}

budget <- 5000
raw <- elvi_control(coordinates = "raw", estimator = "reparam", trace_draws = 0)
theory <- c("PSGD" = "psgd", "PSGD, scaled" = "psgd_scaled", "MPSGD case 1" = "case1", "MPSGD case 2" = "case2")
paths <- do.call(rbind, c(
  Map(function(name, preset) follow(name, schedule_fixed(budget, preset), raw), names(theory), theory),
  list(follow("MPSGD case 2, whitened", schedule_fixed(budget, "case2"),
              elvi_control(estimator = "reparam", trace_draws = 0)),
       follow("elvi's default", schedule_tuned(budget), elvi_control(trace_draws = 0)))
))
paths$method <- factor(paths$method, unique(paths$method))
ends <- do.call(rbind, lapply(split(paths, paths$method), function(p) p[nrow(p), ]))
cat("\nGap of the last iterate to the optimum, in nats, after at most", budget, "gradient evaluations:\n")
print(data.frame(gap = signif(ends$gap, 3), row.names = ends$method))

# labels at the line ends, pushed apart where lines meet
apart <- function(y, by) {
  o <- order(y)
  for (pass in 1:200) for (i in seq_along(o)[-1]) {
    short <- by - (y[o[i]] - y[o[i - 1]])
    if (short > 0) y[o[c(i - 1, i)]] <- y[o[c(i - 1, i)]] + c(-0.5, 0.5) * short
  }
  y
}
ends$label_at <- 10^apart(log10(ends$gap), 0.35)
colours <- c("#999999", "#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#D55E00")
picture <- ggplot(paths, aes(evaluations, gap, colour = method)) +
  geom_line(linewidth = 0.8) +
  geom_point(data = ends, size = 2) +
  geom_text(data = ends, aes(x = evaluations * 1.25, y = label_at, label = method), hjust = 0, size = 3.4) +
  scale_x_log10(limits = c(1, 2.5e5), breaks = 10^(0:3), labels = c("1", "10", "100", "1000")) +
  scale_y_log10(labels = function(x) format(x, scientific = FALSE, drop0trailing = TRUE, trim = TRUE)) +
  scale_colour_manual(values = colours, guide = "none") +
  labs(x = "gradient evaluations", y = "exact gap to the optimum (nats)",
       title = "The same theorem in better coordinates",
       subtitle = paste("Bayesian logistic regression on R's infert data (d = 7, laplace base). The upper four",
                        "run in the model's own coordinates, where its conditioning stops them.", sep = "\n")) +
  theme_minimal(base_size = 12) +
  theme(panel.grid.minor = element_blank(), plot.subtitle = element_text(colour = "grey30"))
ggsave(out, picture, width = 8, height = 5, dpi = 120, bg = "white")
cat("\nPicture:", normalizePath(out), "\n")
