/* Zero inflation: a zero with probability 1 / (1 + e^-k), else a count of log mean eta. The predictors are (eta, k). */
#include "joint_counts.h"

/* log(1 + e^k) - log(e^k + e^-B): r is the probability that a zero is one of the counts */
static inline elvi_joint_piece zero_of(elvi_zero zero, double k)
{
    const double p = elvi_logistic(k), q = elvi_logistic(k + zero.value), r = elvi_logistic(-k - zero.value);
    const double value = elvi_log1pexp(k) - fmax(k, -zero.value) - log1p(exp(-fabs(k + zero.value)));
    const elvi_joint_piece out = {
        .value = value,
        .slope = { r * zero.slope, p - q },
        .curve = { r * zero.curve - r * q * zero.slope * zero.slope, -q * r * zero.slope, p * (1.0 - p) - q * r },
        .hyper = r * zero.hyper,
    };
    return out;
}

/* E zero_of(). The inner loop is all that takes time, so it has two exponentials and a logarithm. */
typedef elvi_zero (*zero_function)(const double *hyper, double eta);

static elvi_joint_piece expect_zero(zero_function of, const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    elvi_joint_axes x = elvi_joint_axes_of(rule, row);
    elvi_joint_piece sum = { 0 };
    /* given eta the loss is a difference of two softplus functions of k, for which few nodes are enough */
    x.second = elvi_joint_level(rule, 0.4 * x.s2);
    for (int i = 0; i < 2 * x.first->n; i++) {
        const double z1 = elvi_node(x.first, i), w1 = x.first->w[i / 2];
        const elvi_zero zero = of(hyper, row->eta[0] + x.s1 * z1);
        double value = 0.0, r_sum = 0.0, p_sum = 0.0, q_sum = 0.0, qr_sum = 0.0, pp_sum = 0.0;
        for (int j = 0; j < 2 * x.second->n; j++) {
            const double k = row->eta[1] + x.with * z1 + x.s2 * elvi_node(x.second, j), w2 = x.second->w[j / 2], t = k + zero.value;
            const double a = exp(-fabs(k)), b = exp(-fabs(t)), ia = 1.0 / (1.0 + a), ib = 1.0 / (1.0 + b);
            const double p = k > 0.0 ? ia : a * ia, q = t > 0.0 ? ib : b * ib, r = t > 0.0 ? b * ib : ib;
            value += w2 * (log((1.0 + a) * ib) + fmax(k, 0.0) - fmax(k, -zero.value));
            r_sum += w2 * r;
            p_sum += w2 * p;
            q_sum += w2 * q;
            qr_sum += w2 * q * r;
            pp_sum += w2 * a * ia * ia;
        }
        sum.value += w1 * value;
        sum.slope[0] += w1 * zero.slope * r_sum;
        sum.slope[1] += w1 * (p_sum - q_sum);
        sum.curve[0] += w1 * (zero.curve * r_sum - zero.slope * zero.slope * qr_sum);
        sum.curve[1] -= w1 * zero.slope * qr_sum;
        sum.curve[2] += w1 * (pp_sum - qr_sum);
        sum.hyper += w1 * zero.hyper * r_sum;
    }
    return sum;
}

/* not a structural zero */
static elvi_line_piece not_inflated(const double *hyper, double y, double k)
{
    const double p = elvi_logistic(k);
    const elvi_line_piece out = { elvi_log1pexp(k), p, p * (1.0 - p), 0.0 };
    (void) hyper;
    (void) y;
    return out;
}

static inline elvi_joint_piece count_of(elvi_line_piece count, double k)
{
    const elvi_line_piece other = not_inflated(NULL, 0.0, k);
    const elvi_joint_piece out = {
        .value = count.value + other.value,
        .slope = { count.slope, other.slope },
        .curve = { count.curve, 0.0, other.curve },
        .hyper = count.hyper,
    };
    return out;
}

static elvi_joint_piece poisson_at(const double *hyper, double y, const double *eta)
{
    return y > 0.0 ? count_of(elvi_poisson_count(hyper, y, eta[0]), eta[1]) : zero_of(elvi_poisson_zero(hyper, eta[0]), eta[1]);
}

static elvi_joint_piece poisson_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const double mean = exp(row->eta[0] + 0.5 * row->V[0]);
    elvi_joint_piece out = { .value = mean - row->y * row->eta[0], .slope = { mean - row->y, 0.0 }, .curve = { mean, 0.0, 0.0 } };
    if (!(row->y > 0.0)) return expect_zero(elvi_poisson_zero, hyper, rule, row);
    elvi_joint_add_line(not_inflated, hyper, rule, row, 1, &out);
    return out;
}

static elvi_joint_piece negbinomial_at(const double *hyper, double y, const double *eta)
{
    return y > 0.0 ? count_of(elvi_negbinomial_count(hyper, y, eta[0]), eta[1])
                   : zero_of(elvi_negbinomial_zero(hyper, eta[0]), eta[1]);
}

static elvi_joint_piece negbinomial_expect(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row)
{
    elvi_joint_piece out = { 0 };
    if (!(row->y > 0.0)) return expect_zero(elvi_negbinomial_zero, hyper, rule, row);
    elvi_joint_add_line(elvi_negbinomial_count, hyper, rule, row, 0, &out);
    elvi_joint_add_line(not_inflated, hyper, rule, row, 1, &out);
    return out;
}

const elvi_joint elvi_inflated_families[] = {
    { .name = "zero_inflated_poisson", .hypers = 0, .at = poisson_at, .expect = poisson_expect },
    { .name = "zero_inflated_negbinomial", .hypers = 1, .at = negbinomial_at, .expect = negbinomial_expect },
    { .name = NULL },
};
