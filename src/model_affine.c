/* A model seen in other coordinates x = m + A w. Elliptic families are affine
 * equivariant, so every schedule and theorem applies there unchanged, with the
 * smoothness of f_w instead of that of f. */
#include "glm.h"
#include <string.h>

static size_t affine_scratch_length(const elvi_model *model, int n)
{
    const elvi_affine *a = model->data;
    elvi_model inner = a->inner;
    inner.threads = model->threads;
    return (size_t) model->dim * n + inner.ops->scratch_length(&inner, n);
}

static elvi_status affine_eval(const elvi_model *model, const double *w, int n,
                               double *value, double *grad, double *scratch)
{
    const elvi_affine *a = model->data;
    const int d = model->dim;
    double *x = scratch;
    a->kind.ops->apply(&a->kind, a->A, n, w, x);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] += a->m[i];
    const elvi_status status = a->inner.ops->eval(&a->inner, x, n, value, grad,
                                                  scratch + (size_t) d * n);
    if (grad) { /* x has been used by now */
        a->kind.ops->transposed(&a->kind, a->A, n, grad, x);
        memcpy(grad, x, (size_t) d * n * sizeof(double));
    }
    for (int j = 0; value && j < n; j++) value[j] -= a->log_det;
    return status;
}

static elvi_status affine_gather(const elvi_model *model, const elvi_draws *draws, double *value, double *sum,
                                 double *sum_z, double *scratch)
{
    const elvi_affine *a = model->data;
    const int d = model->dim;
    const size_t spread = (size_t) d * draws->columns;
    double *mu = scratch, *moved = scratch + d, *rest = moved + spread;
    elvi_draws inner = *draws;
    a->kind.ops->apply(&a->kind, a->A, 1, draws->mu, mu);
    for (int i = 0; i < d; i++) mu[i] += a->m[i];
    a->kind.ops->apply(&a->kind, a->A, draws->columns, draws->spread, moved);
    inner.mu = mu;
    inner.spread = moved;
    const elvi_status status = a->inner.ops->gather(&a->inner, &inner, value, sum, sum_z, rest);
    if (sum) {
        a->kind.ops->transposed(&a->kind, a->A, 1, sum, mu);
        memcpy(sum, mu, (size_t) d * sizeof(double));
        a->kind.ops->transposed(&a->kind, a->A, draws->columns, sum_z, moved);
        memcpy(sum_z, moved, spread * sizeof(double));
    }
    for (uint64_t j = 0; value && j < draws->n; j++) value[j] -= a->log_det;
    return status;
}

const elvi_model_ops elvi_affine_ops = {
    .eval = affine_eval,
    .scratch_length = affine_scratch_length,
    .gather = affine_gather,
};

void elvi_curvature_apply(const elvi_curvature *c, const double *v, double *out)
{
    if (!c->affine) {
        elvi_glm_curvature(c->glm, c->bound, v, out, c->scratch);
        return;
    }
    c->affine->kind.ops->apply(&c->affine->kind, c->affine->A, 1, v, out);
    elvi_glm_curvature(c->glm, c->bound, out, c->moved, c->scratch);
    c->affine->kind.ops->transposed(&c->affine->kind, c->affine->A, 1, c->moved, out);
}

double elvi_affine_cost(const elvi_affine *affine)
{
    return affine->inner.cost + 2.0 * (double) affine->kind.ops->length(&affine->kind);
}
