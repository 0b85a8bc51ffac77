/* The numeric core of elvi. Nothing here knows R: the r_*.c files translate.
 *
 * Shapes: every matrix is column-major. d is the dimension of the target, a
 * "block" is a d x n matrix whose columns are points. How a scale is stored is
 * its kind's business. */
#ifndef ELVI_H
#define ELVI_H

#include <stddef.h>
#include <stdint.h>

/* R/run.R maps these to messages: keep the two in step. */
typedef enum {
    ELVI_OK = 0,
    ELVI_STOPPED = 1, /* the caller's poll asked to stop */
    ELVI_NONFINITE_GRADIENT = 2,
    ELVI_SINGULAR_SCALE = 3, /* scale not positive definite */
    ELVI_EIGEN_FAILED = 4,   /* LAPACK did not converge */
    ELVI_NO_EXPECTATION = 5, /* E f is infinite, or beyond quadrature */
    ELVI_TARGET_FAILED = 6,  /* another package's target says so */
    ELVI_NO_STEP = 7         /* no step passes its check */
} elvi_status;

/* ---- hooks ------------------------------------------------------------------ */

typedef struct elvi_state elvi_state;
typedef struct {
    /* non-zero: stop now. Called after ten to a hundred milliseconds of work, or a block
     * for each thread if that takes longer. */
    int (*poll)(void *ctx, const elvi_state *state);
    /* non-zero: return, with ELVI_OK. Called between two iterations of a run. */
    int (*pause)(void *ctx);
    void *ctx;
} elvi_hooks;

/* ---- checksum.c ------------------------------------------------------------- */

uint64_t elvi_checksum(const unsigned char *bytes, size_t n);

/* ---- threads: parallel.c ----------------------------------------------------- */

/* Work is cut into parts that do not depend on the threads. Each thread (a "lane",
 * with memory of its own) takes the next part when it is free and leaves the result
 * in a slot; results are added up in the order of the parts. So results do not depend
 * on the threads, and a lane that is held up for a while does not hold up the others,
 * for there are more slots than lanes. */
enum {
    ELVI_MOST_LANES = 64,
    ELVI_MOST_SLOTS = 2 * ELVI_MOST_LANES
};
typedef struct {
    void (*work)(void *ctx, int part, int lane, int slot); /* several at once */
    elvi_status (*add)(void *ctx, int slot);               /* one at a time, in order */
    void *ctx;
    double operations; /* of one part, roughly */
} elvi_job;

void elvi_blas_alone(void);  /* from now on it has one thread, as far as it can be asked */
int elvi_lanes(int threads); /* how many lanes so many threads take */
int elvi_slots(int lanes);   /* and how many slots these */
/* how many of the parts that are left to do before the next poll for interrupts */
int elvi_parts_at_once(const elvi_job *job, int lanes, uint64_t left);
/* All parts, or those before the first that fails, with one thread if there is not
 * enough to do for more; meanwhile BLAS has one thread, or its own number if threads
 * is 0. */
elvi_status elvi_parallel(const elvi_job *job, int threads, int lanes, int parts);
/* Is this one of several lanes at work? Then a job of its own is done in this lane. */
int elvi_in_team(void);

/* ---- parameters ----------------------------------------------------------- */

typedef struct {
    double *mu;    /* d */
    double *scale; /* as long as its kind says */
} elvi_theta;

/* ---- scales: scale_<kind>.c ------------------------------------------------- */

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

/* ---- random numbers: rng.c ---------------------------------------------- */

enum { ELVI_ZIG_LAYERS = 256 };

/* Tables of the ziggurat method; built once per call, then only read. */
typedef struct {
    double edge[ELVI_ZIG_LAYERS + 1]; /* right edge of each layer */
    double ratio[ELVI_ZIG_LAYERS];    /* edge[i + 1] / edge[i] */
} elvi_ziggurat;

/* A stream is a pure function of (key, iteration, index): see elvi_stream_at. */
typedef struct {
    uint64_t s[4];
    const elvi_ziggurat *zig;
} elvi_stream;

void elvi_ziggurat_init(elvi_ziggurat *zig);
elvi_stream elvi_stream_at(const elvi_ziggurat *zig, uint64_t key,
                           uint64_t iteration, uint64_t index);
double elvi_uniform(elvi_stream *st); /* in (0, 1) */
void elvi_fill_normal(elvi_stream *st, double *z, int n);
double elvi_gamma(elvi_stream *st, double shape); /* rate 1 */

