#include "hmc.h"
#include "linalg.h"
#include <math.h>
#include <string.h>

/* What the chains have at one time: all d x chains but the values. */
typedef struct {
    double *x, *g_x;       /* a point of the target, and its gradient there */
    double *w, *g_w;       /* the same in the coordinates of the chains */
    double *to, *g_to, *p; /* of a trajectory: its end so far, gradient and momentum */
    double *value, *value_to, *energy;
    double *scratch;
} chains_work;

static size_t bind_work(chains_work *c, const elvi_model *model, int chains, double *w, double *room)
{
    const size_t block = (size_t) model->dim * (size_t) chains, n = (size_t) chains;
    c->w = w;
    c->x = room;
    c->g_x = c->x + block;
    c->g_w = c->g_x + block;
    c->to = c->g_w + block;
    c->g_to = c->to + block;
    c->p = c->g_to + block;
    c->value = c->p + block;
    c->value_to = c->value + n;
    c->energy = c->value_to + n;
    c->scratch = c->energy + n;
    return 6 * block + 3 * n + model->ops->scratch_length(model, chains);
}

size_t elvi_hmc_room(const elvi_model *model, int chains)
{
    const size_t block = (size_t) model->dim * (size_t) chains;
    return 6 * block + 3 * (size_t) chains + model->ops->scratch_length(model, chains);
}

/* c->x <- the points of the columns of w */
static void place(const elvi_hmc_settings *s, int d, const double *w, double *x)
{
    memcpy(x, w, (size_t) d * (size_t) s->chains * sizeof(double));
    elvi_trmm_lower('N', d, s->chains, s->root, x);
    for (int j = 0; j < s->chains; j++)
        for (int i = 0; i < d; i++) x[(size_t) j * (size_t) d + (size_t) i] += s->centre[i];
}

/* Value and gradient at the columns of w. A gradient that is not finite is 0, and its value infinite. */
static elvi_status look(const elvi_model *model, const elvi_hmc_settings *s, chains_work *c, const double *w,
                        double *value, double *gradient)
{
    const int d = model->dim;
    place(s, d, w, c->x);
    const elvi_status status = model->ops->eval(model, c->x, s->chains, value, c->g_x, c->scratch);
    if (status != ELVI_OK) return status;
    memcpy(gradient, c->g_x, (size_t) d * (size_t) s->chains * sizeof(double));
    for (int j = 0; j < s->chains; j++) {
        double *g = gradient + (size_t) j * (size_t) d;
        double sum = value[j];
        for (int i = 0; i < d; i++) sum += fabs(g[i]);
        if (isfinite(sum)) continue;
        value[j] = INFINITY;
        memset(g, 0, (size_t) d * sizeof(double));
    }
    elvi_trmm_lower('T', d, s->chains, s->root, gradient);
    return ELVI_OK;
}

static double kinetic(int d, const double *p)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += p[i] * p[i];
    return sum / 2.0;
}

static void add(size_t n, double by, const double *v, double *to)
{
    for (size_t i = 0; i < n; i++) to[i] += by * v[i];
}

/* Leapfrog steps of all chains from c->w, which is not changed, to c->to. */
static elvi_status travel(const elvi_model *model, const elvi_hmc_settings *s, chains_work *c, double step, int steps)
{
    const size_t n = (size_t) model->dim * (size_t) s->chains;
    memcpy(c->to, c->w, n * sizeof(double));
    memcpy(c->g_to, c->g_w, n * sizeof(double));
    add(n, -step / 2.0, c->g_to, c->p);
    for (int k = 0; k < steps; k++) {
        add(n, step, c->p, c->to);
        const elvi_status status = look(model, s, c, c->to, c->value_to, c->g_to);
        if (status != ELVI_OK) return status;
        add(n, k + 1 < steps ? -step : -step / 2.0, c->g_to, c->p);
    }
    return ELVI_OK;
}

