/* Rows with two predictors: each unknown belongs to one of them, so that row i of the design is two lines with the entries of one
 * and of the other. P = A + sum_i W_i' C_i W_i, where C_i is 2 x 2. Predictors are stored row by row, so are the
 * distinct entries of C_i and of the covariance V_i = W_i P^-1 W_i'. */
#include "nested.h"
#include <math.h>
#include <string.h>

void elvi_joint_predict(const elvi_nested *p, const double *x, double *eta)
{
    const int first = p->pattern.dim - p->dense;
    const double *X = p->X;
    for (int i = 0; i < p->rows; i++, X += p->dense, eta += ELVI_LINES) {
        double sum[ELVI_LINES] = { 0.0 };
        for (int e = p->start[i]; e < p->start[i + 1]; e++) sum[p->line[p->column[e]]] += p->entry[e] * x[p->column[e]];
        for (int r = 0; r < p->dense; r++) sum[p->line[first + r]] += X[r] * x[first + r];
        memcpy(eta, sum, sizeof sum);
    }
}

/* x += W' slope */
void elvi_joint_collect(const elvi_nested *p, const double *slope, double *x)
{
    const int first = p->pattern.dim - p->dense;
    const double *X = p->X;
    for (int i = 0; i < p->rows; i++, X += p->dense, slope += ELVI_LINES) {
        for (int e = p->start[i]; e < p->start[i + 1]; e++) x[p->column[e]] += p->entry[e] * slope[p->line[p->column[e]]];
        for (int r = 0; r < p->dense; r++) x[first + r] += X[r] * slope[p->line[first + r]];
    }
}

/* values on the pattern += sum_i W_i' C_i W_i: lines l and m have the pair l + m */
void elvi_joint_assemble(const elvi_nested *p, const double *c, double *P)
{
    const size_t stride = (size_t) (p->pattern.dim - p->pattern.head);
    const int first = p->pattern.dim - p->dense, *pair = p->pair, *fixed = p->line + first;
    const double *X = p->X;
    double *square = p->dense ? P + elvi_nested_dense_at(p, first) : NULL;
    for (int i = 0; i < p->rows; i++, X += p->dense, c += ELVI_PAIRS) {
        for (int a = p->start[i]; a < p->start[i + 1]; a++) {
            const double v = p->entry[a], *by = c + p->line[p->column[a]];
            for (int b = p->start[i]; b <= a; b++) P[*pair++] += v * by[p->line[p->column[b]]] * p->entry[b];
            if (p->dense == 0) continue;
            double *cross = P + elvi_nested_dense_at(p, p->column[a]);
            for (int r = 0; r < p->dense; r++) cross[r] += v * by[fixed[r]] * X[r];
        }
        for (int r = 0; r < p->dense; r++) {
            const double *by = c + fixed[r];
            double *column = square + (size_t) r * stride;
            if (X[r] == 0.0) continue;
            for (int k = r; k < p->dense; k++) column[k] += X[r] * by[fixed[k]] * X[k];
        }
    }
}

/* V_i = W_i M W_i' for a matrix M on the pattern */
void elvi_joint_spreads(const elvi_nested *p, const double *M, double *V)
{
    const size_t stride = (size_t) (p->pattern.dim - p->pattern.head);
    const int first = p->pattern.dim - p->dense, *pair = p->pair, *fixed = p->line + first;
    const double *X = p->X, *square = p->dense ? M + elvi_nested_dense_at(p, first) : NULL;
    for (int i = 0; i < p->rows; i++, X += p->dense, V += ELVI_PAIRS) {
        double form[ELVI_PAIRS] = { 0.0 }; /* of both triangles, so that the pair of two lines has each product twice */
        for (int a = p->start[i]; a < p->start[i + 1]; a++) {
            const double v = p->entry[a];
            double *sum = form + p->line[p->column[a]];
            for (int b = p->start[i]; b < a; b++) sum[p->line[p->column[b]]] += 2.0 * v * M[*pair++] * p->entry[b];
            sum[p->line[p->column[a]]] += v * M[*pair++] * v;
            if (p->dense == 0) continue;
            const double *cross = M + elvi_nested_dense_at(p, p->column[a]);
            for (int r = 0; r < p->dense; r++) sum[fixed[r]] += 2.0 * v * cross[r] * X[r];
        }
        for (int r = 0; r < p->dense; r++) {
            const double *column = square + (size_t) r * stride;
            double *sum = form + fixed[r];
            if (X[r] == 0.0) continue;
            sum[fixed[r]] += X[r] * column[r] * X[r];
            for (int k = r + 1; k < p->dense; k++) sum[fixed[k]] += 2.0 * X[r] * column[k] * X[k];
        }
        V[0] = form[0] > 0.0 ? form[0] : 0.0;
        V[1] = 0.5 * form[1];
        V[2] = form[2] > 0.0 ? form[2] : 0.0;
    }
}

