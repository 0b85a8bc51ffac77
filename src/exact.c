/* E f for generalised linear models without Monte Carlo.
 *
 * u_i'x = eta_i + s_i z_1 with eta_i = u_i'mu + offset_i and s_i = |scale' u_i|,
 * so E f is a sum of one-dimensional integrals against the marginal of z_1:
 *   E f      = prior + sum_i w_i E l(eta_i + s_i z_1)
 *   d/dmu    = prior + sum_i w_i E[l'] u_i
 *   d/dscale = B scale,  B = P + sum_i c_i u_i u_i',  c_i = w_i E[l' z_1] / s_i,
 * P the precision of a normal prior, and like c_i with u_i = e_i for a student one.
 * Rows are taken in chunks, so memory stays bounded. */
#include "glm.h"
#include "parallel.h"
#include <math.h>
#include <string.h>

/* The prior of x_i = mu_i + s_i z_1 is one more observation, whose row of the
 * design is a unit vector. A student one need not be convex: its c_i may be
 * negative. */
static void add_prior(const elvi_glm *glm, const elvi_quadrature *rule, const elvi_scale *kind,
                      const elvi_theta *theta, elvi_exact *out)
{
    const int d = glm->rows.dim;
    if (out->B) memset(out->B, 0, (size_t) d * d * sizeof(double));
    if (!glm->prior.blocks) memset(out->g_mu, 0, (size_t) d * sizeof(double));
    if (!glm->prior.blocks && out->own) memset(out->own, 0, (size_t) d * sizeof(double));
    for (int k = 0; k < glm->prior.blocks; k++) {
        const elvi_prior_block *block = &glm->prior.block[k];
        for (int j = 0; j < block->length; j++) {
            const int i = block->first + j;
            const elvi_expectation e = elvi_prior_expect(block, rule, j, theta->mu[i],
                                                         kind->ops->variance(kind, theta->scale, i));
            out->value += e.value;
            out->g_mu[i] = e.slope;
            if (out->B)
                out->B[(size_t) i * d + i] = e.curve;
            else
                out->own[i] = e.curve;
        }
    }
}

/* What a thread needs for a part of the rows: predictors, spreads and expectations, a
 * copy of the part or the like. */
typedef struct {
    double *eta, *s, *slope, *curve, *copy;
    double *moved, *up, *down, *q; /* for derivatives along directions */
} exact_lane;

/* What a part gives to the result. */
typedef struct {
    double *g_mu;
    double *cross; /* X' diag(c) X, d x d, or its diagonal */
    double *third;
    double sum, widest;
    elvi_status status;
} exact_slot;

static size_t along_length(const elvi_exact *out)
{
    return out->directions ? 3 + (size_t) out->directions : 0;
}

static size_t lane_length(const elvi_rows *rows, const elvi_exact *out)
{
    return (4 + along_length(out)) * (size_t) elvi_rows_chunk(rows, ELVI_POINT) + rows->ops->scratch_length(rows);
}

static exact_lane bind_lane(const elvi_rows *rows, double *room)
{
    const size_t chunk = (size_t) elvi_rows_chunk(rows, ELVI_POINT);
    exact_lane lane = { .eta = room, .s = room + chunk, .slope = room + 2 * chunk, .curve = room + 3 * chunk };
    lane.copy = room + 4 * chunk;
    lane.moved = lane.copy + rows->ops->scratch_length(rows);
    lane.up = lane.moved + chunk;
    lane.down = lane.up + chunk;
    lane.q = lane.down + chunk;
    return lane;
}

static size_t cross_length(const elvi_rows *rows, const elvi_exact *out)
{
    return (size_t) rows->dim * (out->B ? (size_t) rows->dim : 1);
}

static size_t slot_length(const elvi_rows *rows, const elvi_exact *out)
{
    return (size_t) rows->dim + cross_length(rows, out) + (size_t) out->directions;
}

static exact_slot bind_slot(const elvi_rows *rows, const elvi_exact *out, double *room)
{
    exact_slot slot = { .g_mu = room, .cross = room + rows->dim };
    slot.third = slot.cross + cross_length(rows, out);
    return slot;
}

static int lanes_of(const elvi_model *model)
{
    const elvi_glm *glm = model->data;
    const int lanes = elvi_lanes(model->threads), parts = elvi_rows_parts(&glm->rows, ELVI_POINT);
    return lanes < parts ? lanes : parts;
}

size_t elvi_exact_scratch_length(const elvi_model *model, const elvi_scale *kind, const elvi_exact *out)
{
    const elvi_rows *rows = &((const elvi_glm *) model->data)->rows;
    const int lanes = lanes_of(model);
    return rows->ops->spread_length(rows, kind) + (size_t) lanes * lane_length(rows, out) +
           (size_t) elvi_slots(lanes) * slot_length(rows, out);
}

/* Some parts, from number `first` on. */
typedef struct {
    const elvi_glm *glm;
    const elvi_quadrature *rule;
    const elvi_spread *spread;
    const double *mu;
    int first;
    exact_lane lane[ELVI_MOST_LANES];
    exact_slot slot[ELVI_MOST_SLOTS];
    elvi_exact *out;
} exact_parts;

/* Derivatives of the average curvature along directions, by central differences: they choose steps, and nothing that is
 * reported rests on them. */
