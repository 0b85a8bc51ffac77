/* The only place where threads are started, and where BLAS's own are dealt with. */
#ifndef _WIN32
# define _GNU_SOURCE
# include <dlfcn.h>
#endif
#include "elvi.h"
#include <string.h>

/* BLAS has no standard way to say how many threads it uses. OpenBLAS, by far the
 * most common one that uses any, is asked by name; others are left alone. */
typedef struct {
    int (*get)(void);
    void (*set)(int);
} blas_threads;

static blas_threads find_blas_threads(void)
{
    blas_threads out = { NULL, NULL };
#ifndef _WIN32
    void *get = dlsym(RTLD_DEFAULT, "openblas_get_num_threads");
    void *set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
    if (get && set) {
        memcpy(&out.get, &get, sizeof get);   /* C has no cast from data to code */
        memcpy(&out.set, &set, sizeof set);
    }
#endif
    return out;
}

int elvi_blas_threads(void)
{
    const blas_threads blas = find_blas_threads();
    return blas.get ? blas.get() : 1;
}

void elvi_blas_alone(void)
{
    const blas_threads blas = find_blas_threads();
    if (blas.get && blas.get() > 1) blas.set(1);
}

int elvi_lanes(int threads)
{
    return threads < 1 ? 1 : threads < ELVI_MOST_LANES ? threads : ELVI_MOST_LANES;
}

void elvi_parallel(int threads, int lanes, double operations, void (*body)(void *ctx, int lane),
                   void *ctx)
{
    const double enough = 1e6;   /* below a few hundred microseconds threads cost more */
    const int at_once = lanes > 1 && operations >= enough ? lanes : 1;
    /* Each lane calls BLAS by itself: with threads of its own on top, and those
     * waiting for each other, that would be slower than no threads at all. Also with
     * one lane, for sums of BLAS may depend on its threads in the last digit. */
    const blas_threads blas = find_blas_threads();
    const int before = threads > 0 && blas.get ? blas.get() : 1;
    if (before > 1) blas.set(1);
#ifdef _OPENMP
    #pragma omp parallel for schedule(static, 1) num_threads(at_once) if (at_once > 1)
#endif
    for (int t = 0; t < lanes; t++) body(ctx, t);
    if (before > 1) blas.set(before);
    (void) at_once;   /* unused without OpenMP */
}