void elvi_joint_multiply(int rows, const double *c, const double *x, double *out)
{
    for (int i = 0; i < rows; i++, c += ELVI_PAIRS, x += ELVI_LINES, out += ELVI_LINES) {
        out[0] = c[0] * x[0] + c[1] * x[1];
        out[1] = c[1] * x[0] + c[2] * x[1];
    }
}

void elvi_joint_weigh(const elvi_nested *p, const double *c, const double *eta, double *out)
{
    const double *offset = p->offset;
    for (int i = 0; i < p->rows; i++, c += ELVI_PAIRS, eta += ELVI_LINES, offset += ELVI_LINES, out += ELVI_LINES) {
        const double x[ELVI_LINES] = { eta[0] - offset[0], eta[1] - offset[1] };
        elvi_joint_multiply(1, c, x, out);
    }
}

/* a start that is too wide for an expectation */
void elvi_joint_narrow(int rows, const double *weight, double *c)
{
    for (int i = 0; i < rows; i++, c += ELVI_PAIRS) {
        c[0] = 2.0 * fabs(c[0]) + 1e-3 * weight[i];
        c[1] = 0.0;
        c[2] = 2.0 * fabs(c[2]) + 1e-3 * weight[i];
    }
}

double elvi_joint_trace(int rows, const double *c, const double *V)
{
    double sum = 0.0;
    for (int i = 0; i < rows; i++, c += ELVI_PAIRS, V += ELVI_PAIRS) sum += c[0] * V[0] + 2.0 * c[1] * V[1] + c[2] * V[2];
    return sum;
}

/* |V^1/2 D V^1/2|^2 = tr(D V D V) */
double elvi_joint_turn(int rows, const double *V, const double *to, const double *c)
{
    double sum = 0.0;
    for (int i = 0; i < rows; i++, V += ELVI_PAIRS, to += ELVI_PAIRS, c += ELVI_PAIRS) {
        const double a = to[0] - c[0], b = to[1] - c[1], d = to[2] - c[2];
        const double m11 = a * V[0] + b * V[1], m12 = a * V[1] + b * V[2], m21 = b * V[0] + d * V[1], m22 = b * V[1] + d * V[2];
        sum += sqrt(fmax(m11 * m11 + 2.0 * m12 * m21 + m22 * m22, 0.0));
    }
    return sum;
}

void elvi_joint_pin(int rows, const double *along, double q, double *V)
{
    for (int i = 0; i < rows; i++, along += ELVI_LINES, V += ELVI_PAIRS) {
        V[0] = fmax(V[0] - along[0] * along[0] / q, 0.0);
        V[1] -= along[0] * along[1] / q;
        V[2] = fmax(V[2] - along[1] * along[1] / q, 0.0);
    }
}

void elvi_joint_cumulants(int rows, const double *third, const double *fourth, const double *u, double *sum3, double *sum4)
{
    for (int i = 0; i < rows; i++, third += 4, fourth += 5, u += ELVI_LINES) {
        const double a = u[0], b = u[1], aa = a * a, bb = b * b;
        *sum3 -= third[0] * aa * a + 3.0 * third[1] * aa * b + 3.0 * third[2] * a * bb + third[3] * bb * b;
        *sum4 -= fourth[0] * aa * aa + 4.0 * fourth[1] * aa * a * b + 6.0 * fourth[2] * aa * bb + 4.0 * fourth[3] * a * b * bb +
                 fourth[4] * bb * bb;
    }
}

double elvi_joint_reach(const double *V, int line) { return fmax(0.5 * sqrt(V[line ? ELVI_PAIRS - 1 : 0]), 0.01); }

void elvi_joint_weights(int rows, const double *c, const double *V, double *lines, double *pairs)
{
    for (int i = 0; i < rows; i++, c += ELVI_PAIRS, V += ELVI_PAIRS, lines += ELVI_LINES, pairs += ELVI_PAIRS) {
        lines[0] = fabs(c[0]);
        lines[1] = fabs(c[2]);
        pairs[0] = 0.5 * V[0] * V[0];
        pairs[1] = V[0] * V[2];
        pairs[2] = 0.5 * V[2] * V[2];
    }
}
