test_that("a prior is one centre, one precision and one number of degrees of freedom per coefficient", {
  vectors <- function(centre, precision, df) {
    list(first = 1, of_exp = FALSE, centre = centre, precision = precision, df = df, rate = 0 * centre)
  }
  expect_identical(coefficient_block(normal(1, 2), 3),
                   vectors(c(1, 1, 1), c(0.25, 0.25, 0.25), c(Inf, Inf, Inf)))
  expect_identical(coefficient_block(normal(1:3, c(1, 0.5, Inf)), 3),
                   vectors(c(1, 2, 3), c(1, 4, 0), c(Inf, Inf, Inf)))
  expect_identical(coefficient_block(normal(c(0, 5), 1), 2), vectors(c(0, 5), c(1, 1), c(Inf, Inf)))
  expect_identical(coefficient_block(flat(), 2), vectors(c(0, 0), c(0, 0), c(Inf, Inf)))
  expect_identical(coefficient_block(student_t(4, 0, c(2, Inf)), 2), vectors(c(0, 0), c(0.25, 0), c(4, Inf)))
  expect_identical(coefficient_block(cauchy(1, 2), 2), coefficient_block(student_t(c(1, 1), 1, 2), 2))
  expect_identical(coefficient_block(student_t(Inf, 1, 2), 2), coefficient_block(normal(1, 2), 2))
})

test_that("priors in a row are for one coefficient after the other", {
  row <- c(normal(0, c(10, 5)), student_t(c(3, 4), 1, 2), flat(), cauchy(2, 0.5))
  expect_identical(coefficient_block(row, 6),
                   list(first = 1, of_exp = FALSE, centre = c(0, 0, 1, 1, 0, 2),
                        precision = c(0.01, 0.04, 0.25, 0.25, 0, 4), df = c(Inf, Inf, 3, 4, Inf, 1), rate = numeric(6)))
  expect_identical(coefficient_block(c(row, row), 12)$df, rep(coefficient_block(row, 6)$df, 2))
  X <- cbind(1, c(-1, 0.5, 2, 3))
  model <- model_glm(X, c(0, 1, 0, 1), prior = c(normal(1, 10), student_t(3, 0, 2)))
  expect_identical(model$blocks$coefficients$df, c(Inf, 3))
  expect_identical(model$blocks$coefficients$centre, c(1, 0))
})

test_that("scales are taken as far as their precision is a number", {
  expect_identical(coefficient_block(normal(0, c(1e-150, 1e150)), 2)$precision, 1 / c(1e-150, 1e150)^2)
})

test_that("the default is normal(0, 2.5), and an infinite scale is flat", {
  expect_identical(normal(), normal(0, 2.5))
  expect_identical(coefficient_block(normal(0, Inf), 2), coefficient_block(flat(), 2))
  X <- cbind(1, c(-1, 0.5, 2, 3))
  y <- c(0, 1, 0, 1)
  expect_identical(model_glm(X, y)$blocks$coefficients$precision, c(0.16, 0.16))
  expect_identical(model_glm(X, y, prior = flat())$blocks$coefficients$precision, c(0, 0))
})

test_that("priors print", {
  skip_on_cran()
  expect_snapshot({
    normal()
    normal(c(0, 1), c(10, 2.5))
    flat()
    student_t(4, 0, c(1, 2))
    cauchy()
    exponential(2)
    c(normal(0, 10), student_t(3, 1, 2.5), flat())
  })
})

test_that("bad priors are refused by name", {
  messages <- c(
    refusal(normal("a"), "location"),
    refusal(normal(NA), "location"),
    refusal(normal(c(0, Inf)), "location"),
    refusal(normal(numeric()), "location"),
    refusal(normal(NULL), "location"),
    refusal(normal(0, 0), "scale"),
    refusal(normal(0, c(1, -2)), "scale"),
    refusal(normal(0, NaN), "scale"),
    refusal(normal(0, numeric()), "scale"),
    refusal(normal(0, "wide"), "scale"),
    refusal(normal(0, diag(2)), "scale"),
    refusal(normal(0, 1e-200), "scale"),
    refusal(normal(0, c(1, 1e200)), "scale"),
    refusal(student_t(0), "df"),
    refusal(student_t(c(3, -1)), "df"),
    refusal(student_t(NA), "df"),
    refusal(student_t(numeric()), "df"),
    refusal(student_t(3, 0, 0), "scale"),
    refusal(student_t(3, 0, 1e200), "scale"),
    refusal(cauchy("a"), "location"),
    refusal(exponential(0), "rate"),
    refusal(exponential(Inf), "rate"),
    refusal(exponential(c(1, 2)), "rate"),
    refusal(laplace(), "prior"),
    refusal(c(normal(), exponential()), "prior"),
    refusal(c(normal(), 3), "prior"),
    refusal(c(normal(c(1, 2), c(1, 2, 3)), flat()), "prior"),
    refusal(coefficient_block(student_t(c(1, 2)), 3), "prior"),
    refusal(coefficient_block(normal(0, c(1, 2)), 3), "prior"),
    refusal(coefficient_block(normal(c(1, 2), 1), 3), "prior")
  )
  expect_snapshot(writeLines(messages))
})

