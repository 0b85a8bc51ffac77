/* What every file of the numeric core shares. Nothing in it depends on R: the r_*.c files translate. The headers are
 * one for each wall: parallel.h, scale.h, base.h, rows.h, family.h, prior.h, model.h, glm.h, run.h, nested.h.
 *
 * Shapes: every matrix is column-major. d is the dimension of the target, a "block" is a d x n matrix whose columns
 * are points. How a scale is stored is its kind's business. */
#ifndef ELVI_CORE_H
#define ELVI_CORE_H

#include <stddef.h>
#include <stdint.h>

/* R knows them by the names that r_util.c gives them; check_status() in R/run-loop.R has the messages. */
typedef enum {
    ELVI_OK = 0,
    ELVI_STOPPED = 1, /* the caller's poll asked to stop */
    ELVI_NONFINITE_GRADIENT = 2,
    ELVI_SINGULAR_SCALE = 3, /* scale not positive definite */
    ELVI_EIGEN_FAILED = 4,   /* LAPACK did not converge */
    ELVI_NO_EXPECTATION = 5, /* E f is infinite, or beyond quadrature */
    ELVI_TARGET_FAILED = 6,  /* another package's target says so */
    ELVI_NO_STEP = 7         /* no step passes its check */
} elvi_status;

/* ---- hooks ------------------------------------------------------------------ */

typedef struct elvi_state elvi_state;
typedef struct {
    /* non-zero: stop now. Called after ten to a hundred milliseconds of work, or a block
     * for each thread if that takes longer. */
    int (*poll)(void *ctx, const elvi_state *state);
    /* non-zero: return, with ELVI_OK. Called between two iterations of a run. */
    int (*pause)(void *ctx);
    void *ctx;
} elvi_hooks;

/* ---- blocks ------------------------------------------------------------------- */

/* draws number first, ..., first + n - 1 of an iteration: their streams are functions of these numbers */
typedef struct {
    uint64_t key, iteration, first;
    int n;
} elvi_sample;

/* gradients g at draws z, one column each: d x n */
typedef struct {
    int n;
    const double *g, *z;
} elvi_gradients;

/* some rows of a matrix of d columns that are ldu numbers apart */
typedef struct {
    int n;
    const double *U;
    int ldu;
} elvi_row_block;

/* ---- parameters ----------------------------------------------------------- */

typedef struct {
    double *mu;    /* d */
    double *scale; /* as long as its kind says */
} elvi_theta;

/* ---- checksum.c ------------------------------------------------------------- */

uint64_t elvi_checksum(const unsigned char *bytes, size_t n);

/* ---- surrogate.c ------------------------------------------------------------ */

void elvi_column_products(size_t n, const double *basis, size_t terms, const int *factors, size_t most, double *out);
void elvi_nearest(size_t n, const double *x, size_t m, const double *points, size_t dim, int *out);

#endif
