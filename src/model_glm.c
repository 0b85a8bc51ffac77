/* Regressions: rows, a family and a prior. For each part of the rows a GEMM, an elementwise pass, a
 * GEMM. Parts are summed in their order, so that it does not matter how many threads take them. */
#include "glm.h"
#include "parallel.h"
#include <string.h>

/* A part of the rows at a block of points: what a lane needs, and what it leaves in a slot. */
static size_t lane_length(const elvi_glm *glm, int n)
{
    return (size_t) elvi_rows_chunk(&glm->rows, ELVI_BLOCK) * n;
}

static size_t slot_length(const elvi_model *model, int n)
{
    return ((size_t) model->dim + 1) * n;
}

static int lanes_of(const elvi_model *model)
{
    const elvi_glm *glm = model->data;
    const int lanes = elvi_lanes(model->threads), parts = elvi_rows_parts(&glm->rows, ELVI_BLOCK);
    return lanes < parts ? lanes : parts;
}

static size_t glm_scratch_length(const elvi_model *model, int n)
{
    const int lanes = lanes_of(model);
    return (size_t) lanes * lane_length(model->data, n) + (size_t) elvi_slots(lanes) * slot_length(model, n);
}

typedef struct {
    const elvi_model *model;
    const double *x;
    int n;
    double *value, *grad; /* either may be NULL */
    double *lane, *slot;  /* those of all lanes and slots */
} passes;

static elvi_dispersion dispersion_of(const elvi_model *model, const double *x, int j)
{
    const elvi_glm *glm = model->data;
    return glm->dispersion_at < 0 ? elvi_no_dispersion
                                  : elvi_dispersion_at(x[(size_t) j * model->dim + glm->dispersion_at]);
}

static void evaluate_part(void *ctx, int number, int lane, int slot)
{
    const passes *p = ctx;
    const elvi_glm *glm = p->model->data;
    const elvi_family *family = glm->likelihood.family;
    const elvi_part part = elvi_rows_part(&glm->rows, ELVI_BLOCK, number);
    const int d = p->model->dim, n = p->n;
    double *eta = p->lane + (size_t) lane * lane_length(glm, n);
    double *value = p->slot + (size_t) slot * slot_length(p->model, n), *grad = value + n;
    elvi_rows_predict(&glm->rows, &part, p->x, d, n, eta);
    if (p->grad) memset(grad, 0, (size_t) d * n * sizeof(double));
    for (int j = 0; j < n; j++) {
        const elvi_dispersion a = dispersion_of(p->model, p->x, j);
        double *col = eta + (size_t) j * part.rows;
        if (p->value) value[j] = family->loss(&glm->likelihood, &a, &part, col);
        if (!p->grad) continue;
        const double slope = family->slope(&glm->likelihood, &a, &part, col);
        if (glm->dispersion_at >= 0) grad[(size_t) j * d + glm->dispersion_at] = slope;
    }
    if (p->grad) glm->rows.ops->collect(&glm->rows, &part, eta, d, n, grad);
}

static elvi_status add_part(void *ctx, int slot)
{
    const passes *p = ctx;
    const size_t n = (size_t) p->n, entries = n * (size_t) p->model->dim;
    const double *value = p->slot + (size_t) slot * slot_length(p->model, p->n), *grad = value + n;
    for (size_t j = 0; p->value && j < n; j++) p->value[j] += value[j];
    for (size_t i = 0; p->grad && i < entries; i++) p->grad[i] += grad[i];
    return ELVI_OK;
}

/* what depends on the dispersion alone */
static void add_dispersion_terms(const elvi_model *model, const double *x, int n, double *value, double *grad)
{
    const elvi_glm *glm = model->data;
    const elvi_family *family = glm->likelihood.family;
    for (int j = 0; family->dispersion_terms && glm->dispersion_at >= 0 && j < n; j++) {
        const elvi_dispersion a = dispersion_of(model, x, j);
        double slope;
        const double terms = family->dispersion_terms(&a, &glm->tally, grad ? &slope : NULL);
        if (value) value[j] += terms;
        if (grad) grad[(size_t) j * model->dim + glm->dispersion_at] += slope;
    }
}

static elvi_status glm_eval(const elvi_model *model, const double *x, int n,
                            double *value, double *grad, double *scratch)
{
    const elvi_glm *glm = model->data;
    const elvi_rows *rows = &glm->rows;
    const int lanes = elvi_in_team() ? 1 : lanes_of(model); /* else others have the threads */
    passes p = { .model = model, .x = x, .n = n, .value = value, .grad = grad, .lane = scratch };
    const elvi_job job = {
        .work = evaluate_part,
        .add = add_part,
        .ctx = &p,
        .operations = model->cost * n / elvi_rows_parts(rows, ELVI_BLOCK),
    };
    p.slot = scratch + (size_t) lanes * lane_length(glm, n);
    elvi_prior_eval(&glm->prior, x, model->dim, n, value, grad);
    add_dispersion_terms(model, x, n, value, grad);
    if (!rows->rows) return ELVI_OK;
    return elvi_parallel(&job, model->threads, lanes, elvi_rows_parts(rows, ELVI_BLOCK));
}

void elvi_glm_curvature(const elvi_glm *glm, double bound, const double *v,
                        double *out, double *eta)
{
    const elvi_rows *rows = &glm->rows;
    elvi_prior_curvature(&glm->prior, v, out);
    for (int k = 0, parts = elvi_rows_parts(rows, ELVI_BLOCK); k < parts; k++) {
        const elvi_part part = elvi_rows_part(rows, ELVI_BLOCK, k);
        memset(eta, 0, (size_t) part.rows * sizeof(double));
        rows->ops->predict(rows, &part, v, rows->dim, 1, eta);
        for (int i = 0; i < part.rows; i++) eta[i] *= bound * part.weight[i];
        rows->ops->collect(rows, &part, eta, rows->dim, 1, out);
    }
}

double elvi_glm_cost(const elvi_glm *glm)
{
    return 4.0 * glm->rows.entries + glm->likelihood.family->cost * glm->rows.rows;
}

const elvi_model_ops elvi_glm_ops = { .eval = glm_eval, .scratch_length = glm_scratch_length };
