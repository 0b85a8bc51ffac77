# What must work in a build for a platform that lacks something: usage, from tools/platforms.sh only.
library(elvi)
variant <- commandArgs(trailingOnly = TRUE)[1L]
stopifnot(identical(elvi_threads() == 1L, variant == "no-openmp") || parallel::detectCores() == 1L)

X <- cbind(1, sin(1:400), cos(3 * (1:400)))
y <- as.double(sin(7 * (1:400)) + X[, 2] > 0)
model <- model_glm(X, y, prior = flat())
stopifnot(all.equal(unname(elvi_optimum(model)$mu), unname(coef(glm.fit(X, y, family = binomial()))), tolerance = 0.05))

# threads that wait for each other, a checkpoint that is put on the disk, and going on from it
file <- tempfile()
go <- function(...) {
  set.seed(1)
  elvi(model, budget = 5000, control = elvi_control(...))
}
whole <- go()
invisible(go(checkpoint = file, iterations = 5))
resumed <- suppressMessages(go(checkpoint = file))
stopifnot(identical(whole$mu, resumed$mu), identical(whole$Sigma, resumed$Sigma))
stopifnot(is.logical(.Call(elvi:::elvi_r_sync, file)))
cat(variant, ": builds, fits, goes on from a checkpoint\n", sep = "")
