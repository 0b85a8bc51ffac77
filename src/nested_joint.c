/* Rows with several predictors: each unknown belongs to one of them, so that row i of the design is as many lines, each with the
 * entries of its own. P = A + sum_i W_i' C_i W_i, where C_i is lines x lines. Predictors are stored row by row, so are the
 * distinct entries of C_i and of the covariance V_i = W_i P^-1 W_i', see elvi_pairs_of(). */
#include "nested.h"
#include <math.h>
#include <string.h>

/* a symmetric matrix from its distinct entries */
static void unpack(int lines, const double *packed, double *full)
{
    for (int m = 0; m < lines; m++)
        for (int l = m; l < lines; l++) full[l * lines + m] = full[m * lines + l] = *packed++;
}

void elvi_joint_predict(const elvi_nested *p, const double *x, double *eta)
{
    const int first = p->pattern.dim - p->dense;
    const double *X = p->X;
    for (int i = 0; i < p->rows; i++, X += p->dense, eta += p->lines) {
        memset(eta, 0, (size_t) p->lines * sizeof(double));
        for (int e = p->start[i]; e < p->start[i + 1]; e++) eta[p->line[p->column[e]]] += p->entry[e] * x[p->column[e]];
        for (int r = 0; r < p->dense; r++) eta[p->line[first + r]] += X[r] * x[first + r];
    }
}

/* x += W' slope */
void elvi_joint_collect(const elvi_nested *p, const double *slope, double *x)
{
    const int first = p->pattern.dim - p->dense;
    const double *X = p->X;
    for (int i = 0; i < p->rows; i++, X += p->dense, slope += p->lines) {
        for (int e = p->start[i]; e < p->start[i + 1]; e++) x[p->column[e]] += p->entry[e] * slope[p->line[p->column[e]]];
        for (int r = 0; r < p->dense; r++) x[first + r] += X[r] * slope[p->line[first + r]];
    }
}