test_that("priors of rstanarm are those of elvi, and the other way round", {
  skip_unless_long()   # rstanarm takes seconds to load
  skip_if_not_installed("rstanarm")
  pairs <- list(list(rstanarm::normal(1, 2), normal(1, 2)), list(rstanarm::student_t(4, 0, 3), student_t(4, 0, 3)),
                list(rstanarm::cauchy(0, 3), cauchy(0, 3)), list(rstanarm::normal(1, 2, TRUE), normal(1, 2, TRUE)))
  summary_of <- function(...) prior_summary(elvi(case ~ age + parity, data = infert, family = binomial(), method = "mpsgd",
                                                 budget = 50, ...))$priors
  set.seed(1)
  for (pair in pairs) {
    theirs <- summary_of(prior = pair[[1]], prior_intercept = pair[[1]])
    expect_identical(theirs, summary_of(prior = pair[[2]], prior_intercept = pair[[2]]))
    expect_identical(model_glm(matrix(1, 4), c(0, 1, 1, 0), prior = pair[[1]])$blocks,
                     model_glm(matrix(1, 4), c(0, 1, 1, 0), prior = pair[[2]])$blocks)
    fields <- names(pair[[1]])
    expect_true(all(fields %in% names(pair[[2]])))
    expect_identical(unclass(pair[[2]])[c("dist", "location", "scale", "autoscale")],
                     pair[[1]][c("dist", "location", "scale", "autoscale")])
  }
  expect_identical(unclass(exponential(4))[c("dist", "df", "location", "scale", "autoscale")], rstanarm::exponential(4))
  expect_identical(model_glm(matrix(1, 3), 1:3, gaussian(), dispersion = NULL, prior_aux = rstanarm::exponential(4))$blocks,
                   model_glm(matrix(1, 3), 1:3, gaussian(), dispersion = NULL, prior_aux = exponential(4))$blocks)
  refusal(model_glm(matrix(1, 4), c(0, 1, 1, 0), prior = rstanarm::hs()), "prior")
  handled <- rstanarm:::handle_glm_prior(student_t(4, 0, 3), 2, 2.5, "logit")
  expect_identical(handled, rstanarm:::handle_glm_prior(rstanarm::student_t(4, 0, 3), 2, 2.5, "logit"))
  expect_identical(rstanarm:::handle_glm_prior(normal(1, 2), 2, 2.5, "logit")[1:3],
                   rstanarm:::handle_glm_prior(rstanarm::normal(1, 2), 2, 2.5, "logit")[1:3])
})

test_that("degrees of freedom that cannot be divided by are refused", {
  expect_error(student_t(5e-324), "at least 1e-100", class = "elvi_error_argument")
})

test_that("lists as rstanarm makes them are priors, and others are refused by name", {
  as_rstanarm <- function(dist, df = NA, location = 0, scale = NULL, autoscale = FALSE) {
    list(dist = dist, df = df, location = location, scale = scale, autoscale = autoscale)
  }
  fields <- c("name", "location", "scale", "df", "autoscale")
  taken <- function(given) unclass(as_prior(given, "prior"))[fields]
  expect_identical(taken(as_rstanarm("normal", location = 1, scale = 2)), unclass(normal(1, 2))[fields])
  expect_identical(taken(as_rstanarm("normal")), unclass(normal(0, 2.5))[fields])
  expect_identical(taken(as_rstanarm("t", 4, scale = 3, autoscale = TRUE)), unclass(student_t(4, 0, 3, TRUE))[fields])
  expect_identical(taken(as_rstanarm("cauchy", scale = 3)), unclass(cauchy(0, 3))[fields])
  expect_identical(as_prior(as_rstanarm("exponential", scale = 0.25), "prior_aux"), exponential(4))
  refusal(model_glm(matrix(1, 4), c(0, 1, 1, 0), prior = as_rstanarm("hs", scale = 1)), "prior")
})

test_that("a precision that is none is refused, and a formula takes independent priors only", {
  skip_if_not_installed("Matrix")
  refusal(normal(precision = diag(2), autoscale = TRUE), "autoscale")
  refusal(normal(precision = "a"), "precision")
  refusal(normal(precision = matrix(1, 2, 3)), "precision")
  refusal(normal(precision = Matrix::Diagonal(2, c(1, Inf))), "precision")
  refusal(elvi(case ~ age, data = infert, family = binomial(), prior = normal(precision = diag(1))), "prior")
})