static elvi_status expect_along(const exact_parts *c, const elvi_part *part, const exact_lane *lane, exact_slot *slot)
{
    const double h = 0.01;
    const elvi_rows *rows = &c->glm->rows;
    double *const curves[] = { lane->up, lane->down };
    const size_t n = (size_t) part->rows;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++) lane->moved[i] = lane->eta[i] + (side ? -h : h);
        const elvi_lines lines = { part->rows, part->y, part->weight, lane->moved, lane->s };
        elvi_expected expected = { .slope = lane->q, .curve = curves[side] };
        const elvi_status status = elvi_expect_rows(&c->glm->likelihood, c->rule, &elvi_no_dispersion, &lines, &expected);
        if (status != ELVI_OK) return status;
    }
    memset(lane->q, 0, n * (size_t) c->out->directions * sizeof(double));
    rows->ops->predict(rows, part, c->out->direction, rows->dim, c->out->directions, lane->q);
    for (int k = 0; k < c->out->directions; k++) {
        const double *q = lane->q + (size_t) k * n;
        double third = 0.0;
        for (size_t i = 0; i < n; i++) third += q[i] * q[i] * q[i] * (lane->up[i] - lane->down[i]);
        slot->third[k] = third / (2.0 * h);
    }
    return ELVI_OK;
}

static void expect_part(void *ctx, int number, int in_lane, int in_slot)
{
    exact_parts *c = ctx;
    const elvi_rows *rows = &c->glm->rows;
    const exact_lane *lane = &c->lane[in_lane];
    exact_slot *slot = &c->slot[in_slot];
    const elvi_part part = elvi_rows_part(rows, ELVI_POINT, c->first + number);
    const elvi_exact *out = c->out;
    memset(slot->g_mu, 0, (size_t) rows->dim * sizeof(double));
    memset(slot->cross, 0, cross_length(rows, out) * sizeof(double));
    elvi_rows_predict(rows, &part, c->mu, rows->dim, 1, lane->eta);
    rows->ops->spread(rows, &part, c->spread, lane->copy, lane->s);
    const elvi_lines lines = { part.rows, part.y, part.weight, lane->eta, lane->s };
    elvi_expected expected = { .slope = lane->slope, .curve = lane->curve };
    slot->status = elvi_expect_rows(&c->glm->likelihood, c->rule, &elvi_no_dispersion, &lines, &expected);
    slot->sum = expected.sum;
    slot->widest = expected.widest;
    if (slot->status != ELVI_OK) return;
    if (out->directions) slot->status = expect_along(c, &part, lane, slot);
    if (slot->status != ELVI_OK) return;
    rows->ops->collect(rows, &part, lane->slope, rows->dim, 1, slot->g_mu);
    if (out->B) {
        rows->ops->crossprod(rows, &part, lane->curve, lane->copy, slot->cross);
    } else {
        rows->ops->squares(rows, &part, lane->curve, slot->cross);
        memcpy(out->curve + part.first, lane->curve, (size_t) part.rows * sizeof(double));
    }
}

static elvi_status add_part(void *ctx, int in_slot)
{
    const exact_parts *c = ctx;
    const exact_slot *slot = &c->slot[in_slot];
    elvi_exact *out = c->out;
    const size_t d = (size_t) c->glm->rows.dim, n = cross_length(&c->glm->rows, out);
    double *cross = out->B ? out->B : out->squares;
    out->value += slot->sum;
    out->widest = fmax(out->widest, slot->widest);
    for (size_t i = 0; i < d; i++) out->g_mu[i] += slot->g_mu[i];
    for (size_t i = 0; i < n; i++) cross[i] += slot->cross[i];
    for (int k = 0; k < out->directions; k++) out->third[k] += slot->third[k];
    return slot->status;
}

elvi_status elvi_glm_exact(const elvi_model *model, const elvi_quadrature *rule,
                           const elvi_scale *kind, const elvi_theta *theta, elvi_exact *out, const elvi_hooks *hooks)
{
    const elvi_glm *glm = model->data;
    const elvi_rows *rows = &glm->rows;
    double *scratch = out->scratch;
    const int lanes = lanes_of(model);
    const elvi_spread spread = rows->ops->spread_of(rows, kind, theta->scale, scratch);
    exact_parts c = { .glm = glm, .rule = rule, .spread = &spread, .mu = theta->mu, .out = out };
    const elvi_job job = {
        .work = expect_part,
        .add = add_part,
        .ctx = &c,
        .operations = elvi_rows_chunk(rows, ELVI_POINT) * (1000.0 + (double) cross_length(rows, out)),
    };
    scratch += rows->ops->spread_length(rows, kind);
    for (int t = 0; t < lanes; t++, scratch += lane_length(rows, out)) c.lane[t] = bind_lane(rows, scratch);
    for (int t = 0; t < elvi_slots(lanes); t++, scratch += slot_length(rows, out)) c.slot[t] = bind_slot(rows, out, scratch);
    out->value = out->widest = 0.0;
    if (!out->B) memset(out->squares, 0, cross_length(rows, out) * sizeof(double));
    if (out->directions) memset(out->third, 0, (size_t) out->directions * sizeof(double));
    add_prior(glm, rule, kind, theta, out);
    for (int left = elvi_rows_parts(rows, ELVI_POINT); left > 0;) {
        const int now = elvi_parts_at_once(&job, lanes, (uint64_t) left);
        if (hooks->poll(hooks->ctx, NULL)) return ELVI_STOPPED;
        const elvi_status status = elvi_parallel(&job, model->threads, lanes, now);
        if (status != ELVI_OK) return status;
        left -= now;
        c.first += now;
    }
    if (!isfinite(out->value)) return ELVI_NO_EXPECTATION;
    return ELVI_OK;
}
