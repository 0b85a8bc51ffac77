chunk_recipe <- function(data, formula, likelihood = "poisson") {
  call <- as.call(list(quote(elvi), formula))
  formula_recipe(formula, call, globalenv(), data, likelihood)
}

test_that("columns as they are make the design that model.matrix() makes", {
  data <- rows_data(50)[-c(3, 25), ]
  for (formula in list(count ~ x + z, count ~ 0 + z + o, count ~ trials)) {
    recipe <- chunk_recipe(data, formula)
    recipe$labels <- colnames(model.matrix(formula, data))
    recipe$plain <- plain_columns(recipe, data)
    plain <- plain_design(recipe, data)
    framed <- framed_design(recipe, data)
    expect_equal(plain$X, framed$X, ignore_attr = TRUE)
    expect_identical(colnames(plain$X), colnames(framed$X))
    expect_equal(plain$y, framed$y, ignore_attr = TRUE)
  }
  # and leave to it what is not so plain
  for (formula in list(count ~ log(x), count ~ x:z, count ~ g, count ~ x + offset(o))) {
    expect_null(plain_columns(chunk_recipe(data, formula), data))
  }
  data$x[2] <- NA
  recipe <- chunk_recipe(data, count ~ x)
  recipe$plain <- list(response = "count", predictors = "x")
  expect_null(plain_design(recipe, data))
})

test_that("surveys of parts, joined, are the survey of the whole, about any point", {
  data <- rows_data(60)[-c(3, 30), ]
  X <- model.matrix(~ x + z, data)
  recipe <- new_recipe("matrices", "neg_binomial_2")
  survey <- function(i, about) {
    rows <- recipe_rows(recipe, list(X = X[i, ], y = data$count[i], weights = data$w[i]))
    survey_rows(rows, list(about = about, level = 2, counts = TRUE))
  }
  about <- c(0, 4, 0.3)
  whole <- survey(1:58, about)
  expect_equal(join_surveys(survey(1:20, about), survey(21:58, about)), whole)
  centred <- X - rep(about, each = 58)
  used <- centred[data$w > 0, ]
  expect_equal(whole$sums, unname(colSums(used)))
  expect_equal(whole$squares, unname(colSums(used^2)))
  expect_equal(whole$weighted, unname(crossprod(centred * sqrt(data$w))))
  expect_equal(whole$gram, unname(crossprod(used)))
  expect_equal(whole$tally$weight, as.double(tapply(data$w, data$count, sum)[as.character(whole$tally$y)]))
  by <- colMeans(X) - about
  expect_equal(recentred(whole$weighted, whole$weighted_sums, whole$weight, by),
               crossprod((X - rep(colMeans(X), each = 58)) * sqrt(data$w)), ignore_attr = TRUE)
})

test_that("levels are declared ones in their order, else sorted as factor() does", {
  variable <- function(declared, occurring) list(declared = declared, occurring = occurring)
  found <- final_levels(list(
    a = variable(list(c("z", "y", "x")), c("x", "z")), b = variable(list(), c("q", "p")),
    c = variable(list(c("m", "k"), c("m", "a")), c("k", "a", "m")),
    `factor(n)` = variable(list(c("2", "10"), "1"), c("10", "2", "1"))))
  expect_identical(found, list(a = c("z", "x"), b = c("p", "q"), c = c("m", "k", "a"), `factor(n)` = c("1", "2", "10")))
})

test_that("other rows have other sums", {
  X <- cbind(1, c(1, 2, 3), c(5, 700, 6))
  rows <- new_rows(X, NULL, c(1, 0, 1), c(1, 2, 2), c(0, 0.1, 0), 3)
  recipe <- list(marks = uneven(6) / c(1, 3, 700, 1, 2, 0.1))
  sums <- check_sums(rows, recipe)
  changes <- list(list(y = c(1, 1, 0)), list(X = replace(X, 6, 3.1)), list(X = cbind(X[, 1:2], c(700, 5, 6))), list(X = X[, c(1, 3, 2)]),
                  list(weight = c(2, 1, 2)), list(offset = c(0.1, 0, 0)))
  for (change in changes) {
    expect_gt(max(abs(check_sums(utils::modifyList(rows, change), recipe) - sums)), 1e-3)
  }
  other <- c(3, 1, 2)   # another order
  same <- new_rows(X[other, ], NULL, rows$y[other], rows$weight[other], rows$offset[other], 3)
  expect_equal(check_sums(same, recipe), sums, tolerance = 1e-14)
  expect_equal(check_sums(replace(rows, "shift", list(c(1, 1, 1))), recipe), sums)   # whatever the centre
  skip_if_not_installed("Matrix")
  sparse <- recipe_rows(new_recipe("matrices", "normal"), list(X = Matrix::Matrix(X, sparse = TRUE), y = rows$y,
                                                                          weights = rows$weight, offset = rows$offset))
  expect_equal(check_sums(sparse, recipe), sums, tolerance = 1e-14)
})
