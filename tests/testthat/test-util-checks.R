# The exported functions' own tests see most messages; here are the checks'
# remaining branches.

test_that("errors, warnings and messages carry the classes users catch", {
  e <- tryCatch(bad_argument("size", "small", "huge"), error = identity)
  expect_identical(class(e), c("elvi_error_argument", "elvi_error", "error", "condition"))
  expect_identical(conditionMessage(e), "`size` must be small, not huge.")
  expect_identical(e$argument, "size")
  expect_null(conditionCall(e))
  expect_identical(conditionMessage(tryCatch(bad_argument("size", "small"), error = identity)),
                   "`size` must be small.")

  e <- tryCatch(elvi_abort("a", 1, class = "mine", data = list(where = 3)), mine = identity)
  expect_identical(class(e), c("mine", "elvi_error", "error", "condition"))
  expect_identical(conditionMessage(e), "a1")
  expect_identical(e$where, 3)

  w <- tryCatch(elvi_warn("b", 2, class = "mine"), warning = identity)
  expect_identical(class(w), c("mine", "elvi_warning", "warning", "condition"))
  expect_identical(conditionMessage(w), "b2")

  m <- tryCatch(elvi_inform("c", 3, class = "mine"), message = identity)
  expect_identical(class(m), c("mine", "elvi_message", "message", "condition"))
  expect_identical(conditionMessage(m), "c3\n")
  # an unclassed one has the package's class alone
  expect_identical(class(tryCatch(elvi_warn("b"), warning = identity)),
                   c("elvi_warning", "warning", "condition"))
})

test_that("any object is described in a few words", {
  expect_identical(describe(NULL), "NULL")
  expect_identical(describe(sum), "a function")
  expect_identical(describe(mtcars), "a data frame")
  expect_identical(describe(factor(c("a", "b"))), "a factor")
  expect_identical(describe(diag(2)), "a 2 x 2 double matrix")
  expect_identical(describe(matrix("a", 0, 3)), "a 0 x 3 character matrix")
  expect_identical(describe("say \"hi\""), "\"say \\\"hi\\\"\"")
  expect_identical(describe(NA), "NA")
  expect_identical(describe(1.5), "1.5")
  expect_identical(describe(TRUE), "TRUE")
  expect_identical(describe(1:3), "an integer vector of length 3")
  expect_identical(describe(c(1, 2)), "a double vector of length 2")
  expect_identical(describe(character()), "a character vector of length 0")
  expect_identical(describe(list(1)), "an unnamed list")
  expect_identical(describe(list(a = 1, 2)), "a list with a")
  expect_identical(describe(list()), "an empty list")
  expect_identical(describe(y ~ x), "an object of class \"formula\"")
  expect_identical(describe(quote(x)), "an object of class \"name\"")
})

test_that("checks return doubles of what they accept", {
  expect_identical(check_number(3L, "x"), 3)
  expect_identical(check_number(0, "x", 0, 1), 0)
  expect_identical(check_number(-Inf, "x", infinite = TRUE), -Inf)
  expect_identical(check_positive(2L, "x"), 2)
  expect_identical(check_positive(Inf, "x", infinite = TRUE), Inf)
  expect_identical(check_count(2^40, "x"), 2^40)
  expect_identical(check_count(0L, "x", lower = 0), 0)
  expect_identical(check_count(Inf, "x", infinite = TRUE), Inf)
  expect_identical(check_flag(NA == 1 | TRUE, "x"), TRUE)
  expect_identical(check_choice("b", "x", c("a", "b")), "b")
  expect_identical(check_choice(c("a", "b"), "x", c("a", "b")), "a")
  expect_identical(check_vector(c(a = 1L, b = 2L), "x"), c(1, 2))
  expect_identical(check_vector(matrix(1:2), "x", 2), c(1, 2))
  expect_identical(check_vector(c(1, Inf), "x", infinite = TRUE), c(1, Inf))
  expect_identical(check_matrix(diag(2), "x", 2, 2), diag(2))
  expect_identical(check_function(sum, "x"), sum)
  expect_identical(check_class(mtcars, "x", "data.frame", "data.frame()"), mtcars)
})

test_that("a sum that overflows is no reason to refuse a finite matrix", {
  big <- matrix(.Machine$double.xmax, 3, 1)
  expect_identical(check_matrix(big, "x"), big)
  expect_identical(check_matrix(matrix(c(TRUE, FALSE), 1), "x"), matrix(c(TRUE, FALSE), 1))
})

