/* The elliptic bases: how each turns a normal vector into a draw, and its
 * score (phi'/phi)(r). Constants and moments are in R/base.R. */
#include "base.h"
#include "quadrature.h"
#include <math.h>

static double gaussian_stretch(const elvi_base *b, elvi_stream *st, double norm)
{
    (void) b;
    (void) st;
    (void) norm;
    return 1.0;
}

static double gaussian_score(const elvi_base *b, double r)
{
    (void) b;
    return -r;
}

static double laplace_stretch(const elvi_base *b, elvi_stream *st, double norm)
{
    return elvi_gamma(st, b->dim) / (b->par[0] * norm);
}

static double laplace_score(const elvi_base *b, double r)
{
    (void) r;
    return -b->par[0];
}

static double uniform_stretch(const elvi_base *b, elvi_stream *st, double norm)
{
    return b->par[0] * pow(elvi_uniform(st), 1.0 / b->dim) / norm;
}

static double uniform_score(const elvi_base *b, double r)
{
    (void) b;
    (void) r;
    return 0.0; /* inside the ball; R refuses the path estimator here */
}

static double student_stretch(const elvi_base *b, elvi_stream *st, double norm)
{
    const double df = b->par[0];
    (void) norm;
    return sqrt((df - 2.0) / (2.0 * elvi_gamma(st, 0.5 * df)));
}

static double student_score(const elvi_base *b, double r)
{
    const double df = b->par[0];
    return -(df + b->dim) * r / (df - 2.0 + r * r);
}

static double power_stretch(const elvi_base *b, elvi_stream *st, double norm)
{
    const double shape = b->par[0], rate = b->par[1], a = b->dim / shape;
    if (a >= 1.0) return pow(elvi_gamma(st, a), 1.0 / shape) / (rate * norm);
    /* Gamma(a) is Gamma(a + 1) U^(1/a), whose second factor underflows; its
     * power 1/shape is U^(1/d) */
    const double u = elvi_uniform(st);
    return pow(elvi_gamma(st, a + 1.0), 1.0 / shape) * pow(u, 1.0 / b->dim) / (rate * norm);
}

static double power_score(const elvi_base *b, double r)
{
    const double shape = b->par[0], rate = b->par[1];
    return -shape * rate * pow(rate * r, shape - 1.0);
}

/* index i with a[i] <= x < a[i + 1], clamped to the table */
static int cell(const double *a, int n, double x)
{
    int lo = 0, hi = n - 1;
    while (hi - lo > 1) {
        const int mid = lo + (hi - lo) / 2;
        if (a[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static double radial_stretch(const elvi_base *b, elvi_stream *st, double norm)
{
    const elvi_radial *t = &b->radial;
    const double u = elvi_uniform(st);
    const int i = cell(t->cdf, t->n, u);
    const double h = t->r[i + 1] - t->r[i];
    const double f0 = t->density[i], f1 = t->density[i + 1];
    /* Within a cell the density is linear: solve its quadratic distribution
     * function in the form that does not cancel when f0 and f1 are close. */
    const double p = (u - t->cdf[i]) / (t->cdf[i + 1] - t->cdf[i]);
    const double q = p * (f0 + f1);
    const double root = sqrt(f0 * f0 + q * (f1 - f0));
    const double s = f0 + root > 0.0 ? q / (f0 + root) : 0.0;
    return (t->r[i] + h * s) / norm;
}

static double radial_score(const elvi_base *b, double r)
{
    const elvi_radial *t = &b->radial;
    const int i = cell(t->r, t->n, r);
    double s = (r - t->r[i]) / (t->r[i + 1] - t->r[i]);
    if (s < 0.0) s = 0.0;
    if (s > 1.0) s = 1.0;
    return t->score[i] + s * (t->score[i + 1] - t->score[i]);
}

static const elvi_base_ops ops_table[] = {
    [ELVI_GAUSSIAN] = { .stretch = gaussian_stretch, .score = gaussian_score },
    [ELVI_LAPLACE] = { .stretch = laplace_stretch, .score = laplace_score },
    [ELVI_UNIFORM] = { .stretch = uniform_stretch, .score = uniform_score },
    [ELVI_STUDENT] = { .stretch = student_stretch, .score = student_score },
    [ELVI_POWER] = { .stretch = power_stretch, .score = power_score },
    [ELVI_RADIAL] = { .stretch = radial_stretch, .score = radial_score, .tabulated = 1 },
};

const elvi_base_ops *elvi_base_ops_of(elvi_base_kind kind)
{
    return &ops_table[kind];
}

void elvi_base_fill(const elvi_base *base, const elvi_ziggurat *zig, const elvi_sample *sample, double *z)
{
    const int d = base->dim;
    for (int j = 0; j < sample->n; j++) {
        double *col = z + (size_t) j * d;
        elvi_stream st = elvi_stream_at(zig, sample->key, sample->iteration, sample->first + (uint64_t) j);
        elvi_fill_normal(&st, col, d);
        double norm2 = 0.0;
        for (int i = 0; i < d; i++) norm2 += col[i] * col[i];
        const double by = base->ops->stretch(base, &st, sqrt(norm2));
        if (by != 1.0)
            for (int i = 0; i < d; i++) col[i] *= by;
    }
}

elvi_expectation elvi_mgf_gaussian(double rate, double eta, double s)
{
    const double value = exp(eta + 0.5 * s * s);
    const elvi_expectation e = { value, value, value };
    (void) rate;
    return e;
}

/* in dimension d the factor is (1 - s^2 / (d + 1))^(-(d + 1) / 2), and the rate sqrt(d + 1) */
elvi_expectation elvi_mgf_laplace(double rate, double eta, double s)
{
    const double c2 = rate * rate, base = 1.0 - s * s / c2, value = exp(eta - 0.5 * c2 * log(base));
    const elvi_expectation e = { value, value, exp(eta - 0.5 * (c2 + 2.0) * log(base)) };
    return e;
}
