#define _POSIX_C_SOURCE 199309L /* clock_gettime */
#include "r_elvi.h"
#include <string.h>
#include <time.h>

/* The kind of a scale that R has, at its size. */
elvi_scale r_scale(SEXP name, int dim, SEXP array)
{
    static const elvi_scale_ops *const kinds[] = {
        &elvi_scale_symmetric, &elvi_scale_triangular, &elvi_scale_diagonal, NULL
    };
    elvi_scale out = { NULL, dim, 0 };
    for (int i = 0; kinds[i]; i++)
        if (strcmp(CHAR(Rf_asChar(name)), kinds[i]->name) == 0) out.ops = kinds[i];
    if (!out.ops) Rf_error("elvi internal error: unknown kind of scale");
    if (out.ops->columns) out.columns = out.ops->columns(dim, (size_t) Rf_xlength(array));
    if ((size_t) Rf_xlength(array) != out.ops->length(&out)) Rf_error("elvi internal error: wrong length of a scale");
    return out;
}

static const elvi_estimator_ops *read_estimator(SEXP name)
{
    static const elvi_estimator_ops *const all[] = {
        &elvi_estimator_reparam, &elvi_estimator_path, &elvi_estimator_control, &elvi_estimator_fixed, NULL
    };
    for (int i = 0; all[i]; i++)
        if (strcmp(CHAR(Rf_asChar(name)), all[i]->name) == 0) return all[i];
    Rf_error("elvi internal error: unknown estimator");
    return NULL;
}

static elvi_schedule read_schedule(SEXP list)
{
    elvi_schedule s;
    SEXP steps = r_get(list, "step_table"), batches = r_get(list, "batch_table");
    s.step0 = r_number(list, "step0");
    s.step_power = r_number(list, "step_power");
    s.batch0 = r_number(list, "batch0");
    s.batch_power = r_number(list, "batch_power");
    s.table_length = (uint64_t) Rf_xlength(steps);
    s.step_table = steps == R_NilValue ? NULL : r_reals(list, "step_table", Rf_xlength(steps));
    s.batch_table = batches == R_NilValue ? NULL : r_reals(list, "batch_table", Rf_xlength(steps));
    return s;
}

static elvi_settings read_settings(SEXP list, int dim)
{
    static const char *const names[] = { "project", "prox", NULL };
    static const elvi_update_ops *const updates[] = { &elvi_update_project, &elvi_update_prox };
    static const char *const averages[] = { "theorem", "tail", "last", NULL };
    elvi_settings s;
    s.schedule = read_schedule(r_get(list, "schedule"));
    s.iterations = r_count(list, "iterations");
    s.horizon = r_count(list, "horizon");
    if (s.schedule.step_table && (s.horizon > s.schedule.table_length || s.iterations > s.schedule.table_length))
        Rf_error("elvi internal error: a schedule ends before its run");
    s.fresh = Rf_asLogical(r_get(list, "fresh")) == TRUE;
    s.key = r_key(r_get(list, "seed"));
    s.estimator = read_estimator(r_get(list, "estimator"));
    s.update = updates[r_choice(list, "update", names)];
    s.lambda_mu = r_number(list, "lambda_mu");
    s.lambda_scale = r_number(list, "lambda_scale");
    SEXP root = r_get(list, "mu_root");
    s.mu_root = root == R_NilValue ? NULL : r_reals(list, "mu_root", (R_xlen_t) dim * dim);
    s.scale_min = r_number(list, "scale_min");
    s.scale_max = r_number(list, "scale_max");
    s.mu_centre = r_reals(list, "mu_centre", dim);
    s.mu_radius = r_number(list, "mu_radius");
    s.longest = r_number(list, "longest");
    s.averaging = r_choice(list, "average", averages);
    s.bg_a = r_number(list, "bg_a");
    s.tail_start = r_count(list, "tail_start");
    s.trace_draws = (int) r_count(list, "trace_draws");
    s.check_draws = (int) r_count(list, "check_draws");
    s.check_step = r_number(list, "check_step");
    s.check_divides = Rf_asLogical(r_get(list, "check_divides")) == TRUE;
    s.check_floor = Rf_asLogical(r_get(list, "check_floor")) == TRUE;
    return s;
}

