# Targets of dimension d behind pointers, compiled once: a quadratic with a matrix and a
# centre; one that fails; pointers that are no good.
native_code <- '
#include <elvi.h>
#include <string.h>

typedef struct { int d; const double *A, *m; } bowl;

/* value and gradient of (x - m) A (x - m) / 2 */
static int bowl_eval(void *data, const double *x, int n, double *value, double *grad)
{
    const bowl *b = data;
    for (int j = 0; j < n; j++) {
        double total = 0.0;
        for (int i = 0; i < b->d; i++) {
            double slope = 0.0;
            for (int k = 0; k < b->d; k++) slope += b->A[i + k * b->d] * (x[j * b->d + k] - b->m[k]);
            if (grad) grad[j * b->d + i] = slope;
            total += slope * (x[j * b->d + i] - b->m[i]) / 2;
        }
        if (value) value[j] = total;
    }
    return 0;
}

typedef struct { elvi_target target; bowl data; } room;

static SEXP pointer_to(SEXP A, SEXP m, int version, int concurrent,
                       int (*eval)(void *, const double *, int, double *, double *))
{
    SEXP raw = PROTECT(Rf_allocVector(RAWSXP, sizeof(room)));
    SEXP owner = PROTECT(Rf_list3(raw, A, m));
    room *r = (room *) RAW(raw);
    const bowl data = { Rf_length(m), REAL(A), REAL(m) };
    const elvi_target target = { version, Rf_length(m), concurrent, 0.0, &r->data, eval };
    r->data = data;
    r->target = target;
    SEXP out = elvi_target_pointer(&r->target, owner);
    UNPROTECT(2);
    return out;
}

SEXP quadratic_target(SEXP A, SEXP m, SEXP concurrent)
{
    return pointer_to(A, m, ELVI_TARGET_VERSION, Rf_asInteger(concurrent), bowl_eval);
}

/* fails beyond a distance of 100 from the origin */
static int failing_eval(void *data, const double *x, int n, double *value, double *grad)
{
    const bowl *b = data;
    for (int i = 0; i < n * b->d; i++) if (x[i] > 100.0 || x[i] < -100.0) return 7;
    return bowl_eval(data, x, n, value, grad);
}
SEXP failing_target(SEXP A, SEXP m) { return pointer_to(A, m, ELVI_TARGET_VERSION, 1, failing_eval); }

/* the gradient of twice the value */
static int wrong_eval(void *data, const double *x, int n, double *value, double *grad)
{
    const bowl *b = data;
    const int status = bowl_eval(data, x, n, value, grad);
    for (int i = 0; grad && i < n * b->d; i++) grad[i] *= 2.0;
    return status;
}
SEXP wrong_target(SEXP A, SEXP m) { return pointer_to(A, m, ELVI_TARGET_VERSION, 1, wrong_eval); }

SEXP old_target(SEXP A, SEXP m) { return pointer_to(A, m, ELVI_TARGET_VERSION + 1, 1, bowl_eval); }
SEXP empty_target(SEXP A, SEXP m) { return pointer_to(A, m, ELVI_TARGET_VERSION, 1, NULL); }
SEXP flat_target(SEXP A, SEXP m) { return pointer_to(A, Rf_allocVector(REALSXP, 0), ELVI_TARGET_VERSION, 1, bowl_eval); }
SEXP other_pointer(void) { return R_MakeExternalPtr(NULL, Rf_install("something"), R_NilValue); }
'

native <- local({
  loaded <- NULL
  function(routine, ...) {
    skip_on_cran()
    if (is.null(loaded)) loaded <<- compile_native()
    skip_if(isFALSE(loaded), "no C compiler")
    .Call(getNativeSymbolInfo(routine, loaded), ...)
  }
})

compile_native <- function() {
  dir <- tempfile("native")
  dir.create(dir)
  writeLines(native_code, file.path(dir, "native.c"))
  writeLines(paste0("PKG_CPPFLAGS = -I", shQuote(system.file("include", package = "elvi"))), file.path(dir, "Makevars"))
  old <- setwd(dir)
  on.exit(setwd(old))
  suppressWarnings(system2(file.path(R.home("bin"), "R"), c("CMD", "SHLIB", "native.c"), stdout = FALSE, stderr = FALSE))
  library <- file.path(dir, paste0("native", .Platform$dynlib.ext))
  if (file.exists(library)) dyn.load(library) else FALSE
}

d <- 4
A <- crossprod(matrix(sin(1:20), 5)) + diag(d)
m <- cos(1:4)
L <- max(eigen(A)$values)
native_model <- function(concurrent = 1L, routine = "quadratic_target", ...) {
  pointer <- if (routine == "quadratic_target") native(routine, A, m, concurrent) else native(routine, A, m)
  model_native(pointer, smoothness = L, convex = TRUE, growth = 2, ...)
}

test_that("a target in C has the values and gradients of the same target in elvi", {
  model <- native_model()
  x <- matrix(sin(1:(d * 300)), d)
  expect_equal(target_at(model, x), target_at(model_quadratic(A, m), x), tolerance = 1e-13)
  expect_equal(model$value(x), target_at(model_quadratic(A, m), x)$value, tolerance = 1e-13)
  expect_identical(model$dim, 4)
  expect_identical(native_model(names = letters[1:4])$names, letters[1:4])
  expect_output(print(model), "dimension 4")
})

