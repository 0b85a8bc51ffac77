/* Regressions with a sparse design, see nested.h and R/solve-sparse.R. */
#include "r_elvi.h"
#include "nested.h"
#include <string.h>

static elvi_pattern read_pattern(SEXP list)
{
    elvi_pattern p;
    p.dim = (int) r_count(list, "dim");
    p.head = (int) r_count(list, "head");
    p.start = r_ints(list, "start", (R_xlen_t) p.head + 1);
    p.row = r_ints(list, "row", p.start[p.head]);
    return p;
}

static const elvi_dispersion_ops *read_dispersion(SEXP plan)
{
    const char *name = CHAR(Rf_asChar(r_get(plan, "dispersion")));
    const elvi_dispersion_ops *out = elvi_dispersion_named(name);
    if (!out) Rf_error("elvi internal error: no dispersion '%s'", name);
    return out;
}

/* a loss of several predictors, or NULL */
static const elvi_joint *read_joint(SEXP plan)
{
    SEXP joint = r_get_if(plan, "joint");
    if (Rf_isNull(joint)) return NULL;
    const elvi_joint *out = elvi_joint_named(CHAR(Rf_asChar(joint)));
    if (!out) Rf_error("elvi internal error: no family '%s' of several predictors", CHAR(Rf_asChar(joint)));
    return out;
}

static elvi_nested read_plan(SEXP plan)
{
    const elvi_likelihood no_likelihood = { 0 };
    elvi_nested p;
    p.pattern = read_pattern(r_get(plan, "pattern"));
    p.rows = (int) r_count(plan, "rows");
    p.dense = (int) r_count(plan, "dense");
    p.X = r_reals(plan, "X", (R_xlen_t) p.rows * p.dense);
    p.start = r_ints(plan, "start", (R_xlen_t) p.rows + 1);
    p.column = r_ints(plan, "column", p.start[p.rows]);
    p.entry = r_reals(plan, "entry", p.start[p.rows]);
    p.pair = r_ints(plan, "pair", Rf_xlength(r_get(plan, "pair")));
    p.precisions = Rf_length(r_get(plan, "a_row"));
    p.a_row = r_ints(plan, "a_row", p.precisions);
    p.a_column = r_ints(plan, "a_column", p.precisions);
    p.a_source = r_ints(plan, "a_source", p.precisions);
    p.a_place = r_ints(plan, "a_place", p.precisions);
    p.sources = (int) r_count(plan, "sources");
    p.blocked = Rf_asLogical(r_get(plan, "blocked"));
    p.constraints = (int) r_count(plan, "constraints");
    p.constraint = p.constraints ? r_reals(plan, "constraint", (R_xlen_t) p.pattern.dim * p.constraints) : NULL;
    p.centre = r_reals(plan, "centre", p.pattern.dim);
    p.joint = read_joint(plan);
    p.lines = p.joint ? (int) r_count(plan, "lines") : 1;
    if (p.lines > ELVI_MOST_LINES) Rf_error("elvi internal error: too many predictors of a row");
    p.line = p.joint ? r_ints(plan, "line", p.pattern.dim) : NULL;
    p.likelihood = p.joint ? no_likelihood : r_likelihood(plan);
    p.dispersion = read_dispersion(plan);
    p.y = r_reals(plan, "y", (R_xlen_t) elvi_nested_responses(&p));
    p.weight = r_reals(plan, "weight", p.rows);
    p.offset = r_reals(plan, "offset", (R_xlen_t) elvi_nested_lines(&p));
    p.blocks = Rf_length(r_get(plan, "block_start")) - 1;
    p.block_start = r_ints(plan, "block_start", (R_xlen_t) p.blocks + 1);
    p.summed = !Rf_isNull(r_get_if(plan, "summed"));
    return p;
}

static elvi_hyper_point read_hyper_point(const elvi_nested *p, SEXP list)
{
    elvi_hyper_point s = { 0 };
    s.A = r_reals(list, "A", p->sources);
    s.definite = Rf_asLogical(r_get(list, "definite"));
    s.inverse = p->blocked && s.definite ? r_reals(list, "inverse", p->sources) : NULL;
    s.slack = p->constraints ? r_reals(list, "slack", p->constraints) : NULL;
    s.hypers = Rf_length(r_get(list, "hyper"));
    s.hyper = r_reals(list, "hyper", s.hypers);
    s.mu = Rf_isNull(r_get(list, "mu")) ? NULL : r_reals(list, "mu", p->pattern.dim);
    s.eta = Rf_isNull(r_get(list, "eta")) ? NULL : r_reals(list, "eta", (R_xlen_t) elvi_nested_lines(p));
    s.c = r_reals(list, "c", (R_xlen_t) elvi_nested_curvatures(p));
    return s;
}

