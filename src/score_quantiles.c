/* Quantiles of a density in one dimension, at standard normal scores: from its logarithm at a few equal steps, through which a
 * spline goes, by sums over a fine grid. */
#include "score_quantiles.h"
#include <Rmath.h>
#include <math.h>

/* points of the grid for each step between two nodes */
enum { FINE = 20 };

size_t elvi_score_quantiles_length(int n)
{
    const size_t points = (size_t) (n - 1) * FINE + 1;
    return 3 * (size_t) n + 4 * points;
}

/* Coefficients of the cubic spline through y at 0, 1, ..., n - 1: y + b t + c t^2 + d t^3 beyond each node. At the ends its third
 * derivative is that of the cubic through the four nearest nodes (Forsythe, Malcolm and Moler). */
static void fit_spline(int n, const double *y, double *b, double *c, double *d)
{
    const int last = n - 1;
    for (int i = 0; i < last; i++) d[i] = y[i + 1] - y[i];
    if (n < 3) { /* a line */
        b[0] = d[0];
        c[0] = d[0] = 0.0;
        return;
    }
    for (int i = 1; i < last; i++) {
        b[i] = 4.0;
        c[i] = d[i] - d[i - 1];
    }
    b[0] = b[last] = -1.0;
    c[0] = c[last] = 0.0;
    if (n > 3) {
        c[0] = (c[2] - c[1]) / 6.0;
        c[last] = -(c[last - 1] - c[last - 2]) / 6.0;
    }
    for (int i = 1; i < n; i++) {
        const double by = 1.0 / b[i - 1];
        b[i] -= by;
        c[i] -= by * c[i - 1];
    }
    c[last] /= b[last];
    for (int i = last - 1; i >= 0; i--) c[i] = (c[i] - c[i + 1]) / b[i];
    for (int i = 0; i < last; i++) {
        b[i] = d[i] - (c[i + 1] + 2.0 * c[i]);
        d[i] = c[i + 1] - c[i];
        c[i] *= 3.0;
    }
}

/* grid <- exp(spline - top), top its largest value at a node's */
static int fill_density(int n, const double *value, double *spline, double *grid)
{
    double *b = spline, *c = b + n, *d = c + n, top = value[0];
    const int points = (n - 1) * FINE + 1;
    fit_spline(n, value, b, c, d);
    for (int k = 0; k < points; k++) {
        const int i = k / FINE < n - 1 ? k / FINE : n - 2;
        const double t = (double) (k - i * FINE) / FINE;
        grid[k] = value[i] + t * (b[i] + t * (c[i] + t * d[i]));
        top = fmax(top, grid[k]);
    }
    for (int k = 0; k < points; k++) grid[k] = exp(grid[k] - top);
    return points;
}

/* Slopes of the monotone cubic through x at rising scores (Fritsch and Carlson). */
static void monotone_slopes(int m, const double *score, const double *x, double *slope)
{
    double before = 0.0;
    for (int k = 0; k < m - 1; k++) {
        const double secant = (x[k + 1] - x[k]) / (score[k + 1] - score[k]);
        slope[k] = k ? 0.5 * (before + secant) : secant;
        before = secant;
    }
    slope[m - 1] = before;
    for (int k = 0; k < m - 1; k++) {
        const double secant = (x[k + 1] - x[k]) / (score[k + 1] - score[k]);
        const double alpha = slope[k] / secant, beta = slope[k + 1] / secant;
        const double over = 2.0 * alpha + beta - 3.0, under = alpha + 2.0 * beta - 3.0;
        if (over > 0.0 && under > 0.0 && alpha * (over + under) < over * over) {
            const double by = 3.0 * secant / sqrt(alpha * alpha + beta * beta);
            slope[k] = by * alpha;
            slope[k + 1] = by * beta;
        }
    }
}

/* that cubic at z, straight beyond its ends; *k is a place to look from, for a z no smaller than the one before */
static double monotone_at(int m, const double *score, const double *x, const double *slope, double z, int *k)
{
    if (z <= score[0]) return x[0] + slope[0] * (z - score[0]);
    if (z >= score[m - 1]) return x[m - 1] + slope[m - 1] * (z - score[m - 1]);
    while (score[*k + 1] < z) ++*k;
    const double h = score[*k + 1] - score[*k], t = (z - score[*k]) / h, t1 = t - 1.0;
    const double h01 = t * t * (3.0 - 2.0 * t), h10 = t * t1 * t1, h11 = t * t * t1;
    return x[*k] * (1.0 - h01) + x[*k + 1] * h01 + h * (h10 * slope[*k] + h11 * slope[*k + 1]);
}

int elvi_score_quantiles(const elvi_density *density, int scores, const double *z, double *out, double *work)
{
    double *grid = work + 3 * density->nodes;
    const int points = fill_density(density->nodes, density->value, work, grid);
    double *below = grid + points, *score = below + points, *x = score + points, *slope = grid;
    double above = 0.0;
    int m = 0, at = 0;
    below[0] = 0.0;
    for (int k = 1; k < points; k++) below[k] = below[k - 1] + 0.5 * (grid[k] + grid[k - 1]);
    const double total = below[points - 1];
    /* from the right, so that either tail is a sum of its own: differences would lose its digits */
    for (int k = points - 2; k > 0; k--) {
        above += 0.5 * (grid[k] + grid[k + 1]);
        const int left = below[k] < above;
        const double tail = (left ? below[k] : above) / total;
        if (!(tail > 0.0)) continue;
        const double v = (left ? 1.0 : -1.0) * qnorm5(tail, 0.0, 1.0, 1, 0);
        if (m && !(v < score[m - 1])) continue;
        score[m] = v;
        x[m++] = density->from + density->step * k / FINE;
    }
    if (m < 2) return 1;
    for (int k = 0; k < m / 2; k++) { /* rising */
        const double v = score[k], u = x[k];
        score[k] = score[m - 1 - k];
        score[m - 1 - k] = v;
        x[k] = x[m - 1 - k];
        x[m - 1 - k] = u;
    }
    monotone_slopes(m, score, x, slope); /* the density is done with */
    for (int j = 0; j < scores; j++) out[j] = monotone_at(m, score, x, slope, z[j], &at);
    return 0;
}
