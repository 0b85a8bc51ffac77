#include "r_elvi.h"
#include "linalg.h"
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

/* Calls f(x) and copies its n_out numbers to out. Errors and other conditions
 * of f go to the user as they are; only an interrupt may be caught, so that a
 * run can return what it has. */
static elvi_status call_back(SEXP f, const elvi_model *model, const double *x,
                             int n, R_xlen_t n_out, double *out)
{
    const r_density *density = model->data;
    SEXP arg = PROTECT(Rf_allocMatrix(REALSXP, model->dim, n));
    memcpy(REAL(arg), x, (size_t) model->dim * n * sizeof(double));
    guarded g = { PROTECT(Rf_lang2(f, arg)), R_NilValue, 0 };
    SEXP conditions = PROTECT(Rf_mkString("interrupt"));
    g.result = PROTECT(density->catch_interrupts
        ? R_tryCatch(evaluate, &g, conditions, note_interrupt, &g, NULL, NULL)
        : evaluate(&g));
    if (!g.interrupted) {
        if (TYPEOF(g.result) != REALSXP || Rf_xlength(g.result) != n_out)
            Rf_error("elvi internal error: a model function returned the wrong shape");
        memcpy(out, REAL(g.result), (size_t) n_out * sizeof(double));
    }
    UNPROTECT(4);
    return g.interrupted ? ELVI_STOPPED : ELVI_OK;
}

static elvi_status density_eval(const elvi_model *model, const double *x, int n,
                                double *value, double *grad, double *scratch)
{
    const r_density *f = model->data;
    elvi_status status = ELVI_OK;
    (void) scratch;
    if (value) status = call_back(f->value, model, x, n, n, value);
    if (grad && status == ELVI_OK)
        status = call_back(f->gradient, model, x, n, (R_xlen_t) model->dim * n, grad);
    return status;
}

static size_t density_scratch_length(const elvi_model *model, int n)
{
    (void) model; (void) n;
    return 0;
}

static const elvi_model_ops density_ops = { density_eval, density_scratch_length };

/* ---- lists to structs ----------------------------------------------------- */

static const int *integers(SEXP list, const char *name, R_xlen_t length)
{
    SEXP v = r_get(list, name);
    if (TYPEOF(v) != INTSXP || Rf_xlength(v) != length)
        Rf_error("elvi internal error: field '%s' has the wrong type or length", name);
    return INTEGER(v);
}

/* X is a matrix, or a list made by sparse_rows() in R/design.R */
static elvi_design read_design(SEXP model, R_xlen_t rows, int dim)
{
    SEXP X = r_get(model, "X");
    elvi_design out = { (int) rows, dim, NULL, NULL, NULL, NULL, NULL };
    if (r_get(model, "shift") != R_NilValue) out.shift = r_reals(model, "shift", dim);
    if (TYPEOF(X) != VECSXP) {
        out.X = r_reals(model, "X", rows * dim);
        return out;
    }
    const R_xlen_t entries = Rf_xlength(r_get(X, "entry"));
    out.start = integers(X, "start", rows + 1);
    out.column = integers(X, "column", entries);
    out.entry = r_reals(X, "entry", entries);
    return out;
}

/* all of a GLM but its likelihood */
static elvi_glm read_linear(SEXP model, int dim)
{
    const R_xlen_t rows = Rf_xlength(r_get(model, "y"));
    elvi_glm glm;
    glm.family = ELVI_NORMAL;
    glm.rows = (int) rows;
    glm.dim = dim;
    glm.design = read_design(model, rows, dim);
    glm.y = r_reals(model, "y", rows);
    glm.weight = r_reals(model, "weight", rows);
    glm.offset = r_reals(model, "offset", rows);
    glm.centre = r_reals(model, "centre", dim);
    glm.precision = r_reals(model, "precision", dim);
    glm.prior_df = r_reals(model, "prior_df", dim);
    return glm;
}

static elvi_glm read_glm(SEXP model, int dim)
{
    static const char *const families[] = {
        "logit", "probit", "cloglog", "poisson", "normal", NULL
    };
    elvi_glm glm = read_linear(model, dim);
    glm.family = r_choice(model, "likelihood", families);
    return glm;
}

static elvi_aux read_aux(SEXP model, int dim)
{
    static const char *const families[] = { "gaussian", "robust", "neg_binomial_2", NULL };
    SEXP more = r_get(model, "aux");
    elvi_aux aux;
    aux.family = r_choice(model, "likelihood", families);
    aux.error_df = r_number(more, "df");
    aux.rate = r_number(more, "rate");
    aux.centre = r_number(more, "centre");
    aux.precision = r_number(more, "precision");
    aux.prior_df = r_number(more, "prior_df");
    aux.counts = (int) Rf_xlength(r_get(more, "count"));
    aux.count = r_reals(more, "count", aux.counts);
    aux.count_weight = r_reals(more, "count_weight", aux.counts);
    aux.linear = read_linear(model, dim - 1);
    return aux;
}