test_that("what the checks refuse, they refuse by name and range", {
  check <- function(what, ...) get(paste0("check_", what), asNamespace("elvi"))(..., name = "size")
  messages <- c(
    refusal(check("number", "a"), "size"),
    refusal(check("number", Inf), "size"),
    refusal(check("number", NaN, infinite = TRUE), "size"),
    refusal(check("number", c(1, 2)), "size"),
    refusal(check("number", factor(1)), "size"),
    refusal(check("number", -1, lower = 0), "size"),
    refusal(check("number", 0, lower = 0, open = TRUE), "size"),
    refusal(check("number", 2, lower = 0, upper = 1), "size"),
    refusal(check("number", 1, lower = 0, upper = 1, open = TRUE), "size"),
    refusal(check("positive", 0), "size"),
    refusal(check("positive", Inf), "size"),
    refusal(check("positive", -Inf, infinite = TRUE), "size"),
    refusal(check("count", 0), "size"),
    refusal(check("count", 1.5, lower = 0), "size"),
    refusal(check("count", Inf), "size"),
    refusal(check("count", 2^60), "size"),
    refusal(check("count", TRUE), "size"),
    refusal(check("flag", NA), "size"),
    refusal(check("flag", 1), "size"),
    refusal(check("flag", c(TRUE, FALSE)), "size"),
    refusal(check("choice", "c", choices = c("a", "b")), "size"),
    refusal(check("choice", NA_character_, choices = c("a", "b")), "size"),
    refusal(check("choice", c("b", "a"), choices = c("a", "b")), "size"),
    refusal(check("choice", 1, choices = c("a", "b")), "size"),
    refusal(check("class", 1, class = "lm", maker = "lm()"), "size"),
    refusal(check("function", "sum"), "size"),
    refusal(check("vector", list(1)), "size"),
    refusal(check("vector", diag(2)), "size"),
    refusal(check("vector", factor("a")), "size"),
    refusal(check("vector", 1:3, length = 2), "size"),
    refusal(check("vector", c(1, NaN), infinite = TRUE), "size"),
    refusal(check("matrix", 1:3), "size"),
    refusal(check("matrix", diag(2), nrow = 3), "size"),
    refusal(check("matrix", diag(2), nrow = 2, ncol = 3), "size"),
    refusal(check("matrix", matrix(c(1, 2, NA, 4), 2, dimnames = list(NULL, c("a", "b")))), "size")
  )
  expect_snapshot(writeLines(messages))
})

test_that("an unknown argument is named, with the one that was meant", {
  known <- c("budget", "base", "start", "schedule", "...")
  messages <- c(
    refusal(check_dots(list(bugdet = 1), known, "elvi()"), "bugdet"),
    refusal(check_dots(list(Bas = 1), known, "elvi()"), "Bas"),
    refusal(check_dots(list(scedule = 1, wrong = 2), known, "elvi()"), "scedule"),
    refusal(check_dots(list(temperature = 1), known, "elvi()"), "temperature")
  )
  unnamed <- tryCatch(check_dots(list(1, 2, named = 3), known, "elvi()"), error = identity)
  expect_s3_class(unnamed, "elvi_error_argument")
  expect_identical(unnamed$argument, "...")
  expect_identical(conditionMessage(tryCatch(check_dots(list(7), known, "elvi()"), error = identity)),
                   "elvi() has no place for 1 unnamed argument(s). Name them.")
  expect_snapshot({
    writeLines(messages)
    writeLines(conditionMessage(unnamed))
  })
  expect_silent(check_dots(list(), known, "elvi()"))
  # the nearest name, not the first that is near
  near <- tryCatch(check_dots(list(stat = 1), c("base", "start"), "f()"), error = conditionMessage)
  expect_match(near, "Did you mean `start`?", fixed = TRUE)
})

test_that("a package that is missing is asked for", {
  expect_silent(need_package("stats", "this"))
  e <- tryCatch(need_package("no.such.package", "Plotting"), error = identity)
  expect_identical(class(e), c("elvi_error_package", "elvi_error", "error", "condition"))
  expect_identical(conditionMessage(e),
                   "Plotting needs the package 'no.such.package'. Install it with install.packages(\"no.such.package\").")
})

# a package of that name in `library`, whose .onLoad() is `code`
install_package <- function(name, code, library) {
  source <- file.path(tempfile(), name)
  dir.create(file.path(source, "R"), recursive = TRUE)
  writeLines(c(paste("Package:", name), "Version: 1.0", "Title: T", "Description: D.", "License: GPL-2", "Author: A", "Maintainer: A <a@b.c>"),
             file.path(source, "DESCRIPTION"))
  file.create(file.path(source, "NAMESPACE"))
  writeLines(paste(".onLoad <- function(...)", code), file.path(source, "R", "load.R"))
  system2(file.path(R.home("bin"), "R"), c("CMD", "INSTALL", "--no-test-load", paste0("--library=", shQuote(library)), shQuote(source)),
          stdout = FALSE, stderr = FALSE)
}

