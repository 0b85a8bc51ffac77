#include "r_elvi.h"
#include "linalg.h"
#include "nested.h"
#include <string.h>

/* ---- a user's R functions as a model ------------------------------------- */

typedef struct {
    SEXP call, result;
    int interrupted;
} guarded;

static SEXP evaluate(void *data)
{
    guarded *g = data;
    return Rf_eval(g->call, R_GlobalEnv);
}

static SEXP note_interrupt(SEXP condition, void *data)
{
    (void) condition;
    ((guarded *) data)->interrupted = 1;
    return R_NilValue;
}

/* Evaluates a call, which is protected, and copies its n_out numbers to out. Errors and other conditions
 * go to the user as they are; only an interrupt may be caught, so that a
 * run can return what it has. */
static elvi_status call_back(SEXP call, const r_density *density, R_xlen_t n_out, double *out)
{
    guarded g = { call, R_NilValue, 0 };
    SEXP conditions = PROTECT(Rf_mkString("interrupt"));
    g.result = PROTECT(!density->catch_interrupts ? evaluate(&g)
                                                  : R_tryCatch(evaluate, &g, conditions, note_interrupt, &g, NULL, NULL));
    if (!g.interrupted) {
        if (TYPEOF(g.result) != REALSXP || Rf_xlength(g.result) != n_out)
            Rf_error("elvi internal error: a model function returned the wrong shape");
        memcpy(out, REAL(g.result), (size_t) n_out * sizeof(double));
    }
    UNPROTECT(2);
    return g.interrupted ? ELVI_STOPPED : ELVI_OK;
}

static SEXP matrix_of(const double *x, int rows, int columns)
{
    SEXP out = Rf_allocMatrix(REALSXP, rows, columns);
    memcpy(REAL(out), x, (size_t) rows * columns * sizeof(double));
    return out;
}

static elvi_status call_at(SEXP f, const elvi_model *model, const double *x, int n, R_xlen_t n_out, double *out)
{
    SEXP arg = PROTECT(matrix_of(x, model->dim, n));
    SEXP call = PROTECT(Rf_lang2(f, arg));
    const elvi_status status = call_back(call, model->data, n_out, out);
    UNPROTECT(2);
    return status;
}

static elvi_status density_eval(const elvi_model *model, const double *x, int n,
                                double *value, double *grad, double *scratch)
{
    const r_density *f = model->data;
    elvi_status status = ELVI_OK;
    (void) scratch;
    if (value) status = call_at(f->value, model, x, n, n, value);
    if (grad && status == ELVI_OK)
        status = call_at(f->gradient, model, x, n, (R_xlen_t) model->dim * n, grad);
    return status;
}

static size_t density_scratch_length(const elvi_model *model, int n)
{
    (void) model;
    (void) n;
    return 0;
}

/* R's function has one answer, sum and sum_z one after the other, which scratch has room for. */
static elvi_status density_gather(const elvi_model *model, const elvi_draws *draws, double *value, double *sum,
                                  double *sum_z, double *scratch)
{
    static const char *const names[] = { "mu", "spread", "iteration", "first", "n", "values", NULL };
    const r_density *f = model->data;
    const int d = model->dim;
    const size_t spread = (size_t) d * draws->columns;
    SEXP arg = PROTECT(r_named_list(names));
    r_set(arg, "mu", matrix_of(draws->mu, d, 1));
    r_set(arg, "spread", matrix_of(draws->spread, d, draws->columns));
    if (draws->columns < d) Rf_setAttrib(r_get(arg, "spread"), R_DimSymbol, R_NilValue); /* a diagonal is a vector */
    r_set(arg, "iteration", Rf_ScalarReal(draws->iteration == ELVI_TRACE_ITERATION ? -1.0 : (double) draws->iteration));
    r_set(arg, "first", Rf_ScalarReal((double) draws->first));
    r_set(arg, "n", Rf_ScalarReal((double) draws->n));
    r_set(arg, "values", Rf_ScalarLogical(value != NULL));
    SEXP call = PROTECT(Rf_lang2(f->gather, arg));
    const elvi_status status = value ? call_back(call, f, (R_xlen_t) draws->n, value)
                                     : call_back(call, f, (R_xlen_t) ((size_t) d + spread), scratch);
    if (!value && status == ELVI_OK) {
        memcpy(sum, scratch, (size_t) d * sizeof(double));
        memcpy(sum_z, scratch + d, spread * sizeof(double));
    }
    UNPROTECT(2);
    return status;
}