static elvi_affine read_affine(SEXP model, r_model_store *store, int threads)
{
    elvi_affine a;
    a.inner = r_model(r_get(model, "inner"), store, threads);
    a.kind = r_scale(r_get(model, "scale"));
    a.A = r_reals(model, "A", (R_xlen_t) a.kind->length(a.inner.dim));
    a.m = r_reals(model, "m", a.inner.dim);
    a.log_det = r_number(model, "log_det");
    return a;
}

/* operations in a pass over the design there and back, with the losses between */
static double passes(const elvi_glm *glm, double loss)
{
    const double rows = glm->rows;
    return 4.0 * (glm->design.X ? rows * glm->dim : (double) glm->design.start[glm->rows]) + loss * rows;
}

static double loss_cost(elvi_family family)
{
    return family == ELVI_PROBIT || family == ELVI_CLOGLOG ? 600.0 : 40.0;
}

elvi_model r_model(SEXP model, r_model_store *store, int threads)
{
    static const char *const kinds[] = { "glm", "quadratic", "density", "aux", "affine", NULL };
    elvi_model out;
    out.dim = (int) r_count(model, "dim");
    out.threads = threads;
    switch (r_choice(model, "kind", kinds)) {
    case 0:
        store->glm = read_glm(model, out.dim);
        out.ops = &elvi_glm_ops;
        out.data = &store->glm;
        out.cost = passes(&store->glm, loss_cost(store->glm.family));
        break;
    case 1:
        store->quadratic.A = r_reals(model, "A", (R_xlen_t) out.dim * out.dim);
        store->quadratic.m = r_reals(model, "m", out.dim);
        out.ops = &elvi_quadratic_ops;
        out.data = &store->quadratic;
        out.cost = 2.0 * out.dim * out.dim;
        break;
    case 2:
        if (r_get(model, "pointer") != R_NilValue) return r_native(r_get(model, "pointer"), threads);
        store->density.value = r_get(model, "value");
        store->density.gradient = r_get(model, "gradient");
        store->density.catch_interrupts = 0;
        out.ops = &density_ops;
        out.data = &store->density;
        out.cost = 1e7;   /* R code is worth a poll every ten points */
        out.threads = 0;  /* R has one thread, and may use BLAS itself */
        break;
    case 3:
        store->aux = read_aux(model, out.dim);
        out.ops = &elvi_aux_ops;
        out.data = &store->aux;
        out.cost = passes(&store->aux.linear, 300.0);
        break;
    default:
        store->affine = read_affine(model, store, threads);
        out.ops = &elvi_affine_ops;
        out.threads = store->affine.inner.threads;
        out.data = &store->affine;
        out.cost = store->affine.inner.cost + 2.0 * out.dim * out.dim;
    }
    return out;
}

/* ---- .Call routines -------------------------------------------------------- */

SEXP elvi_r_evaluate(SEXP model, SEXP x, SEXP threads)
{
    static const char *const names[] = { "value", "gradient" };
    r_model_store store;
    const elvi_model m = r_model(model, &store, Rf_asInteger(threads));
    const int n = Rf_ncols(x);
    double *scratch = (double *) R_alloc(m.ops->scratch_length(&m, n), sizeof(double));
    SEXP out = PROTECT(r_named_list(2, names));
    SET_VECTOR_ELT(out, 0, Rf_allocVector(REALSXP, n));
    SET_VECTOR_ELT(out, 1, Rf_allocMatrix(REALSXP, m.dim, n));
    m.ops->eval(&m, REAL(x), n, REAL(VECTOR_ELT(out, 0)), REAL(VECTOR_ELT(out, 1)), scratch);
    UNPROTECT(1);
    return out;
}

static void apply_curvature(const void *ctx, const double *v, double *out)
{
    R_CheckUserInterrupt();   /* nothing to free: all memory is R_alloc'd */
    elvi_curvature_apply(ctx, v, out);
}

SEXP elvi_r_curvature_max(SEXP model, SEXP bound)
{
    enum { STEPS = 300 };
    r_model_store store;
    const elvi_model m = r_model(model, &store, 1);
    const size_t steps = m.dim < STEPS ? (size_t) m.dim : STEPS;
    elvi_curvature ctx = { &store.glm, m.ops == &elvi_affine_ops ? &store.affine : NULL,
                      Rf_asReal(bound), NULL, NULL };
    ctx.moved = (double *) R_alloc(m.dim, sizeof(double));
    ctx.scratch = (double *) R_alloc(m.ops->scratch_length(&m, 1), sizeof(double));
    double *basis = (double *) R_alloc((size_t) m.dim * (steps + 1), sizeof(double));
    double *small = (double *) R_alloc(6 * steps + steps * steps, sizeof(double));
    return Rf_ScalarReal(elvi_lanczos_max(apply_curvature, &ctx, m.dim, (int) steps,
                                          1e-12, basis, small));
}
