/* A regression with a sparse design and a sparse prior precision: nested.c. */
#ifndef ELVI_NESTED_H
#define ELVI_NESTED_H

#include "family.h"
#include "joint.h"
#include "sparse.h"

/* What the dispersion of a hyperparameter point is and does: nested_dispersion.c. */
typedef struct elvi_dispersion_ops elvi_dispersion_ops;

/* f(x) = (x - centre)' A (x - centre) / 2 + sum_i weight_i l(w_i'x + offset_i; y_i). The
 * last `dense` of the dim unknowns have dense columns, stored by rows; the entries of
 * the others in row i are start[i], ..., start[i + 1] - 1, by increasing column. */
typedef struct {
    elvi_pattern pattern; /* of the factor of A + W' diag(c) W */
    int rows, dense;
    const double *X; /* dense x rows */
    const int *start, *column;
    const double *entry;
    const int *pair; /* places of (column[a], column[b]), a >= b, row by row */
    int precisions;  /* entries of A, lower triangle */
    const int *a_row, *a_column, *a_source, *a_place;
    int sources;                /* numbers that A is made of */
    int blocked;                /* is the inverse of A on the same pattern? */
    int constraints;            /* linear functions of x that are 0 */
    const double *constraint;   /* dim x constraints: orthonormal eigenvectors of A; none where A is blocked */
    const double *centre;       /* dim; satisfies the constraints */
    elvi_likelihood likelihood; /* of y / (y + phi) in case of phi; none if `joint` */
    const elvi_joint *joint;    /* a loss of several predictors; NULL: of one */
    int lines;                  /* how many */
    const int *line;            /* dim: the predictor that an unknown belongs to; NULL if not `joint` */
    const elvi_dispersion_ops *dispersion;
    const double *y, *weight, *offset; /* offsets: one for each predictor of a row */
    int blocks;                        /* of consecutive rows, for the check by draws */
    const int *block_start;            /* blocks + 1 */
    int summed;                        /* are the rows elsewhere? Then a point's c is W' diag(c) W, on the pattern */
} elvi_nested;

/* the length of a point's c */
size_t elvi_nested_curvatures(const elvi_nested *p);

/* Values of the hyperparameters, and where to start. */
typedef struct {
    const double *A;       /* sources: A's entries */
    const double *inverse; /* sources: those of its inverse; NULL when A is not definite or
                              not blocked */
    const double *slack;   /* constraints: the inverses of A's eigenvalues there */
    int definite;
    int hypers;          /* of the family's own hyperparameters */
    const double *hyper; /* hypers; the first is its dispersion */
    const double *mu;    /* dim; NULL: from the predictors eta */
    const double *eta;
    const double *c; /* pairs, see elvi_nested_pairs() */
} elvi_hyper_point;

/* numbers that a row has as predictors, slopes and offsets, and as curvatures and (co)variances: one, or more if `joint` */
static inline size_t elvi_nested_lines(const elvi_nested *p) { return (size_t) p->rows * (size_t) p->lines; }
static inline size_t elvi_nested_pairs(const elvi_nested *p) { return (size_t) p->rows * (size_t) elvi_pairs_of(p->lines); }
/* numbers that the responses are */
static inline size_t elvi_nested_responses(const elvi_nested *p)
{
    return (size_t) p->rows * (size_t) (p->joint ? elvi_joint_responses(p->joint, p->lines) : 1);
}

/* where the entries of a column in the dense rows begin: they are its last */
static inline size_t elvi_nested_dense_at(const elvi_nested *p, int column)
{
    const elvi_pattern *f = &p->pattern;
    if (column < f->head) return (size_t) (f->start[column + 1] - p->dense);
    return elvi_pattern_at(f, f->dim - p->dense, column);
}

/* nested_joint.c: what nested.c does row by row, for several predictors */
void elvi_joint_predict(const elvi_nested *p, const double *x, double *eta);
void elvi_joint_collect(const elvi_nested *p, const double *slope, double *x);
void elvi_joint_assemble(const elvi_nested *p, const double *c, double *P);
void elvi_joint_spreads(const elvi_nested *p, const double *M, double *V);
void elvi_joint_weigh(const elvi_nested *p, const double *c, const double *eta, double *out); /* C_i (eta_i - offset_i) */
void elvi_joint_multiply(int lines, int rows, const double *c, const double *x, double *out); /* C_i x_i */
void elvi_joint_narrow(int lines, int rows, const double *weight, double *c);
double elvi_joint_trace(int lines, int rows, const double *c, const double *V); /* sum_i tr(C_i V_i) */
/* sum_i |Q_i^1/2 (C_i' - C_i) V_i^1/2|, Frobenius norms */
double elvi_joint_turn(const elvi_nested *p, const double *Q, const double *V, const double *to, const double *c);
/* weights of predictors and of curvatures in a step */
void elvi_joint_weights(int lines, int rows, const double *c, const double *V, double *by_line, double *by_pair);
void elvi_joint_pin(int lines, int rows, const double *along, double q, double *V); /* V_i - u_i u_i' / q */
double elvi_joint_form(int lines, const double *c, const double *u);                /* u' C u */
/* of two predictors: sums over rows of minus the third and fourth derivatives in the direction of u */
void elvi_joint_cumulants(int rows, const double *third, const double *fourth, const double *u, double *sum3, double *sum4);
double elvi_joint_reach(const double *V, int line); /* how far to move a predictor for differences */

