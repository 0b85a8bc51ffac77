/* Classes without an order: class 0 has the predictor 0, the others one each. The response y has the shares of the classes
 * from 1 on;
 * the loss is log(1 + sum_l e^eta_l) - y'eta. */
#include "joint.h"
#include <math.h>
#include <string.h>

/* p_l = P(class l + 1); returns log(1 + sum_l e^eta_l) */
static double probabilities(int lines, const double *eta, double *p)
{
    double top = 0.0, sum;
    for (int l = 0; l < lines; l++) top = fmax(top, eta[l]);
    sum = exp(-top);
    for (int l = 0; l < lines; l++) sum += p[l] = exp(eta[l] - top);
    for (int l = 0; l < lines; l++) p[l] /= sum;
    return top + log(sum);
}

static double class_at(int lines, const double *y, const double *eta, double *slope)
{
    double p[ELVI_MOST_LINES], value = probabilities(lines, eta, p);
    for (int l = 0; l < lines; l++) {
        value -= y[l] * eta[l];
        if (slope) slope[l] = p[l] - y[l];
    }
    return value;
}

/* R <- lower triangular root of V, by rows; 1 if V is singular up to rounding */
static int root_of(int lines, const double *V, double *R)
{
    int singular = 0;
    for (int m = 0; m < lines; m++)
        for (int l = m; l < lines; l++) {
            double sum = *V++;
            const double least = 1e-14 * sum;
            for (int k = 0; k < m; k++) sum -= R[l * lines + k] * R[m * lines + k];
            if (l == m && !(sum > least)) singular = 1;
            if (l == m)
                R[l * lines + l] = sqrt(fmax(sum, 0.0));
            else
                R[l * lines + m] = R[m * lines + m] > 0.0 ? sum / R[m * lines + m] : 0.0;
        }
    return singular;
}

/* x <- R'^-1 x, for one column with the given stride */
static void solve_transposed(int lines, const double *R, double *x, int stride)
{
    for (int l = lines - 1; l >= 0; l--) {
        for (int k = l + 1; k < lines; k++) x[l * stride] -= R[k * lines + l] * x[k * stride];
        x[l * stride] /= R[l * lines + l];
    }
}

/* The sum over points is a function of V through its root R. With B its derivative in R, that in V is R'^-1 S R^-1 / 2, where S is
 * symmetric and has the lower triangle of R'B. With enough points it is the expected Hessian; this one belongs to the sum, so
 * that steps end where the sum is stationary. */
static void curve_from(int lines, const double *R, const double *B, double *curve)
{
    double S[ELVI_MOST_SQUARE];
    for (int l = 0; l < lines; l++)
        for (int m = 0; m <= l; m++) {
            double sum = 0.0;
            for (int k = l; k < lines; k++) sum += R[k * lines + l] * B[k * lines + m];
            S[l * lines + m] = S[m * lines + l] = sum;
        }
    for (int m = 0; m < lines; m++) solve_transposed(lines, R, S + m, lines);
    for (int l = 0; l < lines; l++) solve_transposed(lines, R, S + l * lines, 1);
    for (int m = 0; m < lines; m++)
        for (int l = m; l < lines; l++) *curve++ = 0.5 * (S[l * lines + m] + S[m * lines + l]);
}

static void add_hessian(int lines, double w, const double *p, double *curve)
{
    for (int m = 0; m < lines; m++)
        for (int l = m; l < lines; l++) *curve++ += w * p[m] * ((l == m) - p[l]);
}

static double class_expect(const elvi_cubature *rule, const elvi_many_row *row, double *slope, double *curve)
{
    const int lines = row->lines;
    const double *y = row->y, *eta = row->eta;
    double R[ELVI_MOST_SQUARE], B[ELVI_MOST_SQUARE], p[ELVI_MOST_LINES], at[ELVI_MOST_LINES], value = 0.0;
    const int singular = root_of(lines, row->V, R);
    const double *z = rule->z;
    memset(slope, 0, (size_t) lines * sizeof(double));
    memset(curve, 0, (size_t) elvi_pairs_of(lines) * sizeof(double));
    memset(B, 0, (size_t) (lines * lines) * sizeof(double));
    for (int q = 0; q < rule->points; q++, z += lines) {
        const double w = rule->w[q];
        for (int l = 0; l < lines; l++) {
            double sum = eta[l];
            for (int k = 0; k <= l; k++) sum += R[l * lines + k] * z[k];
            at[l] = sum;
        }
        value += w * probabilities(lines, at, p);
        if (singular) add_hessian(lines, w, p, curve);
        for (int l = 0; l < lines; l++) {
            const double wp = w * p[l];
            slope[l] += wp;
            for (int k = 0; k <= l; k++) B[l * lines + k] += wp * z[k];
        }
    }
    if (!singular) curve_from(lines, R, B, curve);
    for (int l = 0; l < lines; l++) { /* the points have mean 0 */
        value -= y[l] * eta[l];
        slope[l] -= y[l];
    }
    return value;
}

static const elvi_many classes = { .at = class_at, .expect = class_expect };

const elvi_joint elvi_class_families[] = {
    { .name = "categorical", .hypers = 0, .many = &classes },
    { .name = NULL },
};