/* ---- bases: base.c ------------------------------------------------------- */

typedef enum {
    ELVI_GAUSSIAN,
    ELVI_LAPLACE,
    ELVI_UNIFORM,
    ELVI_STUDENT,
    ELVI_POWER,
    ELVI_RADIAL
} elvi_base_kind;

/* The law of R for a user's radial density, tabulated by R/base.R. */
typedef struct {
    int n;
    const double *r;       /* n nodes, increasing */
    const double *density; /* n: density of R at the nodes, up to a factor */
    const double *cdf;     /* n: cumulated trapezoids, from 0 to 1 */
    const double *score;   /* n: (phi'/phi)(r) */
} elvi_radial;

typedef struct elvi_base_ops elvi_base_ops;
typedef struct {
    const elvi_base_ops *ops;
    int dim;
    double par[2];      /* laplace: rate; uniform: radius; student: df;
                           power: shape, rate */
    elvi_radial radial; /* radial only */
} elvi_base;

struct elvi_base_ops {
    /* factor that turns a normal vector of the given norm into a draw z */
    double (*stretch)(const elvi_base *base, elvi_stream *st, double norm);
    /* (phi'/phi)(r) */
    double (*score)(const elvi_base *base, double r);
    int tabulated; /* is the law a table, which comes from R? */
};

const elvi_base_ops *elvi_base_ops_of(elvi_base_kind kind);
/* z (d x n): draws number first, ..., first + n - 1 of the given iteration */
void elvi_base_fill(const elvi_base *base, const elvi_ziggurat *zig,
                    uint64_t key, uint64_t iteration, uint64_t first, int n,
                    double *z);

/* ---- models: model_*.c --------------------------------------------------- */

typedef struct elvi_model_ops elvi_model_ops;
typedef struct {
    const elvi_model_ops *ops;
    const void *data;
    int dim;
    int threads; /* at most so many may evaluate it at once; 0: one, and
                    BLAS has threads instead */
    double cost; /* rough number of operations per point */
    int gathers; /* bit r: can it gather, below, for scales of rank r? */
} elvi_model;

/* Points mu + spread z for draws z number first, ..., first + n - 1 of an iteration. The spread is d x d, or if rank
 * is 1 a diagonal: so many columns of d. */
typedef struct {
    uint64_t iteration, first, n;
    int rank, columns;
    const double *mu, *spread;
} elvi_draws;

struct elvi_model_ops {
    /* f and its gradient at the columns of x (d x n). value (n) and grad
     * (d x n) may each be NULL. scratch has the length the second op says. */
    elvi_status (*eval)(const elvi_model *model, const double *x, int n,
                        double *value, double *grad, double *scratch);
    size_t (*scratch_length)(const elvi_model *model, int n);
    /* NULL, or for targets that are far away and can make draws themselves: f at them (n), or the sum of its gradients
     * (d) and that of the gradients times z' (as long as the spread); what is not asked for is NULL. scratch has
     * d and twice the length of the spread. */
    elvi_status (*gather)(const elvi_model *model, const elvi_draws *draws, double *value, double *sum,
                          double *sum_z, double *scratch);
};

/* ---- rows: rows.c, rows_dense.c, rows_sparse.c ------------------------------- */

/* A design matrix with columns X_j - shift_j, dense or sparse by rows: a part of the
 * rows is what every pass over the data takes. Shifted columns stay sparse. */
typedef struct {
    int rows, dim;
    const double *X;   /* rows x d; NULL when sparse */
    const int *start;  /* rows + 1: entries start[i], ..., start[i + 1] - 1 */
    const int *column; /* of each entry, increasing within a row */
    const double *entry;
    const double *shift; /* d; NULL when there is none */
} elvi_design;

/* Where the data are. A source hands out parts, first, ..., first + rows - 1, and is
 * asked about one part at a time, by several threads at once: so it need not have all
 * rows in memory, and must not change. Nothing here knows a likelihood or a prior. */
typedef struct elvi_rows_ops elvi_rows_ops;
typedef struct {
    const elvi_rows_ops *ops;
    const void *source; /* the operations' own: an elvi_design if it is in memory */
    int rows, dim;
    double entries;       /* of X that a pass must read */
    const double *y;      /* rows: proportion, count or response; these three may be */
    const double *weight; /* rows: case weight x trials / dispersion; NULL in a source */
    const double *offset; /* rows;                                   with parts elsewhere */
} elvi_rows;