/* values on the pattern += sum_i W_i' C_i W_i */
void elvi_joint_assemble(const elvi_nested *p, const double *c, double *P)
{
    const size_t stride = (size_t) (p->pattern.dim - p->pattern.head);
    const int first = p->pattern.dim - p->dense, lines = p->lines, pairs = elvi_pairs_of(lines), *pair = p->pair;
    const int *fixed = p->line + first;
    const double *X = p->X;
    double *square = p->dense ? P + elvi_nested_dense_at(p, first) : NULL, C[ELVI_MOST_SQUARE];
    for (int i = 0; i < p->rows; i++, X += p->dense, c += pairs) {
        unpack(lines, c, C);
        for (int a = p->start[i]; a < p->start[i + 1]; a++) {
            const double v = p->entry[a], *by = C + lines * p->line[p->column[a]];
            for (int b = p->start[i]; b <= a; b++) P[*pair++] += v * by[p->line[p->column[b]]] * p->entry[b];
            if (p->dense == 0) continue;
            double *cross = P + elvi_nested_dense_at(p, p->column[a]);
            for (int r = 0; r < p->dense; r++) cross[r] += v * by[fixed[r]] * X[r];
        }
        for (int r = 0; r < p->dense; r++) {
            const double *by = C + lines * fixed[r];
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
    const int first = p->pattern.dim - p->dense, lines = p->lines, *pair = p->pair, *fixed = p->line + first;
    const double *X = p->X, *square = p->dense ? M + elvi_nested_dense_at(p, first) : NULL;
    for (int i = 0; i < p->rows; i++, X += p->dense) {
        double form[ELVI_MOST_SQUARE]; /* products of the lower triangle of M twice, so that half of form + form' is V_i */
        memset(form, 0, (size_t) (lines * lines) * sizeof(double));
        for (int a = p->start[i]; a < p->start[i + 1]; a++) {
            const double v = p->entry[a];
            double *sum = form + lines * p->line[p->column[a]];
            for (int b = p->start[i]; b < a; b++) sum[p->line[p->column[b]]] += 2.0 * v * M[*pair++] * p->entry[b];
            sum[p->line[p->column[a]]] += v * M[*pair++] * v;
            if (p->dense == 0) continue;
            const double *cross = M + elvi_nested_dense_at(p, p->column[a]);
            for (int r = 0; r < p->dense; r++) sum[fixed[r]] += 2.0 * v * cross[r] * X[r];
        }
        for (int r = 0; r < p->dense; r++) {
            const double *column = square + (size_t) r * stride;
            double *sum = form + lines * fixed[r];
            if (X[r] == 0.0) continue;
            sum[fixed[r]] += X[r] * column[r] * X[r];
            for (int k = r + 1; k < p->dense; k++) sum[fixed[k]] += 2.0 * X[r] * column[k] * X[k];
        }
        for (int m = 0; m < lines; m++)
            for (int l = m; l < lines; l++) {
                const double v = 0.5 * (form[l * lines + m] + form[m * lines + l]);
                *V++ = l > m || v > 0.0 ? v : 0.0;
            }
    }
}

void elvi_joint_multiply(int lines, int rows, const double *c, const double *x, double *out)
{
    for (int i = 0; i < rows; i++, x += lines, out += lines) {
        memset(out, 0, (size_t) lines * sizeof(double));
        for (int m = 0; m < lines; m++) {
            out[m] += *c++ * x[m];
            for (int l = m + 1; l < lines; l++, c++) {
                out[l] += *c * x[m];
                out[m] += *c * x[l];
            }
        }
    }
}

void elvi_joint_weigh(const elvi_nested *p, const double *c, const double *eta, double *out)
{
    const double *offset = p->offset;
    for (int i = 0; i < p->rows; i++, c += elvi_pairs_of(p->lines), eta += p->lines, offset += p->lines, out += p->lines) {
        double x[ELVI_MOST_LINES];
        for (int l = 0; l < p->lines; l++) x[l] = eta[l] - offset[l];
        elvi_joint_multiply(p->lines, 1, c, x, out);
    }
}

/* a start that is too wide for an expectation */
void elvi_joint_narrow(int lines, int rows, const double *weight, double *c)
{
    for (int i = 0; i < rows; i++)
        for (int m = 0; m < lines; m++) {
            c[0] = 2.0 * fabs(c[0]) + 1e-3 * weight[i];
            memset(c + 1, 0, (size_t) (lines - m - 1) * sizeof(double));
            c += lines - m;
        }
}

double elvi_joint_trace(int lines, int rows, const double *c, const double *V)
{
    double sum = 0.0;
    for (int i = 0; i < rows; i++)
        for (int m = 0; m < lines; m++) {
            sum += *c++ * *V++;
            for (int l = m + 1; l < lines; l++) sum += 2.0 * *c++ * *V++;
        }
    return sum;
}

/* tr(D Q D V) = |Q^1/2 D V^1/2|^2 of D = to - c */
static double turn_of_row(int lines, const double *Q, const double *V, const double *to, const double *c)
{
    const int n = lines, pairs = elvi_pairs_of(lines);
    double D[ELVI_MOST_SQUARE], full[ELVI_MOST_SQUARE], left[ELVI_MOST_SQUARE], right[ELVI_MOST_SQUARE], sum = 0.0;
    for (int k = 0; k < pairs; k++) full[k] = to[k] - c[k];
    unpack(n, full, D);
    for (int side = 0; side < 2; side++) {
        double *product = side ? right : left;
        unpack(n, side ? V : Q, full);
        for (int l = 0; l < n; l++)
            for (int m = 0; m < n; m++) {
                product[l * n + m] = 0.0;
                for (int k = 0; k < n; k++) product[l * n + m] += D[l * n + k] * full[k * n + m];
            }
    }
    for (int l = 0; l < n; l++)
        for (int m = 0; m < n; m++) sum += left[l * n + m] * right[m * n + l];
    return sqrt(fmax(sum, 0.0));
}

double elvi_joint_turn(const elvi_nested *p, const double *Q, const double *V, const double *to, const double *c)
{
    const size_t pairs = (size_t) elvi_pairs_of(p->lines);
    double sum = 0.0;
    for (size_t i = 0; i < (size_t) p->rows * pairs; i += pairs) sum += turn_of_row(p->lines, Q + i, V + i, to + i, c + i);
    return sum;
}

void elvi_joint_pin(int lines, int rows, const double *along, double q, double *V)
{
    for (int i = 0; i < rows; i++, along += lines)
        for (int m = 0; m < lines; m++)
            for (int l = m; l < lines; l++, V++) {
                *V -= along[m] * along[l] / q;
                if (l == m) *V = fmax(*V, 0.0);
            }
}

double elvi_joint_form(int lines, const double *c, const double *u)
{
    double sum = 0.0;
    for (int m = 0; m < lines; m++)
        for (int l = m; l < lines; l++) sum += (l == m ? 1.0 : 2.0) * *c++ * u[m] * u[l];
    return sum;
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

double elvi_joint_reach(const double *V, int line)
{
    const double variance = V[line ? ELVI_PAIRS - 1 : 0];
    return variance > 0.0 ? 0.5 * sqrt(variance) : 0.01;
}

void elvi_joint_weights(int lines, int rows, const double *c, const double *V, double *by_line, double *by_pair)
{
    for (int i = 0; i < rows; i++, V += elvi_pairs_of(lines)) {
        double own[ELVI_MOST_LINES];
        const double *v = V;
        for (int m = 0; m < lines; v += lines - m, m++) own[m] = v[0];
        for (int m = 0; m < lines; m++) {
            *by_line++ = fabs(c[0]);
            c += lines - m;
            for (int l = m; l < lines; l++) *by_pair++ = (l == m ? 0.5 : 1.0) * own[m] * own[l];
        }
    }
}
