/* The elementwise passes of the two commonest regressions, as loops that compilers turn
 * into vector instructions: no branches and no calls, so with exp() and log1p() of our
 * own. Choices are made with bits, for compilers take a comparison of floating point
 * numbers for a branch. */
#include "family.h"
#include "vectors.h"
#include <math.h>
#include <string.h>

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double with_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* all bits set if the first is, else none */
static inline uint64_t sign_of(uint64_t bits)
{
    return UINT64_C(0) - (bits >> 63);
}

static inline double choose(uint64_t which, double yes, double no)
{
    return with_bits((bits_of(yes) & which) | (bits_of(no) & ~which));
}

/* Vectors of two are no faster than the library's functions, which are used elsewhere. */
#ifdef ELVI_VECTORS
/* e^t within one unit in the last place; Inf beyond 709 and 0 below -708, a little before
 * the exponent has no room */
static inline double exponential(double t)
{
    const double log2_e = 1.44269504088896338700;
    const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    const double round = 0x1.8p52; /* added to a number, leaves an integer in its low bits */
    const double rounded = t * log2_e + round, n = rounded - round;
    const double r = (t - n * ln2_high) - n * ln2_low; /* |r| <= log(2) / 2 */
    double p = 1.0 / 6227020800.0;                     /* 1 / 13!, and so on down */
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = 1.0 + (r + r * r * p);
    const double inside = with_bits(bits_of(p) + (bits_of(rounded) << 52)); /* p 2^n */

    /* positive numbers are ordered as their bits are, with NaN last */
    const uint64_t size = bits_of(fabs(t)), negative = sign_of(bits_of(t));
    const uint64_t low = negative & sign_of(bits_of(708.0) - size);
    const uint64_t high = ~negative & sign_of(bits_of(709.0) - size);
    const uint64_t nan = sign_of(bits_of(HUGE_VAL) - size);
    return choose(nan, t, choose(low, 0.0, choose(high, HUGE_VAL, inside)));
}

/* log(1 + e) = 2 atanh(e / (2 + e)) for e in [0, 1], within two units in the last place */
static inline double log_1p(double e)
{
    const double s = e / (2.0 + e), z = s * s; /* z <= 1 / 9 */
    double p = 1.0 / 33.0;
    p = p * z + 1.0 / 31.0;
    p = p * z + 1.0 / 29.0;
    p = p * z + 1.0 / 27.0;
    p = p * z + 1.0 / 25.0;
    p = p * z + 1.0 / 23.0;
    p = p * z + 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    return 2.0 * (s + s * z * p);
}

/* log|x| of a finite x other than 0, within two units in the last place: |x| = m 2^k with m between sqrt(1/2) and sqrt(2), and
 * log m = 2 atanh((m - 1) / (m + 1)) */
static inline double log_size(double x)
{
    const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    /* the low bits of `whole` hold an integer that is added to them */
    const double whole = 0x1p52;
    const uint64_t tiny = sign_of(bits_of(fabs(x)) - UINT64_C(0x0010000000000000)); /* no leading bit: scaled */
    const uint64_t bits = bits_of(choose(tiny, 0x1p54 * fabs(x), fabs(x)));
    const uint64_t biased = (bits - UINT64_C(0x3fe6a09e667f3bcd) + (UINT64_C(1024) << 52)) >> 52; /* k + 1024 */
    const double k = with_bits(biased | bits_of(whole)) - (whole + 1024.0) - choose(tiny, 54.0, 0.0);
    const double m = with_bits(bits - ((biased - 1024) << 52));
    const double s = (m - 1.0) / (m + 1.0), z = s * s; /* z <= 0.03 */
    double p = 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    return k * ln2_high + (2.0 * (s + s * z * p) + k * ln2_low);
}
#else
#define exponential exp
#define log_1p log1p
static inline double log_size(double x)
{
    return log(fabs(x));
}
#endif

/* w x, and 0 where w is, also if x is infinite */
static inline double weighted(double w, double x)
{
    return choose(sign_of(UINT64_C(0) - bits_of(fabs(w))), w * x, 0.0);
}

FOR_EACH_WIDTH
double elvi_logit_loss(int n, const double *y, const double *w, const double *eta)
{
    double sum = 0.0;
    SIMD_SUM_OF(sum)
    for (int i = 0; i < n; i++) {
        const double t = eta[i], positive = choose(sign_of(bits_of(t)), 0.0, t);
        sum += weighted(w[i], positive + log_1p(exponential(-fabs(t))) - y[i] * t);
    }
    return sum;
}

FOR_EACH_WIDTH
void elvi_logit_slope(int n, const double *y, const double *w, double *eta)
{
    SIMD
    for (int i = 0; i < n; i++) eta[i] = w[i] * (1.0 / (1.0 + exponential(-eta[i])) - y[i]);
}

FOR_EACH_WIDTH
double elvi_poisson_loss(int n, const double *y, const double *w, const double *eta)
{
    double sum = 0.0;
    SIMD_SUM_OF(sum)
    for (int i = 0; i < n; i++) sum += weighted(w[i], exponential(eta[i]) - y[i] * eta[i]);
    return sum;
}

FOR_EACH_WIDTH
void elvi_poisson_slope(int n, const double *y, const double *w, double *eta)
{
    SIMD
    for (int i = 0; i < n; i++) eta[i] = weighted(w[i], exponential(eta[i]) - y[i]);
}

FOR_EACH_WIDTH
void elvi_log_sizes(int n, const double *y, double *out)
{
    SIMD
    for (int i = 0; i < n; i++) out[i] = log_size(y[i]);
}

FOR_EACH_WIDTH
double elvi_survival_loss(int n, const double *y, const double *w, const double *eta, double shape, double centre)
{
    double sum = 0.0;
    SIMD_SUM_OF(sum)
    for (int i = 0; i < n; i++) {
        const double u = shape * (log_size(y[i]) + centre - eta[i]);
        sum += weighted(w[i], exponential(u) - choose(sign_of(bits_of(y[i])), 0.0, u));
    }
    return sum;
}

/* E log(1 + e^t), E 1 / (1 + e^-t) and E[z / (1 + e^-t)] for t = eta_i + s_i z under a rule */
FOR_EACH_WIDTH
void elvi_logit_integrals(int n, const double *eta, const double *s, const elvi_quadrature_level *level,
                          const elvi_logit_expected *out)
{
    double *value = out->value, *slope = out->slope, *turn = out->turn;
    for (int i = 0; i < n; i++) value[i] = slope[i] = turn[i] = 0.0;
    for (int q = 0; q < level->n; q++) {
        const double z = level->z[q], w = level->w[q];
        SIMD
        for (int i = 0; i < n; i++) {
            const double up = eta[i] + s[i] * z, down = eta[i] - s[i] * z;
            const double e = exponential(-fabs(up)), f = exponential(-fabs(down));
            const double p = 1.0 / (1.0 + e), r = 1.0 / (1.0 + f);
            const double rise = choose(sign_of(bits_of(up)), e * p, p);
            const double fall = choose(sign_of(bits_of(down)), f * r, r);
            value[i] += w * (choose(sign_of(bits_of(up)), 0.0, up) + choose(sign_of(bits_of(down)), 0.0, down) +
                             (log_1p(e) + log_1p(f)));
            slope[i] += w * (rise + fall);
            turn[i] += w * z * (rise - fall);
        }
    }
}
