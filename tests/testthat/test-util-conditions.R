# ?elvi_conditions lists every class that elvi raises, and no other.

# classes named in the text of the package's functions, defaults and constants
raised_classes <- function() {
  ns <- asNamespace("elvi")
  text <- unlist(lapply(ls(ns, all.names = TRUE), function(name) deparse(get(name, ns))))
  found <- regmatches(text, gregexpr("elvi_(error|warning|message)_[a-z_]+", text))
  sort(unique(unlist(found)))
}

documented_classes <- function() {
  pages <- tools::Rd_db("elvi")
  page <- pages[["elvi_conditions.Rd"]]
  if (is.null(page)) return(NULL)
  text <- utils::capture.output(tools::Rd2txt(page, options = list(underline_titles = FALSE, width = 1000)))
  text <- text[seq_len(grep("^Examples:", text)[1L] - 1L)]   # the tables, not their examples
  sort(unique(unlist(regmatches(text, gregexpr("elvi_(error|warning|message)_[a-z_]+", text)))))
}

test_that("every class that is raised is documented, and every documented one is raised", {
  skip_on_cran()
  documented <- tryCatch(documented_classes(), error = function(e) NULL)
  skip_if(is.null(documented), "help pages are not installed")
  expect_gt(length(raised_classes()), 15)
  expect_identical(documented, raised_classes())
})

test_that("the fields that the page promises are there", {
  model <- model_quadratic(diag(2))
  e <- tryCatch(elvi(model, start = list(mu = 1:3)), error = identity)
  expect_identical(e$argument, "start$mu")

  e <- tryCatch(elvi(y ~ x, data = list(y = 1:3)), elvi_error_argument = identity)
  expect_identical(e$argument, "data")
  e <- tryCatch(elvi(y ~ log("a"), data = list(y = 1:3)), elvi_error_argument = identity)
  expect_identical(e$argument, "object")
  expect_match(conditionMessage(e$parent), "non-numeric", fixed = TRUE)

  long <- elvi_control("raw", smoothness = 1e-8, estimator = "reparam")
  e <- tryCatch(elvi(model, schedule = schedule_custom(1e200, 1, 50), control = long), elvi_error = identity)
  expect_true(inherits(e, "elvi_error_nonfinite") || inherits(e, "elvi_error_singular"))
  expect_true(is.numeric(e$iteration) && e$iteration >= 1 && e$iteration <= 50)
  expect_length(e$mu, 2)
  expect_identical(dim(e$scale), c(2L, 2L))
})

# Calls of try() and of tryCatch(error = ) whose handler does not look at the error.
careless_calls <- function(expr) {
  if (is.function(expr)) return(careless_calls(body(expr)))
  if (!is.call(expr)) return(NULL)
  name <- if (is.name(expr[[1L]])) as.character(expr[[1L]]) else ""
  handler <- if (name == "tryCatch") expr$error
  careless <- name == "try" || (is.call(handler) && identical(handler[[1L]], quote(`function`)) && !"e" %in% all.names(handler[[3L]]))
  c(if (careless) deparse1(expr), unlist(lapply(as.list(expr)[-1L], function(x) if (!identical(x, quote(expr = ))) careless_calls(x))))
}

test_that("no handler takes a time limit for what it interrupts", {
  expect_identical(or_else(stop("singular"), 3), 3)
  expect_null(or_null(stop("singular")))
  for (text in time_limit_texts()) {
    expect_error(or_else(stop(text), 3), text, fixed = TRUE)
    expect_error(or_null(stop(text)), text, fixed = TRUE)
  }
  # before, `(x | g)` could not be read when a limit fell while it was
  expect_length(careless_calls(quote(tryCatch(chol(S), error = function(e) NULL))), 1)
  found <- unlist(lapply(ls(asNamespace("elvi"), all.names = TRUE), function(name) {
    f <- get(name, asNamespace("elvi"))
    if (is.function(f)) careless_calls(f)
  }))
  ends <- grepl("dbDisconnect|chunks\\$close|isChild", found)   # the end of what has ended, and a question when the package is loaded
  expect_identical(unname(found[!ends]), character())
})
