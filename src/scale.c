/* What the kinds of scale have in common. */
#include "run.h"
#include <math.h>

elvi_status elvi_scale_factor(const elvi_problem *p, const elvi_theta *theta, elvi_work *w)
{
    if (w->room.factored) return ELVI_OK;
    const elvi_status status = p->scale.ops->factor(&p->scale, theta->scale, &w->room);
    if (status != ELVI_OK) return status;
    if (isnan(w->room.log_det)) return ELVI_SINGULAR_SCALE;
    w->room.factored = 1;
    return ELVI_OK;
}

void elvi_scale_move(const elvi_problem *p, const elvi_theta *theta, const double *z, int n, double *x)
{
    const int d = p->model.dim;
    p->scale.ops->apply(&p->scale, theta->scale, n, z, x);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] += theta->mu[i];
}

double elvi_size2_by_variances(const elvi_scale *of, const double *s)
{
    double sum = 0.0;
    for (int i = 0; i < of->dim; i++) sum += of->ops->variance(of, s, i);
    return sum;
}

double elvi_log_det_diagonal(const double *v, int d, size_t stride)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) {
        if (!(v[i * stride] > 0.0)) return NAN;
        sum += log(v[i * stride]);
    }
    return sum;
}

double elvi_barrier_diagonal(const double *v, int d, size_t stride, double lo)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) {
        const double below = lo > 0.0 ? fmax(0.0, 1.0 - v[i * stride] / lo) : 0.0;
        sum += below * (1.0 + 0.5 * below) - log(fmax(v[i * stride], lo));
    }
    return sum;
}

void elvi_prox_diagonal(double *v, int d, size_t stride, double t)
{
    for (int i = 0; i < d; i++) {
        const double c = v[i * stride], root = sqrt(c * c + 4.0 * t);
        /* without cancellation */
        v[i * stride] = c >= 0.0 ? 0.5 * (c + root) : 2.0 * t / (root - c);
    }
}
