/* The SEXP boundary: these files translate lists to structs and back, and do
 * no arithmetic. */
#ifndef R_ELVI_H
#define R_ELVI_H

#define R_NO_REMAP
#include <R.h>
#include <Rinternals.h>
#include "base.h"
#include "glm.h"
#include "run.h"
#include "score_quantiles.h"

/* r_util.c */
SEXP r_get(SEXP list, const char *name);    /* error when missing */
SEXP r_get_if(SEXP list, const char *name); /* NULL when missing */
double r_number(SEXP list, const char *name);
uint64_t r_count(SEXP list, const char *name);
const double *r_reals(SEXP list, const char *name, R_xlen_t length);
const int *r_ints(SEXP list, const char *name, R_xlen_t length);
int r_choice(SEXP list, const char *name, const char *const *choices);
uint64_t r_key(SEXP key);
SEXP r_named_list(const char *const *names); /* of NULLs; the last name is NULL */
/* one field of it, which must be there; the value need not be protected, and is returned */
SEXP r_set(SEXP list, const char *name, SEXP value);
double *r_set_reals(SEXP list, const char *name, R_xlen_t length); /* <- so many numbers, to be filled */
void r_check(elvi_status status);                                  /* an R error unless it is ELVI_OK */
/* The same for values of a target, which R must judge: where another package's target says that it has failed, they
 * are NaN. */
void r_check_values(elvi_status status, double *values, size_t n);
int r_interrupt_pending(void); /* asks R, and does not jump */
/* The same, silently, and about setTimeLimit(), too: *limited is 1 if it was that, 0 for an interrupt, else -1. */
int r_interrupted(int *limited);
/* An interrupt leaves C at once: for routines with no memory but R_alloc's, on R's own thread. */
extern const elvi_hooks r_interruptible;

/* r_rows.c: rows that live as long as the R object behind them */
typedef struct {
    elvi_design design; /* of those that are a matrix in memory */
} r_rows_store;
elvi_rows r_rows(SEXP rows, r_rows_store *store);
elvi_rows r_no_rows(int dim, r_rows_store *store);

/* r_model.c: a model that lives as long as the R object behind it */
typedef struct {
    SEXP value, gradient; /* closures of a d x n matrix */
    SEXP gather;          /* NULL, or one of the fields of elvi_draws */
    int catch_interrupts; /* as ELVI_STOPPED, or let them leave C? */
} r_density;
typedef struct {
    r_rows_store rows; /* behind the rows of glm */
    elvi_glm glm;
    const elvi_affine *around; /* the glm: NULL if it is the model itself */
    elvi_quadratic quadratic;
    r_density density;
    elvi_affine affine; /* its inner model is one of the above */
} r_model_store;
/* threads: how many it may use; 0: BLAS has its own */
elvi_model r_model(SEXP model, r_model_store *store, int threads);
elvi_likelihood r_likelihood(SEXP model); /* fields likelihood, error_df */

/* r_exact.c */
elvi_quadrature r_quadrature(SEXP rule);

/* r_native.c: one that another package has written in C */
elvi_model r_native(SEXP pointer, int threads);
SEXP r_target_pointer(void *target, SEXP owner); /* for R_RegisterCCallable */

/* r_base.c */
elvi_base r_base(SEXP base);

/* r_run.c */
elvi_scale r_scale(SEXP name, int dim, SEXP array);

/* .Call routines, registered in init.c */
SEXP elvi_r_draws(SEXP base, SEXP key, SEXP iteration, SEXP first, SEXP n);
SEXP elvi_r_score(SEXP base, SEXP r);
SEXP elvi_r_evaluate(SEXP model, SEXP x, SEXP threads);
SEXP elvi_r_target_values(SEXP model, SEXP x, SEXP threads);
SEXP elvi_r_curvature_max(SEXP model, SEXP bound);
SEXP elvi_r_schedule(SEXP schedule, SEXP k);
SEXP elvi_r_horizon(SEXP schedule, SEXP budget);
SEXP elvi_r_project(SEXP kind, SEXP scale, SEXP lo, SEXP hi);
SEXP elvi_r_gradient(SEXP model, SEXP base, SEXP settings, SEXP state, SEXP batch);
SEXP elvi_r_values(SEXP model, SEXP base, SEXP kind, SEXP mu, SEXP scale, SEXP key, SEXP n,
                   SEXP threads);