/* A work block big enough for p; the only allocation of a run. */
static void make_work(const elvi_problem *p, const elvi_estimator_ops *estimator, int block, elvi_work *w)
{
    elvi_memory memory = { NULL, NULL, 0, 0 };
    elvi_work_bind(w, p, estimator, block, &memory);
    memory.reals = (double *) R_alloc(memory.n_reals, sizeof(double));
    memory.ints = (int *) R_alloc(memory.n_ints + 1, sizeof(int));
    elvi_work_bind(w, p, estimator, block, &memory);
    elvi_ziggurat_init(&w->zig);
}

static elvi_theta make_theta(const elvi_scale *kind, SEXP mu, SEXP scale)
{
    const int d = kind->dim;
    const size_t n = kind->ops->length(kind);
    elvi_theta out;
    if (Rf_xlength(mu) != d || (size_t) Rf_xlength(scale) != n)
        Rf_error("elvi internal error: wrong length of mu or scale");
    out.mu = (double *) R_alloc(d + n, sizeof(double));
    out.scale = out.mu + d;
    memcpy(out.mu, REAL(mu), (size_t) d * sizeof(double));
    memcpy(out.scale, REAL(scale), n * sizeof(double));
    return out;
}

static elvi_state read_state(SEXP list, const elvi_problem *p, const elvi_estimator_ops *estimator)
{
    SEXP memory = r_get(list, "memory"); /* empty at the start of a run */
    elvi_state st;
    st.theta = make_theta(&p->scale, r_get(list, "mu"), r_get(list, "scale"));
    st.average = make_theta(&p->scale, r_get(list, "average_mu"), r_get(list, "average_scale"));
    st.k = r_count(list, "k");
    st.evals = r_count(list, "evals");
    st.alpha = r_number(list, "alpha");
    st.weight = r_number(list, "weight");
    st.shorten = r_number(list, "shorten");
    st.steepest = r_number(list, "steepest");
    st.checks = r_count(list, "checks");
    memset(st.memory, 0, sizeof st.memory);
    if (Rf_xlength(memory) == 0)
        estimator->start(st.memory);
    else
        memcpy(st.memory, r_reals(list, "memory", estimator->memory), (size_t) estimator->memory * sizeof(double));
    return st;
}

static SEXP real_vector(const double *x, R_xlen_t n)
{
    SEXP out = Rf_allocVector(REALSXP, n);
    if (n) memcpy(REAL(out), x, (size_t) n * sizeof(double));
    return out;
}

/* in the shape and of the class of the array that R has given */
static SEXP scale_out(const elvi_scale *kind, const double *scale, SEXP like)
{
    SEXP out = PROTECT(Rf_allocVector(REALSXP, Rf_xlength(like)));
    kind->ops->show(kind, scale, REAL(out));
    Rf_setAttrib(out, R_DimSymbol, Rf_getAttrib(like, R_DimSymbol));
    Rf_setAttrib(out, R_ClassSymbol, Rf_getAttrib(like, R_ClassSymbol));
    UNPROTECT(1);
    return out;
}

static SEXP state_out(const elvi_state *st, const elvi_problem *p, const elvi_estimator_ops *estimator, SEXP like)
{
    static const char *const names[] = {
        "mu", "scale", "average_mu", "average_scale", "k", "evals", "alpha", "weight", "memory",
        "shorten", "steepest", "checks", NULL
    };
    const int d = p->model.dim;
    SEXP out = PROTECT(r_named_list(names));
    r_set(out, "mu", real_vector(st->theta.mu, d));
    r_set(out, "scale", scale_out(&p->scale, st->theta.scale, like));
    r_set(out, "average_mu", real_vector(st->average.mu, d));
    r_set(out, "average_scale", scale_out(&p->scale, st->average.scale, like));
    r_set(out, "k", Rf_ScalarReal((double) st->k));
    r_set(out, "evals", Rf_ScalarReal((double) st->evals));
    r_set(out, "alpha", Rf_ScalarReal(st->alpha));
    r_set(out, "weight", Rf_ScalarReal(st->weight));
    r_set(out, "memory", real_vector(st->memory, estimator->memory));
    r_set(out, "shorten", Rf_ScalarReal(st->shorten));
    r_set(out, "steepest", Rf_ScalarReal(st->steepest));
    r_set(out, "checks", Rf_ScalarReal((double) st->checks));
    UNPROTECT(1);
    return out;
}

