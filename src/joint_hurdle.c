/* A hurdle: zero with probability 1 / (1 + e^-k), else a count of log mean eta that is not zero. The predictors are (eta, k), and
 * neither depends on the other. */
#include "joint_counts.h"

/* As the mean falls to 0 every count is 1, and differences of large numbers are all that is left: where B is below this, by the
 * series of log(1 - e^-B) = log B - B / 2 + B^2 / 24. */
static const double few = 1e-4;

static elvi_line_piece few_poisson(double y, double eta)
{
    const double b = exp(eta);
    const elvi_line_piece out = {
        .value = b / 2.0 + b * b / 24.0 - (y - 1.0) * eta,
        .slope = b / 2.0 + b * b / 12.0 - (y - 1.0),
        .curve = b / 2.0 + b * b / 6.0,
    };
    return out;
}

static elvi_line_piece positive_poisson(const double *hyper, double y, double eta)
{
    if (exp(eta) < few) return few_poisson(y, eta);
    return elvi_without_zero(elvi_poisson_count(hyper, y, eta), elvi_poisson_zero(hyper, eta));
}

/* -log of the probability of a zero, or of none */
static elvi_line_piece hurdle(const double *hyper, double y, double k)
{
    const double t = y > 0.0 ? k : -k, p = elvi_logistic(t);
    const elvi_line_piece out = { elvi_log1pexp(t), y > 0.0 ? p : -p, p * (1.0 - p), 0.0 };
    (void) hyper;
    return out;
}

static inline elvi_joint_piece both_of(elvi_line_piece count, elvi_line_piece other)
{
    const elvi_joint_piece out = {
        .value = count.value + other.value,
        .slope = { count.slope, other.slope },
        .curve = { count.curve, 0.0, other.curve },
        .hyper = count.hyper,
    };
    return out;
}

static const elvi_line_piece nothing = { 0.0, 0.0, 0.0, 0.0 };

static elvi_joint_piece poisson_at(const double *hyper, double y, const double *eta)
{
    return both_of(y > 0.0 ? positive_poisson(hyper, y, eta[0]) : nothing, hurdle(hyper, y, eta[1]));
}

static elvi_joint_piece negbinomial_at(const double *hyper, double y, const double *eta)
{
    return both_of(y > 0.0 ? elvi_positive_negbinomial(hyper, y, eta[0]) : nothing, hurdle(hyper, y, eta[1]));
}

static elvi_joint_piece poisson_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    elvi_joint_piece out = { 0 };
    if (row->y > 0.0) elvi_joint_add_line(positive_poisson, hyper, rule, row, 0, &out);
    elvi_joint_add_line(hurdle, hyper, rule, row, 1, &out);
    return out;
}

static elvi_joint_piece negbinomial_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    elvi_joint_piece out = { 0 };
    if (row->y > 0.0) elvi_joint_add_line(elvi_positive_negbinomial, hyper, rule, row, 0, &out);
    elvi_joint_add_line(hurdle, hyper, rule, row, 1, &out);
    return out;
}

const elvi_joint elvi_hurdle_families[] = {
    { .name = "hurdle_poisson", .hypers = 0, .at = poisson_at, .expect = poisson_expect },
    { .name = "hurdle_negbinomial", .hypers = 1, .at = negbinomial_at, .expect = negbinomial_expect },
    { .name = NULL },
};