static const elvi_model_ops density_ops = {
    .eval = density_eval,
    .scratch_length = density_scratch_length,
    .gather = density_gather,
};

/* ---- lists to structs ----------------------------------------------------- */

/* For each of the names: has it a whole record here? dispersions: for each of them the name of how its dispersion is
 * integrated over, or NA. */
SEXP elvi_r_has_family(SEXP names, SEXP dispersions)
{
    SEXP out = PROTECT(Rf_allocVector(LGLSXP, Rf_xlength(names)));
    int *whole = LOGICAL(out);
    for (R_xlen_t i = 0; i < Rf_xlength(names); i++) {
        const elvi_family *family = elvi_family_named(CHAR(STRING_ELT(names, i)));
        const elvi_dispersion_ops *dispersion = elvi_dispersion_named(CHAR(STRING_ELT(dispersions, i)));
        whole[i] = family && elvi_family_is_whole(family, dispersion && dispersion->needs_slopes);
    }
    UNPROTECT(1);
    return out;
}

elvi_likelihood r_likelihood(SEXP model)
{
    const char *name = CHAR(Rf_asChar(r_get(model, "likelihood")));
    const elvi_likelihood out = { elvi_family_named(name), r_number(model, "error_df") };
    if (!out.family) Rf_error("elvi internal error: no family '%s'", name);
    return out;
}

static elvi_prior_block read_block(SEXP block)
{
    const R_xlen_t length = Rf_xlength(r_get(block, "centre"));
    elvi_prior_block out;
    out.first = (int) r_count(block, "first") - 1;
    out.length = (int) length;
    out.of_exp = Rf_asLogical(r_get(block, "of_exp")) == 1;
    out.exponent = out.of_exp ? r_number(block, "exponent") : 0.0;
    out.centre = r_reals(block, "centre", length);
    out.precision = r_reals(block, "precision", length);
    out.prior_df = r_reals(block, "df", length);
    out.rate = r_reals(block, "rate", length);
    return out;
}

static elvi_prior read_prior(SEXP blocks)
{
    elvi_prior out;
    out.blocks = Rf_length(blocks);
    if (out.blocks > ELVI_MOST_BLOCKS) Rf_error("elvi internal error: too many blocks of parameters");
    for (int i = 0; i < out.blocks; i++) out.block[i] = read_block(VECTOR_ELT(blocks, i));
    return out;
}

static elvi_tally read_tally(SEXP tally)
{
    if (tally == R_NilValue) {
        const elvi_tally none = { 0, NULL, NULL };
        return none;
    }
    const R_xlen_t n = Rf_xlength(r_get(tally, "y"));
    const elvi_tally out = { (int) n, r_reals(tally, "y", n), r_reals(tally, "weight", n) };
    return out;
}

/* Either part of a regression may be absent: where `rows` is NULL it is the prior and what depends on the dispersion alone,
 * where `blocks` and `tally` are NULL it is the likelihood of the rows. A pass over data larger than memory adds them up. */
static elvi_glm read_glm(SEXP model, r_rows_store *store)
{
    elvi_glm glm;
    SEXP rows = r_get(model, "rows");
    glm.dispersion_at = (int) r_count(model, "dispersion_at") - 1;
    glm.rows = rows == R_NilValue ? r_no_rows((int) r_count(model, "dim") - (glm.dispersion_at >= 0), store)
                                  : r_rows(rows, store);
    glm.likelihood = r_likelihood(model);
    glm.prior = read_prior(r_get(model, "blocks"));
    glm.tally = read_tally(r_get(model, "tally"));
    return glm;
}

static elvi_model read_glm_model(SEXP model, r_model_store *store, elvi_model out)
{
    store->glm = read_glm(model, &store->rows);
    store->around = NULL;
    out.ops = &elvi_glm_ops;
    out.data = &store->glm;
    out.cost = elvi_glm_cost(&store->glm);
    return out;
}

static elvi_model read_quadratic(SEXP model, r_model_store *store, elvi_model out)
{
    store->quadratic.A = r_reals(model, "A", (R_xlen_t) out.dim * out.dim);
    store->quadratic.m = r_reals(model, "m", out.dim);
    out.ops = &elvi_quadratic_ops;
    out.data = &store->quadratic;
    out.cost = elvi_quadratic_cost(out.dim);
    return out;
}

