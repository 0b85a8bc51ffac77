test_that("families of other packages are taken by their names", {
  object <- function(family, link) structure(list(family = family, link = link), class = c("brmsfamily", "family"))
  known <- list(list("bernoulli", "binomial", "logit"), list(object("bernoulli", "probit"), "binomial", "probit"),
                list(object("negbinomial", "log"), "neg_binomial_2", "log"), list(object("nbinom2", "log"), "neg_binomial_2", "log"),
                list("student", "student", "identity"), list(object("student", "identity"), "student", "identity"),
                list(object("beta", "logit"), "beta", "logit"), list(object("cumulative", "cloglog"), "cumulative", "cloglog"),
                list(object("gamma", "log"), "Gamma", "log"), list("t", "student", "identity"))
  for (case in known) {
    family <- check_family(case[[1L]])
    expect_identical(c(family$family, family$link), c(case[[2L]], case[[3L]]))
    expect_true(is.function(family$linkinv))
  }
  expect_error(check_family(object("negbinomial", "sqrt")), "neg_binomial_2\\(\\) with link \"log\"", class = "elvi_error_argument")
  expect_error(check_family(MASS::negative.binomial(2)), "neg_binomial_2", class = "elvi_error_argument")
  for (name in names(other_families)) expect_error(check_family(name), paste0("no family \"", name, "\""), class = "elvi_error_argument")
})

test_that("what brms writes on the left of a bar is refused with the way to say it", {
  refused <- function(formula, what) expect_error(elvi(formula, mtcars), what, class = "elvi_error_argument")
  refused(mpg | weights(wt) ~ hp, "weights = w")
  refused(am | trials(gear) ~ hp, "cbind\\(y, n - y\\)")
  refused(mpg | cens(am) ~ hp, "Surv")
  refused(carb | trunc(lb = 1) ~ hp, "truncated_poisson")
  refused(mpg | resp_weights(wt) ~ hp, "weights = w")
  refused(mpg | thres(3) ~ hp, "cut points")
  refused(mpg | unknown(wt) ~ hp, "Leave out the bar")
})

test_that("families that elvi has not are answered with what to use", {
  for (name in names(other_families)) expect_error(check_family(name), "elvi has no family", class = "elvi_error_argument", fixed = TRUE)
  expect_error(check_family(stats::quasipoisson()), "neg_binomial_2()", class = "elvi_error_argument", fixed = TRUE)
  expect_error(check_family("cox"), "piecewise_exponential()", class = "elvi_error_argument", fixed = TRUE)
  expect_error(check_family("zero_inflated_poison"), "no family .* Did you mean `zero_inflated_poisson`\\?", class = "elvi_error_argument")
  expect_error(check_family("\xff\xfe"), "family", class = "elvi_error_argument")   # no valid text, and near to nothing
  expect_error(check_family("something"), "or the name of one", class = "elvi_error_argument")
  skip_if_not_installed("mgcv")
  expect_identical(check_family(mgcv::nb())$family, "neg_binomial_2")
  expect_identical(check_family(mgcv::betar())$family, "beta")
  expect_identical(check_family(mgcv::ocat(R = 3))$family, "cumulative")
  expect_identical(check_family(mgcv::scat())$family, "student")
  expect_error(check_family(mgcv::tw()), "no family \"Tweedie\"", class = "elvi_error_argument")
  expect_error(check_family(mgcv::cox.ph()), "piecewise_exponential()", class = "elvi_error_argument", fixed = TRUE)
  expect_error(check_family(mgcv::ziP()), "ziformula", class = "elvi_error_argument", fixed = TRUE)
})

test_that("a formula of brms is answered with the arguments here", {
  expect_error(elvi(structure(list(), class = c("brmsformula", "bform")), mtcars), "dispformula", class = "elvi_error_argument")
})
