read <- function(formula, data = NULL) structured_formula(formula, data)
labels_of <- function(formula) vapply(read(formula)$bars, function(bar) paste(deparse(bar$slopes), "|", bar$label), "")

test_that("formulas without bars and smooths are not structured", {
  expect_null(read(y ~ x + z))
  expect_null(read(y ~ I(x > 1 | z > 1)))
  expect_null(read(y ~ factor(a | b)))
})

test_that("bars are read by the rules of lme4", {
  skip_without_parser()
  expect_identical(labels_of(y ~ x + (1 | g)), "1 | g")
  expect_identical(labels_of(y ~ (x | g) + (1 | h)), c("x | g", "1 | h"))
  expect_identical(labels_of(y ~ (1 | g/h)), c("1 | h:g", "1 | g"))
  expect_identical(labels_of(y ~ (1 | a:b)), "1 | a:b")
  expect_identical(labels_of(y ~ x + ((1 | g) + z)), "1 | g")
  expect_identical(labels_of(y ~ us(x | g)), "x | g")
  apart <- read(y ~ x + (x || g))$bars
  expect_length(apart, 1L)
  expect_false(apart[[1L]]$correlated)
  expect_false(read(y ~ diag(x | g))$bars[[1L]]$correlated)
})

test_that("what is left is the fixed part", {
  skip_without_parser()
  fixed <- function(formula, data = NULL) deparse(read(formula, data)$fixed)
  expect_identical(fixed(y ~ x + (1 | g) + log(z)), "y ~ x + log(z)")
  expect_identical(fixed(y ~ (1 | g)), "y ~ 1")
  expect_identical(fixed(y ~ 0 + (1 | g)), "y ~ 0")
  expect_identical(fixed(y ~ (1 | g) + x - 1), "y ~ x - 1")
  expect_identical(fixed(y ~ x + s(z) + offset(w)), "y ~ x + offset(w)")
  expect_identical(fixed(cbind(a, b | c) ~ x + (1 | g)), "cbind(a, b | c) ~ x")
  expect_identical(fixed(y ~ . + (1 | g), data.frame(y = 1, x = 1, z = 1, g = 1)), "y ~ (x + z)")
})

test_that("a bar that cannot be had says so", {
  skip_without_parser()
  d <- group_data()
  d$one <- "a"
  d$two <- 2
  d$gap <- replace(d$g, 3, NA)
  refused <- function(formula, ...) expect_snapshot_error(elvi(formula, d, ...), class = "elvi_error_argument")
  refused(y ~ x | g)
  refused(y ~ x * (1 | g))
  refused(y ~ x:(1 | g))
  refused(y ~ x - (1 | g))
  refused(y ~ log(1 | g))
  refused(y ~ toep(0 + x | g))
  refused(y ~ gr(1 | g))
  refused(y ~ (1 | 1:240))
  refused(y ~ (1 | nowhere))
  refused(y ~ (0 | g))
  refused(y ~ (1 | one))
  refused(y ~ (two | g))
  refused(y ~ (x + I(2 * x) | g))
  refused(y ~ (1 | g) + (1 | g))
  refused(y ~ (1 | gap), na.action = na.pass)
  refused(~ x + (1 | g))
})

test_that("columns of a term are those of lme4", {
  skip_on_cran()
  skip_without_parser()
  skip_if_not_installed("lme4")
  d <- group_data()
  d$h <- factor(d$h)
  same <- function(formula) {
    mine <- elvi_design(formula, d)
    theirs <- lme4::lFormula(formula, d, control = lme4::lmerControl(
      check.nobs.vs.nRE = "ignore", check.nobs.vs.nlev = "ignore", check.nobs.vs.rankZ = "ignore"))
    Z <- as.matrix(Matrix::t(theirs$reTrms$Zt))
    order <- lapply(theirs$reTrms$Ztlist, function(Zt) as.matrix(Matrix::t(Zt)))
    expect_setequal(apply(unname(as.matrix(mine$Z)), 2L, paste, collapse = " "), apply(unname(Z), 2L, paste, collapse = " "))
    if (length(order) == 1L) expect_equal(unname(as.matrix(mine$Z)), unname(Z))
    expect_equal(mine$X, theirs$X, ignore_attr = TRUE)
  }
  elvi_design <- function(formula, data) {
    parts <- structured_formula(formula, data)
    frame <- model.frame(frame_formula(parts, character()), data, drop.unused.levels = TRUE)
    frame_design(parts, list(), frame, NULL)
  }
  same(y ~ x + (1 | g))
  same(y ~ x + (x | g))
  same(y ~ f + (f | g))
  same(y ~ (0 + f | g))
  same(y ~ x + (1 | g) + (1 | h))
  same(y ~ x + (1 | g / h))
  same(y ~ x + (1 | g:h))
  same(y ~ (poly(x, 2) | h))
})

test_that("levels that do not occur are dropped, and rows are matched by name", {
  skip_on_cran()
  skip_without_parser()
  d <- group_data()
  fit <- elvi(y ~ x + (1 | g), d, subset = g %in% c("b", "c", "e"))
  expect_identical(rownames(ranef(fit)$g), c("b", "c", "e"))
  again <- elvi(y ~ x + (1 | as.character(g)), d, subset = g %in% c("b", "c", "e"))
  expect_equal(unname(again$mu), unname(fit$mu), tolerance = 1e-6)
  numbered <- elvi(y ~ x + (1 | h), d)
  expect_identical(rownames(ranef(numbered)$h), as.character(1:5))
})

test_that("monotonic effects are refused with the reason", {
  expect_snapshot_error(elvi(y ~ mo(x), group_data()), class = "elvi_error_term")
})