typedef struct {
    int first, rows;
    const double *y, *weight, *offset; /* rows each */
} elvi_part;

/* |scale' u_i| for rows u_i: what does not depend on the row, computed once */
typedef struct {
    const elvi_scale_ops *kind;
    const double *scale;
    const double *form; /* sparse: scale scale' */
    double *shift;      /* d: scale' shift, or scale scale' shift if sparse */
    double shift2;      /* sparse: |scale' shift|^2 */
} elvi_spread;

struct elvi_rows_ops {
    elvi_part (*part)(const elvi_rows *from, int first, int rows);
    /* eta (rows x n) += X x; x (and grad below) has ld >= d rows */
    void (*predict)(const elvi_rows *from, const elvi_part *part, const double *x,
                    int ld, int n, double *eta);
    /* grad += X' slope, slope (rows x n) */
    void (*collect)(const elvi_rows *from, const elvi_part *part, const double *slope,
                    int ld, int n, double *grad);
    /* B (d x d) += X' diag(weight) X, lower triangle, weight >= 0 */
    void (*crossprod)(const elvi_rows *from, const elvi_part *part, const double *weight,
                      double *scratch, double *B);
    size_t (*scratch_length)(const elvi_rows *from); /* of crossprod and spread */
    /* out (d) += the diagonal of X' diag(weight) X */
    void (*squares)(const elvi_rows *from, const elvi_part *part, const double *weight,
                    double *out);
    /* reach (d) <- its maximum with |X_ij|, or a bound of it, over rows of positive weight */
    void (*reach)(const elvi_rows *from, const elvi_part *part, double *reach);
    /* s (rows) <- |scale' u_i| */
    size_t (*spread_length)(const elvi_rows *from, const elvi_scale_ops *kind);
    elvi_spread (*spread_of)(const elvi_rows *from, const elvi_scale_ops *kind,
                             const double *scale, double *room);
    void (*spread)(const elvi_rows *from, const elvi_part *part, const elvi_spread *spread,
                   double *scratch, double *s);
};

extern const elvi_rows_ops elvi_rows_dense, elvi_rows_sparse;

/* y, weight and offset of rows that are in memory */
elvi_part elvi_part_in_memory(const elvi_rows *from, int first, int rows);
/* of how many x? */
typedef enum {
    ELVI_BLOCK,
    ELVI_POINT
} elvi_pass;
int elvi_rows_chunk(const elvi_rows *from, elvi_pass pass); /* rows to a part */
int elvi_rows_parts(const elvi_rows *from, elvi_pass pass); /* and how many parts */
elvi_part elvi_rows_part(const elvi_rows *from, elvi_pass pass, int number);
/* eta (rows x n) <- offset + X x */
void elvi_rows_predict(const elvi_rows *from, const elvi_part *part, const double *x,
                       int ld, int n, double *eta);
/* the largest |X_i x|; eta has room for a part */
double elvi_rows_extent(const elvi_rows *from, const double *x, double *eta);
/* the largest |X_ij| of each column over rows of positive weight, or a bound */
void elvi_rows_reach(const elvi_rows *from, double *reach);
/* X'X over the rows of positive weight; used has room for a part, scratch that of crossprod */
elvi_status elvi_rows_gram(const elvi_rows *from, double *used, double *scratch, double *out, const elvi_hooks *hooks);
/* the diagonal of X' diag(weight) X */
elvi_status elvi_rows_squares(const elvi_rows *from, const double *weight, double *out, const elvi_hooks *hooks);
/* out <- X' diag(weight) X v; eta has room for a part */
elvi_status elvi_rows_cross_times(const elvi_rows *from, const double *weight, const double *v, double *eta, double *out,
                                  const elvi_hooks *hooks);
/* X x, without the offset */
void elvi_rows_times(const elvi_rows *from, const double *x, double *out);
/* A column of a dense design from numbers; non-zero if one of them is missing. */
int elvi_column_of_reals(int n, const double *from, double *column);
int elvi_column_of_ints(int n, const int *from, int missing, double *column);
/* What tells other rows from these, in whatever order: sums of marks, of their squares and of their sizes. The mark of a
 * row is a combination of its entries, y, weight and offset, by (dim + 3); mark has room for a chunk. */
