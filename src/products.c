/* The two products of a pass over dense rows that take d^2 operations for each of them. R's own BLAS works on one
 * column at a time and is slower by a factor of 5 to 10; here results stay in registers while the rows go by. */
#include "linalg.h"
#include "vectors.h"
#include <string.h>

/* ---- C += A'A ------------------------------------------------------------------------ */

/* Of ACROSS columns by DOWN columns; rows are taken so many at a time that both stay in the first cache. */
enum {
    DOWN = 4,
    ACROSS = 3,
    ROWS_AT_ONCE = 256
};

/* all inner products of columns p, q, r, t with x, y, z */
FOR_EACH_WIDTH
static void inner_products(int n, const double *const down[DOWN], const double *const across[ACROSS],
                           double sum[ACROSS][DOWN])
{
    const double *p = down[0], *q = down[1], *r = down[2], *t = down[3];
    const double *x = across[0], *y = across[1], *z = across[2];
    double px = 0, qx = 0, rx = 0, tx = 0, py = 0, qy = 0, ry = 0, ty = 0, pz = 0, qz = 0, rz = 0, tz = 0;
    SIMD_SUM_OF(px, qx, rx, tx, py, qy, ry, ty, pz, qz, rz, tz)
    for (int i = 0; i < n; i++) {
        px += p[i] * x[i];
        qx += q[i] * x[i];
        rx += r[i] * x[i];
        tx += t[i] * x[i];
        py += p[i] * y[i];
        qy += q[i] * y[i];
        ry += r[i] * y[i];
        ty += t[i] * y[i];
        pz += p[i] * z[i];
        qz += q[i] * z[i];
        rz += r[i] * z[i];
        tz += t[i] * z[i];
    }
    const double all[ACROSS][DOWN] = { { px, qx, rx, tx }, { py, qy, ry, ty }, { pz, qz, rz, tz } };
    memcpy(sum, all, sizeof all);
}

/* Columns from `first` on; beyond the last one it is taken again, and what comes of that is not used. */
static void columns_from(int n, int d, const double *A, int first, int count, const double **column)
{
    for (int k = 0; k < count; k++) column[k] = A + (size_t) (first + k < d ? first + k : d - 1) * n;
}

void elvi_crossprod(int n, int d, const double *A, double *C)
{
    for (int from = 0; from < n; from += ROWS_AT_ONCE) {
        const int rows = n - from < ROWS_AT_ONCE ? n - from : ROWS_AT_ONCE;
        for (int j = 0; j < d; j += ACROSS)
            for (int i = j; i < d; i += DOWN) {
                const double *down[DOWN], *across[ACROSS];
                double sum[ACROSS][DOWN];
                columns_from(n, d, A + from, i, DOWN, down);
                columns_from(n, d, A + from, j, ACROSS, across);
                inner_products(rows, down, across, sum);
                for (int b = 0; b < ACROSS && j + b < d; b++)
                    for (int a = 0; a < DOWN && i + a < d; a++)
                        if (i + a >= j + b) C[(size_t) (j + b) * d + i + a] += sum[b][a];
            }
    }
}

/* ---- |scale' u|^2 ---------------------------------------------------------------------- */

/* rows and columns of U S at a time */
enum {
    TALL = 64,
    WIDE = 8
};

int elvi_tiles_fit(int n, int d)
{
    return n >= TALL + d + WIDE;
}

/* S in blocks of WIDE columns, each stored by rows. Beyond the last column there are zeros. */
static void pack_scale(int d, const double *S, int symmetric, double *packed)
{
    for (int j = 0; j < d; j += WIDE)
        for (int k = 0; k < d; k++)
            for (int c = j; c < j + WIDE; c++) {
                const double below = c < d && k >= c ? S[(size_t) c * d + k] : 0.0;
                *packed++ = symmetric && c < d && k < c ? S[(size_t) k * d + c] : below;
            }
}

/* TALL rows of U, whose columns then follow each other: far apart they can be in each other's way in the cache. */
static void pack_rows(int n, int d, const double *U, int ldu, double *tile)
{
    for (int k = 0; k < d; k++, tile += TALL) {
        memcpy(tile, U + (size_t) k * ldu, (size_t) n * sizeof(double));
        memset(tile + n, 0, (size_t) (TALL - n) * sizeof(double));
    }
}

/* s2 (TALL) += the squares of WIDE columns of U S - moved, U TALL x n. The loop over k runs at least once and says so:
 * with a test before it gcc does not take several i at a time. */
FOR_EACH_WIDTH
static void add_squares(int n, const double *restrict U, const double *restrict S, const double *moved,
                        double *restrict s2)
{
    SIMD
    for (int i = 0; i < TALL; i++) {
        double a = -moved[0], b = -moved[1], c = -moved[2], e = -moved[3];
        double f = -moved[4], g = -moved[5], h = -moved[6], l = -moved[7];
        int k = 0;
        do {
            const double u = U[k * TALL + i], *s = S + k * WIDE;
            a += u * s[0];
            b += u * s[1];
            c += u * s[2];
            e += u * s[3];
            f += u * s[4];
            g += u * s[5];
            h += u * s[6];
            l += u * s[7];
        } while (++k < n);
        s2[i] += ((a * a + b * b) + (c * c + e * e)) + ((f * f + g * g) + (h * h + l * l));
    }
}

void elvi_tiles_spread2(const elvi_row_block *rows, const elvi_lower_scale *scale, const double *moved, double *room, double *s2)
{
    const int n = rows->n, d = scale->d, symmetric = scale->symmetric;
    double *tile = room, *packed = room + (size_t) TALL * d;
    pack_scale(d, scale->S, symmetric, packed);
    for (int from = 0; from < n; from += TALL) {
        const int now = n - from < TALL ? n - from : TALL;
        double sum[TALL] = { 0.0 };
        pack_rows(now, d, rows->U + from, rows->ldu, tile);
        for (int j = 0; j < d; j += WIDE) {
            double shift[WIDE] = { 0.0 };
            for (int c = 0; moved && c < WIDE && j + c < d; c++) shift[c] = moved[j + c];
            const int zeros = symmetric ? 0 : j;
            add_squares(d - zeros, tile + (size_t) zeros * TALL, packed + (size_t) j * d + (size_t) zeros * WIDE,
                        shift, sum);
        }
        memcpy(s2 + from, sum, (size_t) now * sizeof(double));
    }
}
