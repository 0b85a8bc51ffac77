# Plain gaussian regressions with unknown sigma, which is integrated over: 300,000 rows x 20 against lm(), mtcars against glm(), and the
# same rows from chunks.
#
#   Rscript bench/gaussian.R [--rounds=3] [--dry]

source(file.path(dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[1])), "common.R"))
with_one_blas_thread()
suppressPackageStartupMessages(library(elvi))
options(elvi.threads = 1)
rounds <- option("rounds", 3L)

by_glm <- function() seconds(function() for (i in 1:50) glm(mpg ~ wt + hp, data = mtcars)) / 50
by_elvi <- function() seconds(function() for (i in 1:50) elvi(mpg ~ wt + hp, data = mtcars)) / 50
invisible(c(by_glm(), by_elvi()))   # compiled by now
record_ratio(alternate("mtcars, mpg ~ wt + hp: elvi / glm", by_glm, by_elvi, rounds))

set.seed(1)
n <- 3e5
X <- matrix(rnorm(n * 20), n)
data <- data.frame(y = drop(X %*% rnorm(20)) + rnorm(n), X)
rm(X)
record_ratio(alternate("300,000 x 20, unknown sigma: elvi / lm", function() seconds(function() lm(y ~ ., data = data)),
                       function() seconds(function() elvi(y ~ ., data = data)), rounds), 3, at_least = FALSE)

pieces <- split(seq_len(n), rep(1:10, each = n / 10))
chunks <- rows_files(pieces, function(i) data[i, ])
fit <- elvi(y ~ ., data = data)
outside <- elvi(y ~ ., data = chunks)
off <- max(abs(fit$mu - outside$mu) / fit$sd)
record("300,000 x 20 from ten chunks: shift of means against memory, in sds", sprintf("%.1e", off), "<= 1e-8", off <= 1e-8)
record_ratio(alternate("300,000 x 20 from ten chunks / from memory", function() seconds(function() elvi(y ~ ., data = data)),
                       function() seconds(function() elvi(y ~ ., data = chunks)), rounds))