/* on R's own thread, in a team or not: so it must not jump */
static int interrupted(void *ctx, const elvi_state *state)
{
    (void) ctx;
    (void) state;
    return r_interrupt_pending();
}

/* ---- the places of entries in a pattern ------------------------------------------ */

/* of the pairs of entries a >= b of each row; entries of a row by increasing column */
SEXP elvi_r_pattern_pairs(SEXP pattern, SEXP start, SEXP column)
{
    const elvi_pattern p = read_pattern(pattern);
    const size_t rows = (size_t) Rf_xlength(start) - 1;
    SEXP out = PROTECT(Rf_allocVector(INTSXP, (R_xlen_t) elvi_pattern_pairs(rows, INTEGER(start))));
    elvi_pattern_pair_places(&p, rows, INTEGER(start), INTEGER(column), INTEGER(out));
    UNPROTECT(1);
    return out;
}

/* of entries (row, column), row >= column */
SEXP elvi_r_pattern_places(SEXP pattern, SEXP row, SEXP column)
{
    const elvi_pattern p = read_pattern(pattern);
    const R_xlen_t n = Rf_xlength(row);
    SEXP out = PROTECT(Rf_allocVector(INTSXP, n));
    int *place = INTEGER(out);
    for (R_xlen_t k = 0; k < n; k++)
        place[k] = (int) elvi_pattern_at(&p, INTEGER(row)[k], INTEGER(column)[k]);
    UNPROTECT(1);
    return out;
}

/* A matrix on a pattern: its factor and the selected entries of its inverse. */
SEXP elvi_r_sparse_inverse(SEXP pattern, SEXP values)
{
    static const char *const names[] = { "status", "factor", "inverse", NULL };
    const elvi_pattern p = read_pattern(pattern);
    const size_t length = elvi_pattern_length(&p);
    if ((size_t) Rf_xlength(values) != length) Rf_error("elvi internal error: values do not fit their pattern");
    SEXP out = PROTECT(r_named_list(names));
    double *work = (double *) R_alloc(2 * (size_t) p.dim, sizeof(double));
    int *links = (int *) R_alloc(3 * (size_t) p.dim, sizeof(int));
    double *factor = REAL(r_set(out, "factor", Rf_duplicate(values)));
    double *inverse = r_set_reals(out, "inverse", (R_xlen_t) length);
    memset(inverse, 0, length * sizeof(double));
    int status = elvi_sparse_cholesky(&p, factor, work, links);
    if (!status) status = elvi_sparse_inverse(&p, factor, inverse, work, links);
    r_set(out, "status", Rf_ScalarInteger(status));
    UNPROTECT(1);
    return out;
}

/* A factor applied to the columns of x: its inverse, transposed inverse, itself or its transpose. */
SEXP elvi_r_sparse_apply(SEXP pattern, SEXP factor, SEXP x, SEXP what)
{
    static void (*const apply[])(const elvi_pattern *, const double *, double *) = {
        elvi_sparse_forward, elvi_sparse_backward, elvi_sparse_times, elvi_sparse_times_transposed
    };
    const elvi_pattern p = read_pattern(pattern);
    if ((size_t) Rf_xlength(factor) != elvi_pattern_length(&p)) Rf_error("elvi internal error: a factor does not fit its pattern");
    SEXP out = PROTECT(Rf_duplicate(x));
    const R_xlen_t columns = p.dim ? Rf_xlength(out) / p.dim : 0;
    for (R_xlen_t j = 0; j < columns; j++) apply[Rf_asInteger(what)](&p, REAL(factor), REAL(out) + j * p.dim);
    UNPROTECT(1);
    return out;
}

/* ---- several hyperparameter points at once ------------------------------------------------------ */

