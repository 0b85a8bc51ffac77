#' Your own density, as a C function
#'
#' `model_native()` makes a model for [elvi()] from a C function of another package, or of a file compiled by `R CMD SHLIB`. The function
#' returns `f(x) = -log density`, up to a constant, and its gradient. It is called without R, for blocks of points and, if it allows
#' that, by several threads at once.
#'
#' The C side includes `elvi.h`, in `system.file("include", package = "elvi")`: `LinkingTo:
#' elvi` finds it. It fills in a struct `elvi_target` with the dimension, a pointer to data
#' and a function that gives values and gradients, and returns `elvi_target_pointer()` of it
#' from a `.Call()` routine. The header documents them.
#'
#' A pointer is valid in its session only: a fit that was saved by `saveRDS()` and read in another session has its parameters,
#' covariances and draws. Computing the objective or continuing the run is then an error of class `elvi_error_native`. As for
#' [model_density()], [elvi()] compares the gradient with a central difference of the values.
#'
#' @param pointer external pointer made by `elvi_target_pointer()` in C.
#' @param smoothness,convex,growth,names,constrain,logarithms as in [model_density()].
#' @return An object of class `elvi_model` for [elvi()].
#' @examples
#' \donttest{
#' # f(x) = sum(a * x^2) / 2 with a user's vector a
#' code <- '
#' #include <elvi.h>
#' #include <string.h>
#' static int eval(void *data, const double *x, int n, double *value, double *grad)
#' {
#'     const double *a = data;
#'     for (int j = 0; j < n; j++) {
#'         const double *xj = x + 3 * j;
#'         if (value)
#'             value[j] = (a[0] * xj[0] * xj[0] + a[1] * xj[1] * xj[1] + a[2] * xj[2] * xj[2]) / 2;
#'         for (int i = 0; grad && i < 3; i++) grad[3 * j + i] = a[i] * xj[i];
#'     }
#'     return 0;
#' }
#' SEXP bowl(SEXP a)
#' {
#'     SEXP raw = PROTECT(Rf_allocVector(RAWSXP, sizeof(elvi_target)));
#'     SEXP owner = PROTECT(Rf_list2(raw, a));   // keeps both alive
#'     elvi_target target = { ELVI_TARGET_VERSION, 3, 1, 12.0, REAL(a), eval };
#'     memcpy(RAW(raw), &target, sizeof target);
#'     SEXP out = elvi_target_pointer((elvi_target *) RAW(raw), owner);
#'     UNPROTECT(2);
#'     return out;
#' }'
#' directory <- tempfile()
#' dir.create(directory)
#' file <- file.path(directory, "bowl.c")
#' writeLines(code, file)
#' include <- paste0("-I", shQuote(system.file("include", package = "elvi")))
#' Sys.setenv(PKG_CPPFLAGS = include)
#' old <- setwd(directory)   # where the compiler may leave its files
#' failed <- system2(file.path(R.home("bin"), "R"), c("CMD", "SHLIB", "bowl.c"))
#' setwd(old)
#' Sys.unsetenv("PKG_CPPFLAGS")
#' if (failed) stop("bowl.c was not compiled")
#' dyn.load(file.path(directory, paste0("bowl", .Platform$dynlib.ext)))
#' model <- model_native(.Call("bowl", c(1, 4, 9)), smoothness = 9, convex = TRUE, growth = 2)
#' set.seed(1)
#' elvi(model)
#' }
#' @export
model_native <- function(pointer, smoothness = NULL, convex = NA, growth = NA, names = NULL, constrain = NULL,
                         logarithms = NULL) {
  dim <- check_target_pointer(pointer)
  known <- check_known(dim, smoothness, convex, growth, names, constrain, logarithms)
  bare <- new_model(c("native", "density"), dim = dim, value = NULL, gradient = NULL, pointer = pointer)
  do.call(new_model, c(list(c("native", "density"), dim = dim, value = function(x) target_values(bare, x),
                            gradient = function(x) as.double(target_at(bare, x)$gradient),
                            own_gradient = TRUE, pointer = pointer), known))
}

# called by src/r_native.c
target_is_gone <- function() {
  elvi_abort("The C target of this model no longer exists: it is valid only in the session that made it. ",
             "Make the model again with model_native().", class = "elvi_error_native")
}

# the dimension of the target behind a pointer
check_target_pointer <- function(pointer) {
  target <- if (typeof(pointer) == "externalptr") .Call(elvi_r_native, pointer)
  if (is.null(target)) {
    bad_argument("pointer", "an external pointer made by elvi_target_pointer() in C", describe(pointer))
  }
  if (!length(target)) {
    bad_argument("pointer", "made in this session", "one whose target is gone", "a pointer does not survive saveRDS()")
  }
  version <- .Call(elvi_r_native_version)
  if (target$version != version) {
    bad_argument("pointer", paste("one to a target of version", version, "of elvi.h (compile it anew)"),
                 paste("of version", target$version))
  }
  if (!target$eval || target$dim < 1L) {
    bad_argument("pointer", "one to a target with a dimension and an `eval`",
                 if (target$eval) paste("of dimension", target$dim) else "one without `eval`")
  }
  target$dim
}