static elvi_model read_density(SEXP model, r_model_store *store, elvi_model out)
{
    if (r_get(model, "pointer") != R_NilValue) return r_native(r_get(model, "pointer"), out.threads);
    store->density.value = r_get(model, "value");
    store->density.gradient = r_get(model, "gradient");
    store->density.gather = r_get_if(model, "gather");
    store->density.catch_interrupts = 0;
    out.ops = &density_ops;
    out.data = &store->density;
    out.cost = 1e7;  /* R code is worth a poll every ten points */
    out.threads = 0; /* R has one thread, and may use BLAS itself */
    out.gathers = store->density.gather == R_NilValue ? 0 : ELVI_SPREAD_DIAGONAL | ELVI_SPREAD_FULL;
    return out;
}

static elvi_model read_affine(SEXP model, r_model_store *store, elvi_model out)
{
    elvi_affine *a = &store->affine;
    a->inner = r_model(r_get(model, "inner"), store, out.threads);
    a->kind = r_scale(r_get(model, "scale"), a->inner.dim, r_get(model, "A"));
    a->A = REAL(r_get(model, "A"));
    a->m = r_reals(model, "m", a->inner.dim);
    a->log_det = r_number(model, "log_det");
    store->around = a;
    out.ops = &elvi_affine_ops;
    out.threads = a->inner.threads;
    out.gathers = a->inner.gathers & a->kind.ops->spread;
    out.data = a;
    out.cost = elvi_affine_cost(a);
    return out;
}

elvi_model r_model(SEXP model, r_model_store *store, int threads)
{
    static const char *const kinds[] = { "glm", "quadratic", "density", "affine", NULL };
    static elvi_model (*const read[])(SEXP, r_model_store *, elvi_model) = {
        read_glm_model, read_quadratic, read_density, read_affine
    };
    const elvi_model out = { .dim = (int) r_count(model, "dim"), .threads = threads };
    return read[r_choice(model, "kind", kinds)](model, store, out);
}

/* ---- .Call routines -------------------------------------------------------- */

SEXP elvi_r_evaluate(SEXP model, SEXP x, SEXP threads)
{
    static const char *const names[] = { "value", "gradient", NULL };
    r_model_store store;
    const elvi_model m = r_model(model, &store, Rf_asInteger(threads));
    const int n = Rf_ncols(x);
    double *scratch = (double *) R_alloc(m.ops->scratch_length(&m, n), sizeof(double));
    SEXP out = PROTECT(r_named_list(names));
    double *value = r_set_reals(out, "value", n);
    double *gradient = REAL(r_set(out, "gradient", Rf_allocMatrix(REALSXP, m.dim, n)));
    const elvi_status status = m.ops->eval(&m, REAL(x), n, value, gradient, scratch);
    r_check_values(status, value, (size_t) n);
    r_check_values(status, gradient, (size_t) m.dim * n);
    UNPROTECT(1);
    return out;
}

/* f alone, for which a gradient would be more than half of the work */
SEXP elvi_r_target_values(SEXP model, SEXP x, SEXP threads)
{
    r_model_store store;
    const elvi_model m = r_model(model, &store, Rf_asInteger(threads));
    const int n = Rf_ncols(x);
    double *scratch = (double *) R_alloc(m.ops->scratch_length(&m, n), sizeof(double));
    SEXP out = PROTECT(Rf_allocVector(REALSXP, n));
    r_check_values(m.ops->eval(&m, REAL(x), n, REAL(out), NULL, scratch), REAL(out), (size_t) n);
    UNPROTECT(1);
    return out;
}

static void apply_curvature(const void *ctx, const double *v, double *out)
{
    R_CheckUserInterrupt(); /* nothing to free: all memory is R_alloc'd */
    elvi_curvature_apply(ctx, v, out);
}

SEXP elvi_r_curvature_max(SEXP model, SEXP bound)
{
    enum { STEPS = 300 };
    r_model_store store;
    const elvi_model m = r_model(model, &store, 1);
    const size_t steps = m.dim < STEPS ? (size_t) m.dim : STEPS;
    elvi_curvature ctx = { &store.glm, store.around, Rf_asReal(bound), NULL, NULL };
    ctx.moved = (double *) R_alloc(m.dim, sizeof(double));
    ctx.scratch = (double *) R_alloc(m.ops->scratch_length(&m, 1), sizeof(double));
    const elvi_lanczos of = {
        .apply = apply_curvature,
        .ctx = &ctx,
        .d = m.dim,
        .steps = (int) steps,
        .tol = 1e-12,
        .basis = (double *) R_alloc((size_t) m.dim * (steps + 1), sizeof(double)),
        .small = (double *) R_alloc(6 * steps + steps * steps, sizeof(double)),
    };
    return Rf_ScalarReal(elvi_lanczos_max(&of));
}