typedef struct {
    elvi_nested plan;
    elvi_quadrature rule;
    const elvi_hyper_point *points;
    elvi_conditional *solved;
    elvi_ratios *ratios;    /* NULL: solve */
    elvi_profile *profiles; /* NULL: none; parts are points times profiles of each */
    elvi_residuals *residuals;
    int each;
    const double *z;
    int draws, most;
    double tol;
    double *work[ELVI_MOST_LANES];
    int *links[ELVI_MOST_LANES];
    elvi_watch watch;
} team;

static void work_one(void *ctx, int part, int lane, int slot)
{
    team *t = ctx;
    (void) slot;
    const elvi_hyper_point *at = &t->points[t->profiles ? part / t->each : part];
    const elvi_nested_task task = { &t->plan, &t->rule, at, t->work[lane], t->links[lane] };
    const elvi_nested_end end = { t->tol, t->most, &t->watch, lane == 0 };
    if (elvi_all_asked_to_stop(&t->watch)) return;
    if (t->profiles)
        elvi_nested_profile(&task, &t->profiles[part]);
    else if (t->residuals)
        elvi_nested_residuals(&task, &t->residuals[part]);
    else if (t->ratios)
        elvi_nested_check(&task, t->z, t->draws, &t->ratios[part]);
    else
        elvi_nested_solve(&task, &end, &t->solved[part]);
}

static elvi_status add_one(void *ctx, int slot)
{
    const team *t = ctx;
    (void) slot;
    return elvi_all_asked_to_stop(&t->watch) ? ELVI_STOPPED : ELVI_OK;
}

static void run_team(team *t, int parts, int threads)
{
    static const elvi_hooks hooks = { .poll = interrupted };
    const int all = elvi_lanes(threads), lanes = all < parts ? all : parts;
    const elvi_job job = {
        .work = work_one,
        .add = add_one,
        .ctx = t,
        .operations = elvi_nested_operations(&t->plan, t->ratios ? t->draws : 0),
    };
    for (int k = 0; k < lanes; k++) {
        t->work[k] = (double *) R_alloc(elvi_nested_work_length(&t->plan), sizeof(double));
        t->links[k] = (int *) R_alloc(elvi_nested_links_length(&t->plan), sizeof(int));
    }
    t->watch.hooks = &hooks;
    const elvi_status status = elvi_parallel(&job, threads, lanes, parts);
    R_CheckUserInterrupt();
    if (status != ELVI_STOPPED) r_check(status); /* what was not done says so in its own status */
}

static elvi_hyper_point *read_hyper_points(const elvi_nested *p, SEXP settings)
{
    const int n = Rf_length(settings);
    elvi_hyper_point *out = (elvi_hyper_point *) R_alloc((size_t) n, sizeof(elvi_hyper_point));
    for (int k = 0; k < n; k++) out[k] = read_hyper_point(p, VECTOR_ELT(settings, k));
    return out;
}

/* the points of a plan, and nothing to do yet */
static team *new_team(SEXP plan, SEXP rule, SEXP settings)
{
    team *t = (team *) R_alloc(1, sizeof(team));
    memset(t, 0, sizeof *t);
    t->plan = read_plan(plan);
    t->rule = r_quadrature(rule);
    t->points = read_hyper_points(&t->plan, settings);
    return t;
}

static SEXP conditional_list(const elvi_nested *p, const elvi_hyper_point *at, elvi_conditional *out)
{
    static const char *const names[] = {
        "status", "mu", "c", "variance", "moment", "objective", "log_det", "certificate", "estimate", "widest",
        "loss", "level", "slope", "rigorous", "iterations", "evaluations", NULL
    };
    SEXP list = PROTECT(r_named_list(names));
    memset(out, 0, sizeof *out);
    out->mu = r_set_reals(list, "mu", p->pattern.dim);
    out->c = r_set_reals(list, "c", (R_xlen_t) elvi_nested_pairs(p));
    out->variance = r_set_reals(list, "variance", p->pattern.dim);
    out->moment = r_set_reals(list, "moment", p->sources);
    out->slope = r_set_reals(list, "slope", at->hypers);
    out->status = ELVI_STOPPED;
    UNPROTECT(1);
    return list;
}