static const char *const trace_names[] = {
    "iteration", "evals", "batch", "step", "objective", "se", "gradient_map",
    "clipped", "cpu", NULL
};
/* 90 rows a decade */
enum {
    TRACE_COLUMNS = 9,
    TRACE_CAPACITY = 2000
};

static elvi_trace make_trace(double cpu_before)
{
    elvi_trace t;
    double *block = (double *) R_alloc((size_t) TRACE_COLUMNS * TRACE_CAPACITY, sizeof(double));
    double **columns[TRACE_COLUMNS] = {
        &t.iteration, &t.evals, &t.batch, &t.step, &t.objective, &t.se,
        &t.gradient_map, &t.clipped, &t.cpu
    };
    for (int i = 0; i < TRACE_COLUMNS; i++) *columns[i] = block + (size_t) i * TRACE_CAPACITY;
    t.capacity = TRACE_CAPACITY;
    elvi_trace_begin(&t, cpu_before);
    return t;
}

static SEXP trace_out(const elvi_trace *t)
{
    const double *columns[TRACE_COLUMNS] = {
        t->iteration, t->evals, t->batch, t->step, t->objective, t->se,
        t->gradient_map, t->clipped, t->cpu
    };
    SEXP out = PROTECT(r_named_list(trace_names));
    for (int i = 0; i < TRACE_COLUMNS; i++)
        r_set(out, trace_names[i], real_vector(columns[i], t->rows));
    UNPROTECT(1);
    return out;
}

/* ---- interrupts and progress ----------------------------------------------- */

typedef struct {
    uint64_t horizon;
    int progress;    /* show a bar? */
    double show_at;  /* on steady_clock(): runs that are shorter show none */
    int shown;       /* last percentage printed, -1 for none */
    double pause_at; /* on steady_clock(); may be Inf */
    int limited;     /* has a limit of setTimeLimit() been reached? */
} watcher;

/* seconds since some moment, whatever is done to the time of day */
static double steady_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static int watch(void *ctx, const elvi_state *st)
{
    watcher *w = ctx;
    if (w->progress && steady_clock() >= w->show_at) {
        const int percent = (int) (100.0 * (double) st->k / (double) w->horizon);
        if (percent != w->shown) {
            REprintf("\relvi: %3d%% (%.0f of %.0f iterations)", percent, (double) st->k,
                     (double) w->horizon);
            w->shown = percent;
        }
    }
    return r_interrupted(&w->limited);
}

static int pause_due(void *ctx)
{
    const watcher *w = ctx;
    return R_FINITE(w->pause_at) && steady_clock() >= w->pause_at;
}

/* ---- .Call routines ---------------------------------------------------------- */

