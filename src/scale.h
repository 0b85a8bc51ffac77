/* Scales: scale_<kind>.c, and scale.c for what kinds share. */
#ifndef ELVI_SCALE_H
#define ELVI_SCALE_H

#include "core.h"

/* Memory that a kind requests and lays out itself, and what it has computed of the scale
 * at hand. */
typedef struct {
    double *reals;
    int *ints;
    size_t n_reals, n_ints;
    int factored;   /* has the scale at hand been factored? */
    double log_det; /* log|scale|, once it has */
} elvi_scale_room;

/* A kind of scale at a size. `columns` is for a kind whose size the dimension alone does not say. */
typedef struct elvi_scale_ops elvi_scale_ops;
typedef struct {
    const elvi_scale_ops *ops;
    int dim, columns;
} elvi_scale;

/* What a target that makes draws itself receives of a scale: all of it, its diagonal, or nothing, so that it cannot.
 * Bits of elvi_model.gathers. */
typedef enum {
    ELVI_SPREAD_NONE = 0,
    ELVI_SPREAD_DIAGONAL = 1,
    ELVI_SPREAD_FULL = 2
} elvi_spread_kind;

/* Everything that depends on how a scale is stored and where it may move. In what
 * follows s is a scale of dimension d, or a gradient with respect to one; blocks z, u, x
 * are d x n. R has a scale as an array of d rows, of whatever shape, that C does not ask for. */
struct elvi_scale_ops {
    const char *name;
    elvi_spread_kind spread;

    /* storage */
    /* of a scale of so many numbers, 0 if there is none; NULL for a kind whose size the dimension says */
    int (*columns)(int d, size_t length);
    size_t (*length)(const elvi_scale *of);
    void (*show)(const elvi_scale *of, const double *s, double *array); /* all of R's array, as long as a scale */
    int (*finite)(const elvi_scale *of, const double *s);
    void (*axpy)(const elvi_scale *of, const double *x, double alpha, const double *y, double *out); /* x + alpha y */
    void (*mix)(const elvi_scale *of, double by, const double *x, double *out);                      /* out += by (x - out) */
    double (*dist2)(const elvi_scale *of, const double *x, const double *y);                         /* squared Frobenius norm */
    double (*inner)(const elvi_scale *of, const double *x, const double *y);

    /* linear algebra. Of these only `factor` changes the room's memory. */
    void (*room)(const elvi_scale *of, size_t *n_reals, size_t *n_ints);
    elvi_status (*factor)(const elvi_scale *of, const double *s, elvi_scale_room *room);          /* and log_det */
    void (*apply)(const elvi_scale *of, const double *s, int n, const double *z, double *x);      /* scale z */
    void (*transposed)(const elvi_scale *of, const double *s, int n, const double *u, double *x); /* scale' u */
    elvi_status (*solve)(const elvi_scale *of, const double *s, const elvi_scale_room *room, int n, double *x);
    /* x <- scale^-T x */

    /* calculus */
    void (*outer)(const elvi_scale *of, const double *s, double alpha, const elvi_gradients *at, double *out);
    /* out += alpha x gradient of g'scale z, summed over columns: g z', as far as a scale can go there */
    elvi_status (*add_entropy)(const elvi_scale *of, const double *s, double alpha, elvi_scale_room *room, double *out);
    /* out += alpha x gradient of log|scale|; factored */
    void (*add_size)(const elvi_scale *of, const double *s, double alpha, double *out);
    /* out += alpha x gradient of |scale|^2 / 2 */
    double (*size2)(const elvi_scale *of, const double *s); /* |scale|^2, that of Frobenius */

    /* the feasible set: its Euclidean projection, and the proximal step of -t log|scale|,
     * NULL where there is none; both forget the factor */
    elvi_status (*project)(const elvi_scale *of, double lo, double hi, double *s, elvi_scale_room *room, int *clipped);
    void (*prox)(const elvi_scale *of, double t, double *s);
    /* -log|s|, continued where an eigenvalue (of a symmetric scale) or an entry of the diagonal is below lo by
     * the parabola that has its value and both derivatives at lo; forgets the factor */
    elvi_status (*barrier)(const elvi_scale *of, double lo, const double *s, elvi_scale_room *room, double *value);

    /* spreads |scale' u|. For dense rows u_i: s2_i = |scale' u_i - moved|^2, moved NULL or d long, room n x d. */
    void (*spread2_rows)(const elvi_scale *of, const double *s, const elvi_row_block *rows, const double *moved,
                         double *room, double *s2);
    /* For sparse ones: u' form u with form = scale scale', u given by n entries, `at`
     * increasing. form_length counts what making the form takes, too. */
    size_t (*form_length)(const elvi_scale *of);
    void (*form)(const elvi_scale *of, const double *s, double *form);
    double (*form_value)(const elvi_scale *of, const double *form, int n, const int *at, const double *u);
    double (*variance)(const elvi_scale *of, const double *s, int i); /* (scale scale')_ii */
};

extern const elvi_scale_ops elvi_scale_symmetric, elvi_scale_triangular, elvi_scale_diagonal;

/* scale.c: |scale|^2 as a sum of variances */
double elvi_size2_by_variances(const elvi_scale *of, const double *s);
/* sum of log v_i over a diagonal, stride apart; NaN unless all are positive */
double elvi_log_det_diagonal(const double *v, int d, size_t stride);
/* -log v, below lo continued by a parabola, added up */
double elvi_barrier_diagonal(const double *v, int d, size_t stride, double lo);
/* the positive root of v^2 - c v - t = 0 for each c of a diagonal */
void elvi_prox_diagonal(double *v, int d, size_t stride, double t);

#endif