static void fill_conditional(SEXP list, const elvi_conditional *at)
{
    r_set(list, "status", Rf_ScalarInteger(at->status));
    r_set(list, "objective", Rf_ScalarReal(at->objective));
    r_set(list, "log_det", Rf_ScalarReal(at->log_det));
    r_set(list, "certificate", Rf_ScalarReal(at->certificate));
    r_set(list, "estimate", Rf_ScalarReal(at->estimate));
    r_set(list, "widest", Rf_ScalarReal(at->widest));
    r_set(list, "loss", Rf_ScalarReal(at->loss));
    r_set(list, "level", Rf_ScalarReal(at->level));
    r_set(list, "rigorous", Rf_ScalarLogical(at->rigorous));
    r_set(list, "iterations", Rf_ScalarInteger(at->iterations));
    r_set(list, "evaluations", Rf_ScalarInteger(at->evaluations));
}

SEXP elvi_r_nested_solve(SEXP plan, SEXP rule, SEXP settings, SEXP tol, SEXP most, SEXP threads)
{
    const int n = Rf_length(settings);
    team *t = new_team(plan, rule, settings);
    t->solved = (elvi_conditional *) R_alloc((size_t) n, sizeof(elvi_conditional));
    t->tol = Rf_asReal(tol);
    t->most = Rf_asInteger(most);
    SEXP out = PROTECT(Rf_allocVector(VECSXP, n));
    for (int k = 0; k < n; k++) SET_VECTOR_ELT(out, k, conditional_list(&t->plan, &t->points[k], &t->solved[k]));
    run_team(t, n, Rf_asInteger(threads));
    for (int k = 0; k < n; k++) fill_conditional(VECTOR_ELT(out, k), &t->solved[k]);
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_nested_check(SEXP plan, SEXP rule, SEXP settings, SEXP z, SEXP shifts, SEXP threads)
{
    static const char *const names[] = { "status", "total", "level", "spread", "bend", "shift", NULL };
    const int n = Rf_length(settings), draws = Rf_ncols(z);
    team *t = new_team(plan, rule, settings);
    t->ratios = (elvi_ratios *) R_alloc((size_t) n, sizeof(elvi_ratios));
    t->z = REAL(z);
    t->draws = draws;
    SEXP out = PROTECT(Rf_allocVector(VECSXP, n));
    for (int k = 0; k < n; k++) {
        SEXP list = r_named_list(names);
        SET_VECTOR_ELT(out, k, list);
        memset(&t->ratios[k], 0, sizeof(elvi_ratios));
        if (Rf_asLogical(shifts)) t->ratios[k].shift = r_set_reals(list, "shift", t->plan.pattern.dim);
        t->ratios[k].total = r_set_reals(list, "total", draws);
        t->ratios[k].bend = r_set_reals(list, "bend", draws);
        t->ratios[k].status = ELVI_STOPPED;
    }
    run_team(t, n, Rf_asInteger(threads));
    for (int k = 0; k < n; k++) {
        SEXP list = VECTOR_ELT(out, k);
        r_set(list, "status", Rf_ScalarInteger(t->ratios[k].status));
        r_set(list, "level", Rf_ScalarReal(t->ratios[k].level));
        r_set(list, "spread", Rf_ScalarReal(t->ratios[k].spread));
    }
    UNPROTECT(1);
    return out;
}

/* x (dim x n): mu + P^-1/2 x, or L^-1 x if whitening */
SEXP elvi_r_nested_draws(SEXP plan, SEXP setting, SEXP x, SEXP whiten)
{
    const elvi_nested p = read_plan(plan);
    const elvi_hyper_point at = read_hyper_point(&p, setting);
    double *work = (double *) R_alloc(elvi_nested_work_length(&p), sizeof(double));
    int *links = (int *) R_alloc(elvi_nested_links_length(&p), sizeof(int));
    SEXP out = PROTECT(Rf_duplicate(x));
    const elvi_status status = (Rf_asLogical(whiten) ? elvi_nested_whiten : elvi_nested_draws)(
        &p, &at, Rf_ncols(x), REAL(out), work, links);
    UNPROTECT(1);
    return status == ELVI_OK ? out : R_NilValue;
}

/* Variances of the linear functions in the rows of another design, at one point; NaN where a pair of entries is not on
 * the pattern, and
 * NULL if there is no factor. `rows`: X, start, column, entry. */
SEXP elvi_r_nested_variances(SEXP plan, SEXP setting, SEXP rows)
{
    const elvi_nested p = read_plan(plan);
    const elvi_hyper_point at = read_hyper_point(&p, setting);
    elvi_other_rows other = { 0 };
    SEXP start = r_get(rows, "start");
    other.rows = Rf_length(start) - 1;
    other.start = INTEGER(start);
    const R_xlen_t entries = other.start[other.rows];
    other.X = r_reals(rows, "X", (R_xlen_t) other.rows * p.dense);
    other.column = r_ints(rows, "column", entries);
    other.entry = r_reals(rows, "entry", entries);
    int *pair = (int *) R_alloc(elvi_pattern_pairs((size_t) other.rows, other.start) + 1, sizeof(int));
    int *held = (int *) R_alloc((size_t) other.rows + 1, sizeof(int));
    elvi_pattern_find_pairs(&p.pattern, (size_t) other.rows, other.start, other.column, pair, held);
    other.pair = pair;
    other.held = held;
    double *work = (double *) R_alloc(elvi_nested_work_length(&p), sizeof(double));
    int *links = (int *) R_alloc(elvi_nested_links_length(&p), sizeof(int));
    SEXP out = PROTECT(Rf_allocVector(REALSXP, other.rows));
    const elvi_status status = elvi_nested_variances(&p, &at, &other, REAL(out), work, links);
    UNPROTECT(1);
    return status == ELVI_OK ? out : R_NilValue;
}

/* The profiles of the linear functions in the columns of a, at each of the points. `control`: most, steps, width, drop, gain; with
 * `means`, those of x at the nodes. `points`: NULL, or z, share and wide. */
SEXP elvi_r_nested_profile(SEXP plan, SEXP rule, SEXP settings, SEXP a, SEXP control, SEXP points, SEXP means, SEXP threads)
{
    static const char *const names[] = { "status", "at", "sd", "below", "above", "value", "mean", "effective", NULL };
    const int each = Rf_ncols(a), n = Rf_length(settings) * each;
    team *t = new_team(plan, rule, settings);
    t->each = each;
    t->profiles = (elvi_profile *) R_alloc((size_t) n, sizeof(elvi_profile));
    const int dim = t->plan.pattern.dim, most = (int) r_count(control, "most");
    if (Rf_nrows(a) != dim) Rf_error("elvi internal error: linear functions do not fit the plan");
    SEXP out = PROTECT(Rf_allocVector(VECSXP, n));
    for (int k = 0; k < n; k++) {
        SEXP list = r_named_list(names);
        SET_VECTOR_ELT(out, k, list);
        elvi_profile *profile = &t->profiles[k];
        memset(profile, 0, sizeof *profile);
        profile->a = REAL(a) + (size_t) (k % each) * (size_t) dim;
        profile->most = most;
        profile->steps = (int) r_count(control, "steps");
        profile->width = r_number(control, "width");
        profile->drop = r_number(control, "drop");
        profile->gain = r_number(control, "gain");
        profile->value = r_set_reals(list, "value", 2 * (R_xlen_t) most + 1);
        if (Rf_asLogical(means)) profile->mean = REAL(r_set(list, "mean", Rf_allocMatrix(REALSXP, dim, 2 * most + 1)));
        if (!Rf_isNull(points)) {
            SEXP z = r_get(points, "z");
            if (Rf_nrows(z) != dim || t->plan.constraints) Rf_error("elvi internal error: points do not fit the plan");
            profile->points = Rf_ncols(z);
            profile->z = REAL(z);
            profile->share = r_number(points, "share");
            profile->wide = r_number(points, "wide");
            profile->effective = r_set_reals(list, "effective", 2 * (R_xlen_t) most + 1);
            memset(profile->effective, 0, (2 * (size_t) most + 1) * sizeof(double));
        }
        profile->status = ELVI_STOPPED;
    }
    run_team(t, n, Rf_asInteger(threads));
    for (int k = 0; k < n; k++) {
        SEXP list = VECTOR_ELT(out, k);
        const elvi_profile *profile = &t->profiles[k];
        r_set(list, "status", Rf_ScalarInteger(profile->status));
        r_set(list, "at", Rf_ScalarReal(profile->at));
        r_set(list, "sd", Rf_ScalarReal(profile->sd));
        r_set(list, "below", Rf_ScalarInteger(profile->below));
        r_set(list, "above", Rf_ScalarInteger(profile->above));
    }
    UNPROTECT(1);
    return out;
}

/* NULL if they do not exist */
SEXP elvi_r_nested_cumulants(SEXP plan, SEXP rule, SEXP setting, SEXP a)
{
    static const char *const names[] = { "third", "fourth", NULL };
    const elvi_nested p = read_plan(plan);
    const elvi_quadrature quadrature = r_quadrature(rule);
    const elvi_hyper_point at = read_hyper_point(&p, setting);
    double *work = (double *) R_alloc(elvi_nested_work_length(&p), sizeof(double));
    int *links = (int *) R_alloc(elvi_nested_links_length(&p), sizeof(int));
    const elvi_nested_task task = { &p, &quadrature, &at, work, links };
    const int n = Rf_ncols(a);
    if (Rf_nrows(a) != p.pattern.dim) Rf_error("elvi internal error: linear functions do not fit the plan");
    SEXP out = PROTECT(r_named_list(names));
    double *third = r_set_reals(out, "third", n), *fourth = r_set_reals(out, "fourth", n);
    const elvi_status status = elvi_nested_cumulants(&task, n, REAL(a), third, fourth);
    UNPROTECT(1);
    return status == ELVI_OK ? out : R_NilValue;
}

/* Densities of the unknowns with sparse columns, each given those after it, at each of the points. `columns`: start
 * and row of their
 * entries; `control`: most, width, third, fourth. Values on the plan's order. */
SEXP elvi_r_nested_residuals(SEXP plan, SEXP rule, SEXP settings, SEXP columns, SEXP control, SEXP threads)
{
    static const char *const names[] = { "status", "delta", "scale", "change", "skew", "tail", "value", NULL };
    const int points = Rf_length(settings);
    team *t = new_team(plan, rule, settings);
    t->residuals = (elvi_residuals *) R_alloc((size_t) points, sizeof(elvi_residuals));
    const int dim = t->plan.pattern.dim, sparse = dim - t->plan.dense, most = (int) r_count(control, "most");
    const int *start = r_ints(columns, "start", (R_xlen_t) sparse + 1);
    SEXP out = PROTECT(Rf_allocVector(VECSXP, points));
    for (int k = 0; k < points; k++) {
        SEXP list = r_named_list(names);
        SET_VECTOR_ELT(out, k, list);
        elvi_residuals *one = &t->residuals[k];
        memset(one, 0, sizeof *one);
        one->start = start;
        one->row = r_ints(columns, "row", start[sparse]);
        one->most = most;
        one->width = r_number(control, "width");
        one->third = r_number(control, "third");
        one->fourth = r_number(control, "fourth");
        one->delta = r_set_reals(list, "delta", dim);
        one->scale = r_set_reals(list, "scale", dim);
        one->change = r_set_reals(list, "change", dim);
        one->skew = r_set_reals(list, "skew", dim);
        one->tail = r_set_reals(list, "tail", dim);
        one->value = REAL(r_set(list, "value", Rf_allocMatrix(REALSXP, 2 * most + 1, sparse)));
        memset(one->value, 0, (2 * (size_t) most + 1) * (size_t) sparse * sizeof(double));
        one->status = ELVI_STOPPED;
    }
    run_team(t, points, Rf_asInteger(threads));
    for (int k = 0; k < points; k++) r_set(VECTOR_ELT(out, k), "status", Rf_ScalarInteger(t->residuals[k].status));
    UNPROTECT(1);
    return out;
}

/* ---- rows that are not in memory, see R/rows-latent.R ------------------------------------------- */

static elvi_nested_task summed_task(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at)
{
    double *work = (double *) R_alloc(elvi_nested_work_length(p), sizeof(double));
    int *links = (int *) R_alloc(elvi_nested_links_length(p), sizeof(int));
    const elvi_nested_task task = { p, rule, at, work, links };
    return task;
}

/* NULL where the precision is not positive definite */
SEXP elvi_r_nested_look(SEXP plan, SEXP setting, SEXP reach)
{
    static const char *const names[] = { "inverse", "g", "moment", "form", "trace", "log_diagonal", "reach", NULL };
    const elvi_nested p = read_plan(plan);
    const elvi_hyper_point at = read_hyper_point(&p, setting);
    const elvi_nested_task task = summed_task(&p, NULL, &at);
    const R_xlen_t length = (R_xlen_t) elvi_pattern_length(&p.pattern);
    elvi_summed_point point = { 0 };
    SEXP out = PROTECT(r_named_list(names));
    point.inverse = r_set_reals(out, "inverse", length);
    point.g = r_set_reals(out, "g", p.pattern.dim);
    point.moment = r_set_reals(out, "moment", p.sources);
    if (Rf_asLogical(reach) && at.definite) point.reach = r_set_reals(out, "reach", length);
    const elvi_status status = elvi_nested_look(&task, &point);
    r_set(out, "form", Rf_ScalarReal(point.form));
    r_set(out, "trace", Rf_ScalarReal(point.trace));
    r_set(out, "log_diagonal", Rf_ScalarReal(point.log_diagonal));
    UNPROTECT(1);
    return status == ELVI_OK ? out : R_NilValue;
}

/* P^-1 x, x' P^-1 x and x' A^-1 x; NULL where P is not positive definite */
SEXP elvi_r_nested_newton(SEXP plan, SEXP setting, SEXP x)
{
    static const char *const names[] = { "step", "own", "dual", NULL };
    const elvi_nested p = read_plan(plan);
    const elvi_hyper_point at = read_hyper_point(&p, setting);
    const elvi_nested_task task = summed_task(&p, NULL, &at);
    double own = 0.0, dual = 0.0;
    if (Rf_xlength(x) != p.pattern.dim) Rf_error("elvi internal error: a vector does not fit the plan");
    SEXP out = PROTECT(r_named_list(names));
    double *step = r_set_reals(out, "step", p.pattern.dim);
    const elvi_status status = elvi_nested_newton(&task, REAL(x), step, &own, &dual);
    r_set(out, "own", Rf_ScalarReal(own));
    r_set(out, "dual", Rf_ScalarReal(dual));
    UNPROTECT(1);
    return status == ELVI_OK ? out : R_NilValue;
}

/* Sums over the rows of a plan at several points, each a list of mu, M, hyper and perhaps before (points with
   mu, M and weight) and reach; NULL where an expectation does not exist. */
SEXP elvi_r_nested_add_rows(SEXP plan, SEXP rule, SEXP points)
{
    static const char *const names[] = { "sum", "slope", "curve", "widest", "near", "far", NULL };
    const elvi_nested p = read_plan(plan);
    const elvi_quadrature quadrature = r_quadrature(rule);
    const R_xlen_t length = (R_xlen_t) elvi_pattern_length(&p.pattern);
    const int n = Rf_length(points), dim = p.pattern.dim;
    double *work = (double *) R_alloc(elvi_row_sums_length(&p) + 1, sizeof(double));
    SEXP out = PROTECT(Rf_allocVector(VECSXP, n));
    for (int k = 0; k < n; k++) {
        SEXP from = VECTOR_ELT(points, k), before = r_get_if(from, "before"), list = r_named_list(names);
        SET_VECTOR_ELT(out, k, list);
        elvi_hyper_point at = { 0 };
        at.hypers = Rf_length(r_get(from, "hyper"));
        at.hyper = r_reals(from, "hyper", at.hypers);
        elvi_row_point x = { .mu = r_reals(from, "mu", dim), .M = r_reals(from, "M", length) };
        x.sources = Rf_length(before);
        if (x.sources > ELVI_MOST_SOURCES) Rf_error("elvi internal error: too many points before");
        for (int s = 0; s < x.sources; s++) {
            SEXP source = VECTOR_ELT(before, s);
            x.mu_before[s] = r_reals(source, "mu", dim);
            x.M_before[s] = r_reals(source, "M", length);
            x.weight[s] = r_number(source, "weight");
        }
        if (!Rf_isNull(r_get_if(from, "reach"))) x.reach = r_reals(from, "reach", length);
        elvi_row_sums sums = { .slope = r_set_reals(list, "slope", dim), .curve = r_set_reals(list, "curve", length) };
        const elvi_nested_task task = { &p, &quadrature, &at, work, NULL };
        const elvi_status status = elvi_nested_add_rows(&task, &x, &sums);
        r_set(list, "sum", Rf_ScalarReal(status == ELVI_OK ? sums.sum : R_PosInf));
        r_set(list, "widest", Rf_ScalarReal(sums.widest));
        r_set(list, "near", Rf_ScalarReal(sums.near));
        r_set(list, "far", Rf_ScalarReal(sums.far));
        R_CheckUserInterrupt();
    }
    UNPROTECT(1);
    return out;
}

/* W' diag(c) W on the pattern and W' x for the rows of a plan */
SEXP elvi_r_nested_products(SEXP plan, SEXP c, SEXP x)
{
    static const char *const names[] = { "curve", "slope", NULL };
    const elvi_nested p = read_plan(plan);
    if (Rf_xlength(c) != p.rows || Rf_xlength(x) != p.rows) Rf_error("elvi internal error: numbers do not fit the rows");
    SEXP out = PROTECT(r_named_list(names));
    double *curve = r_set_reals(out, "curve", (R_xlen_t) elvi_pattern_length(&p.pattern));
    double *slope = r_set_reals(out, "slope", p.pattern.dim);
    memset(curve, 0, elvi_pattern_length(&p.pattern) * sizeof(double));
    memset(slope, 0, (size_t) p.pattern.dim * sizeof(double));
    elvi_nested_add_curvature(&p, REAL(c), curve);
    elvi_nested_collect(&p, REAL(x), slope);
    UNPROTECT(1);
    return out;
}

/* A x for the symmetric matrix with these values on the pattern */
SEXP elvi_r_pattern_times(SEXP pattern, SEXP values, SEXP x)
{
    const elvi_pattern p = read_pattern(pattern);
    const double *from = REAL(x);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, p.dim));
    if ((size_t) Rf_xlength(values) != elvi_pattern_length(&p) || Rf_xlength(x) != p.dim)
        Rf_error("elvi internal error: values do not fit their pattern");
    elvi_pattern_times(&p, REAL(values), from, REAL(out));
    UNPROTECT(1);
    return out;
}