SEXP elvi_r_run(SEXP model, SEXP base, SEXP settings, SEXP state)
{
    static const char *const names[] = { "status", "state", "trace", "cpu", "limited", NULL };
    r_model_store store;
    elvi_work w;
    const elvi_model m = r_model(model, &store, (int) r_count(settings, "threads"));
    const elvi_problem p = { m, r_base(base), r_scale(r_get(settings, "scale"), m.dim, r_get(state, "scale")) };
    const elvi_settings s = read_settings(settings, p.model.dim);
    elvi_state st = read_state(state, &p, s.estimator);
    elvi_trace trace = make_trace(r_number(settings, "cpu"));
    watcher ctx = { s.horizon, Rf_asLogical(r_get(settings, "progress")) == TRUE,
                    steady_clock() + 2.0, -1, steady_clock() + r_number(settings, "pause_after"), -1 };
    const elvi_hooks hooks = { .poll = watch, .pause = pause_due, .ctx = &ctx };

    store.density.catch_interrupts = 1;
    make_work(&p, s.estimator, (int) r_count(settings, "block"), &w);
    const elvi_status status = elvi_run(&p, &s, &st, &w, &trace, &hooks);
    if (ctx.shown >= 0) REprintf("\n");

    SEXP out = PROTECT(r_named_list(names));
    r_set(out, "limited", Rf_ScalarLogical(ctx.limited == 1));
    r_set(out, "status", Rf_ScalarInteger(status));
    r_set(out, "state", state_out(&st, &p, s.estimator, r_get(state, "scale")));
    r_set(out, "trace", trace_out(&trace));
    r_set(out, "cpu", Rf_ScalarReal(elvi_trace_cpu(&trace)));
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_gradient(SEXP model, SEXP base, SEXP settings, SEXP state, SEXP batch)
{
    static const char *const names[] = { "status", "mu", "scale", NULL };
    r_model_store store;
    elvi_work w;
    const elvi_model m = r_model(model, &store, (int) r_count(settings, "threads"));
    const elvi_problem p = { m, r_base(base), r_scale(r_get(settings, "scale"), m.dim, r_get(state, "scale")) };
    const elvi_settings s = read_settings(settings, p.model.dim);
    const elvi_state st = read_state(state, &p, s.estimator);

    make_work(&p, s.estimator, (int) r_count(settings, "block"), &w);
    const elvi_status status = elvi_gradient(&p, &s, &st, (uint64_t) Rf_asReal(batch), &w, &r_interruptible);
    SEXP out = PROTECT(r_named_list(names));
    r_set(out, "status", Rf_ScalarInteger(status));
    r_set(out, "mu", real_vector(w.grad.mu, p.model.dim));
    r_set(out, "scale", scale_out(&p.scale, w.grad.scale, r_get(state, "scale")));
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_values(SEXP model, SEXP base, SEXP kind, SEXP mu, SEXP scale, SEXP key, SEXP n,
                   SEXP threads)
{
    enum { BLOCK = 256 };
    r_model_store store;
    elvi_work w;
    const elvi_model m = r_model(model, &store, Rf_asInteger(threads));
    const elvi_problem p = { m, r_base(base), r_scale(kind, m.dim, scale) };
    const elvi_theta theta = make_theta(&p.scale, mu, scale);
    const R_xlen_t total = (R_xlen_t) Rf_asReal(n);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, total));
    make_work(&p, &elvi_estimator_reparam, total < BLOCK ? (int) total : BLOCK, &w);
    for (R_xlen_t first = 0; first < total; first += w.block) {
        const int now = total - first < w.block ? (int) (total - first) : w.block;
        R_CheckUserInterrupt();
        const elvi_sample sample = { r_key(key), 0, (uint64_t) first, now };
        r_check_values(elvi_values(&p, &theta, &sample, &w, REAL(out) + first),
                       REAL(out) + first, (size_t) now);
    }
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_project(SEXP kind, SEXP scale, SEXP lo, SEXP hi)
{
    static const char *const names[] = { "status", "scale", "clipped", NULL };
    const elvi_scale k = r_scale(kind, Rf_nrows(scale), scale);
    const size_t length = k.ops->length(&k);
    elvi_scale_room room = { .factored = 0 };
    int clipped = 0;
    k.ops->room(&k, &room.n_reals, &room.n_ints);
    room.reals = (double *) R_alloc(room.n_reals, sizeof(double));
    room.ints = (int *) R_alloc(room.n_ints, sizeof(int));
    double *moved = (double *) R_alloc(length, sizeof(double));
    memcpy(moved, REAL(scale), length * sizeof(double));
    const elvi_status status = k.ops->project(&k, Rf_asReal(lo), Rf_asReal(hi), moved, &room, &clipped);
    SEXP out = PROTECT(r_named_list(names));
    r_set(out, "status", Rf_ScalarInteger(status));
    r_set(out, "scale", scale_out(&k, moved, scale));
    r_set(out, "clipped", Rf_ScalarInteger(clipped));
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_schedule(SEXP schedule, SEXP k)
{
    static const char *const names[] = { "step", "batch", NULL };
    const elvi_schedule s = read_schedule(schedule);
    const R_xlen_t n = Rf_xlength(k);
    SEXP out = PROTECT(r_named_list(names));
    double *step = r_set_reals(out, "step", n), *batch = r_set_reals(out, "batch", n);
    for (R_xlen_t i = 0; i < n; i++) {
        const uint64_t at = (uint64_t) REAL(k)[i];
        step[i] = elvi_schedule_step(&s, at);
        batch[i] = (double) elvi_schedule_batch(&s, at);
    }
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_clock(void)
{
    return Rf_ScalarReal(steady_clock());
}

SEXP elvi_r_horizon(SEXP schedule, SEXP budget)
{
    const elvi_schedule s = read_schedule(schedule);
    return Rf_ScalarReal((double) elvi_schedule_horizon(&s, Rf_asReal(budget)));
}
