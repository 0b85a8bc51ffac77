/* Minibatch projected stochastic gradient descent:
 *   theta <- P(theta - step_k Lambda g^{N_k}(theta)). */
#include "run.h"
#include "linalg.h"
#include <math.h>
#include <string.h>

/* out = Lambda_mu g: steps in a mu whose curvature the scale does not show */
static void precondition(const elvi_settings *s, int d, const double *g, double *out)
{
    memcpy(out, g, (size_t) d * sizeof(double));
    if (s->mu_root) {
        elvi_trsm_lower('N', d, 1, s->mu_root, out);
        elvi_trsm_lower('T', d, 1, s->mu_root, out);
    }
    for (int i = 0; i < d; i++) out[i] *= s->lambda_mu;
}

void elvi_move(const elvi_problem *p, const elvi_settings *s, const elvi_theta *theta, double step, elvi_work *w)
{
    const int d = p->model.dim;
    precondition(s, d, w->grad.mu, w->next.mu);
    for (int i = 0; i < d; i++) w->next.mu[i] = theta->mu[i] - step * w->next.mu[i];
    p->scale.ops->axpy(&p->scale, theta->scale, -step * s->lambda_scale, w->grad.scale, w->next.scale);
}

static elvi_status settle_by_projection(const elvi_problem *p, const elvi_settings *s, double step, elvi_work *w,
                                        int *clipped)
{
    (void) step;
    return p->scale.ops->project(&p->scale, s->scale_min, s->scale_max, w->next.scale, &w->room, clipped);
}

static elvi_status settle_by_prox(const elvi_problem *p, const elvi_settings *s, double step, elvi_work *w, int *clipped)
{
    p->scale.ops->prox(&p->scale, step * s->lambda_scale, w->next.scale);
    *clipped = 0;
    return ELVI_OK;
}

const elvi_update_ops elvi_update_project = { .entropy = 1.0, .settle = settle_by_projection };
const elvi_update_ops elvi_update_prox = { .entropy = 0.0, .settle = settle_by_prox };

/* w->next = theta - step Lambda gradient, made feasible */
static elvi_status descend(const elvi_problem *p, const elvi_settings *s,
                           const elvi_theta *theta, double step, elvi_work *w,
                           int *clipped)
{
    const int d = p->model.dim;
    elvi_move(p, s, theta, step, w);
    elvi_project_ball(d, s->mu_centre, s->mu_radius, w->next.mu);
    *clipped = 0;
    return s->update->settle(p, s, step, w, clipped);
}

double elvi_moved(const elvi_problem *p, const elvi_settings *s, const elvi_theta *theta, const elvi_work *w)
{
    const int d = p->model.dim;
    double *delta = w->lane[0].x; /* free between two batches */
    double mu2 = 0.0;
    for (int i = 0; i < d; i++) delta[i] = theta->mu[i] - w->next.mu[i];
    if (s->mu_root) elvi_trmm_lower('T', d, 1, s->mu_root, delta);
    for (int i = 0; i < d; i++) mu2 += delta[i] * delta[i];
    const double scale2 = p->scale.ops->dist2(&p->scale, theta->scale, w->next.scale);
    return sqrt(mu2 / s->lambda_mu + scale2 / s->lambda_scale);
}

/* Lambda-norm of the gradient mapping (theta - next) / (step Lambda) */
static double gradient_map(const elvi_problem *p, const elvi_settings *s,
                           const elvi_theta *theta, double step,
                           const elvi_work *w)
{
    return elvi_moved(p, s, theta, w) / step;
}

/* The norm of a scale, the length of a typical z under it. */
static double scale_norm(const elvi_problem *p, const elvi_theta *theta)
{
    return sqrt(p->scale.ops->size2(&p->scale, theta->scale));
}

/* A batch far out in a tail has a gradient of any length: a step that would take theta further than `longest` times
 * its own norm is made that long, and w->next with it. */
static elvi_status cap_step(const elvi_problem *p, const elvi_settings *s, const elvi_theta *theta,
                            elvi_work *w, elvi_step_taken *taken)
{
    taken->gradient_map = gradient_map(p, s, theta, taken->step, w);
    if (!isfinite(s->longest)) return ELVI_OK;
    const double most = s->longest * scale_norm(p, theta), length = taken->gradient_map * taken->step;
    if (!(length > most)) return ELVI_OK;
    taken->step *= most / length;
    const elvi_status status = descend(p, s, theta, taken->step, w, &taken->clipped);
    taken->gradient_map = gradient_map(p, s, theta, taken->step, w);
    return status;
}

/* the state after the step to w->next */
static elvi_state stepped(const elvi_state *st, const elvi_work *w, uint64_t batch, const elvi_check *check)
{
    elvi_state next = *st;
    next.theta = w->next;
    next.evals += batch + check->evals;
    next.checks += check->evals;
    next.shorten = check->shorten;
    next.steepest = check->steepest;
    next.k++;
    memcpy(next.memory, w->memory, sizeof next.memory);
    return next;
}

static void accept(elvi_state *st, elvi_work *w, uint64_t batch, const elvi_check *check)
{
    const elvi_theta old = st->theta;
    *st = stepped(st, w, batch, check);
    w->next = old;
}

elvi_status elvi_run(const elvi_problem *p, const elvi_settings *s,
                     elvi_state *st, elvi_work *w, elvi_trace *trace,
                     const elvi_hooks *hooks)
{
    elvi_status status = ELVI_OK;
    if (st->k == 0 && s->fresh) {
        const elvi_step_taken none = { .step = NAN, .gradient_map = NAN };
        status = elvi_trace_add(&(elvi_batch){ p, s, st, w }, &none, trace, hooks);
    }

    while (status == ELVI_OK && st->k < s->iterations) {
        const double planned = elvi_schedule_step(&s->schedule, st->k);
        const uint64_t batch = elvi_schedule_batch(&s->schedule, st->k);
        elvi_settings now = *s;
        elvi_check check;

        status = elvi_backtrack(&(elvi_batch){ p, s, st, w }, planned, hooks, &check);
        if (status != ELVI_OK) break;
        elvi_step_taken taken = { elvi_checked_step(s, planned, check.shorten), batch, NAN, 0 };
        now.scale_min = elvi_floor(s, check.steepest);
        status = elvi_gradient(p, s, st, batch, w, hooks);
        if (status != ELVI_OK) break;
        status = descend(p, &now, &st->theta, taken.step, w, &taken.clipped);
        if (status == ELVI_OK) status = cap_step(p, &now, &st->theta, w, &taken);
        if (status != ELVI_OK) break;

        /* The trace looks ahead: interrupted there, a run that continues makes
         * this step again, and its row with it. */
        const elvi_state next = stepped(st, w, batch, &check);
        w->room.factored = 0;
        status = elvi_trace_add(&(elvi_batch){ p, s, &next, w }, &taken, trace, hooks);
        if (status != ELVI_OK) break;

        elvi_average_before(p, s, taken.step, batch, st);
        accept(st, w, batch, &check);
        elvi_average_after(p, s, st);
        if (hooks->pause(hooks->ctx)) break;
    }
    return status;
}