/* elvi_joint_expect() for rows with y, weight, eta (lines x n) and V (pairs x n) */
SEXP elvi_r_joint_expect(SEXP name, SEXP rule, SEXP hyper, SEXP rows)
{
    static const char *const names[] = { "status", "sum", "slope", "curve", "hyper", NULL };
    const elvi_joint *family = elvi_joint_named(CHAR(Rf_asChar(name)));
    const elvi_quadrature r = r_quadrature(rule);
    const R_xlen_t n = Rf_xlength(r_get(rows, "weight"));
    if (!family) Rf_error("elvi internal error: no family '%s' of several predictors", CHAR(Rf_asChar(name)));
    const int lines = (int) (Rf_xlength(r_get(rows, "eta")) / n), pairs = elvi_pairs_of(lines);
    if (lines > ELVI_MOST_LINES || (!family->many && lines != ELVI_LINES))
        Rf_error("elvi internal error: too many predictors of a row");
    const elvi_joint_rows at = { (int) n, lines, r_reals(rows, "y", elvi_joint_responses(family, lines) * n),
                                 r_reals(rows, "weight", n),
                                 r_reals(rows, "eta", lines * n), r_reals(rows, "V", pairs * n) };
    SEXP out = PROTECT(r_named_list(names));
    elvi_joint_expected expected = { .slope = REAL(r_set(out, "slope", Rf_allocMatrix(REALSXP, lines, (int) n))),
                                     .curve = REAL(r_set(out, "curve", Rf_allocMatrix(REALSXP, pairs, (int) n))) };
    const elvi_status status = elvi_joint_expect(family, &r, REAL(hyper), &at, &expected);
    r_set(out, "status", Rf_ScalarInteger(status));
    r_set(out, "sum", Rf_ScalarReal(expected.sum));
    r_set(out, "hyper", Rf_ScalarReal(expected.hyper));
    UNPROTECT(1);
    return out;
}

/* which names are those of losses of several predictors, with all that they must have */
SEXP elvi_r_has_joint(SEXP names)
{
    SEXP out = PROTECT(Rf_allocVector(LGLSXP, Rf_xlength(names)));
    for (R_xlen_t i = 0; i < Rf_xlength(names); i++) {
        const elvi_joint *family = elvi_joint_named(CHAR(STRING_ELT(names, i)));
        LOGICAL(out)
        [i] = family && elvi_joint_is_whole(family);
    }
    UNPROTECT(1);
    return out;
}
