/* Regressions with an auxiliary parameter that is estimated too: gaussian and
 * student ("robust") with a = log sigma, negative binomial with a = log phi. a is
 * the last element of x. The passes are those of model_glm.c: a GEMM, an
 * elementwise pass over (eta, a), a GEMM, in chunks of rows. */
#include "elvi.h"
#include <Rmath.h>
#include <string.h>

static size_t aux_scratch_length(const elvi_model *model, int n)
{
    const elvi_aux *aux = model->data;
    return (size_t) elvi_glm_chunk(&aux->linear) * n;
}

/* The auxiliary parameter of one point. */
typedef struct {
    double log, s, inverse;   /* a, e^a, e^-a */
} auxiliary;

/* l(eta, a; y) and its derivatives in eta and a */
typedef struct {
    double l, eta, a;
} loss_at;

/* a + (y - eta)^2 / (2 sigma^2) */
static inline loss_at gaussian_loss(double eta, const auxiliary *a, double y)
{
    const double u = (eta - y) * a->inverse;
    const loss_at out = { a->log + 0.5 * u * u, u * a->inverse, 1.0 - u * u };
    return out;
}

/* a + (nu + 1) / 2 log(1 + (y - eta)^2 / (nu sigma^2)) */
static inline loss_at robust_loss(double eta, const auxiliary *a, double y, double nu)
{
    const double u = (eta - y) * a->inverse, q = u * u / nu;
    loss_at out;
    out.l = a->log + 0.5 * (nu + 1.0) * log1p(q);
    out.eta = (1.0 + 1.0 / nu) * u / (1.0 + q) * a->inverse;
    out.a = 1.0 - (nu + 1.0) * (1.0 - 1.0 / (1.0 + q));   /* also for q = Inf */
    return out;
}

/* phi log(1 + mu/phi) + y log(1 + phi/mu), mu = e^eta: the part of the negative
 * binomial with mu in it; the rest is count_terms() */
static inline loss_at negbin_loss(double eta, const auxiliary *a, double y)
{
    const double off = eta - a->log, e = exp(-fabs(off)), tail = log1p(e), half = 1.0 / (1.0 + e);
    const double up = off > 0.0 ? off + tail : tail, down = off > 0.0 ? tail : tail - off;
    const double p = off > 0.0 ? half : e * half, q = off > 0.0 ? e * half : half;
    const double slope = a->s * p - y * q;
    const loss_at out = { a->s * up + y * down, slope, a->s * up - slope };
    return out;
}

static inline loss_at loss(const elvi_aux *aux, double eta, const auxiliary *a, double y)
{
    switch (aux->family) {
    case ELVI_AUX_GAUSSIAN: return gaussian_loss(eta, a, y);
    case ELVI_AUX_ROBUST: return robust_loss(eta, a, y, aux->error_df);
    case ELVI_AUX_NEGBIN: break;
    }
    return negbin_loss(eta, a, y);
}

/* digamma(phi + y) - digamma(phi), by the asymptotic series where the two are
 * nearly the same */
static double digamma_gain(double phi, double y)
{
    if (phi < 1e3) return digamma(phi + y) - digamma(phi);
    const double p = 1.0 / phi, q = 1.0 / (phi + y);
    return log1p(y * p) + 0.5 * (p - q) + (p * p - q * q) / 12.0;
}

/* log B(phi, y). Beyond 1e306 lbeta() warns, which a thread must not do; there it is
 * log(Gamma(y) phi^-y) to rounding. */
static double log_beta(const auxiliary *phi, double y)
{
    if (phi->s > 1e300) return lgammafn(y) - y * phi->log;
    return phi->s > 1e-300 ? lbeta(phi->s, y) : -phi->log;
}

/* Sum of weight * log B(phi, y) over the distinct counts y > 0, and its derivative
 * in a: with negbin_loss() minus the log density, up to a constant of y. The beta
 * function keeps the digits that two log gammas of a large phi would lose. */
static double count_terms(const elvi_aux *aux, const auxiliary *a, int with_slope, double *slope)
{
    const double phi = a->s;
    double sum = 0.0;
    *slope = 0.0;
    for (int k = 0; k < aux->counts; k++) {
        const double y = aux->count[k], w = aux->count_weight[k];
        sum += w * log_beta(a, y);
        if (with_slope) *slope -= w * (phi > 1e-300 ? phi * digamma_gain(phi, y) : 1.0);
    }
    return sum;
}

/* -log p(s) - log s at s = e^a: the second term is the Jacobian that makes it
 * the density of a. p is exponential (rate), normal or student (centre,
 * precision, prior_df), truncated to s > 0, or flat (all 0). */
static double aux_prior(const elvi_aux *aux, const auxiliary *a, double *slope)
{
    const double l = elvi_penalty(aux->precision, aux->prior_df, a->s - aux->centre, slope);
    *slope = *slope * a->s + aux->rate * a->s - 1.0;
    return l + aux->rate * a->s - a->log;
}

static auxiliary auxiliary_of(const elvi_model *model, const double *x, int j)
{
    const double a = x[(size_t) j * model->dim + model->dim - 1];
    const auxiliary out = { a, exp(a), exp(-a) };
    return out;
}

/* The sum of the losses of a chunk of rows at one point and its derivative in a;
 * eta becomes the derivatives in eta. */
static double losses(const elvi_aux *aux, int first, int rows, const auxiliary *a,
                     double *eta, double *along_a)
{
    const double *y = aux->linear.y + first, *w = aux->linear.weight + first;
    double sum = 0.0;
    *along_a = 0.0;
    for (int i = 0; i < rows; i++) {
        if (!(w[i] > 0.0)) {
            eta[i] = 0.0;
            continue;
        }
        const loss_at at = loss(aux, eta[i], a, y[i]);
        sum += w[i] * at.l;
        *along_a += w[i] * at.a;
        eta[i] = w[i] * at.eta;
    }
    return sum;
}

static elvi_status aux_eval(const elvi_model *model, const double *x, int n,
                            double *value, double *grad, double *eta)
{
    const elvi_aux *aux = model->data;
    const elvi_glm *linear = &aux->linear;
    const int d = model->dim, chunk = elvi_glm_chunk(linear);
    elvi_glm_prior(linear, x, d, n, value, grad);
    for (int j = 0; j < n; j++) {
        const auxiliary a = auxiliary_of(model, x, j);
        double slope, more;
        const double l = aux_prior(aux, &a, &slope) + count_terms(aux, &a, grad != NULL, &more);
        if (value) value[j] += l;
        if (grad) grad[(size_t) j * d + d - 1] = slope + more;
    }
    for (int first = 0; first < linear->rows; first += chunk) {
        const int rows = linear->rows - first < chunk ? linear->rows - first : chunk;
        elvi_glm_predict(linear, first, rows, x, d, n, eta);
        for (int j = 0; j < n; j++) {
            const auxiliary a = auxiliary_of(model, x, j);
            double along_a;
            const double sum = losses(aux, first, rows, &a, eta + (size_t) j * rows, &along_a);
            if (value) value[j] += sum;
            if (grad) grad[(size_t) j * d + d - 1] += along_a;
        }
        if (grad) elvi_design_collect(&linear->design, first, rows, eta, d, n, grad);
    }
    return ELVI_OK;
}

const elvi_model_ops elvi_aux_ops = { aux_eval, aux_scratch_length };
