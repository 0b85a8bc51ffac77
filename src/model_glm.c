/* Generalised linear models with independent normal or student priors: a GEMM,
 * an elementwise pass, a GEMM, over chunks of rows so that scratch stays small
 * however many rows there are. */
#include "elvi.h"
#include <Rmath.h>
#include <string.h>

int elvi_glm_chunk(const elvi_glm *glm)
{
    return elvi_design_chunk(&glm->design, ELVI_BLOCK);
}

static size_t glm_scratch_length(const elvi_model *model, int n)
{
    return (size_t) elvi_glm_chunk(model->data) * n;
}

/* Below -37 the loss is -t and its slope -1 to rounding, and e may underflow. */
double elvi_cloglog_hit(double t, double *slope)
{
    const double e = exp(t);
    *slope = t < -37.0 ? -1.0 : e < 700.0 ? -e / expm1(e) : 0.0;
    if (t < -37.0) return -t;
    return e < M_LN2 ? -log(-expm1(-e)) : -log1p(-exp(-e));
}

/* sum over rows of weight * l(eta; y), for one point */
static double loss(const elvi_glm *glm, int first, int rows, const double *eta)
{
    const double *y = glm->y + first, *w = glm->weight + first;
    if (glm->family == ELVI_LOGIT) return elvi_logit_loss(rows, y, w, eta);
    if (glm->family == ELVI_POISSON) return elvi_poisson_loss(rows, y, w, eta);
    double sum = 0.0;
    for (int i = 0; i < rows; i++) {
        const double t = eta[i];
        double l = 0.0, unused;
        if (!(w[i] > 0.0)) continue;
        if (glm->family == ELVI_NORMAL)
            l = 0.5 * (t - y[i]) * (t - y[i]);
        else if (glm->family == ELVI_PROBIT) {   /* 0 * log(0) must be 0 */
            if (y[i] > 0.0) l -= y[i] * pnorm(t, 0.0, 1.0, 1, 1);
            if (y[i] < 1.0) l -= (1.0 - y[i]) * pnorm(t, 0.0, 1.0, 0, 1);
        } else {                                 /* 0 * Inf must be 0 */
            if (y[i] > 0.0) l += y[i] * elvi_cloglog_hit(t, &unused);
            if (y[i] < 1.0) l += (1.0 - y[i]) * exp(t);
        }
        sum += w[i] * l;
    }
    return sum;
}

/* phi(t) / Phi(t), without underflow; far out the two logarithms cancel and the
 * asymptotic series, there exact to rounding, takes over */
static inline double mills(double t)
{
    if (t < -1e3) return -t - 1.0 / t;
    return exp(dnorm(t, 0.0, 1.0, 1) - pnorm(t, 0.0, 1.0, 1, 1));
}

/* eta -> weight * l'(eta; y), in place, for one point */
static void slope(const elvi_glm *glm, int first, int rows, double *eta)
{
    const double *y = glm->y + first, *w = glm->weight + first;
    switch (glm->family) {
    case ELVI_LOGIT: elvi_logit_slope(rows, y, w, eta); break;
    case ELVI_POISSON: elvi_poisson_slope(rows, y, w, eta); break;
    case ELVI_PROBIT:
        for (int i = 0; i < rows; i++)
            eta[i] = w[i] * ((1.0 - y[i]) * mills(-eta[i]) - y[i] * mills(eta[i]));
        break;
    case ELVI_CLOGLOG:
        for (int i = 0; i < rows; i++) {
            double hit;
            elvi_cloglog_hit(eta[i], &hit);
            const double miss = w[i] > 0.0 && y[i] < 1.0 ? exp(eta[i]) : 0.0;
            eta[i] = w[i] * (y[i] * hit + (1.0 - y[i]) * miss);
        }
        break;
    case ELVI_NORMAL:
        for (int i = 0; i < rows; i++) eta[i] = w[i] * (eta[i] - y[i]);
        break;
    }
}

double elvi_penalty(double precision, double nu, double off, double *slope)
{
    if (isinf(nu)) {
        *slope = precision * off;
        return 0.5 * precision * off * off;
    }
    const double q = precision * off * off / nu;
    *slope = (1.0 + 1.0 / nu) * precision * off / (1.0 + q);
    return 0.5 * (nu + 1.0) * log1p(q);
}

void elvi_glm_prior(const elvi_glm *glm, const double *x, int ld, int n,
                    double *value, double *grad)
{
    for (int j = 0; j < n; j++) {
        double sum = 0.0, slope;
        for (int i = 0; i < glm->dim; i++) {
            sum += elvi_penalty(glm->precision[i], glm->prior_df[i],
                                x[(size_t) j * ld + i] - glm->centre[i], &slope);
            if (grad) grad[(size_t) j * ld + i] = slope;
        }
        if (value) value[j] = sum;
    }
}

void elvi_glm_predict(const elvi_glm *glm, int first, int rows, const double *x,
                      int ld, int n, double *eta)
{
    for (int j = 0; j < n; j++)
        memcpy(eta + (size_t) j * rows, glm->offset + first, (size_t) rows * sizeof(double));
    elvi_design_predict(&glm->design, first, rows, x, ld, n, eta);
}

static elvi_status glm_eval(const elvi_model *model, const double *x, int n,
                            double *value, double *grad, double *eta)
{
    const elvi_glm *glm = model->data;
    const int d = glm->dim, chunk = elvi_glm_chunk(glm);
    elvi_glm_prior(glm, x, d, n, value, grad);
    for (int first = 0; first < glm->rows; first += chunk) {
        const int rows = glm->rows - first < chunk ? glm->rows - first : chunk;
        elvi_glm_predict(glm, first, rows, x, d, n, eta);
        for (int j = 0; j < n; j++) {
            double *col = eta + (size_t) j * rows;
            if (value) value[j] += loss(glm, first, rows, col);
            if (grad) slope(glm, first, rows, col);
        }
        if (grad) elvi_design_collect(&glm->design, first, rows, eta, d, n, grad);
    }
    return ELVI_OK;
}

void elvi_glm_curvature(const elvi_glm *glm, double bound, const double *v,
                        double *out, double *eta)
{
    const int d = glm->dim, chunk = elvi_glm_chunk(glm);
    /* a student penalty is most curved at its centre */
    for (int i = 0; i < d; i++)
        out[i] = (1.0 + 1.0 / glm->prior_df[i]) * glm->precision[i] * v[i];
    for (int first = 0; first < glm->rows; first += chunk) {
        const int rows = glm->rows - first < chunk ? glm->rows - first : chunk;
        const double *w = glm->weight + first;
        memset(eta, 0, (size_t) rows * sizeof(double));
        elvi_design_predict(&glm->design, first, rows, v, d, 1, eta);
        for (int i = 0; i < rows; i++) eta[i] *= bound * w[i];
        elvi_design_collect(&glm->design, first, rows, eta, d, 1, out);
    }
}

const elvi_model_ops elvi_glm_ops = { glm_eval, glm_scratch_length };
