/* What the dispersion of a hyperparameter point is: nothing, sigma of a gaussian, phi of a negative
 * binomial, a factor of the loss, or what else the family's own loss takes it for; see nested.h. */
#include "nested.h"
#include <math.h>
#include <string.h>

static void leave_rows(double dispersion, int n, double *y, double *weight, double *offset)
{
    (void) dispersion;
    (void) n;
    (void) y;
    (void) weight;
    (void) offset;
}

static elvi_status add_nothing(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at,
                               const elvi_optimum_rows *x, elvi_conditional *out)
{
    (void) p;
    (void) rule;
    (void) at;
    (void) x;
    (void) out;
    return ELVI_OK;
}

static void sigma_rows(double sigma, int n, double *y, double *weight, double *offset)
{
    (void) y;
    (void) offset;
    for (int i = 0; i < n; i++) weight[i] /= sigma * sigma;
}

/* the loss of a quadratic has half of sum_i c_i s_i^2 in it, which is d - tr(A P^-1), less one for each constraint */
static elvi_status sigma_sums(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at,
                              const elvi_optimum_rows *x, elvi_conditional *out)
{
    double trace = 0.0;
    (void) rule;
    for (int k = 0; k < p->precisions; k++)
        trace += (p->a_row[k] == p->a_column[k] ? 1.0 : 2.0) * at->A[p->a_source[k]] * x->inverse[p->a_place[k]];
    out->loss += 0.5 * (p->pattern.dim - p->constraints - trace);
    return ELVI_OK;
}

/* Given phi it is a logistic regression of y / (y + phi) with weights y + phi and offset - log phi. */
static void phi_rows(double phi, int n, double *y, double *weight, double *offset)
{
    const double log_phi = log(phi);
    for (int i = 0; i < n; i++) {
        weight[i] *= y[i] + phi;
        y[i] /= y[i] + phi;
        offset[i] -= log_phi;
    }
}

/* sum_i E log(1 + e^t), which is the loss of a response 0, and sum_i w_i E l' */
static elvi_status phi_sums(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at,
                            const elvi_optimum_rows *x, elvi_conditional *out)
{
    const int n = p->rows;
    double *zero = x->room;
    const elvi_lines rows = { n, zero, p->weight, x->eta, x->s };
    elvi_expected expected = { .slope = zero + n, .curve = zero + 2 * (size_t) n };
    memset(zero, 0, (size_t) n * sizeof(double));
    const elvi_status status = elvi_nested_expect_rows(p, rule, at, &rows, &expected);
    out->level = expected.sum;
    for (int i = 0; i < n; i++) out->slope[0] += x->slope[i];
    return status;
}

/* sum_i w_i E dl / d log hyper */
static elvi_status own_sums(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at,
                            const elvi_optimum_rows *x, elvi_conditional *out)
{
    const elvi_dispersion a = elvi_loss_dispersion(p, at);
    for (int i = 0; i < p->rows; i++) {
        const elvi_expected_row row = { p->y[i], p->weight[i], x->eta[i], x->s[i], x->slope[i], x->curve[i] };
        if (row.weight > 0.0) p->likelihood.family->add_hyper_slopes(&p->likelihood, &a, rule, &row, out->slope);
    }
    return ELVI_OK;
}

static const elvi_dispersion_ops records[] = {
    { .name = "none", .own = 0, .needs_slopes = 0, .set_rows = leave_rows, .add_sums = add_nothing },
    { .name = "sigma", .own = 0, .needs_slopes = 0, .set_rows = sigma_rows, .add_sums = sigma_sums },
    { .name = "phi", .own = 0, .needs_slopes = 0, .set_rows = phi_rows, .add_sums = phi_sums },
    /* of the loss, whose derivative in log dispersion is E l itself */
    { .name = "factor", .own = 1, .needs_slopes = 0, .set_rows = leave_rows, .add_sums = add_nothing },
    { .name = "own", .own = 1, .needs_slopes = 1, .set_rows = leave_rows, .add_sums = own_sums },
};

const elvi_dispersion_ops *elvi_dispersion_named(const char *name)
{
    for (size_t k = 0; k < sizeof records / sizeof *records; k++)
        if (!strcmp(records[k].name, name)) return &records[k];
    return NULL;
}
