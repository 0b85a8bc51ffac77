/* Steps for an f whose smoothness L is a guess. Before the gradient of a step is drawn, and on draws of its own, the
 * step is divided by 2 until
 *   F(theta - 2 step Lambda p) <= F(theta) - 2 step <grad F, Lambda p> + step |p|^2_Lambda
 * within two standard errors, p a gradient estimate at theta. If F is smooth with constant Lip every step up to
 * 1/(2 Lip) passes; docs/internals.Rmd says what a passed check proves. Any shorter step passes if one does, for a
 * convex F, so 1/(2L) is checked even where the schedule's step is shorter: L bounds the scale from below as well,
 * and an L that is refuted takes that bound with it. Below the bound -log|scale| is continued by a parabola, as in the
 * proofs, for a noisy p leads anywhere. */
#include "run.h"
#include <math.h>
#include <string.h>

/* keys of draws that no gradient of the run has */
#define DIRECTION_KEY UINT64_C(0x6a09e667f3bcc908)
#define COMPARE_KEY UINT64_C(0xbb67ae8584caa73b)

static double longest_checked(const elvi_settings *s, double step, double shorten)
{
    return fmax(step, s->check_step) / shorten;
}

/* Steps made from L go with it; others only have to pass. */
double elvi_checked_step(const elvi_settings *s, double step, double shorten)
{
    return s->check_divides ? step / shorten : fmin(step, longest_checked(s, step, shorten));
}

double elvi_floor(const elvi_settings *s, double steepest)
{
    return s->check_floor ? s->scale_min / sqrt(steepest) : s->scale_min;
}

/* f at theta and w->next on the same draws: value <- f(x') - f(x) - <grad f(x), x' - x> */
typedef struct {
    const elvi_problem *p;
    const elvi_theta *theta, *next;
    int n;
    elvi_lane *lane;
    elvi_status status;
} pairs_of_draws;

static void add_products(int d, int n, double by, const double *g, const double *x, double *value)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++) value[j] += by * g[(size_t) j * d + i] * x[(size_t) j * d + i];
}

static void compare(void *ctx, int part, int in_lane, int in_slot)
{
    pairs_of_draws *b = ctx;
    const elvi_model *model = &b->p->model;
    elvi_lane *l = b->lane;
    (void) part;
    (void) in_lane;
    (void) in_slot;
    elvi_scale_move(b->p, b->theta, l->z, b->n, l->x);
    b->status = model->ops->eval(model, l->x, b->n, l->value, l->g, l->scratch);
    if (b->status != ELVI_OK) return;
    for (int j = 0; j < b->n; j++) l->value[j] = -l->value[j];
    add_products(model->dim, b->n, 1.0, l->g, l->x, l->value);
    elvi_scale_move(b->p, b->next, l->z, b->n, l->x);
    add_products(model->dim, b->n, -1.0, l->g, l->x, l->value);
    b->status = model->ops->eval(model, l->x, b->n, l->g, NULL, l->scratch); /* the gradients are used up */
    for (int j = 0; j < b->n; j++) l->value[j] += l->g[j];
}

static elvi_status compared(void *ctx, int slot)
{
    const pairs_of_draws *b = ctx;
    (void) slot;
    return b->status;
}

/* mean and standard error of the above */
static elvi_status data_excess(const elvi_batch *at, const elvi_hooks *hooks, double *mean, double *se)
{
    const elvi_problem *p = at->p;
    const elvi_settings *s = at->s;
    const elvi_state *st = at->st;
    elvi_work *w = at->w;
    elvi_status status = ELVI_OK;
    double m = 0.0, ss = 0.0;
    int done = 0;
    while (status == ELVI_OK && done < s->check_draws) {
        const int left = s->check_draws - done, n = left < w->block ? left : w->block;
        pairs_of_draws b = { p, &st->theta, &w->next, n, &w->lane[0], ELVI_OK };
        const elvi_job job = { .work = compare, .add = compared, .ctx = &b };
        if (elvi_asked_to_stop(p, st, 3.0 * n, w, hooks)) return ELVI_STOPPED;
        elvi_base_fill(&p->base, &w->zig, &(elvi_sample){ s->key ^ COMPARE_KEY, st->k, (uint64_t) done, n }, b.lane->z);
        status = elvi_parallel(&job, p->model.threads, 1, 1);
        for (int j = 0; j < n && status == ELVI_OK; j++) {
            const double delta = b.lane->value[j] - m;
            m += delta / ++done;
            ss += delta * (b.lane->value[j] - m);
        }
    }
    *mean = m;
    *se = sqrt(ss / (s->check_draws - 1.0) / s->check_draws);
    return status;
}

