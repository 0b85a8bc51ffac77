/* Targets in C for the R package elvi.
 *
 * Your package has 'LinkingTo: elvi' and 'Imports: elvi' in its DESCRIPTION; a file
 * for R CMD SHLIB is compiled with -I of system.file("include", package = "elvi").
 * Fill in an elvi_target, return elvi_target_pointer(&target, owner) from a .Call()
 * routine, and give that to elvi::model_native() in R.
 *
 * A file without R in it can #define ELVI_WITHOUT_R before it includes this one. In others R's functions have their
 * full names, such as Rf_allocVector(): without R_NO_REMAP Rinternals.h makes a macro of `eval` and of other short names. */
#ifndef ELVI_PUBLIC_H
#define ELVI_PUBLIC_H

#ifndef ELVI_WITHOUT_R
# ifndef R_NO_REMAP
#  define R_NO_REMAP
# endif
# include <Rinternals.h>
# include <R_ext/Rdynload.h>
# undef eval   /* the macro of an Rinternals.h that was included before */
#endif

#define ELVI_TARGET_VERSION 1

typedef struct {
    int version;      /* ELVI_TARGET_VERSION, of the header you were compiled with */
    int dim;          /* of x */
    int concurrent;   /* may several threads call eval at once? If so it must not
                         write to data, nor call R */
    double cost;      /* rough number of operations for one point, or 0: unknown */
    void *data;       /* passed on to eval */
    /* f(x) = -log density up to a constant, at n points: the columns of x, dim x n by
     * columns. value (n numbers) and grad (dim x n) are for the results; either may be
     * NULL: not wanted. Returns 0; anything else ends the run with an R error of class
     * elvi_error_target. Must return: no longjmp(), so no Rf_error(). */
    int (*eval)(void *data, const double *x, int n, double *value, double *grad);
} elvi_target;

#ifndef ELVI_WITHOUT_R
/* An external pointer to the target for elvi::model_native(). The target must stay where
 * it is as long as the pointer lives: make it static, or part of the R object `owner`
 * (R_NilValue for none), which the pointer keeps alive with all that data points to. */
static inline SEXP elvi_target_pointer(elvi_target *target, SEXP owner)
{
    SEXP (*make)(void *, SEXP) =
        (SEXP (*)(void *, SEXP)) R_GetCCallable("elvi", "elvi_target_pointer");
    return make(target, owner);
}
#endif

#endif
