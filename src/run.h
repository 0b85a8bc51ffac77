/* The run: schedule.c, loop.c, gradient.c, backtrack.c, average.c, trace.c, work.c, project.c, estimator_<name>.c. */
#ifndef ELVI_RUN_H
#define ELVI_RUN_H

#include "base.h"
#include "model.h"
#include "parallel.h"

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
    elvi_scale scale;
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

extern const elvi_estimator_ops elvi_estimator_reparam, elvi_estimator_path, elvi_estimator_control, elvi_estimator_fixed;

/* All memory of a run, and how long it is. */
typedef struct {
    double *reals;
    int *ints;
    size_t n_reals, n_ints;
} elvi_memory;

/* work.c: points w's pointers into the memory and says how long it must be; without memory it only counts. */
void elvi_work_bind(elvi_work *w, const elvi_problem *p, const elvi_estimator_ops *estimator, int block, elvi_memory *memory);

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

/* gradient.c: f at mu + scale z for the draws of a sample, at most w->block of them; in the first lane */
elvi_status elvi_values(const elvi_problem *p, const elvi_theta *theta, const elvi_sample *sample, elvi_work *w, double *value);
/* the iteration number that keys the fixed draws behind the trace */
#define ELVI_TRACE_ITERATION UINT64_MAX

/* scale.c: factors once for each theta; x = mu + scale z */
elvi_status elvi_scale_factor(const elvi_problem *p, const elvi_theta *theta, elvi_work *w);
void elvi_scale_move(const elvi_problem *p, const elvi_theta *theta, const double *z, int n, double *x);

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
elvi_status elvi_backtrack(const elvi_batch *at, double step, const elvi_hooks *hooks, elvi_check *check);
/* the schedule's step and scale_min as checks have changed them */
double elvi_checked_step(const elvi_settings *s, double step, double shorten);
double elvi_floor(const elvi_settings *s, double steepest);

/* trace.c */
void elvi_trace_begin(elvi_trace *trace, double cpu_before);
double elvi_trace_cpu(const elvi_trace *trace); /* CPU seconds of this run and those before */
int elvi_trace_wants(uint64_t k, uint64_t horizon);
/* the step that led to a state; of the first there is none: steps and map are NaN */
typedef struct {
    double step;
    uint64_t batch;
    double gradient_map; /* Lambda-norm of the gradient mapping */
    int clipped;
} elvi_step_taken;
elvi_status elvi_trace_add(const elvi_batch *at, const elvi_step_taken *taken, elvi_trace *trace, const elvi_hooks *hooks);

#endif