test_that("a run on it is a run on the same target, in both coordinates and with any number of threads", {
  twin <- model_quadratic(A, m)
  run <- function(model, control, threads = 2) {
    old <- options(elvi.threads = threads)
    on.exit(options(old))
    set.seed(1)
    elvi(model, base_laplace(), schedule = schedule_custom(0.1, 400, iterations = 30), control = control)
  }
  for (coordinates in c("raw", "whitened")) for (concurrent in 0:1) {
    control <- elvi_control(coordinates = coordinates, average = "last", smoothness = L)
    fit <- run(native_model(concurrent), control)
    expect_identical(fit$status, "finished")
    # the last iterate: the quadratic one may keep its start, which is judged exactly
    last <- suppressMessages(run(twin, control))$last
    expect_equal(fit$last$mu, last$mu, tolerance = 1e-5)
    expect_equal(fit$last$scale, last$scale, tolerance = 1e-5)
    expect_identical(run(native_model(concurrent), control, 1)$last, fit$last)
  }
})

test_that("the default fit of a C target finds the optimum, and can be judged and drawn from", {
  set.seed(2)
  fit <- elvi(native_model(), tol = 1e-4)
  expect_identical(fit$method, "mpsgd")
  expect_true(fit$converged)
  expect_equal(unname(fit$mu), m, tolerance = 0.02)
  expect_equal(unname(vcov(fit)), solve(A), tolerance = 0.02)
  expect_lt(pareto_k(fit)$k, 0.5)
  expect_identical(dim(as.matrix(fit, draws = 10, resample = TRUE)), c(10L, 4L))
})

test_that("a target that fails ends the run with an error of its own", {
  model <- native_model(routine = "failing_target")
  expect_error(elvi(model, schedule = schedule_custom(1000, 10, iterations = 20), control = elvi_control("raw")),
               "reported a failure in iteration", class = "elvi_error_target")
})

test_that("a gradient that is not that of the values is noticed", {
  expect_warning(elvi(native_model(routine = "wrong_target"), budget = 100), class = "elvi_warning_gradient")
})

test_that("pointers that are no good are refused by name", {
  refused <- function(pointer, what) expect_error(model_native(pointer), what, class = "elvi_error_argument")
  refused(3, "`pointer` must be an external pointer")
  refused(native("other_pointer"), "made by elvi_target_pointer")
  refused(native("old_target", A, m), "of version 2")
  refused(native("empty_target", A, m), "one without `eval`")
  refused(native("flat_target", A, m), "of dimension 0")
  refused(unserialize(serialize(native("quadratic_target", A, m, 1L), NULL)), "whose target is gone")
  pointer <- native("quadratic_target", A, m, 1L)
  expect_error(model_native(pointer, smoothness = -1), "smoothness", class = "elvi_error_argument")
  expect_error(model_native(pointer, names = "a"), "names", class = "elvi_error_argument")
})

test_that("a saved fit keeps its parameters, and says that its target is gone", {
  set.seed(3)
  fit <- elvi(native_model(), budget = 500)
  again <- unserialize(serialize(fit, NULL))
  expect_identical(again$mu, fit$mu)
  expect_identical(vcov(again), vcov(fit))
  expect_identical(simulate(again, 3, seed = 1), simulate(fit, 3, seed = 1))
  gone <- function(code) expect_error(code, "is valid only in the session", class = "elvi_error_native")
  gone(objective(again))
  gone(elvi(again, budget = 1000))
  gone(elvi(again$model))
  gone(pareto_k(again))
  gone(again$model$value(numeric(4)))
})

test_that("the example of the page compiles and runs", {
  skip_on_cran()
  skip_if(is.null(native("other_pointer")), "no C compiler")
  file <- normalizePath(tempfile(fileext = ".R"), "/", mustWork = FALSE)
  on.exit(unlink(file))
  tools::Rd2ex(tools::Rd_db("elvi")[["model_native.Rd"]], file, commentDonttest = FALSE)
  r <- in_new_r(c(sprintf("source(%s, print.eval = TRUE)", deparse1(file)), "out <- coef(elvi(model))"))
  expect_true(any(grepl("^Posterior mean", r$log)))
  expect_lt(max(abs(r$out)), 0.1)
})

# What a user may write beside the header: names that Rinternals.h makes macros of, in either order and language.
test_that("the header takes `eval` as a name, with and without R's headers before it", {
  skip_on_cran()
  skip_if(is.null(native("other_pointer")), "no C compiler")
  body <- c("static int eval(void *data, const double *x, int n, double *value, double *grad) { return 0; }",
            "static elvi_target target;",
            "extern \"C\" SEXP make(void) { target.version = ELVI_TARGET_VERSION; target.eval = eval;",
            "  return elvi_target_pointer(&target, R_NilValue); }")
  heads <- list(c("#include <elvi.h>"), c("#include <R.h>", "#include <Rinternals.h>", "#include <elvi.h>"),
                c("#include <elvi.h>", "#include <R.h>", "#include <Rinternals.h>"))
  for (language in c("c", "cpp")) for (head in heads) {
    dir <- tempfile("header")
    dir.create(dir)
    code <- c(head, if (language == "c") sub("extern \"C\" ", "", body) else body)
    writeLines(code, file.path(dir, paste0("header.", language)))
    writeLines(paste0("PKG_CPPFLAGS = -I", shQuote(system.file("include", package = "elvi"))), file.path(dir, "Makevars"))
    old <- setwd(dir)
    failed <- suppressWarnings(system2(file.path(R.home("bin"), "R"), c("CMD", "SHLIB", paste0("header.", language)),
                                       stdout = FALSE, stderr = FALSE))
    setwd(old)
    expect_identical(as.integer(failed), 0L, info = paste(c(language, head), collapse = " "))
  }
})
