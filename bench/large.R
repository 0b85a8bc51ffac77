# A million rows: how long does a logistic regression take against glm.fit, what memory does it need beyond its design
# matrix, and what does a sparse design cost?
#
#   Rscript bench/large.R [--rows=1000000] [--columns=50] [--rounds=1] [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
options(elvi.threads = 1L)
rows <- option("rows", 1000000L)
columns <- option("columns", 50L)
rounds <- option("rounds", 1L)

set.seed(1)
X <- matrix(rnorm(rows * columns), rows)
X[, 1] <- 1
beta <- rnorm(columns, 0, 0.2)
y <- as.double(runif(rows) < plogis(drop(X %*% beta)))

# ---- memory, first: the peak of a process only grows ----------------------------------------------------------------

beyond <- peak_megabytes(function() elvi::elvi(elvi::model_glm(X, y), method = "exact"))
size <- 8 * rows * columns / 2^20
record(sprintf("%g x %d: memory beyond the design matrix, of its %.0f MB", rows, columns, size),
       sprintf("%.0f MB (%.2f)", beyond, beyond / size), "<= 0.25", beyond <= size / 4)

# ---- time --------------------------------------------------------------------------------------------------------------

data <- data.frame(y = y, X[, -1])
certificate <- NA
with_formula <- function(threads) function() {
  options(elvi.threads = threads)
  seconds(function() {
    fit <- elvi::elvi(y ~ ., data = data, family = binomial())
    certificate <<- fit$optimum$certificate
  })
}
with_glm <- function() seconds(function() glm.fit(X, y, family = binomial()))
what <- sprintf("%g x %d: glm.fit / elvi(y ~ ., binomial())", rows, columns)
record_ratio(alternate(paste0(what, ", two threads as by default"), with_formula(2L), with_glm, rounds), 2)
record_ratio(alternate(paste0(what, ", one thread"), with_formula(1L), with_glm, rounds))
record("... certified gap in nats", format(certificate, digits = 2), "<= 0.01", certificate <= 0.01)

# ---- sparse ------------------------------------------------------------------------------------------------------------

if (requireNamespace("Matrix", quietly = TRUE)) {
  options(elvi.threads = 1L)
  rm(X, data)
  sparse <- function(per_row, dim = 400L, n = 100000L) {
    set.seed(2)
    X <- Matrix::sparseMatrix(i = rep(seq_len(n), each = per_row), j = as.vector(replicate(n, sample.int(dim, per_row))),
                              x = rnorm(n * per_row), dims = c(n, dim))
    list(X = X, y = as.double(runif(n) < plogis(as.vector(X %*% rnorm(dim, 0, 0.3)))))
  }
  thin <- sparse(10L)
  evaluate <- function(data, dense) {
    model <- elvi::model_glm(if (dense) as.matrix(data$X) else data$X, data$y)
    fit <- list(mu = numeric(400), Sigma = diag(0.05, 400))
    function() seconds(function() elvi::objective(fit, model))
  }
  record_ratio(alternate("100000 x 400, 10 entries a row: exact objective, dense / sparse", evaluate(thin, FALSE),
                         evaluate(thin, TRUE), max(rounds, 3L)))
  entries <- c(5L, 10L, 20L, 40L)
  gradient_time <- vapply(entries, function(per_row) {
    data <- sparse(per_row)
    model <- elvi::model_glm(data$X, data$y)
    schedule <- elvi::schedule_custom(rep(1e-6, 2), rep(256, 2))
    seconds(function() elvi::elvi(model, schedule = schedule, control = elvi::elvi_control(
      coordinates = "raw", estimator = "reparam", trace_draws = 0, scale = "diagonal", average = "last")), 3L)
  }, 0)
  slope <- coef(lm(log(gradient_time) ~ log(entries)))[[2]]
  record("sparse: log-log slope of a run in the entries a row (5 to 40)", sprintf("%.2f", slope), "<= 1", slope <= 1.05)
}
