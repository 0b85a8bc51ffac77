#include "scale_lower.h"
#include <string.h>

/* ---- storage ------------------------------------------------------------------ */

size_t elvi_lower_length(int d)
{
    return (size_t) d * (size_t) d;
}

size_t elvi_lower_stored(const elvi_scale *of)
{
    return elvi_lower_length(of->dim);
}

int elvi_lower_finite(const elvi_scale *of, const double *s)
{
    const int d = of->dim;
    double sum = 0.0; /* 0 * Inf and 0 * NaN are NaN, so one test is enough */
    for (int j = 0; j < d; j++)
        for (int i = j; i < d; i++) sum += 0.0 * s[(size_t) j * d + i];
    return sum == 0.0;
}

void elvi_lower_axpy(const elvi_scale *of, const double *x, double alpha, const double *y, double *out)
{
    const int d = of->dim;
    for (int j = 0; j < d; j++) {
        const size_t at = (size_t) j * d;
        for (int i = j; i < d; i++) out[at + i] = x[at + i] + alpha * y[at + i];
    }
}

void elvi_lower_mix(const elvi_scale *of, double by, const double *x, double *out)
{
    const int d = of->dim;
    for (int j = 0; j < d; j++) {
        const size_t at = (size_t) j * d;
        for (int i = j; i < d; i++) out[at + i] += by * (x[at + i] - out[at + i]);
    }
}

void elvi_lower_dist2(int d, const double *x, const double *y, double *diagonal, double *below)
{
    *diagonal = *below = 0.0;
    for (int j = 0; j < d; j++) {
        const size_t at = (size_t) j * d;
        *diagonal += (x[at + j] - y[at + j]) * (x[at + j] - y[at + j]);
        for (int i = j + 1; i < d; i++)
            *below += (x[at + i] - y[at + i]) * (x[at + i] - y[at + i]);
    }
}

void elvi_lower_inner(int d, const double *x, const double *y, double *diagonal, double *below)
{
    *diagonal = *below = 0.0;
    for (int j = 0; j < d; j++) {
        const size_t at = (size_t) j * d;
        *diagonal += x[at + j] * y[at + j];
        for (int i = j + 1; i < d; i++) *below += x[at + i] * y[at + i];
    }
}

/* ---- room ----------------------------------------------------------------------- */

void elvi_lower_room_lengths(int d, int matrices, size_t *n_reals, size_t *n_ints)
{
    int n_real, n_int;
    elvi_eigen_lapack_lengths(d, &n_real, &n_int);
    *n_reals = (size_t) matrices * elvi_lower_length(d) + 2 * (size_t) d + (size_t) n_real;
    *n_ints = 2 * (size_t) d + (size_t) n_int; /* supports of eigenvectors first */
}

elvi_lower_room elvi_lower_room_of(int d, int matrices, const elvi_scale_room *room)
{
    elvi_lower_room out;
    double *next = room->reals;
    for (int i = 0; i < matrices; i++, next += elvi_lower_length(d)) out.mat[i] = next;
    for (int i = 0; i < 2; i++, next += d) out.vec[i] = next;
    out.lapack.real = next;
    out.lapack.n_real = (int) (room->n_reals - (size_t) (next - room->reals));
    out.lapack.support = room->ints;
    out.lapack.integer = room->ints + 2 * (size_t) d;
    out.lapack.n_integer = (int) (room->n_ints - 2 * (size_t) d);
    return out;
}

int elvi_definite(int d, const double *S, double sign, double shift, double *copy)
{
    const size_t stride = (size_t) d + 1;
    if (sign > 0)
        memcpy(copy, S, elvi_lower_length(d) * sizeof(double));
    else
        for (int j = 0; j < d; j++)
            for (int i = j; i < d; i++)
                copy[(size_t) j * d + i] = -S[(size_t) j * d + i];
    for (int i = 0; i < d; i++) copy[i * stride] -= sign * shift;
    return elvi_cholesky(d, copy) == 0;
}

/* ---- spreads ---------------------------------------------------------------------- */

size_t elvi_lower_form_length(const elvi_scale *of)
{
    const int d = of->dim;
    return 2 * elvi_lower_length(d);
}

void elvi_lower_form(int d, double *form)
{
    memset(form, 0, elvi_lower_length(d) * sizeof(double));
    elvi_syrk(d, d, 1.0, form + elvi_lower_length(d), form);
}

double elvi_lower_form_value(const elvi_scale *of, const double *form, int n, const int *at, const double *u)
{
    const int d = of->dim;
    double sum = 0.0;
    for (int l = 0; l < n; l++) {
        const double *col = form + (size_t) at[l] * (size_t) d;
        double cross = 0.5 * u[l] * col[at[l]];
        for (int k = l + 1; k < n; k++) cross += u[k] * col[at[k]];
        sum += 2.0 * u[l] * cross;
    }
    return sum;
}

void elvi_row_norms2(int n, int d, const double *XS, const double *moved, double *s2)
{
    memset(s2, 0, (size_t) n * sizeof(double));
    for (int j = 0; j < d; j++) {
        const double *col = XS + (size_t) j * n;
        const double c = moved ? moved[j] : 0.0;
        for (int i = 0; i < n; i++) {
            const double v = col[i] - c;
            s2[i] += v * v;
        }
    }
}