void elvi_rows_check_sums(const elvi_rows *from, const double *by, double *mark, double sums[3]);

/* rows_sparse.c: a matrix stored by columns as one stored by rows: start (rows + 1), column, entry */
void elvi_design_by_rows(int rows, int dim, const int *from_start, const int *row,
                         const double *from, int *start, int *column, double *entry);

/* ---- quadrature: R/quadrature.R makes rules, quadrature.h uses them -------------------- */

/* E g(z_1) = sum_q w_q (g(z_q) + g(-z_q)), trusted for spreads up to limit */
typedef struct {
    int n;
    const double *z, *w; /* n each */
    double limit;
} elvi_quadrature_level;

typedef struct {
    double value, slope, curve; /* E l, E l', E[l' z_1] / s at eta + s z_1 */
} elvi_expectation;

enum { ELVI_QUADRATURE_LEVELS = 8 };
typedef struct {
    elvi_quadrature_level level[ELVI_QUADRATURE_LEVELS];        /* the last has limit Inf */
    elvi_quadrature_level prior[ELVI_QUADRATURE_LEVELS];        /* the same for student priors */
    elvi_expectation (*mgf)(double rate, double eta, double s); /* E exp in closed form; NULL: it has none */
    double mgf_rate;
    double limit; /* E f does not exist for spreads from here on */
} elvi_quadrature;

/* base.c: closed forms of E exp(eta + s z_1); a base says in R which is its own */
elvi_expectation elvi_mgf_gaussian(double rate, double eta, double s);
elvi_expectation elvi_mgf_laplace(double rate, double eta, double s);

/* ---- families: likelihood.c ------------------------------------------------------ */

typedef struct {
    double log, natural, inverse; /* a, e^a = sigma or phi, e^-a */
} elvi_dispersion;
extern const elvi_dispersion elvi_no_dispersion; /* of 1 */
elvi_dispersion elvi_dispersion_at(double log);

/* distinct responses and their total weights */
typedef struct {
    int n;
    const double *y, *weight; /* n each */
} elvi_tally;

/* rows whose predictors are eta_i + s_i z_1 */
typedef struct {
    int n;
    const double *y, *weight, *eta, *s; /* n each */
} elvi_lines;

typedef struct {
    double sum;    /* sum_i w_i E l(eta_i + s_i z_1; y_i) */
    double widest; /* the largest s_i of a row of positive weight */
    double *slope; /* n: w_i E l' */
    double *curve; /* n: w_i E[l' z_1] / s_i, >= 0 for convex losses */
} elvi_expected;

typedef struct elvi_family elvi_family;
typedef struct {
    const elvi_family *family;
    double error_df; /* degrees of freedom of the errors, where there are any */
} elvi_likelihood;

/* R/family.R has a record of the same name with what R must know. `a` is elvi_no_dispersion
 * for families without one. */
struct elvi_family {
    const char *name;
    int convex;      /* is l convex in eta? */
    int quadratic;   /* is it even quadratic? */
    int dispersions; /* parameters beside eta: 0 or 1 */
    double cost;     /* operations for a row's slope, roughly */
    /* sum_i w_i l(eta_i; y_i) */
    double (*loss)(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,
                   const double *eta);
    /* eta_i <- w_i l'(eta_i; y_i), and returns sum_i w_i dl/da */
    double (*slope)(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,
                    double *eta);
    /* of one row, for a dispersion that is given; if l is not convex only s = 0 is asked for */
    elvi_expectation (*expect)(const elvi_likelihood *lik, const elvi_dispersion *a,
                               const elvi_quadrature *rule, double y, double eta, double s);
    /* of many rows, as elvi_expect_rows() does it, where there is a faster way; or NULL */
    elvi_status (*expect_many)(const elvi_quadrature *rule, const elvi_lines *rows, elvi_expected *out);
    /* has the loss of a row with response y an exponential in it, whose expectation may
     * not exist? */
    int (*exponential)(double y);
    /* the sum of what has no eta in it, and its derivative in a; NULL if that is 0 */
    double (*rest)(const elvi_dispersion *a, const elvi_tally *tally, double *slope);
    /* E dl/da of one row from its expectation e at eta + s z_1. A family whose record in R says conditional$dispersion =
     * "own" must have it (elvi_family_is_whole); for all others it is NULL, as nothing calls it. */
    double (*along)(const elvi_dispersion *a, double y, double eta, double s, const elvi_expectation *e);
};