typedef struct {
    double *mu;                /* dim */
    double *c;                 /* pairs */
    double *variance;          /* dim: diagonal of P^-1 */
    double *moment;            /* sources: sum of (x - centre)(x - centre)' over A's entries */
    double objective, log_det; /* F and log|P| */
    double certificate, estimate, widest;
    double loss, level; /* for the derivative in the dispersion, see dispersion_sums() */
    double *slope;      /* hypers: that in the logarithm of each, or what goes into it */
    int rigorous, iterations, evaluations;
    elvi_status status;
} elvi_conditional;

/* Rows at an optimum, and what is known of them there. */
typedef struct {
    const double *inverse;                 /* P^-1 on the pattern */
    const double *eta, *s, *slope, *curve; /* rows; the last two times the weights */
    double *room;                          /* 3 rows */
} elvi_optimum_rows;

struct elvi_dispersion_ops {
    const char *name;
    int own;          /* does the family's loss take it? Else it is in the rows */
    int needs_slopes; /* must the family have `add_hyper_slopes`? */
    /* response, weight and offset of n rows, as the loss takes them given the dispersion */
    void (*set_rows)(double dispersion, int n, double *y, double *weight, double *offset);
    /* adds to loss, level and slope what the derivative of E f in the hyperparameters is made of */
    elvi_status (*add_sums)(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at,
                            const elvi_optimum_rows *x, elvi_conditional *out);
};
const elvi_dispersion_ops *elvi_dispersion_named(const char *name); /* NULL if there is none */

/* the dispersion of a hyperparameter point, 1 where there is none; and the hyperparameters as the loss takes them */
double elvi_point_dispersion(const elvi_hyper_point *at);
elvi_dispersion elvi_loss_dispersion(const elvi_nested *p, const elvi_hyper_point *at);

/* The expectations of rows, as elvi_expect_rows() has them, at a hyperparameter point. */
elvi_status elvi_nested_expect_rows(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at,
                                    const elvi_lines *rows, elvi_expected *out);

size_t elvi_nested_work_length(const elvi_nested *p);
size_t elvi_nested_links_length(const elvi_nested *p);
/* A fifth of the operations of a check with so many draws, or of a solution if there are none, roughly: where threads gain
 * less than a few milliseconds, a busy machine makes them wait for each other longer than that. */
double elvi_nested_operations(const elvi_nested *p, int draws);

/* polled by one thread, read by all */
typedef struct {
    const elvi_hooks *hooks;
    int stop;
} elvi_watch;

void elvi_ask_all_to_stop(elvi_watch *watch);
int elvi_all_asked_to_stop(const elvi_watch *watch);

/* What is to be done at one point, and the memory for it. */
typedef struct {
    const elvi_nested *plan;
    const elvi_quadrature *rule;
    const elvi_hyper_point *at;
    double *work; /* elvi_nested_work_length() */
    int *links;   /* elvi_nested_links_length() */
} elvi_nested_task;

/* When to end: at a certificate (of a loss that is not convex: an estimated gap) below tol, after so many iterations, or
 * when asked to. */
typedef struct {
    double tol;
    int most;
    elvi_watch *watch;
    int polls; /* does this thread poll? */
} elvi_nested_end;

/* The optimum given the hyperparameters; a stationary point where the loss is not convex. */
void elvi_nested_solve(const elvi_nested_task *task, const elvi_nested_end *end, elvi_conditional *out);

/* What draws mu + P^-1/2 z say of the importance ratios of a conditional optimum. */
typedef struct {
    double *total; /* n: log ratio of each draw, less its expectation, for a gaussian base */
    double level;  /* sum over blocks of log E exp(block's log ratio) */
    double spread; /* sum over blocks of its variance */
    double *bend;  /* n: sum over blocks of e^r - 1 - r, whose mean is `level`, almost */
    double *shift; /* dim: what the ratios of the blocks move the mean by; NULL: not wanted */
    elvi_status status;
} elvi_ratios;
void elvi_nested_check(const elvi_nested_task *task, const double *z, int n, elvi_ratios *out);

/* x (dim x n): z on entry, mu + P^-1/2 z on exit */
elvi_status elvi_nested_draws(const elvi_nested *p, const elvi_hyper_point *at, int n, double *x, double *work,
                              int *links);
/* L^-1 x for the columns of x (dim x n), whose squares sum to x' P^-1 x */
elvi_status elvi_nested_whiten(const elvi_nested *p, const elvi_hyper_point *at, int n, double *x, double *work,
                               int *links);

/* Rows of another design with the same columns, stored as those of a plan are; held[i] is 0 where a pair of row i is
 * not on the pattern */
