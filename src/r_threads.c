#include "r_elvi.h"
#ifdef _OPENMP
# include <omp.h>
#endif
#ifndef _WIN32
# include <sys/types.h>
# include <unistd.h>
#endif

#if defined(_OPENMP) && !defined(_WIN32)
/* A forked child inherits an OpenMP runtime whose threads are gone and would wait
 * for them for ever: it works alone. Set when elvi is loaded, then only read. */
static pid_t loaded_by;

void r_remember_process(void)
{
    loaded_by = getpid();
}

static int forked(void)
{
    return getpid() != loaded_by;
}
#else
void r_remember_process(void)
{
}
#endif

#if defined(_OPENMP) && defined(_WIN32)
static int forked(void)
{
    return 0;
}
#endif

/* options(elvi.threads = ), or else two, as CRAN asks; never more than OpenMP
 * allows, which OMP_THREAD_LIMIT and, for the default, OMP_NUM_THREADS set. */
int r_threads(void)
{
#ifdef _OPENMP
    const int asked = Rf_asInteger(Rf_GetOption1(Rf_install("elvi.threads")));
    const int limit = omp_get_thread_limit(), most = omp_get_max_threads();
    int n = asked != NA_INTEGER && asked >= 1 ? asked : most < 2 ? most : 2;
    if (n > limit) n = limit;
    /* a BLAS with more threads than that does better by itself */
    return forked() || elvi_blas_threads() > n ? 1 : n;
#else
    return 1;
#endif
}

SEXP elvi_r_threads(void)
{
    return Rf_ScalarInteger(r_threads());
}
