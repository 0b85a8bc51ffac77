#include "r_elvi.h"
#ifdef _OPENMP
# include <omp.h>
#endif
#ifndef _WIN32
# include <unistd.h>
#endif

/* options(elvi.threads = ), 0 if there is none; R refuses what is no number of threads */
static double asked_for(void)
{
    SEXP elvi = PROTECT(Rf_mkString("elvi"));
    SEXP home = PROTECT(R_FindNamespace(elvi));
    SEXP call = PROTECT(Rf_lang1(Rf_install("threads_asked_for")));
    const double n = Rf_asReal(Rf_eval(call, home));
    UNPROTECT(3);
    return n;
}

#ifdef _OPENMP
/* A forked child inherits an OpenMP runtime whose threads are gone and would wait
 * for them for ever: it works alone. .onLoad() notes the process. */
static int forked(void)
{
#ifdef _WIN32
    return 0;
#else
    SEXP process = Rf_GetOption1(Rf_install("elvi.process"));
    return TYPEOF(process) != INTSXP || Rf_xlength(process) != 1 || INTEGER(process)[0] != getpid();
#endif
}
#endif

/* options(elvi.threads = ), or else two, as CRAN asks; never more than OpenMP allows,
 * which OMP_THREAD_LIMIT and, for the default, OMP_NUM_THREADS set. 0 without OpenMP:
 * BLAS has its own. */
int r_threads(void)
{
    const double asked = asked_for();
#ifdef _OPENMP
    const int limit = omp_get_thread_limit(), most = omp_get_max_threads();
    int n = most < 2 ? most : 2;
    if (asked >= 1.0) n = asked < ELVI_MOST_LANES ? (int) asked : ELVI_MOST_LANES;
    if (n > limit) n = limit;
    return forked() ? 1 : elvi_lanes(n);
#else
    (void) asked;
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