test_that("a package that cannot be loaded now is not called missing", {
  skip_on_cran()
  library <- tempfile("library")
  dir.create(library)
  install_package("elvislow", "repeat Sys.sleep(0.01)", library)
  install_package("elvibroken", "stop(\"its licence has ended\")", library)
  before <- .libPaths()
  .libPaths(c(library, before))
  on.exit({
    setTimeLimit()
    .libPaths(before)
    unlink(library, recursive = TRUE)
  })
  said <- function(code) tryCatch(code, error = identity)
  for (ask in list(function() need_package("elvislow", "This"), function() has_package("elvislow"))) {
    setTimeLimit(elapsed = 0.3)
    limited <- said(ask())
    setTimeLimit()
    expect_match(conditionMessage(limited), "reached elapsed time limit")
    expect_false(inherits(limited, "elvi_error_package"))
  }
  broken <- said(need_package("elvibroken", "This"))
  expect_s3_class(broken, "elvi_error_package")
  expect_match(conditionMessage(broken), "^This needs the package 'elvibroken', which cannot be loaded: .*its licence has ended")
  expect_false(has_package("elvibroken"))
})

test_that("a default replaces NULL and nothing else", {
  expect_identical(NULL %||% 3, 3)
  expect_identical(NA %||% 3, NA)
  expect_identical(numeric() %||% 3, numeric())
})

test_that("errors of R while it reads variables name the argument; those with a class pass", {
  e <- tryCatch(blame_argument(stop("no such thing"), "data", "it cannot be read"), error = identity)
  expect_s3_class(e, "elvi_error_argument")
  expect_identical(e$argument, "data")
  expect_identical(conditionMessage(e), "`data`: it cannot be read (no such thing).")
  expect_identical(conditionMessage(e$parent), "no such thing")
  mine <- structure(class = c("mine", "error", "condition"), list(message = "mine", call = NULL))
  expect_identical(tryCatch(blame_argument(stop(mine), "data", "?"), error = identity), mine)
  expect_identical(blame_argument(3, "data", "?"), 3)
})

test_that("numbers whose squares overflow are refused, with their column", {
  expect_silent(check_magnitude(c(-1e150, 1e150), "y"))
  x <- cbind(a = 1:2, b = c(1, -1e151))
  messages <- c(refusal(check_magnitude(x, "X"), "X"), refusal(check_magnitude(c(1, 1e300), "y"), "y"),
                refusal(check_magnitude(unname(x), "X"), "X"))
  expect_snapshot(writeLines(messages))
})

test_that("a long text is shown in part, and one that is not valid is shown at all", {
  expect_identical(describe(strrep("a", 100)), paste0("\"", strrep("a", 55), "...\""))
  expect_match(describe("\xff\xfe"), "xff", fixed = TRUE)
  dots <- stats::setNames(list(1), "\xff")
  e <- tryCatch(check_dots(dots, c("budget", "base"), "elvi()"), error = identity)
  expect_s3_class(e, "elvi_error_argument")
  expect_identical(e$argument, names(dots))
})

test_that("the upper bound of a count is named when it is passed", {
  messages <- c(refusal(check_dim(2^31), "dim"), refusal(check_dim(0), "dim"),
                refusal(check_digits(23), "digits"))
  expect_identical(check_dim(2^31 - 1), 2^31 - 1)
  expect_snapshot(writeLines(messages))
})

test_that("integers of 64 bits are refused, whose doubles mean something else", {
  X <- structure(matrix(c(4.9e-324, 9.9e-324)), class = "integer64")
  expect_error(model_glm(X, 0:1), "as.double()", fixed = TRUE, class = "elvi_error_argument")
  expect_error(model_glm(matrix(1:2), structure(c(0, 4.9e-324), class = "integer64"), gaussian()), "as.double()", fixed = TRUE,
               class = "elvi_error_argument")
})

test_that("what is longer than 2^31 is described too", {
  expect_identical(describe(seq_len(3e9)), "a double vector of length 3000000000")
  expect_error(model_density(function(x) seq_len(3e9), dim = 2), "length 3000000000", class = "elvi_error_argument")
})

test_that("arguments of other packages are answered with elvi's way", {
  answer <- function(...) {
    error <- tryCatch(elvi(mpg ~ wt, mtcars, ...), elvi_error_argument = identity)
    expect_s3_class(error, "elvi_error_argument")
    conditionMessage(error)
  }
  for (name in names(arguments_of_others)) {
    expect_match(do.call(answer, stats::setNames(list(2), name)), arguments_of_others[[name]], fixed = TRUE)
  }
  expect_match(answer(control = list(adapt_delta = 0.9)), "`adapt_delta`: it does not sample")
  expect_match(answer(method = "REML"), "no method \"REML\": it integrates over variances")
  expect_match(answer(scale = "diagonal"), "`control = elvi_control(scale = )`", fixed = TRUE)
  expect_match(conditionMessage(tryCatch(elvi(mpg ~ gp(wt), mtcars), elvi_error_argument = identity)), "Use hsgp(x)", fixed = TRUE)
  fit <- elvi(mpg ~ wt, mtcars, dispersion = 6)
  expect_error(predict(fit, probs = 0.5), "`level`", class = "elvi_error_argument")
  expect_error(summary(fit, prob = 0.9), "`level`", class = "elvi_error_argument")
})