SEXP elvi_r_gram(SEXP list, SEXP weighted);
SEXP elvi_r_sums(SEXP list, SEXP weight);
SEXP elvi_r_extent(SEXP list, SEXP x);
SEXP elvi_r_squares(SEXP list, SEXP weight);
SEXP elvi_r_cross_times(SEXP list, SEXP weight, SEXP v);
SEXP elvi_r_status_names(void);
SEXP elvi_r_mills(SEXP t);
SEXP elvi_r_has_family(SEXP names, SEXP dispersions);
SEXP elvi_r_checksum(SEXP bytes);
SEXP elvi_r_sync(SEXP path);
SEXP elvi_r_column_products(SEXP basis, SEXP factors);
SEXP elvi_r_nearest(SEXP x, SEXP points);
SEXP elvi_r_score_quantiles(SEXP value, SEXP from, SEXP step, SEXP scores);
SEXP elvi_r_clock(void);
SEXP elvi_r_expect_rows(SEXP likelihood, SEXP rule, SEXP dispersion, SEXP rows);
SEXP elvi_r_predictor(SEXP list, SEXP x);
SEXP elvi_r_reach(SEXP list);
SEXP elvi_r_columns(SEXP columns, SEXP n, SEXP intercept);
SEXP elvi_r_design_of_terms(SEXP terms, SEXP n);
SEXP elvi_r_dense_from_sparse(SEXP given, SEXP columns);
SEXP elvi_r_check_sums(SEXP list, SEXP by);
SEXP elvi_r_by_rows(SEXP rows, SEXP start, SEXP row, SEXP entry);
SEXP elvi_r_native(SEXP pointer);
SEXP elvi_r_native_version(void);
SEXP elvi_r_openmp(void);
SEXP elvi_r_blas_alone(void);
SEXP elvi_r_exact(SEXP model, SEXP rule, SEXP kind, SEXP mu, SEXP scale, SEXP directions, SEXP threads);
SEXP elvi_r_exact_parts(SEXP model, SEXP rule, SEXP kind, SEXP mu, SEXP scale, SEXP threads);
SEXP elvi_r_pattern_pairs(SEXP pattern, SEXP start, SEXP column);
SEXP elvi_r_pattern_places(SEXP pattern, SEXP row, SEXP column);
SEXP elvi_r_sparse_inverse(SEXP pattern, SEXP values);
SEXP elvi_r_sparse_apply(SEXP pattern, SEXP factor, SEXP x, SEXP what);
SEXP elvi_r_nested_solve(SEXP plan, SEXP rule, SEXP settings, SEXP tol, SEXP most, SEXP threads);
SEXP elvi_r_nested_check(SEXP plan, SEXP rule, SEXP settings, SEXP z, SEXP shifts, SEXP threads);
SEXP elvi_r_nested_draws(SEXP plan, SEXP setting, SEXP x, SEXP whiten);
SEXP elvi_r_nested_variances(SEXP plan, SEXP setting, SEXP rows);
SEXP elvi_r_nested_look(SEXP plan, SEXP setting, SEXP reach);
SEXP elvi_r_nested_newton(SEXP plan, SEXP setting, SEXP x);
SEXP elvi_r_nested_add_rows(SEXP plan, SEXP rule, SEXP points);
SEXP elvi_r_nested_products(SEXP plan, SEXP c, SEXP x);
SEXP elvi_r_pattern_times(SEXP pattern, SEXP values, SEXP x);
SEXP elvi_r_nested_cumulants(SEXP plan, SEXP rule, SEXP setting, SEXP a);
SEXP elvi_r_nested_residuals(SEXP plan, SEXP rule, SEXP settings, SEXP columns, SEXP control, SEXP threads);
SEXP elvi_r_nested_profile(SEXP plan, SEXP rule, SEXP settings, SEXP a, SEXP control, SEXP points, SEXP means, SEXP threads);
SEXP elvi_r_hmc(SEXP model, SEXP settings, SEXP w, SEXP threads);
SEXP elvi_r_joint_expect(SEXP name, SEXP rule, SEXP hyper, SEXP rows);
SEXP elvi_r_has_joint(SEXP names);
SEXP elvi_r_run(SEXP model, SEXP base, SEXP settings, SEXP state);

#endif