/* the same of -log|scale|, which has no noise */
static elvi_status entropy_excess(const elvi_problem *p, const elvi_theta *theta, double floor, elvi_work *w,
                                  double *excess)
{
    double *slope = w->slot[0].grad.scale, there;
    elvi_status status = elvi_scale_factor(p, theta, w);
    if (status != ELVI_OK) return status;
    const double here = -w->room.log_det;
    memset(slope, 0, p->scale.ops->length(&p->scale) * sizeof(double));
    status = p->scale.ops->add_entropy(&p->scale, theta->scale, 1.0, &w->room, slope);
    if (status == ELVI_OK) status = p->scale.ops->barrier(&p->scale, floor, w->next.scale, &w->room, &there);
    w->room.factored = 0;
    if (status != ELVI_OK) return status;
    *excess = there - here + p->scale.ops->inner(&p->scale, slope, w->next.scale) -
              p->scale.ops->inner(&p->scale, slope, theta->scale);
    return ELVI_OK;
}

/* Does F bend up more than the check allows, by more than noise, between theta and theta - 2 step Lambda p? */
static elvi_status bends_up(const elvi_batch *at, double step, double floor, const elvi_hooks *hooks, int *above)
{
    const elvi_problem *p = at->p;
    const elvi_theta *theta = &at->st->theta;
    double data = 0.0, se = 0.0, entropy = 0.0;
    elvi_status status = ELVI_OK;
    elvi_move(p, at->s, theta, 2.0 * step, at->w);
    const double length = elvi_moved(p, at->s, theta, at->w);
    /* a step that leaves -log|scale| to its end has no part in how that bends */
    if (at->s->update->entropy != 0.0) status = entropy_excess(p, theta, floor, at->w, &entropy);
    if (status == ELVI_OK) status = data_excess(at, hooks, &data, &se);
    *above = !(data + entropy - length * length / (4.0 * step) <= 2.0 * se); /* or not a number */
    return status;
}

elvi_status elvi_backtrack(const elvi_batch *at, double step, const elvi_hooks *hooks, elvi_check *check)
{
    const elvi_settings *s = at->s;
    const elvi_state *st = at->st;
    enum { TRY_LONGER_EVERY = 10 };
    const double shortest = 0x1p-60;
    check->shorten = st->shorten;
    check->steepest = st->steepest;
    check->evals = 0;
    if (!s->check_draws) return ELVI_OK;

    elvi_settings apart = *s;
    apart.key = s->key ^ DIRECTION_KEY;
    elvi_status status = elvi_gradient(at->p, &apart, st, (uint64_t) s->check_draws, at->w, hooks);
    check->evals += (uint64_t) s->check_draws;
    if (st->k % TRY_LONGER_EVERY == 0 && check->shorten > 1.0) check->shorten /= 2.0;
    for (int above = 1; status == ELVI_OK && above;) {
        const double trial = longest_checked(s, step, check->shorten);
        const double steepest = fmax(check->steepest, check->shorten);
        status = bends_up(at, trial, elvi_floor(s, steepest), hooks, &above);
        check->evals += 2 * (uint64_t) s->check_draws;
        check->steepest = steepest;
        if (above) check->shorten *= 2.0;
        if (check->shorten * shortest > 1.0) return ELVI_NO_STEP;
    }
    return status;
}