const elvi_family *elvi_family_named(const char *name); /* NULL if there is none */
/* Has its record every entry that it must have, `along` if that is asked for? */
int elvi_family_is_whole(const elvi_family *family, int with_along);

/* Fills *out, whose pointers are the caller's. dispersion is sigma or phi where the family has one, else it is not
 * used. normal: log sigma + (y - eta)^2 / (2 sigma^2) is the loss, so its log sigma is in the sum; neg_binomial_2:
 * (y + phi) log(1 + e^u) - y u, u = eta - log phi, so y log phi is in it, but not the gamma functions of (y, phi). With
 * s = 0 these are l, l' and l''. ELVI_NO_EXPECTATION if one does not exist, and with s > 0 for families that are not
 * convex (robust). */
elvi_status elvi_expect_rows(const elvi_likelihood *lik, const elvi_quadrature *rule, double dispersion,
                             const elvi_lines *rows, elvi_expected *out);

/* expect_logit.c, as above; elementwise.c: E log(1 + e^t), E 1 / (1 + e^-t) and
 * E[z / (1 + e^-t)], t = eta_i + s_i z */
elvi_status elvi_logit_expect_rows(const elvi_quadrature *rule, const elvi_lines *rows, elvi_expected *out);
void elvi_logit_integrals(int n, const double *eta, const double *s, const elvi_quadrature_level *level,
                          double *value, double *slope, double *turn);

/* phi(t) / Phi(t) of the normal distribution, to a few units in the last place for all t */
double elvi_mills(double t);

/* elementwise.c: sum_i w_i l(eta_i; y_i), and eta_i <- w_i l'(eta_i; y_i), over n rows */
double elvi_logit_loss(int n, const double *y, const double *w, const double *eta);
double elvi_poisson_loss(int n, const double *y, const double *w, const double *eta);
void elvi_logit_slope(int n, const double *y, const double *w, double *eta);
void elvi_poisson_slope(int n, const double *y, const double *w, double *eta);

/* ---- priors: prior.c ---------------------------------------------------------------- */

/* Independent priors of x[first], ..., x[first + length - 1]: normal (df Inf), student, or flat
 * (precision 0). With of_exp they are priors of e^x instead, truncated to positive values and
 * times an exponential one with `rate`, and the Jacobian is added. */
typedef struct {
    int first, length, of_exp;
    const double *centre, *precision, *prior_df, *rate; /* length each */
} elvi_prior_block;

enum { ELVI_MOST_BLOCKS = 8 };
typedef struct {
    int blocks;
    elvi_prior_block block[ELVI_MOST_BLOCKS]; /* which together are all of x */
} elvi_prior;

/* value (n) and grad (ld x n) <- the prior's at the columns of x; either may be NULL */
void elvi_prior_eval(const elvi_prior *prior, const double *x, int ld, int n,
                     double *value, double *grad);
/* out <- P v, P the largest curvature of the prior; not for priors of e^x */
void elvi_prior_curvature(const elvi_prior *prior, const double *v, double *out);
/* of the i-th entry of a block under mu + s z_1; not for priors of e^x */
elvi_expectation elvi_prior_expect(const elvi_prior_block *block, const elvi_quadrature *rule, int i,
                                   double mu, double s2);

/* ---- the models of this package: model_*.c ----------------------------------- */

/* f(x) = sum_i weight_i l(X_i b + offset_i, a; y_i) - log prior(x), where b are the first
 * entries of x and a, if it is not known, the entry number dispersion_at */
typedef struct {
    elvi_rows rows;
    elvi_likelihood likelihood;
    elvi_prior prior;
    int dispersion_at; /* -1 if it is known, and then in the weights */
    elvi_tally tally;  /* of responses, for families with a `rest` */
} elvi_glm;

/* f(x) = (x - m)' A (x - m) / 2 */
typedef struct {
    const double *A; /* d x d, symmetric */
    const double *m; /* d */
} elvi_quadratic;

/* f_w(w) = f(m + A w) - log|A|: a model in other coordinates, whose objective
 * is the same number as in the old ones */
typedef struct {
    elvi_model inner;
    const elvi_scale_ops *kind; /* of A, which is stored as a scale is */
    const double *A;
    const double *m; /* d */
    double log_det;  /* log|A| */
} elvi_affine;

