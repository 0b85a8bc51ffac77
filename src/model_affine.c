/* A model seen in other coordinates x = m + A w. Elliptic families are affine
 * equivariant, so every schedule and theorem applies there unchanged, with the
 * smoothness of f_w instead of that of f. SPEC section 3. */
#include "linalg.h"
#include <string.h>

static void apply(const elvi_affine *a, char trans, int n, double *x)
{
    const int d = a->inner.dim;
    if (!a->diagonal) {
        elvi_trmm_lower(trans, d, n, a->A, x);
        return;
    }
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] *= a->A[i];
}

void elvi_affine_apply(const elvi_affine *a, int n, double *x)
{
    apply(a, 'N', n, x);
}

void elvi_affine_apply_transposed(const elvi_affine *a, int n, double *x)
{
    apply(a, 'T', n, x);
}

static size_t affine_scratch_length(const elvi_model *model, int n)
{
    const elvi_affine *a = model->data;
    return (size_t) model->dim * n + a->inner.ops->scratch_length(&a->inner, n);
}

static elvi_status affine_eval(const elvi_model *model, const double *w, int n,
                               double *value, double *grad, double *scratch)
{
    const elvi_affine *a = model->data;
    const int d = model->dim;
    double *x = scratch;
    memcpy(x, w, (size_t) d * n * sizeof(double));
    elvi_affine_apply(a, n, x);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] += a->m[i];
    const elvi_status status = a->inner.ops->eval(&a->inner, x, n, value, grad,
                                                  scratch + (size_t) d * n);
    if (grad) elvi_affine_apply_transposed(a, n, grad);
    for (int j = 0; value && j < n; j++) value[j] -= a->log_det;
    return status;
}

const elvi_model_ops elvi_affine_ops = { affine_eval, affine_scratch_length };

void elvi_curvature_apply(const elvi_curvature *c, const double *v, double *out)
{
    if (!c->affine) {
        elvi_glm_curvature(c->glm, c->bound, v, out, c->scratch);
        return;
    }
    memcpy(c->moved, v, (size_t) c->glm->dim * sizeof(double));
    elvi_affine_apply(c->affine, 1, c->moved);
    elvi_glm_curvature(c->glm, c->bound, c->moved, out, c->scratch);
    elvi_affine_apply_transposed(c->affine, 1, out);
}
