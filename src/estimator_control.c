/* A gradient with linear control variates, for every standardized base: with any matrix B
 * that does not depend on the batch,
 *   h = grad f(x) - B scale z,  g_mu = h,  g_scale = h z' + B scale - gradient of log|scale|
 * is unbiased, because E z = 0 and E z z' = I. It needs no density. Here
 *   B = w1 I + w2 (scale scale')^-1,  so that  B scale = w1 scale + w2 scale^-T:
 * w = (0, 1) is the path gradient of the gaussian base, w = (1, 0) takes the Hessian at the
 * mode out in whitened coordinates, and what a kind of scale keeps of scale^-T is the
 * gradient of log|scale| (for a triangular one, its diagonal).
 *
 * (w1, w2) are the least squares coefficients of grad f on a = scale z and b = scale^-T z
 * over the batches before. */
#include "run.h"
#include <math.h>

enum {
    AA,
    AB,
    BB,
    GA,
    GB
};
enum {
    W1,
    W2,
    WEIGHTS
};

static void start(double *memory)
{
    memory[W1] = 0.0;
    memory[W2] = 1.0;
}

static double dot(int d, const double *x, const double *y)
{
    double sum = 0.0;
    for (int i = 0; i < d; i++) sum += x[i] * y[i];
    return sum;
}

static elvi_status block(const elvi_batch *at, int n, elvi_lane *lane, double *sums)
{
    const elvi_problem *p = at->p;
    const elvi_theta *theta = &at->st->theta;
    const double w1 = at->st->memory[W1], w2 = at->st->memory[W2];
    const int d = p->model.dim;
    double *all_a = lane->x, *all_b = lane->extra;
    for (size_t i = 0, m = (size_t) d * n; i < m; i++) all_b[i] = lane->z[i];
    const elvi_status status = p->scale.ops->solve(&p->scale, theta->scale, &at->w->room, n, all_b);
    for (int j = 0; j < n; j++) {
        double *a = all_a + (size_t) j * d, *g = lane->g + (size_t) j * d;
        const double *b = all_b + (size_t) j * d;
        for (int i = 0; i < d; i++) a[i] -= theta->mu[i]; /* x = mu + scale z */
        sums[AA] += dot(d, a, a);
        sums[AB] += dot(d, a, b);
        sums[BB] += dot(d, b, b);
        sums[GA] += dot(d, g, a);
        sums[GB] += dot(d, g, b);
        for (int i = 0; i < d; i++) g[i] -= w1 * a[i] + w2 * b[i];
    }
    return status;
}

/* sum g'scale z and sum g'scale^-T z are inner products of sum g z' with scale and with scale^-T. */
static elvi_status gathered(const elvi_batch *at)
{
    const elvi_problem *p = at->p;
    const elvi_far *far = &at->w->far;
    const int d = p->model.dim, columns = elvi_spread_columns(p), n = d * columns;
    double *inverse = far->scratch;
    for (int i = 0; i < n; i++) inverse[i] = far->unit[i];
    const elvi_status status = p->scale.ops->solve(&p->scale, at->st->theta.scale, &at->w->room, columns, inverse);
    at->w->sums[GA] += dot(n, far->sum_z, far->spread);
    at->w->sums[GB] += dot(n, far->sum_z, inverse);
    return status;
}

/* w <- w + delta, delta the coefficients of what w leaves of grad f, shrunk towards 0 as if
 * a few more coordinates of an average draw had left nothing. That settles all that least
 * squares alone would not: where scale is near a multiple of I, a and b are collinear and
 * only a sum of w1 and w2 is known, which then moves with the least change of both (in
 * units of a and b); and a batch of very few numbers, one in dimension 1 with N = 1, has no
 * say of its own, where w = g / z would have no mean. A batch of n draws has n d numbers,
 * as a rule thousands.
 *
 * w2 stays in [0, 1], what it is between a start and an optimum: where f is steeper than a
 * gaussian of this scale, a larger one would grow like the inverse of a scale that shrinks,
 * against the curvature that is to be taken out, and runs explode. */
static void learn(const elvi_batch *at, double *w)
{
    enum { FEW = 10 };
    const double *sum = at->w->sums, *scale = at->st->theta.scale;
    const int d = at->p->model.dim;
    const double size2 = at->p->scale.ops->size2(&at->p->scale, scale); /* E a'a = |scale|_F^2 >= d^2 / E b'b */
    const double more = (double) FEW / d;
    const double aa = sum[AA] + more * size2, bb = sum[BB] + more * d * (d / size2), ab = sum[AB];
    const double ra = sum[GA] - w[W1] * sum[AA] - w[W2] * ab, rb = sum[GB] - w[W1] * ab - w[W2] * sum[BB];
    const double det = aa * bb - ab * ab; /* > 0: ab^2 is at most the product without more */
    const double free2 = w[W2] + (aa * rb - ab * ra) / det, w2 = free2 < 0.0 ? 0.0 : (free2 > 1.0 ? 1.0 : free2);
    /* given w2 only w1 is left to fit; for the w2 of both this is the w1 of both */
    const double w1 = w[W1] + (ra - ab * (w2 - w[W2])) / aa;
    if (!isfinite(w1) || !isfinite(w2)) return; /* sums of squares overflow before gradients do */
    w[W1] = w1;
    w[W2] = w2;
}

static elvi_status finish(const elvi_batch *at)
{
    const elvi_problem *p = at->p;
    const double *scale = at->st->theta.scale, *w = at->st->memory;
    const double by = w[W2] - at->s->update->entropy;
    double *grad = at->w->grad.scale;
    if (w[W1] != 0.0) p->scale.ops->add_size(&p->scale, scale, w[W1], grad);
    if (by != 0.0) {
        const elvi_status status = p->scale.ops->add_entropy(&p->scale, scale, by, &at->w->room, grad);
        if (status != ELVI_OK) return status;
    }
    learn(at, at->w->memory);
    return ELVI_OK;
}

const elvi_estimator_ops elvi_estimator_control = {
    .name = "control",
    .factors = 1,
    .extra = 1,
    .memory = WEIGHTS,
    .linear = 1,
    .start = start,
    .block = block,
    .gathered = gathered,
    .finish = finish,
};
