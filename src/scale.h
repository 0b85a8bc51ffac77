/* Scales: scale_<kind>.c, and scale.c for what kinds share. */
#ifndef ELVI_SCALE_H
#define ELVI_SCALE_H

#include "core.h"

/* Memory that a kind asks for and lays out as it likes, and what it knows of the scale
 * at hand. */
typedef struct {
    double *reals;
    int *ints;
    size_t n_reals, n_ints;
    int factored;   /* has the scale at hand been factored? */
    double log_det; /* log|scale|, once it has */
} elvi_scale_room;

/* Everything that depends on how a scale is stored and where it may move. In what
 * follows s is a scale of dimension d, or a gradient with respect to one; blocks z, u, x
 * are d x n. */
typedef struct {
    const char *name;
    int rank; /* dimensions of the array that R sees: d or d x d */

    /* storage */
    size_t (*length)(int d);
    void (*show)(int d, const double *s, double *array); /* all of R's array */
    int (*finite)(int d, const double *s);
    void (*axpy)(int d, const double *x, double alpha, const double *y, double *out); /* x + alpha y */
    void (*mix)(int d, double by, const double *x, double *out);                      /* out += by (x - out) */
    double (*dist2)(int d, const double *x, const double *y);                         /* squared Frobenius norm */
    double (*inner)(int d, const double *x, const double *y);

    /* linear algebra. Of these only `factor` changes the room's memory. */
    void (*room)(int d, size_t *n_reals, size_t *n_ints);
    elvi_status (*factor)(int d, const double *s, elvi_scale_room *room);          /* and log_det */
    void (*apply)(int d, const double *s, int n, const double *z, double *x);      /* scale z */
    void (*transposed)(int d, const double *s, int n, const double *u, double *x); /* scale' u */
    elvi_status (*solve)(int d, const double *s, const elvi_scale_room *room, int n, double *x);
    /* x <- scale^-T x */

    /* calculus */
    void (*outer)(int d, double alpha, const double *g, const double *z, int n, double *out);
    /* out += alpha g z', as far as a scale can go there */
    elvi_status (*add_entropy)(int d, const double *s, double alpha, elvi_scale_room *room, double *out);
    /* out += alpha x gradient of log|scale|; factored */

    /* the feasible set: its Euclidean projection, and the proximal step of -t log|scale|,
     * NULL where there is none; both forget the factor */
    elvi_status (*project)(int d, double lo, double hi, double *s, elvi_scale_room *room, int *clipped);
    void (*prox)(int d, double t, double *s);
    /* -log|s|, continued where an eigenvalue (of a symmetric scale) or an entry of the diagonal is below lo by
     * the parabola that has its value and both derivatives at lo; forgets the factor */
    elvi_status (*barrier)(int d, double lo, const double *s, elvi_scale_room *room, double *value);

    /* spreads |scale' u|. For dense rows: s2_i = |scale' u_i - moved|^2, u_i the rows of U
     * (n x d, ldu rows apart), moved NULL or d long, room n x d. */
    void (*spread2_rows)(int d, const double *s, int n, const double *U, int ldu,
                         const double *moved, double *room, double *s2);
    /* For sparse ones: u' form u with form = scale scale', u given by n entries, `at`
     * increasing. form_length counts what making the form takes, too. */
    size_t (*form_length)(int d);
    void (*form)(int d, const double *s, double *form);
    double (*form_value)(int d, const double *form, int n, const int *at, const double *u);
    double (*variance)(int d, const double *s, int i); /* (scale scale')_ii */
} elvi_scale_ops;

extern const elvi_scale_ops elvi_scale_symmetric, elvi_scale_triangular, elvi_scale_diagonal;

/* scale.c: sum of log v_i over a diagonal, stride apart; NaN unless all are positive */
double elvi_log_det_diagonal(const double *v, int d, size_t stride);
/* -log v, below lo continued by a parabola, added up */
double elvi_barrier_diagonal(const double *v, int d, size_t stride, double lo);
/* the positive root of v^2 - c v - t = 0 for each c of a diagonal */
void elvi_prox_diagonal(double *v, int d, size_t stride, double t);

#endif
