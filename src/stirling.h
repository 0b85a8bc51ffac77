/* The gamma function and its logarithmic derivatives at once, for x > 0: Stirling's series, whose argument is moved above 8 by
 * Gamma(x + 1) = x Gamma(x). Relative errors are a few units in the last place, and the three cost as much as a few logarithms. */
#ifndef ELVI_STIRLING_H
#define ELVI_STIRLING_H

#include <math.h>

/* rest = log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2, which tends to 0 as x grows; digamma and trigamma */
typedef struct {
    double rest, slope, curve;
} elvi_gamma;

/* of x >= 8 */
static inline elvi_gamma elvi_gamma_by_series(double x, double log_x)
{
    const double r = 1.0 / x, q = r * r;
    const double rest =
        1.0 / 12 - q * (1.0 / 360 - q * (1.0 / 1260 - q * (1.0 / 1680 - q * (1.0 / 1188 - q * (691.0 / 360360 - q / 156)))));
    const double psi =
        1.0 / 12 - q * (1.0 / 120 - q * (1.0 / 252 - q * (1.0 / 240 - q * (1.0 / 132 - q * (691.0 / 32760 - q / 12)))));
    const double tri =
        1.0 / 6 - q * (1.0 / 30 - q * (1.0 / 42 - q * (1.0 / 30 - q * (5.0 / 66 - q * (691.0 / 2730 - q * 7 / 6)))));
    const elvi_gamma out = { r * rest, log_x - 0.5 * r - q * psi, r + 0.5 * q + r * q * tri };
    return out;
}

static inline elvi_gamma elvi_gamma_of(double x, double log_x)
{
    if (x >= 8.0) return elvi_gamma_by_series(x, log_x);
    /* the product x (x + 1) ... and its first two derivatives */
    double product = 1.0, first = 0.0, second = 0.0, to = x;
    for (; to < 8.0; to += 1.0) {
        second = second * to + 2.0 * first;
        first = first * to + product;
        product *= to;
    }
    const double log_to = log(to), by = first / product;
    elvi_gamma out = elvi_gamma_by_series(to, log_to);
    out.rest += (to - 0.5) * log_to - (x - 0.5) * log_x - (to - x) - log(product);
    out.slope -= by;
    out.curve += by * by - second / product;
    return out;
}

#endif
