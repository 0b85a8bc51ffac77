by_data <- function() {
  set.seed(4)
  d <- data.frame(t = rep(1:12, 4), f = rep(c("a", "b c"), each = 24), x = runif(48))
  d$area <- rep(1:6, 8)
  d$y <- ifelse(d$f == "a", sin(d$t / 2), d$t / 12) + rnorm(48, 0, 0.3)
  d
}

chain_graph <- function(n) {
  W <- matrix(0, n, n)
  W[abs(row(W) - col(W)) == 1L] <- 1
  W
}

without_by <- function(formula) {
  formula[[3L]][[3L]] <- split_by(formula[[3L]][[3L]])$call
  formula
}

test_that("by = f is a term for each level, of its own rows only", {
  d <- by_data()
  graph <- chain_graph(6)
  for (formula in list(y ~ f + rw2(t, by = f), y ~ f + ar1(t, by = f), y ~ f + icar(area, graph, by = f),
                       y ~ f + hsgp(x, k = 4, by = f))) {
    both <- elvi_problem(formula, d, dispersion = 0.1)
    expect_length(both$terms, 2L)
    one <- both$terms[[1L]]
    alone <- elvi_problem(stats::update(without_by(formula), . ~ . - f), subset(d, f == "a"), dispersion = 0.1)
    expect_identical(one$label, paste0(alone$terms[[1L]]$label, ":fa"))
    expect_equal(as.matrix(both$Z)[d$f == "a", one$columns], as.matrix(alone$Z), ignore_attr = TRUE)
    expect_true(all(both$Z[d$f != "a", one$columns] == 0))
    expect_equal(as.matrix(both$rows$X[d$f == "a", -(1:2)])[, seq_len(ncol(alone$rows$X) - 1L)], as.matrix(alone$rows$X)[, -1L],
                 ignore_attr = TRUE)
  }
})

test_that("terms by a factor are the closed form and predict", {
  d <- by_data()
  expect_closed_form(y ~ f + rw1(t, by = f), d, c(-0.2, 0.4))
  fit <- suppressWarnings(elvi(y ~ f + rw1(t, by = f), d), classes = "elvi_warning_quadrature")
  new <- data.frame(t = c(3, 3, 15), f = c("a", "b c", "b c"))
  at <- predict(fit, new, se.fit = TRUE)
  expect_equal(at$fit[1:2], fitted(fit)[c(3, 27)], ignore_attr = TRUE)
  expect_gt(at$se.fit[3], at$se.fit[2])
  expect_error(predict(fit, data.frame(t = 1, f = "z")), class = "elvi_error_argument")
})

test_that("by = a number is refused", {
  d <- by_data()
  expect_snapshot_error(elvi_problem(y ~ rw1(t, by = x), d), class = "elvi_error_term")
})