extern const elvi_model_ops elvi_glm_ops;
extern const elvi_model_ops elvi_quadratic_ops;
extern const elvi_model_ops elvi_affine_ops;

/* the largest curvature of a GLM, in other coordinates if affine is not NULL:
 * out = A' (P + X' diag(bound * weight) X) A v */
typedef struct {
    const elvi_glm *glm;
    const elvi_affine *affine;
    double bound;
    double *scratch; /* as for eval with n = 1 */
    double *moved;   /* d */
} elvi_curvature;
void elvi_curvature_apply(const elvi_curvature *c, const double *v, double *out);

/* operations per point, roughly */
double elvi_glm_cost(const elvi_glm *glm);
double elvi_quadratic_cost(int dim);
double elvi_affine_cost(const elvi_affine *affine);
/* out = (P + X' diag(bound * weight) X) v, P the largest curvature of the prior;
 * scratch as for eval with n = 1 */
void elvi_glm_curvature(const elvi_glm *glm, double bound, const double *v,
                        double *out, double *scratch);

/* ---- exact expectations: exact.c ------------------------------------------ */

typedef struct {
    double value;  /* E f */
    double *g_mu;  /* d */
    double widest; /* the largest spread of a linear predictor */
    /* the gradient of E f with respect to the scale is B scale, B = P + X' diag(c) X */
    double *B;       /* d x d, lower triangle; or NULL, and then its parts: */
    double *own;     /* d: P, which is diagonal */
    double *curve;   /* rows: c */
    double *squares; /* d: the diagonal of X' diag(c) X */
} elvi_exact;

/* whole: is B wanted, or its parts? */
size_t elvi_exact_scratch_length(const elvi_model *model, const elvi_scale_ops *kind, int whole);
/* With a scale of zeros this is f, its gradient and its Hessian at mu. */
elvi_status elvi_glm_exact(const elvi_model *model, const elvi_quadrature *rule,
                           const elvi_scale_ops *kind, const elvi_theta *theta,
                           double *scratch, elvi_exact *out, const elvi_hooks *hooks);

/* ---- schedules: schedule.c ----------------------------------------------- */

/* step(k) = step0 (k+1)^-step_power and batch(k) = ceil(batch0
 * (k+1)^batch_power), or the k-th entries of two tables. */
typedef struct {
    double step0, step_power, batch0, batch_power;
    const double *step_table, *batch_table; /* NULL, or table_length each */
    uint64_t table_length;
} elvi_schedule;

double elvi_schedule_step(const elvi_schedule *s, uint64_t k);
uint64_t elvi_schedule_batch(const elvi_schedule *s, uint64_t k);
/* the largest number of iterations whose batches add up to at most budget */
uint64_t elvi_schedule_horizon(const elvi_schedule *s, double budget);

/* ---- the run ------------------------------------------------------------- */

typedef enum {
    ELVI_AVG_THEOREM,
    ELVI_AVG_TAIL,
    ELVI_AVG_LAST
} elvi_averaging;

typedef struct {
    elvi_model model;
    elvi_base base;
    const elvi_scale_ops *scale;
} elvi_problem;

typedef struct elvi_estimator_ops elvi_estimator_ops;
typedef struct elvi_update_ops elvi_update_ops;

typedef struct {
    elvi_schedule schedule;
    uint64_t iterations; /* run until this many are done */
    int fresh;           /* does the trace still lack its first row? */
    uint64_t key;
    const elvi_estimator_ops *estimator;
    const elvi_update_ops *update;
    double lambda_mu, lambda_scale;
    const double *mu_root;       /* NULL, or d x d lower triangular: the metric of mu is
                                    mu_root mu_root' / lambda_mu instead of I / lambda_mu */
    double scale_min, scale_max; /* bounds of the feasible set; may be Inf */
    const double *mu_centre;     /* d */
    double mu_radius;            /* may be Inf */
    double longest;              /* of a step, in norms of the scale; may be Inf */
    elvi_averaging averaging;
    double bg_a;         /* a of the noise bound, for theorem weights */
    uint64_t tail_start; /* first iterate of the tail average */
    int trace_draws;     /* draws behind the objective; 0: no objective */
    uint64_t horizon;    /* planned iterations: the last gets a row */
    int check_draws;     /* behind the check of a step; 0: none */
    double check_step;   /* no shorter one is checked: 1/(2L) */
    int check_floor;     /* is scale_min made from this L, */
    int check_divides;   /* and are the schedule's steps? */
} elvi_settings;

