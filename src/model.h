/* Targets: model_<kind>.c; that of a regression is in glm.h. */
#ifndef ELVI_MODEL_H
#define ELVI_MODEL_H

#include "scale.h"

typedef struct elvi_model_ops elvi_model_ops;
typedef struct {
    const elvi_model_ops *ops;
    const void *data;
    int dim;
    int threads; /* at most so many may evaluate it at once; 0: one, and
                    BLAS has threads instead */
    double cost; /* rough number of operations per point */
    int gathers; /* bits of elvi_spread_kind: for which can it gather, below? */
} elvi_model;

/* Points mu + spread z for draws z number first, ..., first + n - 1 of an iteration. The spread is d x d, or a
 * diagonal: so many columns of d. */
typedef struct {
    uint64_t iteration, first, n;
    int columns;
    const double *mu, *spread;
} elvi_draws;

struct elvi_model_ops {
    /* f and its gradient at the columns of x (d x n). value (n) and grad
     * (d x n) may each be NULL. scratch has the length the second op says. */
    elvi_status (*eval)(const elvi_model *model, const double *x, int n,
                        double *value, double *grad, double *scratch);
    size_t (*scratch_length)(const elvi_model *model, int n);
    /* NULL, or for targets that are far away and can make draws themselves: f at them (n), or the sum of its gradients
     * (d) and that of the gradients times z' (as long as the spread); what is not requested is NULL. scratch has
     * d and twice the length of the spread. */
    elvi_status (*gather)(const elvi_model *model, const elvi_draws *draws, double *value, double *sum,
                          double *sum_z, double *scratch);
};

/* ---- the models of this package that have no rows ----------------------------- */

/* f(x) = (x - m)' A (x - m) / 2 */
typedef struct {
    const double *A; /* d x d, symmetric */
    const double *m; /* d */
} elvi_quadratic;

/* f_w(w) = f(m + A w) - log|A|: a model in other coordinates, whose objective
 * is the same number as in the old ones */
typedef struct {
    elvi_model inner;
    elvi_scale kind; /* of A, which is stored as a scale is */
    const double *A;
    const double *m; /* d */
    double log_det;  /* log|A| */
} elvi_affine;

extern const elvi_model_ops elvi_quadratic_ops;
extern const elvi_model_ops elvi_affine_ops;

/* operations per point, roughly */
double elvi_quadratic_cost(int dim);
double elvi_affine_cost(const elvi_affine *affine);

#endif
