/* What the three kinds of scale have in common: apply, solve, differentiate.
 * Symmetric and triangular scales share storage (a lower triangle). */
#include "linalg.h"
#include <math.h>
#include <string.h>

size_t elvi_scale_length(elvi_scale_kind kind, int d)
{
    return kind == ELVI_DIAGONAL ? (size_t) d : (size_t) d * (size_t) d;
}

static double log_det_diagonal(const double *s, int d, size_t stride)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) {
        const double v = s[(size_t) i * stride];
        if (!(v > 0.0)) return NAN;
        sum += log(v);
    }
    return sum;
}

elvi_status elvi_scale_factor(const elvi_problem *p, const elvi_theta *theta,
                              elvi_work *w)
{
    const int d = p->model.dim;
    const size_t stride = (size_t) d + 1;
    if (w->factored) return ELVI_OK;
    switch (p->scale) {
    case ELVI_SYMMETRIC:
        memcpy(w->factor, theta->scale, (size_t) d * d * sizeof(double));
        if (elvi_cholesky(d, w->factor)) return ELVI_SINGULAR_SCALE;
        w->log_det = 2.0 * log_det_diagonal(w->factor, d, stride);
        break;
    case ELVI_TRIANGULAR:
        w->log_det = log_det_diagonal(theta->scale, d, stride);
        break;
    case ELVI_DIAGONAL:
        w->log_det = log_det_diagonal(theta->scale, d, 1);
        break;
    }
    if (isnan(w->log_det)) return ELVI_SINGULAR_SCALE;
    w->factored = 1;
    return ELVI_OK;
}

void elvi_scale_apply(const elvi_problem *p, const elvi_theta *theta,
                      const double *z, int n, double *x)
{
    const int d = p->model.dim;
    const double *mu = theta->mu, *s = theta->scale;
    if (p->scale == ELVI_SYMMETRIC)
        elvi_symm(d, n, s, z, 0.0, x);
    else if (p->scale == ELVI_TRIANGULAR) {
        memcpy(x, z, (size_t) d * n * sizeof(double));
        elvi_trmm_lower('N', d, n, s, x);
    } else
        for (int j = 0; j < n; j++)
            for (int i = 0; i < d; i++)
                x[(size_t) j * d + i] = s[i] * z[(size_t) j * d + i];
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * d + i] += mu[i];
}

elvi_status elvi_scale_solve(const elvi_problem *p, const elvi_theta *theta,
                             const elvi_work *work, double *w, int n)
{
    const int d = p->model.dim;
    switch (p->scale) {
    case ELVI_SYMMETRIC:
        if (elvi_cholesky_solve(d, n, work->factor, w)) return ELVI_SINGULAR_SCALE;
        break;
    case ELVI_TRIANGULAR:
        elvi_trsm_lower('T', d, n, theta->scale, w);
        break;
    case ELVI_DIAGONAL:
        for (int j = 0; j < n; j++)
            for (int i = 0; i < d; i++)
                w[(size_t) j * d + i] /= theta->scale[i];
        break;
    }
    return ELVI_OK;
}

/* lower triangle of out += alpha g z' */
static void outer_lower(int d, double alpha, const double *g, const double *z,
                        double *out)
{
    for (int j = 0; j < d; j++) {
        const double c = alpha * z[j];
        double *col = out + (size_t) j * d;
        for (int i = j; i < d; i++) col[i] += c * g[i];
    }
}

void elvi_scale_outer(const elvi_problem *p, double alpha, const double *g,
                      const double *z, int n, double *out)
{
    const int d = p->model.dim;
    switch (p->scale) {
    case ELVI_SYMMETRIC:
        elvi_syr2k(d, n, 0.5 * alpha, g, z, out);
        break;
    case ELVI_TRIANGULAR:
        if (n == 1)
            outer_lower(d, alpha, g, z, out);
        else   /* the upper triangle is filled too, and never read */
            elvi_gemm('N', 'T', d, d, n, alpha, g, d, z, d, 1.0, out, d);
        break;
    case ELVI_DIAGONAL:
        for (int j = 0; j < n; j++)
            for (int i = 0; i < d; i++)
                out[i] += alpha * g[(size_t) j * d + i] * z[(size_t) j * d + i];
        break;
    }
}

elvi_status elvi_scale_entropy(const elvi_problem *p, const elvi_theta *theta,
                               elvi_work *w, double *out)
{
    const int d = p->model.dim;
    const size_t stride = (size_t) d + 1;
    switch (p->scale) {
    case ELVI_SYMMETRIC:
        /* The inverse overwrites a copy: the factor may still be wanted. */
        memcpy(w->mat1, w->factor, (size_t) d * d * sizeof(double));
        if (elvi_cholesky_inverse(d, w->mat1)) return ELVI_SINGULAR_SCALE;
        elvi_scale_axpy(p->scale, d, out, -1.0, w->mat1, out);
        break;
    case ELVI_TRIANGULAR:
        for (int i = 0; i < d; i++) out[i * stride] -= 1.0 / theta->scale[i * stride];
        break;
    case ELVI_DIAGONAL:
        for (int i = 0; i < d; i++) out[i] -= 1.0 / theta->scale[i];
        break;
    }
    return ELVI_OK;
}

void elvi_scale_axpy(elvi_scale_kind kind, int d, const double *x, double alpha,
                     const double *y, double *out)
{
    if (kind == ELVI_DIAGONAL) {
        for (int i = 0; i < d; i++) out[i] = x[i] + alpha * y[i];
        return;
    }
    for (int j = 0; j < d; j++) {
        const size_t at = (size_t) j * d;
        for (int i = j; i < d; i++) out[at + i] = x[at + i] + alpha * y[at + i];
    }
}

void elvi_scale_mix(elvi_scale_kind kind, int d, double by, const double *x,
                    double *out)
{
    if (kind == ELVI_DIAGONAL) {
        for (int i = 0; i < d; i++) out[i] += by * (x[i] - out[i]);
        return;
    }
    for (int j = 0; j < d; j++) {
        const size_t at = (size_t) j * d;
        for (int i = j; i < d; i++) out[at + i] += by * (x[at + i] - out[at + i]);
    }
}

double elvi_scale_dist2(elvi_scale_kind kind, int d, const double *x,
                        const double *y)
{
    double diagonal = 0.0, below = 0.0;
    if (kind == ELVI_DIAGONAL) {
        for (int i = 0; i < d; i++) diagonal += (x[i] - y[i]) * (x[i] - y[i]);
        return diagonal;
    }
    for (int j = 0; j < d; j++) {
        const size_t at = (size_t) j * d;
        diagonal += (x[at + j] - y[at + j]) * (x[at + j] - y[at + j]);
        for (int i = j + 1; i < d; i++)
            below += (x[at + i] - y[at + i]) * (x[at + i] - y[at + i]);
    }
    return diagonal + (kind == ELVI_SYMMETRIC ? 2.0 : 1.0) * below;
}
