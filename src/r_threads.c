#include "r_elvi.h"
#ifdef _OPENMP
#include <omp.h>
#endif

/* What OpenMP and BLAS allow and the core has room for; NULL without OpenMP. R decides
 * (R/util-threads.R) and passes the number of threads with each call that may use them. */
SEXP elvi_r_openmp(void)
{
#ifdef _OPENMP
    static const char *const names[] = { "limit", "default", "room", NULL };
    SEXP out = PROTECT(r_named_list(names));
    r_set(out, "limit", Rf_ScalarInteger(elvi_blas_takes_threads() ? omp_get_thread_limit() : 1));
    r_set(out, "default", Rf_ScalarInteger(omp_get_max_threads()));
    r_set(out, "room", Rf_ScalarInteger(ELVI_MOST_LANES));
    UNPROTECT(1);
    return out;
#else
    return R_NilValue;
#endif
}

/* for a forked process among others, so that their BLAS threads are not in each
 * other's way */
SEXP elvi_r_blas_alone(void)
{
    elvi_blas_alone();
    return R_NilValue;
}
