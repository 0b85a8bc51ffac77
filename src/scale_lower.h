/* Scales stored in the lower triangle of a d x d array, whose strict upper triangle is
 * never read: what the symmetric and the triangular kind share. */
#ifndef ELVI_SCALE_LOWER_H
#define ELVI_SCALE_LOWER_H

#include "linalg.h"
#include "scale.h"

size_t elvi_lower_length(int d);
size_t elvi_lower_stored(const elvi_scale *of); /* the same, of a kind at its size */
int elvi_lower_finite(const elvi_scale *of, const double *s);
void elvi_lower_axpy(const elvi_scale *of, const double *x, double alpha, const double *y, double *out);
void elvi_lower_mix(const elvi_scale *of, double by, const double *x, double *out);
/* squared distances on the diagonal and below it */
void elvi_lower_dist2(int d, const double *x, const double *y, double *diagonal, double *below);

/* sums of products on the diagonal and below it */
void elvi_lower_inner(int d, const double *x, const double *y, double *diagonal, double *below);

/* The room of both kinds: some matrices, two vectors, LAPACK's workspace. */
enum { ELVI_MOST_MATRICES = 5 };
typedef struct {
    double *mat[ELVI_MOST_MATRICES];
    double *vec[2];
    elvi_lapack lapack;
} elvi_lower_room;
void elvi_lower_room_lengths(int d, int matrices, size_t *n_reals, size_t *n_ints);
elvi_lower_room elvi_lower_room_of(int d, int matrices, const elvi_scale_room *room);

/* A clipped eigenvalue sits on the bound up to rounding: without this slack the next
 * check would find it outside again. */
#define ELVI_SLACK 1e-12

/* is sign * (S - shift I) positive definite? copy is d x d */
int elvi_definite(int d, const double *S, double sign, double shift, double *copy);

/* scale scale' from all of the scale, d x d, which follows the form in memory */
size_t elvi_lower_form_length(const elvi_scale *of);
void elvi_lower_form(int d, double *form);
double elvi_lower_form_value(const elvi_scale *of, const double *form, int n, const int *at, const double *u);
/* s2_i = |row i of XS - moved|^2, XS n x d */
void elvi_row_norms2(int n, int d, const double *XS, const double *moved, double *s2);

#endif