/* of an estimator */
enum {
    ELVI_MOST_MEMORY = 8,
    ELVI_MOST_SUMS = 8
};

/* Everything a run must remember to go on later. */
struct elvi_state {
    elvi_theta theta, average;
    uint64_t k, evals;
    double alpha, weight;            /* averaging: alpha_k and the sum of weights */
    double memory[ELVI_MOST_MEMORY]; /* what the estimator has learnt */
    double shorten, steepest;        /* checks divide steps by this now, and have by so much */
    uint64_t checks;                 /* how many of evals were for them */
};

/* What a thread needs to differentiate at a block of points. */
typedef struct {
    double *z, *x, *g; /* d x block */
    double *value;     /* block */
    double *scratch;   /* the model's */
    double *extra;     /* d x block, for an estimator that asks for it */
} elvi_lane;

/* What a block gives: its part of the gradient, and of the estimator's sums. */
typedef struct {
    elvi_theta grad;
    double sums[ELVI_MOST_SUMS];
    elvi_status status;
} elvi_slot;

/* What is known of a batch whose draws the target has made. As long as a spread each, if there is no other remark. */
typedef struct {
    double *spread, *unit; /* the scale; I, or ones for a diagonal */
    double *sum;           /* d: of gradients */
    double *sum_z;         /* of gradients times z' */
    double *scratch;       /* as ops->gather says; NULL where the target makes no draws */
} elvi_far;

typedef struct {
    int block; /* points per block */
    int lanes;
    elvi_lane lane[ELVI_MOST_LANES];
    elvi_slot slot[ELVI_MOST_SLOTS];
    elvi_ziggurat zig;
    elvi_theta grad, next;
    elvi_scale_room room; /* of the kind of scale, at theta */
    elvi_far far;
    double sums[ELVI_MOST_SUMS];     /* the estimator's, over the batch */
    double memory[ELVI_MOST_MEMORY]; /* and what it has learnt with it */
    double cost_since_poll;
} elvi_work;

typedef struct {
    int capacity, rows;
    double *iteration, *evals, *batch, *step, *objective, *se, *gradient_map,
        *clipped, *cpu; /* capacity each */
    double cpu_offset;  /* CPU seconds of earlier runs */
} elvi_trace;

/* ---- estimators: estimator_<name>.c ------------------------------------------ */

/* At a batch: its problem, theta and memory are those of the state. */
typedef struct {
    const elvi_problem *p;
    const elvi_settings *s;
    const elvi_state *st;
    elvi_work *w;
} elvi_batch;

/* From draws z and grad f at mu + scale z to an estimate of the gradient of F, whose part
 * in mu is the mean of a vector h and whose part in the scale is that of h z', and more.
 * What an estimator learns from a batch may only be used for the next ones. */
struct elvi_estimator_ops {
    const char *name;
    int factors; /* does it need the scale's factor whatever the update? */
    int extra;   /* does a lane need its extra array? */
    int memory;  /* how many numbers it remembers */
    int linear;  /* is h linear in grad f, and are the sums, up to a constant? Then grad f may be added
                    afterwards, as sums over draws that were made elsewhere. */
    void (*start)(double *memory);
    /* lane->g (grad f at n points) <- h; sums += any over these draws. lane->x, the points,
     * may be overwritten. */
    elvi_status (*block)(const elvi_batch *b, int n, elvi_lane *lane, double *sums);
    /* w->sums += what is linear in grad f, from w->far; NULL if there is nothing. Only if linear. */
    elvi_status (*gathered)(const elvi_batch *b);
    /* w->grad, the mean of (h, h z') <- the estimate, with the update's share of the
     * entropy; w->memory, that of the state, <- what to remember, from w->sums */
    elvi_status (*finish)(const elvi_batch *b);
};

extern const elvi_estimator_ops elvi_estimator_reparam, elvi_estimator_path, elvi_estimator_control;

/* work.c: points w's pointers into the two blocks and returns how long the
 * blocks must be; with NULL blocks it only counts. */
void elvi_work_bind(elvi_work *w, const elvi_problem *p, const elvi_estimator_ops *estimator,
                    int block, double *reals, int *ints, size_t *n_reals, size_t *n_ints);

