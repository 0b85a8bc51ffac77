#include "r_elvi.h"
#ifdef _OPENMP
# include <omp.h>
#endif
#ifndef _WIN32
# include <unistd.h>
#endif

#ifdef _OPENMP
static SEXP option(const char *name)
{
    return Rf_GetOption1(Rf_install(name));
}

/* A forked child inherits an OpenMP runtime whose threads are gone and would wait
 * for them for ever: it works alone. .onLoad() notes the process. */
static int forked(void)
{
#ifdef _WIN32
    return 0;
#else
    SEXP process = option("elvi.process");
    return TYPEOF(process) != INTSXP || Rf_xlength(process) != 1 || INTEGER(process)[0] != getpid();
#endif
}
#endif

/* options(elvi.threads = ), or else two, as CRAN asks; never more than OpenMP allows,
 * which OMP_THREAD_LIMIT and, for the default, OMP_NUM_THREADS set. 0 without OpenMP:
 * BLAS has its own. */
int r_threads(void)
{
#ifdef _OPENMP
    SEXP wanted = option("elvi.threads");
    const int number = (TYPEOF(wanted) == REALSXP || TYPEOF(wanted) == INTSXP) && Rf_xlength(wanted) == 1;
    const double asked = number ? Rf_asReal(wanted) : 0.0;
    const int limit = omp_get_thread_limit(), most = omp_get_max_threads();
    int n = most < 2 ? most : 2;
    if (asked >= 1.0) n = asked < ELVI_MOST_LANES ? (int) asked : ELVI_MOST_LANES;
    if (n > limit) n = limit;
    return forked() ? 1 : elvi_lanes(n);
#else
    return 0;
#endif
}

/* for a forked process among others, so that their BLAS threads are not in each
 * other's way */
SEXP elvi_r_blas_alone(void)
{
    elvi_blas_alone();
    return R_NilValue;
}

SEXP elvi_r_threads(void)
{
    return Rf_ScalarInteger(elvi_lanes(r_threads()));
}