/* The ends of trajectories that Metropolis accepts become points; the mean probability of acceptance. */
static double accept_ends(int d, const elvi_hmc_settings *s, chains_work *c, const double *uniform, uint64_t *divergent)
{
    double sum = 0.0;
    for (int j = 0; j < s->chains; j++) {
        const size_t at = (size_t) j * (size_t) d;
        const double rise = c->value_to[j] + kinetic(d, c->p + at) - c->energy[j];
        const double probability = isfinite(rise) ? exp(fmin(0.0, -rise)) : 0.0;
        sum += probability;
        if (!(rise < 1000.0)) (*divergent)++;
        if (!(uniform[j] < probability)) continue;
        memcpy(c->w + at, c->to + at, (size_t) d * sizeof(double));
        memcpy(c->g_w + at, c->g_to + at, (size_t) d * sizeof(double));
        c->value[j] = c->value_to[j];
    }
    return sum / s->chains;
}

/* Dual averaging of the logarithm of the step size (Hoffman and Gelman 2014), on the mean over the chains. */
typedef struct {
    double centre, error, log_average;
} tuning;

static double tuned(tuning *t, uint64_t k, double missing)
{
    const double m = (double) k + 1.0, weight = pow(m, -0.75);
    t->error += (missing - t->error) / (m + 10.0);
    const double log_step = t->centre - sqrt(m) / 0.05 * t->error;
    t->log_average = weight * log_step + (1.0 - weight) * t->log_average;
    return exp(log_step);
}

/* Momenta and uniform numbers of iteration k: each chain has a stream of its own. */
static void draw(const elvi_hmc_settings *s, const elvi_ziggurat *zig, int d, uint64_t k, chains_work *c, double *uniform)
{
    for (int j = 0; j < s->chains; j++) {
        elvi_stream stream = elvi_stream_at(zig, s->key, k, (uint64_t) j);
        elvi_fill_normal(&stream, c->p + (size_t) j * (size_t) d, d);
        uniform[j] = elvi_uniform(&stream);
        c->energy[j] = c->value[j] + kinetic(d, c->p + (size_t) j * (size_t) d);
    }
}

/* Lengths vary by half of themselves, so that no trajectory comes back to where it began for ever. */
static int steps_of(const elvi_hmc_settings *s, const elvi_ziggurat *zig, uint64_t k, double step)
{
    elvi_stream stream = elvi_stream_at(zig, s->key, k, (uint64_t) s->chains);
    const double steps = ceil(s->length * (0.5 + elvi_uniform(&stream)) / step);
    return steps < 1.0 ? 1 : steps < s->most_steps ? (int) steps
                                                   : s->most_steps;
}

elvi_status elvi_hmc(const elvi_model *model, const elvi_hmc_settings *s, const elvi_hmc_points *points,
                     elvi_hmc_account *account, const elvi_hooks *hooks)
{
    enum { MOST_CHAINS = 64 };
    double uniform[MOST_CHAINS];
    const int d = model->dim;
    chains_work c;
    elvi_ziggurat zig;
    tuning t = { .centre = log(10.0 * s->step), .log_average = log(s->step) };
    double step = s->step, accepted = 0.0;
    if (s->chains > MOST_CHAINS) return ELVI_NO_STEP;
    elvi_ziggurat_init(&zig);
    bind_work(&c, model, s->chains, points->w, points->room);
    *account = (elvi_hmc_account){ .evaluations = (uint64_t) s->chains };
    elvi_status status = look(model, s, &c, c.w, c.value, c.g_w);
    for (uint64_t k = 0; status == ELVI_OK && k < s->warmup + s->iterations; k++) {
        if (hooks->poll(hooks->ctx, NULL)) return ELVI_STOPPED;
        const int steps = steps_of(s, &zig, k, step);
        draw(s, &zig, d, k, &c, uniform);
        status = travel(model, s, &c, step, steps);
        if (status != ELVI_OK) break;
        uint64_t divergent = 0;
        const double rate = accept_ends(d, s, &c, uniform, &divergent);
        account->evaluations += (uint64_t) steps * (uint64_t) s->chains;
        if (k < s->warmup) {
            step = tuned(&t, k, s->accept - rate);
            if (k + 1 == s->warmup) step = exp(t.log_average);
            continue;
        }
        accepted += rate;
        account->divergent += divergent;
        place(s, d, c.w, points->out + (size_t) (k - s->warmup) * (size_t) d * (size_t) s->chains);
    }
    account->step = step;
    account->accept = s->iterations ? accepted / (double) s->iterations : 0.0;
    return status;
}