/* loop.c: what a step does with -log|scale|, the part of F that is known */
struct elvi_update_ops {
    double entropy; /* 1: its gradient is part of the step's; 0: it is left to settle() */
    /* makes w->next.scale, after a step, feasible; was it not? */
    elvi_status (*settle)(const elvi_problem *p, const elvi_settings *s, double step, elvi_work *w, int *clipped);
};
extern const elvi_update_ops elvi_update_project, elvi_update_prox;

/* loop.c: w->next = theta - step Lambda w->grad, without a projection; and its distance from
 * theta in the metric of 1 / Lambda */
void elvi_move(const elvi_problem *p, const elvi_settings *s, const elvi_theta *theta, double step, elvi_work *w);
double elvi_moved(const elvi_problem *p, const elvi_settings *s, const elvi_theta *theta, const elvi_work *w);

elvi_status elvi_run(const elvi_problem *p, const elvi_settings *s,
                     elvi_state *st, elvi_work *w, elvi_trace *trace,
                     const elvi_hooks *hooks);

/* gradient.c: are draws made by the target? */
int elvi_gathers(const elvi_problem *p, const elvi_estimator_ops *estimator);
/* how many columns of d a spread has for this kind of scale */
int elvi_spread_columns(const elvi_problem *p);

/* gradient.c: w->grad, and w->memory for the next state, from draws 0, ..., batch - 1 of
 * iteration k at theta */
elvi_status elvi_gradient(const elvi_problem *p, const elvi_settings *s,
                          const elvi_state *st, uint64_t batch, elvi_work *w,
                          const elvi_hooks *hooks);

/* gradient.c: polls if, with n more samples, enough work has been done for it */
int elvi_asked_to_stop(const elvi_problem *p, const elvi_state *st, double n,
                       elvi_work *w, const elvi_hooks *hooks);

/* gradient.c: f at mu + scale z for draws first, ..., first + n - 1, n at
 * most w->block; in the first lane */
elvi_status elvi_values(const elvi_problem *p, const elvi_theta *theta,
                        uint64_t key, uint64_t iteration, uint64_t first, int n,
                        elvi_work *w, double *value);
/* the iteration number that keys the fixed draws behind the trace */
#define ELVI_TRACE_ITERATION UINT64_MAX

/* scale.c: factors once for each theta; x = mu + scale z */
elvi_status elvi_scale_factor(const elvi_problem *p, const elvi_theta *theta, elvi_work *w);
void elvi_scale_move(const elvi_problem *p, const elvi_theta *theta, const double *z, int n, double *x);
/* sum of log v_i over a diagonal, stride apart; NaN unless all are positive */
double elvi_log_det_diagonal(const double *v, int d, size_t stride);
/* -log v, below lo continued by a parabola, added up */
double elvi_barrier_diagonal(const double *v, int d, size_t stride, double lo);
/* the positive root of v^2 - c v - t = 0 for each c of a diagonal */
void elvi_prox_diagonal(double *v, int d, size_t stride, double t);

/* project.c: the exact Euclidean projection of mu, in place */
void elvi_project_ball(int d, const double *centre, double radius, double *mu);

/* average.c */
void elvi_average_before(const elvi_problem *p, const elvi_settings *s,
                         double step, uint64_t batch, elvi_state *st);
void elvi_average_after(const elvi_problem *p, const elvi_settings *s, elvi_state *st);

/* backtrack.c: what a check has found, before the gradient of its step is drawn */
typedef struct {
    double shorten, steepest;
    uint64_t evals;
} elvi_check;
elvi_status elvi_backtrack(const elvi_problem *p, const elvi_settings *s, const elvi_state *st, double step,
                           elvi_work *w, const elvi_hooks *hooks, elvi_check *check);
/* the schedule's step and scale_min as checks have changed them */
double elvi_checked_step(const elvi_settings *s, double step, double shorten);
double elvi_floor(const elvi_settings *s, double steepest);

/* trace.c */
void elvi_trace_begin(elvi_trace *trace, double cpu_before);
double elvi_trace_cpu(const elvi_trace *trace); /* CPU seconds of this run and those before */
int elvi_trace_wants(uint64_t k, uint64_t horizon);
elvi_status elvi_trace_add(const elvi_problem *p, const elvi_settings *s,
                           const elvi_state *st, double step, uint64_t batch,
                           double gradient_map, int clipped, elvi_work *w,
                           elvi_trace *trace, const elvi_hooks *hooks);

#endif