typedef struct {
    int rows;
    const double *X;
    const int *start, *column, *pair, *held;
    const double *entry;
} elvi_other_rows;
/* w_i' P^-1 w_i of such rows, NaN where a row is not held */
elvi_status elvi_nested_variances(const elvi_nested *p, const elvi_hyper_point *at, const elvi_other_rows *rows, double *out,
                                  double *work, int *links);

/* The log density of a'x along its range, by the best gaussian of the rest at each of a few values: a node every `width`
 * standard deviations of the optimum, on either side until it has fallen by `drop`. */
typedef struct {
    const double *a;          /* dim */
    int most, steps;          /* nodes on a side, Newton steps at a node; at most */
    double width, drop, gain; /* no step is taken where less is left to gain */
    double at, sd;            /* of a'x at the optimum */
    double *value, *mean;     /* 2 most + 1, the optimum in the middle; the means of x there, or NULL */
    int below, above;         /* nodes that there are on each side */
    int points;               /* standard normal points by which the bounds are corrected, 0: none; not with constraints */
    const double *z;          /* dim x points, a share of them spread out by `wide` */
    double share, wide;
    double *effective; /* 2 most + 1: the share of effective points */
    elvi_status status;
} elvi_profile;
void elvi_nested_profile(const elvi_nested_task *task, elvi_profile *out);

/* Third and fourth standardised cumulants of a'x for the n columns of a (dim x n), to first order in the losses' expected third and
 * fourth derivatives: 0 where the posterior is gaussian. */
elvi_status elvi_nested_cumulants(const elvi_nested_task *task, int n, const double *a, double *third, double *fourth);

/* ---- rows that are not in memory: nested.c ---- */

/* What a point (mu, c) of a plan without rows is by itself: P = A + c, c on the pattern. */
typedef struct {
    double *inverse;     /* P^-1 on the pattern */
    double *g;           /* dim: A (mu - centre) */
    double *moment;      /* sources, as elvi_conditional has it */
    double form, trace;  /* (mu - centre)' A (mu - centre), and tr(c P^-1) */
    double log_diagonal; /* half of log|P| */
    double *reach;       /* A^-1 on the pattern, of a definite A; NULL: not wanted */
} elvi_summed_point;
elvi_status elvi_nested_look(const elvi_nested_task *task, elvi_summed_point *out);

/* step <- P(c)^-1 x; `own`: x' P(c)^-1 x; `dual`: x' A^-1 x, infinite where A is not definite */
elvi_status elvi_nested_newton(const elvi_nested_task *task, const double *x, double *step, double *own, double *dual);

/* One of the points at which rows are added up: mu and M = P^-1 on the pattern. The curvatures c that P has been made of are a
 * combination of those of the rows at `sources` points before. */
enum { ELVI_MOST_SOURCES = 8 };
typedef struct {
    const double *mu, *M;
    int sources; /* 0: not known */
    const double *mu_before[ELVI_MOST_SOURCES], *M_before[ELVI_MOST_SOURCES];
    double weight[ELVI_MOST_SOURCES];
    const double *reach; /* A^-1 on the pattern; NULL: not definite */
} elvi_row_point;

/* Sums over the rows of a plan: E of the losses, slopes W' l', curvatures W' diag(c) W on the pattern, and what the certificate
 * is made of, see certify() in nested.c. */
typedef struct {
    double sum, widest;
    double *slope;    /* dim */
    double *curve;    /* on the pattern */
    double near, far; /* of c less that of the point before; infinite where that is not known */
} elvi_row_sums;
size_t elvi_row_sums_length(const elvi_nested *p);
elvi_status elvi_nested_add_rows(const elvi_nested_task *task, const elvi_row_point *x, elvi_row_sums *out);

/* of nested.c */
void elvi_nested_predict(const elvi_nested *p, const double *x, double *eta);
void elvi_nested_collect(const elvi_nested *p, const double *slope, double *x);   /* x += W' slope */
void elvi_nested_add_curvature(const elvi_nested *p, const double *c, double *P); /* P += W' diag(c) W */
void elvi_nested_spreads(const elvi_nested *p, const double *M, double *s);       /* sqrt(w_i' M w_i) */

/* Unknowns with sparse columns, each given those that come after it in the order of the plan: z_j of z = L'(x - mu),
 * which is standard
 * normal under the approximation. Moving z_j moves few rows, so its density costs few expectations: the approximation of all
 * the rest stays what it is. Only those whose third or fourth cumulant is larger than asked for are looked at. */
typedef struct {
    const int *start, *row; /* rows that have an entry in each sparse column: start has one more than these */
    int most;               /* nodes on a side */
    double width;           /* between nodes */
    double third, fourth;   /* cumulants that matter */
    double *delta, *scale;  /* dim: mean and standard deviation of z_j; 0 and 1 where nothing was looked at */
    double *change;         /* dim: what that adds to the variances of x */
    double *skew, *tail;    /* dim: the cumulants */
    double *value;          /* 2 most + 1 for each of the sparse columns: log densities */
    elvi_status status;
} elvi_residuals;
void elvi_nested_residuals(const elvi_nested_task *task, elvi_residuals *out);

#endif
