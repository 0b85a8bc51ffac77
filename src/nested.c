/* The optimum of a regression over all scales, with one number per row.
 *
 * At the optimum Sigma^-2 = P(c) = A + W' diag(c) W with c_i = w_i E[l' z_1] / s_i, so
 * (mu, c) is all there is to find. Of P^-1 only the entries on the pattern of P's factor
 * are needed: s_i^2 = w_i' P^-1 w_i, and tr(A P^-1) = d - sum_i c_i s_i^2. The step is
 * c <- c(mu, c) with Newton's for mu, a direction of descent of F, under Anderson's
 * acceleration; shorter where F would rise. */
#include "nested.h"
#include "linalg.h"
#include <math.h>
#include <string.h>

enum { MEMORY = 4 }; /* of the acceleration */

/* ---- work -------------------------------------------------------------------- */

typedef struct {
    double *mu, *g;        /* dim */
    double *c, *s, *curve; /* pairs: s are spreads, of several predictors (co)variances; curve: the fixed point's c */
    double *eta, *slope;   /* lines */
    double objective, log_diagonal, sum, widest, certificate, estimate;
} point;

typedef struct {
    double *mu, *step, *c, *turn, *reach; /* iterate, residuals in mu, c and eta */
} memory;

typedef struct {
    double *y, *weight, *offset; /* as the loss takes them */
    double *L, *inverse, *Q;     /* on the pattern; Q: factor of A where it is not blocked */
    double *E, *B, *G, *held;    /* of the constraints, see hold(): dim x constraints twice, constraints^2, constraints */
    double *q;                   /* rows: sqrt(w_i' A^-1 w_i) */
    double *step, *turn, *reach; /* residuals of the fixed point */
    double *bend, *lag, *near;   /* rows: d log c / d eta, what the spread answers, and scratch */
    double *small;               /* 3 dim */
    point at, to;
    memory past[MEMORY];
    int *links;             /* 3 dim */
    int evaluations, known; /* known: of past[], how many there are */
} workspace;

/* numbers of a plan: rows, responses, predictors and pairs of them (see elvi_nested_lines()), unknowns */
typedef struct {
    size_t rows, responses, lines, pairs, dim;
} extent;

static extent extent_of(const elvi_nested *p)
{
    const extent e = { (size_t) p->rows, elvi_nested_responses(p), elvi_nested_lines(p), elvi_nested_pairs(p),
                       (size_t) p->pattern.dim };
    return e;
}

static size_t point_length(extent e) { return 2 * e.lines + 3 * e.pairs + 2 * e.dim; }
static size_t memory_length(extent e) { return e.lines + 2 * e.pairs + 2 * e.dim; }

size_t elvi_nested_work_length(const elvi_nested *p)
{
    const extent e = extent_of(p);
    return e.responses + e.rows + e.lines + (p->blocked ? 2 : 3) * elvi_pattern_length(&p->pattern) + 5 * e.pairs + e.lines +
           4 * e.dim +
           2 * point_length(e) + MEMORY * memory_length(e) + (size_t) p->constraints * (2 * e.dim + (size_t) p->constraints + 1);
}

static int is_quadratic(const elvi_nested *p) { return !p->joint && p->likelihood.family->quadratic; }
static int is_convex(const elvi_nested *p) { return p->joint ? p->joint->many != NULL : p->likelihood.family->convex; }

size_t elvi_nested_links_length(const elvi_nested *p) { return 3 * (size_t) p->pattern.dim; }

double elvi_nested_operations(const elvi_nested *p, int draws)
{
    const double row = draws ? 5.0 * draws : (is_quadratic(p) ? 20.0 : 600.0);
    return row * p->rows + 10.0 * (double) elvi_pattern_length(&p->pattern);
}

static double *cut(double **room, size_t length)
{
    double *out = *room;
    *room += length;
    return out;
}

static point cut_point(double **room, extent e)
{
    point at = { 0 };
    at.mu = cut(room, e.dim);
    at.g = cut(room, e.dim);
    at.c = cut(room, e.pairs);
    at.s = cut(room, e.pairs);
    at.curve = cut(room, e.pairs);
    at.eta = cut(room, e.lines);
    at.slope = cut(room, e.lines);
    return at;
}

static workspace bind(const elvi_nested *p, double *room, int *links)
{
    const extent e = extent_of(p);
    const size_t length = elvi_pattern_length(&p->pattern);
    workspace w = { 0 };
    w.y = cut(&room, e.responses);
    w.weight = cut(&room, e.rows);
    w.offset = cut(&room, e.lines);
    w.L = cut(&room, length);
    w.inverse = cut(&room, length);
    if (!p->blocked) w.Q = cut(&room, length);
    w.q = cut(&room, e.pairs);
    w.turn = cut(&room, e.pairs);
    w.reach = cut(&room, e.lines);
    w.bend = cut(&room, e.pairs);
    w.lag = cut(&room, e.pairs);
    w.near = cut(&room, e.pairs);
    w.step = cut(&room, e.dim);
    w.small = cut(&room, 3 * e.dim);
    w.at = cut_point(&room, e);
    w.to = cut_point(&room, e);
    for (int k = 0; k < MEMORY; k++) {
        w.past[k].mu = cut(&room, e.dim);
        w.past[k].step = cut(&room, e.dim);
        w.past[k].c = cut(&room, e.pairs);
        w.past[k].turn = cut(&room, e.pairs);
        w.past[k].reach = cut(&room, e.lines);
    }
    if (p->constraints) {
        const size_t k = (size_t) p->constraints;
        w.E = cut(&room, k * e.dim);
        w.B = cut(&room, k * e.dim);
        w.G = cut(&room, k * k);
        w.held = cut(&room, k);
    }
    w.links = links;
    return w;
}

/* the response as the loss takes it, given the dispersion */
static void set_rows(const elvi_nested *p, const elvi_hyper_point *at, workspace *w)
{
    const extent e = extent_of(p);
    memcpy(w->y, p->y, e.responses * sizeof(double));
    memcpy(w->weight, p->weight, e.rows * sizeof(double));
    memcpy(w->offset, p->offset, e.lines * sizeof(double));
    p->dispersion->set_rows(elvi_point_dispersion(at), p->rows, w->y, w->weight, w->offset);
}

/* ---- rows ---------------------------------------------------------------------- */

void elvi_nested_predict(const elvi_nested *p, const double *x, double *eta)
{
    const double *fixed = x + p->pattern.dim - p->dense, *X = p->X;
    if (p->joint) {
        elvi_joint_predict(p, x, eta);
        return;
    }
    for (int i = 0; i < p->rows; i++, X += p->dense) {
        double sum = 0.0;
        for (int e = p->start[i]; e < p->start[i + 1]; e++) sum += p->entry[e] * x[p->column[e]];
        for (int r = 0; r < p->dense; r++) sum += X[r] * fixed[r];
        eta[i] = sum;
    }
}

/* x += W' slope */
void elvi_nested_collect(const elvi_nested *p, const double *slope, double *x)
{
    double *fixed = x + p->pattern.dim - p->dense;
    const double *X = p->X;
    if (p->joint) {
        elvi_joint_collect(p, slope, x);
        return;
    }
    for (int i = 0; i < p->rows; i++, X += p->dense) {
        const double by = slope[i];
        for (int e = p->start[i]; e < p->start[i + 1]; e++) x[p->column[e]] += p->entry[e] * by;
        for (int r = 0; r < p->dense; r++) fixed[r] += X[r] * by;
    }
}

/* values on the pattern <- A + W' diag(c) W; c may be NULL for A alone */
static void assemble(const elvi_nested *p, const double *A, const double *c, double *P)
{
    memset(P, 0, elvi_pattern_length(&p->pattern) * sizeof(double));
    for (int k = 0; k < p->precisions; k++) P[p->a_place[k]] += A[p->a_source[k]];
    if (!c) return;
    if (p->joint)
        elvi_joint_assemble(p, c, P);
    else if (p->summed)
        for (size_t k = 0; k < elvi_pattern_length(&p->pattern); k++) P[k] += c[k];
    else
        elvi_nested_add_curvature(p, c, P);
}

void elvi_nested_add_curvature(const elvi_nested *p, const double *c, double *P)
{
    const size_t stride = (size_t) (p->pattern.dim - p->pattern.head);
    const int first = p->pattern.dim - p->dense;
    const int *pair = p->pair;
    const double *X = p->X;
    double *square = p->dense ? P + elvi_nested_dense_at(p, first) : NULL;
    for (int i = 0; i < p->rows; i++, X += p->dense) {
        const double by = c[i];
        for (int a = p->start[i]; a < p->start[i + 1]; a++) {
            const double v = by * p->entry[a];
            for (int b = p->start[i]; b <= a; b++) P[*pair++] += v * p->entry[b];
            if (p->dense == 0) continue;
            double *cross = P + elvi_nested_dense_at(p, p->column[a]);
            for (int r = 0; r < p->dense; r++) cross[r] += v * X[r];
        }
        for (int r = 0; r < p->dense; r++) {
            const double v = by * X[r];
            double *column = square + (size_t) r * stride;
            for (int k = r; k < p->dense; k++) column[k] += v * X[k];
        }
    }
}

/* s_i = sqrt(w_i' M w_i) for a matrix M on the pattern; of several predictors W_i M W_i' */
void elvi_nested_spreads(const elvi_nested *p, const double *M, double *s)
{
    const size_t stride = (size_t) (p->pattern.dim - p->pattern.head);
    const int first = p->pattern.dim - p->dense;
    const int *pair = p->pair;
    const double *X = p->X, *square = p->dense ? M + elvi_nested_dense_at(p, first) : NULL;
    if (p->joint) {
        elvi_joint_spreads(p, M, s);
        return;
    }
    for (int i = 0; i < p->rows; i++, X += p->dense) {
        double sum = 0.0;
        for (int a = p->start[i]; a < p->start[i + 1]; a++) {
            double part = 0.0;
            for (int b = p->start[i]; b < a; b++) part += M[*pair++] * p->entry[b];
            part *= 2.0;
            part += M[*pair++] * p->entry[a];
            if (p->dense) {
                const double *cross = M + elvi_nested_dense_at(p, p->column[a]);
                double inner = 0.0;
                for (int r = 0; r < p->dense; r++) inner += cross[r] * X[r];
                part += 2.0 * inner;
            }
            sum += part * p->entry[a];
        }
        for (int r = 0; r < p->dense; r++) {
            const double *column = square + (size_t) r * stride;
            double part = 0.0;
            for (int k = r + 1; k < p->dense; k++) part += column[k] * X[k];
            sum += X[r] * (column[r] * X[r] + 2.0 * part);
        }
        s[i] = sqrt(fmax(sum, 0.0));
    }
}

/* out <- A v, A by its sources; returns v' A v */
static double multiply(const elvi_nested *p, const double *A, const double *v, double *out)
{
    double form = 0.0;
    memset(out, 0, (size_t) p->pattern.dim * sizeof(double));
    for (int k = 0; k < p->precisions; k++) {
        const int i = p->a_row[k], j = p->a_column[k];
        const double a = A[p->a_source[k]];
        out[i] += a * v[j];
        if (i != j) out[j] += a * v[i];
    }
    for (int i = 0; i < p->pattern.dim; i++) form += v[i] * out[i];
    return form;
}

/* ---- constraints ----------------------------------------------------------------- */

/* Given a'x = 0 the gaussian of precision P = L L' has the covariance P^-1 - B B' with B = P^-1 a chol(G)^-T and G = a' P^-1 a
 * (conditioning by kriging). E = L' B has orthonormal columns: L^-T (I - E E') is a root of that covariance, and |P| on the
 * hyperplane is |P| |G|, as the columns of a are orthonormal. */

/* out_k <- (column k of V)' x */
static void inner(int d, int k, const double *V, const double *x, double *out)
{
    for (int j = 0; j < k; j++, V += d) {
        double sum = 0.0;
        for (int i = 0; i < d; i++) sum += V[i] * x[i];
        out[j] = sum;
    }
}

/* x <- x - V by */
static void take_off(int d, int k, const double *V, const double *by, double *x)
{
    for (int j = 0; j < k; j++, V += d)
        for (int i = 0; i < d; i++) x[i] -= V[i] * by[j];
}

/* V <- V chol^-T, chol lower triangular */
static void divide_columns(int d, int k, const double *chol, double *V)
{
    for (int j = 0; j < k; j++) {
        double *to = V + (size_t) j * (size_t) d;
        for (int l = 0; l < j; l++) {
            const double *from = V + (size_t) l * (size_t) d, by = chol[j + l * k];
            for (int i = 0; i < d; i++) to[i] -= by * from[i];
        }
        for (int i = 0; i < d; i++) to[i] /= chol[j + j * k];
    }
}

/* E, B and G of the factor in w->L; 0 if there are any */
static int hold(const elvi_nested *p, workspace *w)
{
    const int d = p->pattern.dim, k = p->constraints;
    const size_t size = (size_t) d * (size_t) k;
    if (!k) return 0;
    memcpy(w->E, p->constraint, size * sizeof(double));
    for (int j = 0; j < k; j++) elvi_sparse_forward(&p->pattern, w->L, w->E + (size_t) j * (size_t) d);
    memcpy(w->B, w->E, size * sizeof(double));
    for (int j = 0; j < k; j++) {
        elvi_sparse_backward(&p->pattern, w->L, w->B + (size_t) j * (size_t) d);
        inner(d, k, w->E, w->E + (size_t) j * (size_t) d, w->G + (size_t) j * (size_t) k);
    }
    if (elvi_cholesky(k, w->G)) return 1;
    divide_columns(d, k, w->G, w->E);
    divide_columns(d, k, w->G, w->B);
    return 0;
}

/* a matrix on the pattern <- it - sum_k V_k V_k' by_k; by NULL: 1 */
static void take_squares(const elvi_nested *p, const double *V, const double *by, double *values)
{
    const elvi_pattern *f = &p->pattern;
    const int d = f->dim;
    for (int k = 0; k < p->constraints; k++, V += d) {
        const double scale = by ? by[k] : 1.0;
        for (int j = 0; j < d; j++) {
            const double v = scale * V[j];
            if (v == 0.0) continue;
            if (j < f->head) {
                for (int a = f->start[j]; a < f->start[j + 1]; a++) values[a] -= v * V[f->row[a]];
            } else {
                double *column = values + elvi_pattern_at(f, j, j);
                for (int i = j; i < d; i++) column[i - j] -= v * V[i];
            }
        }
    }
}

/* x <- covariance x */
static void solve(const elvi_nested *p, workspace *w, double *x)
{
    inner(p->pattern.dim, p->constraints, w->B, x, w->held);
    elvi_sparse_forward(&p->pattern, w->L, x);
    elvi_sparse_backward(&p->pattern, w->L, x);
    take_off(p->pattern.dim, p->constraints, w->B, w->held, x);
}

/* x <- root' x, whose squares sum to x' covariance x */
static void whiten(const elvi_nested *p, workspace *w, double *x)
{
    inner(p->pattern.dim, p->constraints, w->B, x, w->held);
    elvi_sparse_forward(&p->pattern, w->L, x);
    take_off(p->pattern.dim, p->constraints, w->E, w->held, x);
}

/* z <- root z */
static void colour(const elvi_nested *p, workspace *w, double *z)
{
    inner(p->pattern.dim, p->constraints, w->E, z, w->held);
    take_off(p->pattern.dim, p->constraints, w->E, w->held, z);
    elvi_sparse_backward(&p->pattern, w->L, z);
}

/* w->inverse <- covariance on the pattern; 0 when all went well */
static int covariance(const elvi_nested *p, workspace *w)
{
    if (elvi_sparse_inverse(&p->pattern, w->L, w->inverse, w->small, w->links)) return 1;
    take_squares(p, w->B, NULL, w->inverse);
    return 0;
}

/* half the log determinant of the precision on the hyperplane */
static double log_diagonal(const elvi_nested *p, const workspace *w)
{
    double sum = elvi_sparse_log_diagonal(&p->pattern, w->L);
    for (int j = 0; j < p->constraints; j++) sum += log(w->G[j + j * p->constraints]);
    return sum;
}

/* ---- a point ------------------------------------------------------------------- */

static int factor(const elvi_nested *p, const elvi_hyper_point *at, const double *c, workspace *w)
{
    assemble(p, at->A, c, w->L);
    return elvi_sparse_cholesky(&p->pattern, w->L, w->small, w->links) || hold(p, w);
}

/* q_i = sqrt(w_i' A^-1 w_i) */
static int set_q(const elvi_nested *p, const elvi_hyper_point *at, workspace *w)
{
    if (!at->definite || is_quadratic(p) || !is_convex(p)) return 0;
    if (p->blocked)
        assemble(p, at->inverse, NULL, w->inverse);
    else if (elvi_sparse_inverse(&p->pattern, w->Q, w->inverse, w->small, w->links))
        return 1;
    else /* constraints are eigenvectors of A */
        take_squares(p, p->constraint, at->slack, w->inverse);
    elvi_nested_spreads(p, w->inverse, w->q);
    return 0;
}

/* g' A^-1 g */
static double dual(const elvi_nested *p, const elvi_hyper_point *at, const double *g, workspace *w)
{
    double sum = 0.0;
    if (p->blocked) return multiply(p, at->inverse, g, w->small);
    memcpy(w->small, g, (size_t) p->pattern.dim * sizeof(double));
    inner(p->pattern.dim, p->constraints, p->constraint, g, w->held);
    take_off(p->pattern.dim, p->constraints, p->constraint, w->held, w->small);
    elvi_sparse_forward(&p->pattern, w->Q, w->small);
    for (int i = 0; i < p->pattern.dim; i++) sum += w->small[i] * w->small[i];
    return sum;
}

/* F - F* <= (g' A^-1 g + (sum_i |c_i' - c_i| q_i s_i)^2) / 2, with |Q_i^1/2 (C_i' - C_i) V_i^1/2| in the sum for several
 * predictors, Q_i = W_i A^-1 W_i'; and the same with P for A as an estimate; where the loss is not convex there is only
 * that, of the gap to a stationary point nearby */
static void certify(const elvi_nested *p, const elvi_hyper_point *at, workspace *w, point *x)
{
    double far = 0.0, near = 0.0, form = 0.0;
    if (p->joint) {
        near = elvi_joint_turn(p, x->s, x->s, x->curve, x->c);
        if (at->definite && is_convex(p)) far = elvi_joint_turn(p, w->q, x->s, x->curve, x->c);
    } else if (!is_quadratic(p))
        for (int i = 0; i < p->rows; i++) {
            const double turn = fabs(x->curve[i] - x->c[i]) * x->s[i];
            near += turn * x->s[i];
            far += turn * w->q[i];
        }
    memcpy(w->small, x->g, (size_t) p->pattern.dim * sizeof(double));
    whiten(p, w, w->small);
    for (int i = 0; i < p->pattern.dim; i++) form += w->small[i] * w->small[i];
    x->estimate = 0.5 * form + 0.25 * near * near;
    x->certificate = at->definite && is_convex(p) ? 0.5 * (dual(p, at, x->g, w) + far * far) : x->estimate;
}

double elvi_point_dispersion(const elvi_hyper_point *at)
{
    return at->hypers ? at->hyper[0] : 1.0;
}

/* set_rows() has put those that are not its own into the rows */
elvi_dispersion elvi_loss_dispersion(const elvi_nested *p, const elvi_hyper_point *at)
{
    return p->dispersion->own ? elvi_dispersion_of(at->hypers, at->hyper) : elvi_no_dispersion;
}

elvi_status elvi_nested_expect_rows(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at,
                                    const elvi_lines *rows, elvi_expected *out)
{
    const elvi_dispersion a = elvi_loss_dispersion(p, at);
    return elvi_expect_rows(&p->likelihood, rule, &a, rows, out);
}

/* E of the losses at x, with slopes and curvatures of the rows and the sum of c_i s_i^2 */
static elvi_status expect_point(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, const workspace *w,
                                point *x, double *spread)
{
    if (p->joint) {
        const elvi_joint_rows rows = { p->rows, p->lines, w->y, w->weight, x->eta, x->s };
        elvi_joint_expected expected = { .slope = x->slope, .curve = x->curve };
        const elvi_status status = elvi_joint_expect(p->joint, rule, at->hyper, &rows, &expected);
        x->sum = expected.sum;
        x->widest = expected.widest;
        *spread = elvi_joint_trace(p->lines, p->rows, x->c, x->s);
        return status;
    }
    const elvi_lines rows = { p->rows, w->y, w->weight, x->eta, x->s };
    elvi_expected expected = { .slope = x->slope, .curve = x->curve };
    const elvi_status status = elvi_nested_expect_rows(p, rule, at, &rows, &expected);
    x->sum = expected.sum;
    x->widest = expected.widest;
    *spread = 0.0;
    for (int i = 0; i < p->rows; i++) *spread += x->c[i] * x->s[i] * x->s[i];
    return status;
}

/* the predictors of mu, offsets included */
static void predict_point(const elvi_nested *p, const workspace *w, point *x)
{
    const size_t n = elvi_nested_lines(p);
    elvi_nested_predict(p, x->mu, x->eta);
    for (size_t i = 0; i < n; i++) x->eta[i] += w->offset[i];
}

/* Everything at (mu, c): w->L holds the factor of P(c) already if `factored`. F is infinite
 * where E f does not exist or P is not definite. */
static void evaluate(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, int factored,
                     workspace *w, point *x)
{
    const int d = p->pattern.dim, n = p->rows;
    double form, spread = 0.0, *off = w->small + 2 * (size_t) d;
    w->evaluations++;
    x->objective = HUGE_VAL;
    if (!factored && factor(p, at, x->c, w)) return;
    predict_point(p, w, x);
    if (is_quadratic(p)) { /* E f needs no spreads: c does not change */
        x->sum = 0.0;
        for (int i = 0; i < n; i++) {
            const double gap = x->eta[i] - w->y[i];
            x->sum += 0.5 * w->weight[i] * gap * gap;
            x->slope[i] = w->weight[i] * gap;
        }
        spread = 0.0;
    } else {
        if (covariance(p, w)) return;
        elvi_nested_spreads(p, w->inverse, x->s);
        if (expect_point(p, rule, at, w, x, &spread) != ELVI_OK) return;
    }
    for (int i = 0; i < d; i++) off[i] = x->mu[i] - p->centre[i];
    form = multiply(p, at->A, off, x->g);
    elvi_nested_collect(p, x->slope, x->g);
    x->log_diagonal = log_diagonal(p, w);
    x->objective = 0.5 * (form + d - p->constraints - spread) + x->sum + x->log_diagonal;
    if (!isfinite(x->objective)) {
        x->objective = HUGE_VAL;
        return;
    }
    certify(p, at, w, x);
}

/* lower; or level up to rounding, and nearer by the certificate */
static int better(const point *to, const point *at)
{
    const double slack = 1e-12 * (1.0 + fabs(at->objective));
    return to->objective < at->objective - slack ||
           (to->objective <= at->objective + slack && to->certificate < at->certificate);
}

/* ---- steps --------------------------------------------------------------------- */

/* slope <- w_i l'(eta_i) of consecutive rows */
static void loss_slopes(const elvi_nested *p, const elvi_dispersion *a, const elvi_part *rows, const double *eta, double *slope)
{
    if (p->joint) {
        const elvi_joint_rows both = { rows->rows, p->lines, rows->y, rows->weight, eta, NULL };
        elvi_joint_loss(p->joint, a->hyper, &both, slope);
        return;
    }
    memcpy(slope, eta, (size_t) rows->rows * sizeof(double));
    p->likelihood.family->slope(&p->likelihood, a, rows, slope);
}

/* bend_i <- d log l'' / d eta at the predictors, by differences, within reason */
static void set_bend(const elvi_nested *p, const elvi_hyper_point *at, workspace *w, const point *x)
{
    const elvi_dispersion a = elvi_loss_dispersion(p, at);
    const elvi_part rows = { 0, p->rows, w->y, w->weight, NULL };
    const double by = 0.25;
    double *low = w->near, *middle = w->lag, *high = w->bend;
    for (int i = 0; i < p->rows; i++) low[i] = x->eta[i] - by;
    p->likelihood.family->slope(&p->likelihood, &a, &rows, low);
    loss_slopes(p, &a, &rows, x->eta, middle);
    for (int i = 0; i < p->rows; i++) high[i] = x->eta[i] + by;
    p->likelihood.family->slope(&p->likelihood, &a, &rows, high);
    for (int i = 0; i < p->rows; i++) {
        const double bend = log((high[i] - middle[i]) / (middle[i] - low[i])) / by;
        w->bend[i] = isfinite(bend) ? fmax(fmin(bend, 5.0), -5.0) : 0.0;
    }
}

/* the same of row i at the expectation, whose tail may be another than that of the loss */
static double expected_bend(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, const workspace *w,
                            const point *x, int i)
{
    const double by = 0.1 * fmax(1.0, x->s[i]), eta = x->eta[i] + by;
    double slope, curve;
    const elvi_lines row = { 1, w->y + i, w->weight + i, &eta, x->s + i };
    elvi_expected expected = { .slope = &slope, .curve = &curve };
    if (elvi_nested_expect_rows(p, rule, at, &row, &expected) != ELVI_OK) return 0.0;
    const double bend = log(curve / x->curve[i]) / by;
    return isfinite(bend) ? fmax(fmin(bend, 5.0), -5.0) : 0.0;
}

/* The step of the fixed point at x, of several predictors: Newton's for mu, and the curvatures as they are there. */
static int plain_residuals(const elvi_nested *p, const elvi_hyper_point *at, workspace *w)
{
    const point *x = &w->at;
    const size_t pairs = elvi_nested_pairs(p);
    if (factor(p, at, x->curve, w)) return 1;
    for (int i = 0; i < p->pattern.dim; i++) w->step[i] = -x->g[i];
    solve(p, w, w->step);
    elvi_nested_predict(p, w->step, w->reach);
    for (size_t i = 0; i < pairs; i++) w->turn[i] = x->curve[i] - x->c[i];
    return 0;
}

/* The step of the fixed point at x: Newton's for (mu, log c) together. With bend_i = d log c_i / d eta_i, and so, as for an
 * exponential, bend_i^2 / 2 = d log c_i / d s_i^2, and d s_i^2 = -h_i d log c_i, which is exact where the rows that share
 * their spread with row i move as it does, and h_i = s_i^2 (1 - s_i^2 / q_i^2), which is exact where that spread is of one
 * direction. Without that, a level without events, whose c has to fall by orders of magnitude while its spread
 * grows, takes a hundred steps. Without `joint`, h and bend are 0: a direction of descent. */
static int residuals(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, int joint, workspace *w)
{
    const int d = p->pattern.dim, n = p->rows;
    const point *x = &w->at;
    if (p->joint) return plain_residuals(p, at, w);
    if (joint) set_bend(p, at, w, x);
    for (int i = 0; i < n; i++) {
        const int moves = joint && x->curve[i] > 0.0 && x->c[i] > 0.0;
        const double s2 = x->s[i] * x->s[i], q2 = at->definite ? w->q[i] * w->q[i] : HUGE_VAL;
        const double h = moves && s2 < q2 ? s2 * (1.0 - s2 / q2) : 0.0;
        double bend = moves ? w->bend[i] : 0.0;
        if (bend * bend * h > 1.0) bend = expected_bend(p, rule, at, w, x, i);
        const double lag = 1.0 / (1.0 + 0.5 * bend * bend * h);
        w->near[i] = x->curve[i] * lag;
        w->reach[i] = moves ? 0.5 * bend * h * w->near[i] * log(x->curve[i] / x->c[i]) : 0.0;
        w->bend[i] = bend;
        w->lag[i] = moves ? lag : 0.0;
    }
    if (factor(p, at, w->near, w)) return 1;
    for (int i = 0; i < d; i++) w->step[i] = -x->g[i];
    elvi_nested_collect(p, w->reach, w->step);
    solve(p, w, w->step);
    elvi_nested_predict(p, w->step, w->reach);
    for (int i = 0; i < n; i++) {
        const double by = w->lag[i] > 0.0 ? w->lag[i] * (log(x->curve[i] / x->c[i]) + w->bend[i] * w->reach[i]) : 0.0;
        w->turn[i] = w->lag[i] > 0.0 ? x->c[i] * expm1(fmax(fmin(by, 3.0), -3.0)) : x->curve[i] - x->c[i];
    }
    return 0;
}

/* solves a small positive definite system, destroyed; 0 if it could */
static int solve_small(int m, double G[MEMORY][MEMORY], double *b)
{
    for (int j = 0; j < m; j++) {
        if (!(G[j][j] > 0.0)) return 1;
        for (int i = j + 1; i < m; i++) {
            const double by = G[i][j] / G[j][j];
            for (int k = j; k < m; k++) G[i][k] -= by * G[j][k];
            b[i] -= by * b[j];
        }
    }
    for (int j = m - 1; j >= 0; j--) {
        for (int k = j + 1; k < m; k++) b[j] -= G[j][k] * b[k];
        b[j] /= G[j][j];
    }
    return 0;
}

/* weights of predictors (w->lag) and curvatures (w->near) in a step, as F has them to second order and row by row */
static void weigh_steps(const elvi_nested *p, const point *x, workspace *w)
{
    if (p->joint) {
        elvi_joint_weights(p->lines, p->rows, x->c, x->s, w->lag, w->near);
        return;
    }
    for (int i = 0; i < p->rows; i++) {
        const double s2 = x->s[i] * x->s[i];
        w->lag[i] = fabs(x->c[i]);
        w->near[i] = 0.5 * s2 * s2;
    }
}

/* Anderson's combination of past steps, weighed as F weighs them to second order and row by
 * row: |c_i| for the predictor, s_i^4 / 2 for c_i. 0 if there is one. */
static int accelerate(const elvi_nested *p, workspace *w)
{
    const int d = p->pattern.dim, known = w->known;
    const extent e = extent_of(p);
    const point *x = &w->at;
    point *to = &w->to;
    double G[MEMORY][MEMORY] = { { 0.0 } }, mix[MEMORY] = { 0.0 }, most = 0.0;
    if (known == 0) return 1;
    weigh_steps(p, x, w);
    for (int k = 0; k < known; k++) {
        const memory *past = w->past + k;
        for (size_t i = 0; i < e.lines; i++) mix[k] += w->lag[i] * (w->reach[i] - past->reach[i]) * w->reach[i];
        for (size_t i = 0; i < e.pairs; i++) mix[k] += w->near[i] * (w->turn[i] - past->turn[i]) * w->turn[i];
        for (int l = 0; l <= k; l++) {
            const memory *other = w->past + l;
            for (size_t i = 0; i < e.lines; i++)
                G[k][l] += w->lag[i] * (w->reach[i] - past->reach[i]) * (w->reach[i] - other->reach[i]);
            for (size_t i = 0; i < e.pairs; i++)
                G[k][l] += w->near[i] * (w->turn[i] - past->turn[i]) * (w->turn[i] - other->turn[i]);
        }
    }
    for (int k = 0; k < known; k++) most = fmax(most, G[k][k]);
    for (int k = 0; k < known; k++) {
        G[k][k] += 1e-12 * most;
        for (int l = 0; l < k; l++) G[l][k] = G[k][l];
    }
    if (solve_small(known, G, mix)) return 1;
    for (int i = 0; i < d; i++) {
        double sum = x->mu[i] + w->step[i];
        for (int k = 0; k < known; k++)
            sum -= mix[k] * (x->mu[i] - w->past[k].mu[i] + w->step[i] - w->past[k].step[i]);
        to->mu[i] = sum;
    }
    for (size_t i = 0; i < e.pairs; i++) {
        const double plain = x->c[i] + w->turn[i];
        double sum = plain;
        for (int k = 0; k < known; k++)
            sum -= mix[k] * (x->c[i] - w->past[k].c[i] + w->turn[i] - w->past[k].turn[i]);
        to->c[i] = is_convex(p) && !p->joint ? fmax(sum, 0.1 * plain) : sum;
    }
    return 0;
}

static void keep(const elvi_nested *p, workspace *w, const point *x)
{
    const extent e = extent_of(p);
    const memory last = w->past[MEMORY - 1];
    memmove(w->past + 1, w->past, (MEMORY - 1) * sizeof(memory));
    w->past[0] = last;
    memcpy(last.mu, x->mu, e.dim * sizeof(double));
    memcpy(last.step, w->step, e.dim * sizeof(double));
    memcpy(last.c, x->c, e.pairs * sizeof(double));
    memcpy(last.turn, w->turn, e.pairs * sizeof(double));
    memcpy(last.reach, w->reach, e.lines * sizeof(double));
    if (w->known < MEMORY) w->known++;
}

static void swap(workspace *w)
{
    const point at = w->at;
    w->at = w->to;
    w->to = at;
}

static int accept(const elvi_nested *p, workspace *w)
{
    if (!better(&w->to, &w->at)) return 0;
    keep(p, w, &w->at);
    swap(w);
    return 1;
}

/* The step, else shorter ones; 0 when none is better. */
static int shorten(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, double least, workspace *w)
{
    const size_t pairs = elvi_nested_pairs(p);
    for (double size = 1.0; size > least; size *= 0.5) {
        for (int i = 0; i < p->pattern.dim; i++) w->to.mu[i] = w->at.mu[i] + size * w->step[i];
        for (size_t i = 0; i < pairs; i++) w->to.c[i] = w->at.c[i] + size * w->turn[i];
        evaluate(p, rule, at, 0, w, &w->to);
        if (accept(p, w)) return 1;
    }
    return 0;
}

/* The natural gradient, shortened until the precision is definite and F falls, which it does for any smooth loss:
 * P(t) = (1 - t) P + t P(curve), mu(t) = mu - t P(t)^-1 g. 0 when none is better. */
static int shorten_natural(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w)
{
    const size_t pairs = elvi_nested_pairs(p);
    for (double size = 1.0; size > 1e-8; size *= 0.5) {
        for (size_t i = 0; i < pairs; i++) w->to.c[i] = w->at.c[i] + size * (w->at.curve[i] - w->at.c[i]);
        if (factor(p, at, w->to.c, w)) continue;
        memcpy(w->to.mu, w->at.g, (size_t) p->pattern.dim * sizeof(double));
        solve(p, w, w->to.mu);
        for (int i = 0; i < p->pattern.dim; i++) w->to.mu[i] = w->at.mu[i] - size * w->to.mu[i];
        evaluate(p, rule, at, 1, w, &w->to);
        if (!better(&w->to, &w->at)) continue;
        swap(w);
        return 1;
    }
    return 0;
}

/* A loss that is not convex: the accelerated step near the end, else the natural gradient. */
static int advance_natural(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w)
{
    if (w->at.estimate < 1e-2 && residuals(p, rule, at, 0, w) == 0) {
        const int fresh = accelerate(p, w);
        if (fresh) return shorten(p, rule, at, 0.1, w) || shorten_natural(p, rule, at, w);
        evaluate(p, rule, at, 0, w, &w->to);
        if (accept(p, w)) return 1;
    }
    w->known = 0;
    return shorten_natural(p, rule, at, w);
}

/* The accelerated step, else the plain one, else shorter ones, else those of descent; 0 when none is better. */
static int advance(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w)
{
    if (!is_convex(p)) return advance_natural(p, rule, at, w);
    if (residuals(p, rule, at, 1, w)) return 0;
    /* far from the optimum past steps say little of the next */
    if (w->at.estimate < 1e-2 && accelerate(p, w) == 0) {
        evaluate(p, rule, at, 0, w, &w->to);
        if (accept(p, w)) return 1;
        w->known = 0;
    }
    if (shorten(p, rule, at, 0.1, w)) return 1;
    if (residuals(p, rule, at, 0, w)) return 0;
    return shorten(p, rule, at, 1e-8, w);
}

/* mu from predictors: the weighted least squares fit to them */
static int fit_predictors(const elvi_nested *p, const elvi_hyper_point *at, workspace *w, point *x)
{
    const int d = p->pattern.dim;
    if (factor(p, at, x->c, w)) return 1;
    multiply(p, at->A, p->centre, x->mu);
    if (p->joint)
        elvi_joint_weigh(p, x->c, at->eta, w->reach);
    else
        for (int i = 0; i < p->rows; i++) w->reach[i] = x->c[i] * (at->eta[i] - p->offset[i]);
    elvi_nested_collect(p, w->reach, x->mu);
    solve(p, w, x->mu);
    for (int i = 0; i < d; i++)
        if (!isfinite(x->mu[i])) return 1;
    return 0;
}

static int begin(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w)
{
    point *x = &w->at;
    set_rows(p, at, w);
    if (!p->blocked && at->definite) {
        assemble(p, at->A, NULL, w->Q);
        if (elvi_sparse_cholesky(&p->pattern, w->Q, w->small, w->links)) return 1;
    }
    if (set_q(p, at, w)) return 1;
    memcpy(x->c, is_quadratic(p) ? w->weight : at->c, elvi_nested_pairs(p) * sizeof(double));
    if (at->mu)
        memcpy(x->mu, at->mu, (size_t) p->pattern.dim * sizeof(double));
    else if (fit_predictors(p, at, w, x))
        return 1;
    evaluate(p, rule, at, at->mu == NULL, w, x);
    /* too wide for an expectation to exist: narrower */
    for (int k = 0; k < 60 && !isfinite(x->objective); k++) {
        if (p->joint)
            elvi_joint_narrow(p->lines, p->rows, w->weight, x->c);
        else
            for (int i = 0; i < p->rows; i++) x->c[i] = 2.0 * fabs(x->c[i]) + 1e-3 * w->weight[i];
        evaluate(p, rule, at, 0, w, x);
    }
    return !isfinite(x->objective);
}

/* one Newton step is the optimum of a quadratic; a second one cleans up rounding */
static void solve_normal(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w)
{
    point *x = &w->at;
    memcpy(x->curve, x->c, elvi_nested_pairs(p) * sizeof(double));
    for (int k = 0; k < 2; k++) {
        memcpy(w->step, x->g, (size_t) p->pattern.dim * sizeof(double));
        solve(p, w, w->step);
        for (int i = 0; i < p->pattern.dim; i++) x->mu[i] -= w->step[i];
        evaluate(p, rule, at, 1, w, x);
    }
    covariance(p, w);
}

/* sum over A's entries of (x - centre)(x - centre)' + P^-1, by source */
static void moments(const elvi_nested *p, const workspace *w, const point *x, double *out)
{
    memset(out, 0, (size_t) p->sources * sizeof(double));
    for (int k = 0; k < p->precisions; k++) {
        const int i = p->a_row[k], j = p->a_column[k];
        out[p->a_source[k]] += (x->mu[i] - p->centre[i]) * (x->mu[j] - p->centre[j]) + w->inverse[p->a_place[k]];
    }
}

/* sum_i w_i E dl/d log of the family's own parameter */
static elvi_status joint_sums(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w,
                              elvi_conditional *out)
{
    const elvi_joint_rows rows = { p->rows, p->lines, w->y, w->weight, w->at.eta, w->at.s };
    elvi_joint_expected expected = { .slope = w->to.slope, .curve = w->to.curve };
    if (!at->hypers) return ELVI_OK;
    const elvi_status status = elvi_joint_expect(p->joint, rule, at->hyper, &rows, &expected);
    out->slope[0] = expected.hyper;
    return status;
}

static elvi_status dispersion_sums(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w,
                                   elvi_conditional *out)
{
    /* of the next iterate nothing is needed any more */
    const elvi_optimum_rows x = { w->inverse, w->at.eta, w->at.s, w->at.slope, w->at.curve, w->to.c };
    out->loss = w->at.sum;
    out->level = 0.0;
    for (int k = 0; k < at->hypers; k++) out->slope[k] = 0.0;
    return p->joint ? joint_sums(p, rule, at, w, out) : p->dispersion->add_sums(p, rule, at, &x, out);
}

void elvi_ask_all_to_stop(elvi_watch *watch)
{
#ifdef _OPENMP
#pragma omp atomic write seq_cst
#endif
    watch->stop = 1;
}

int elvi_all_asked_to_stop(const elvi_watch *watch)
{
    int stop;
#ifdef _OPENMP
#pragma omp atomic read seq_cst
#endif
    stop = watch->stop;
    return stop;
}

void elvi_nested_solve(const elvi_nested_task *task, const elvi_nested_end *end, elvi_conditional *out)
{
    const elvi_nested *p = task->plan;
    const elvi_quadrature *rule = task->rule;
    const elvi_hyper_point *at = task->at;
    elvi_watch *watch = end->watch;
    workspace w = bind(p, task->work, task->links);
    int stop = 0;
    out->status = ELVI_SINGULAR_SCALE;
    out->iterations = 0;
    if (begin(p, rule, at, &w)) return;
    out->status = ELVI_OK;
    if (is_quadratic(p))
        solve_normal(p, rule, at, &w);
    else
        while (w.at.certificate > end->tol && out->iterations < end->most) {
            if (end->polls && watch->hooks->poll(watch->hooks->ctx, NULL)) elvi_ask_all_to_stop(watch);
            stop = elvi_all_asked_to_stop(watch);
            if (stop) break;
            out->iterations++;
            if (!advance(p, rule, at, &w)) { /* as far as rounding allows: put things back */
                evaluate(p, rule, at, 0, &w, &w.at);
                break;
            }
        }
    if (stop) {
        out->status = ELVI_STOPPED;
        return;
    }
    const point *x = &w.at;
    memcpy(out->mu, x->mu, (size_t) p->pattern.dim * sizeof(double));
    memcpy(out->c, x->c, elvi_nested_pairs(p) * sizeof(double));
    for (int j = 0; j < p->pattern.dim; j++) out->variance[j] = w.inverse[elvi_pattern_at(&p->pattern, j, j)];
    moments(p, &w, x, out->moment);
    out->status = dispersion_sums(p, rule, at, &w, out);
    out->objective = x->objective;
    out->log_det = 2.0 * x->log_diagonal;
    out->certificate = x->certificate;
    out->estimate = x->estimate;
    out->widest = is_quadratic(p) ? 0.0 : x->widest;
    out->rigorous = at->definite && is_convex(p);
    out->evaluations = w.evaluations;
}

/* ---- rows that are not in memory ---------------------------------------------------- */

size_t elvi_nested_curvatures(const elvi_nested *p)
{
    return p->summed ? elvi_pattern_length(&p->pattern) : elvi_nested_pairs(p);
}

/* sum over the entries of two symmetric matrices on the pattern */
static double pattern_product(const elvi_pattern *f, const double *a, const double *b)
{
    const int tail = f->dim - f->head;
    const double *dense_a = a + f->start[f->head], *dense_b = b + f->start[f->head];
    double sum = 0.0, diagonal = 0.0;
    for (int j = 0; j < f->head; j++) {
        diagonal += a[f->start[j]] * b[f->start[j]];
        for (int e = f->start[j] + 1; e < f->start[j + 1]; e++) sum += a[e] * b[e];
    }
    for (int j = 0; j < tail; j++) {
        const size_t at = (size_t) j * (size_t) tail;
        diagonal += dense_a[at + (size_t) j] * dense_b[at + (size_t) j];
        for (int i = j + 1; i < tail; i++) sum += dense_a[at + (size_t) i] * dense_b[at + (size_t) i];
    }
    return diagonal + 2.0 * sum;
}

elvi_status elvi_nested_look(const elvi_nested_task *task, elvi_summed_point *out)
{
    const elvi_nested *p = task->plan;
    const elvi_hyper_point *at = task->at;
    const size_t length = elvi_pattern_length(&p->pattern);
    workspace w = bind(p, task->work, task->links);
    double *off = w.small + 2 * (size_t) p->pattern.dim;
    if (out->reach) {
        if (p->blocked)
            assemble(p, at->inverse, NULL, out->reach);
        else {
            assemble(p, at->A, NULL, w.Q);
            if (elvi_sparse_cholesky(&p->pattern, w.Q, w.small, w.links)) return ELVI_SINGULAR_SCALE;
            if (elvi_sparse_inverse(&p->pattern, w.Q, out->reach, w.small, w.links)) return ELVI_SINGULAR_SCALE;
        }
    }
    if (factor(p, at, at->c, &w) || covariance(p, &w)) return ELVI_SINGULAR_SCALE;
    memcpy(out->inverse, w.inverse, length * sizeof(double));
    for (int i = 0; i < p->pattern.dim; i++) off[i] = at->mu[i] - p->centre[i];
    out->form = multiply(p, at->A, off, out->g);
    memcpy(w.at.mu, at->mu, (size_t) p->pattern.dim * sizeof(double));
    moments(p, &w, &w.at, out->moment);
    out->trace = pattern_product(&p->pattern, at->c, w.inverse);
    out->log_diagonal = log_diagonal(p, &w);
    return ELVI_OK;
}

elvi_status elvi_nested_newton(const elvi_nested_task *task, const double *x, double *step, double *own, double *d)
{
    const elvi_nested *p = task->plan;
    const elvi_hyper_point *at = task->at;
    workspace w = bind(p, task->work, task->links);
    *d = HUGE_VAL;
    if (at->definite) {
        if (!p->blocked) {
            assemble(p, at->A, NULL, w.Q);
            if (elvi_sparse_cholesky(&p->pattern, w.Q, w.small, w.links)) return ELVI_SINGULAR_SCALE;
        }
        *d = dual(p, at, x, &w);
    }
    if (factor(p, at, at->c, &w)) return ELVI_SINGULAR_SCALE;
    memcpy(step, x, (size_t) p->pattern.dim * sizeof(double));
    solve(p, &w, step);
    *own = 0.0;
    for (int i = 0; i < p->pattern.dim; i++) *own += x[i] * step[i];
    return ELVI_OK;
}

size_t elvi_row_sums_length(const elvi_nested *p) { return 9 * (size_t) p->rows; }

/* slopes and curvatures of the rows at a point; `eta` has room for the predictors, `s` for the spreads */
static elvi_status expect_rows_at(const elvi_nested_task *task, const double *mu, const double *M, double *eta, double *s,
                                  elvi_expected *out)
{
    const elvi_nested *p = task->plan;
    elvi_nested_predict(p, mu, eta);
    for (int i = 0; i < p->rows; i++) eta[i] += p->offset[i];
    elvi_nested_spreads(p, M, s);
    const elvi_lines rows = { p->rows, p->y, p->weight, eta, s };
    return elvi_nested_expect_rows(p, task->rule, task->at, &rows, out);
}

elvi_status elvi_nested_add_rows(const elvi_nested_task *task, const elvi_row_point *x, elvi_row_sums *out)
{
    const elvi_nested *p = task->plan;
    double *room = task->work;
    const size_t n = (size_t) p->rows;
    double *eta = cut(&room, n), *s = cut(&room, n), *slope = cut(&room, n), *curve = cut(&room, n), *q = cut(&room, n);
    double *eta_before = cut(&room, n), *s_before = cut(&room, n), *curve_before = cut(&room, n);
    double *c = cut(&room, n);
    elvi_expected expected = { .slope = slope, .curve = curve };
    elvi_status status = expect_rows_at(task, x->mu, x->M, eta, s, &expected);
    if (status != ELVI_OK) return status;
    out->sum = expected.sum;
    out->widest = expected.widest;
    memset(out->slope, 0, (size_t) p->pattern.dim * sizeof(double));
    memset(out->curve, 0, elvi_pattern_length(&p->pattern) * sizeof(double));
    elvi_nested_collect(p, slope, out->slope);
    elvi_nested_add_curvature(p, curve, out->curve);
    out->near = out->far = HUGE_VAL;
    if (!x->sources) return ELVI_OK;
    memset(c, 0, n * sizeof(double));
    for (int k = 0; k < x->sources; k++) {
        elvi_expected before = { .slope = slope, .curve = curve_before };
        status = expect_rows_at(task, x->mu_before[k], x->M_before[k], eta_before, s_before, &before);
        if (status != ELVI_OK) return status;
        for (size_t i = 0; i < n; i++) c[i] += x->weight[k] * curve_before[i];
    }
    out->near = 0.0;
    for (size_t i = 0; i < n; i++) out->near += fabs(curve[i] - c[i]) * s[i] * s[i];
    if (!x->reach) return ELVI_OK;
    elvi_nested_spreads(p, x->reach, q);
    out->far = 0.0;
    for (size_t i = 0; i < n; i++) out->far += fabs(curve[i] - c[i]) * s[i] * q[i];
    return ELVI_OK;
}

/* ---- draws ------------------------------------------------------------------------ */

elvi_status elvi_nested_draws(const elvi_nested *p, const elvi_hyper_point *at, int n, double *x, double *room,
                              int *links)
{
    workspace w = bind(p, room, links);
    const int d = p->pattern.dim;
    if (factor(p, at, at->c, &w)) return ELVI_SINGULAR_SCALE;
    for (int k = 0; k < n; k++, x += d) {
        colour(p, &w, x);
        for (int i = 0; i < d; i++) x[i] += at->mu[i];
    }
    return ELVI_OK;
}

elvi_status elvi_nested_whiten(const elvi_nested *p, const elvi_hyper_point *at, int n, double *x, double *room,
                               int *links)
{
    workspace w = bind(p, room, links);
    if (factor(p, at, at->c, &w)) return ELVI_SINGULAR_SCALE;
    for (int k = 0; k < n; k++, x += p->pattern.dim) whiten(p, &w, x);
    return ELVI_OK;
}

elvi_status elvi_nested_variances(const elvi_nested *p, const elvi_hyper_point *at, const elvi_other_rows *rows, double *out,
                                  double *room, int *links)
{
    workspace w = bind(p, room, links);
    elvi_nested other = *p;
    if (factor(p, at, at->c, &w) || covariance(p, &w)) return ELVI_SINGULAR_SCALE;
    other.joint = NULL; /* one number for each row, whichever predictor it is of */
    other.rows = rows->rows;
    other.X = rows->X;
    other.start = rows->start;
    other.column = rows->column;
    other.entry = rows->entry;
    other.pair = rows->pair;
    elvi_nested_spreads(&other, w.inverse, out);
    for (int i = 0; i < rows->rows; i++) out[i] = rows->held[i] ? out[i] * out[i] : NAN;
    return ELVI_OK;
}

/* sum_i w_i l(eta_i) over consecutive rows */
static double losses(const elvi_nested *p, const elvi_dispersion *a, int n, const double *y, const double *w,
                     const double *eta)
{
    const elvi_part rows = { 0, n, y, w, NULL };
    if (p->joint) {
        const elvi_joint_rows both = { n, p->lines, y, w, eta, NULL };
        return elvi_joint_loss(p->joint, a->hyper, &both, NULL);
    }
    return p->likelihood.family->loss(&p->likelihood, a, &rows, eta);
}

/* factor, spreads and expectations at the optimum; known[i] is what r_i has in it whatever is drawn */
static int begin_check(const elvi_nested *p, const elvi_quadrature *rule, const elvi_hyper_point *at, workspace *w,
                       double *known)
{
    point *x = &w->at;
    set_rows(p, at, w);
    memcpy(x->mu, at->mu, (size_t) p->pattern.dim * sizeof(double));
    memcpy(x->c, at->c, elvi_nested_pairs(p) * sizeof(double));
    if (factor(p, at, x->c, w)) return 1;
    if (covariance(p, w)) return 1;
    elvi_nested_spreads(p, w->inverse, x->s);
    predict_point(p, w, x);
    const size_t lines = (size_t) p->lines, pairs = (size_t) elvi_pairs_of(p->lines);
    const size_t responses = elvi_nested_responses(p) / (size_t) p->rows;
    for (size_t i = 0; i < (size_t) p->rows; i++) { /* a row at a time, for its own sum */
        elvi_nested one = *p;
        workspace room = *w;
        double spread;
        point row = {
            .c = x->c + pairs * i,
            .s = x->s + pairs * i,
            .curve = x->curve + pairs * i,
            .eta = x->eta + lines * i,
            .slope = x->slope + lines * i,
        };
        one.rows = 1;
        room.y += responses * i;
        room.weight += i;
        if (expect_point(&one, rule, at, &room, &row, &spread) != ELVI_OK) return 1;
        known[i] = row.sum - 0.5 * spread;
    }
    return 0;
}

/* lean <- C_i off_i of every row: what its slope changes by to first order */
static void lean_rows(const elvi_nested *p, const double *c, const double *off, double *lean)
{
    if (p->joint)
        elvi_joint_multiply(p->lines, p->rows, c, off, lean);
    else
        for (int i = 0; i < p->rows; i++) lean[i] = c[i] * off[i];
}

/* What a check needs beside the optimum, in memory that only a solution uses. */
typedef struct {
    double *drawn;            /* dim: a draw, less the mean */
    double *off, *eta, *bent; /* lines: its predictors less those of the mean, the predictors, the slopes there */
    double *lean;             /* lines: C_i off_i */
    double *known;            /* rows: what r_i has in it whatever is drawn */
    double *pull;             /* lines: sums of (e^r - 1) dr / d eta */
    double *tilt, *square;    /* blocks: sums of e^r - r - 1 and of r^2 */
} check_scratch;

static check_scratch scratch_of_check(const workspace *w)
{
    const check_scratch out = {
        .drawn = w->small,
        .off = w->to.c,
        .eta = w->to.eta,
        .bent = w->to.curve,
        .lean = w->lag,
        .known = w->to.slope,
        .pull = w->reach,
        .tilt = w->q,
        .square = w->turn,
    };
    return out;
}

/* r of the rows from `first` on, whose predictors are `off` from those of the mean */
static double block_ratio(const elvi_nested *p, const workspace *w, const elvi_dispersion *a, const check_scratch *c, int first,
                          int rows)
{
    const size_t each = (size_t) p->lines, from = each * (size_t) first, responses = elvi_nested_responses(p) / (size_t) p->rows;
    double r = 0.0;
    for (int i = first; i < first + rows; i++) r += c->known[i];
    for (size_t i = from; i < from + each * (size_t) rows; i++) r += c->off[i] * (w->at.slope[i] + 0.5 * c->lean[i]);
    return r - losses(p, a, rows, w->y + responses * (size_t) first, w->weight + first, c->eta + from);
}

/* At the optimum f(mu + P^-1/2 z) = const + |z|^2 / 2 + sum_i r_i, where r_i is the loss of
 * row i less its expectation, its slope and its curvature under the approximation. So a
 * block of rows has log ratio -sum r_i, of expectation 0, and almost does not depend on
 * other blocks if they share no sparse coefficient.
 *
 * Reweighted, the mean of x moves by Cov(x, e^r) / E e^r, summed over blocks, which for a
 * gaussian is P^-1 E[e^r grad r] / E e^r (Stein). grad r has expectation 0, so e^r - 1
 * serves as well, with less noise: sums over rows average it further. */
void elvi_nested_check(const elvi_nested_task *task, const double *z, int draws, elvi_ratios *out)
{
    const elvi_nested *p = task->plan;
    const elvi_hyper_point *at = task->at;
    workspace w = bind(p, task->work, task->links);
    const point *x = &w.at;
    const int d = p->pattern.dim, n = p->rows;
    const size_t lines = elvi_nested_lines(p), each = (size_t) p->lines;
    const check_scratch c = scratch_of_check(&w);
    const elvi_dispersion a = elvi_loss_dispersion(p, at);
    const elvi_part all = { 0, n, w.y, w.weight, NULL };
    out->status = ELVI_SINGULAR_SCALE;
    if (begin_check(p, task->rule, at, &w, c.known)) return;
    memset(c.tilt, 0, (size_t) n * sizeof(double));
    memset(c.square, 0, (size_t) n * sizeof(double));
    memset(c.pull, 0, lines * sizeof(double));
    for (int k = 0; k < draws; k++, z += d) {
        double total = 0.0, sum = 0.0;
        memcpy(c.drawn, z, (size_t) d * sizeof(double));
        colour(p, &w, c.drawn);
        elvi_nested_predict(p, c.drawn, c.off);
        for (size_t i = 0; i < lines; i++) c.eta[i] = x->eta[i] + c.off[i];
        lean_rows(p, x->c, c.off, c.lean);
        if (out->shift) loss_slopes(p, &a, &all, c.eta, c.bent);
        for (int b = 0; b < p->blocks; b++) {
            const int first = p->block_start[b], rows = p->block_start[b + 1] - first;
            const double r = block_ratio(p, &w, &a, &c, first, rows), bend = exp(r) - 1.0 - r;
            total += r;
            if (out->shift) {
                const double by = expm1(r);
                for (size_t i = each * (size_t) first; i < each * (size_t) (first + rows); i++)
                    c.pull[i] += by * (x->slope[i] + c.lean[i] - c.bent[i]);
            }
            c.tilt[b] += bend;
            c.square[b] += r * r;
            sum += bend;
        }
        out->total[k] = total;
        out->bend[k] = sum;
    }
    out->level = out->spread = 0.0;
    for (int b = 0; b < p->blocks; b++) {
        out->level += log1p(c.tilt[b] / draws);
        out->spread += c.square[b] / draws;
        for (size_t i = each * (size_t) p->block_start[b]; i < each * (size_t) p->block_start[b + 1]; i++)
            c.pull[i] /= draws + c.tilt[b];
    }
    if (out->shift) {
        memset(out->shift, 0, (size_t) d * sizeof(double));
        elvi_nested_collect(p, c.pull, out->shift);
        solve(p, &w, out->shift);
    }
    out->status = ELVI_OK;
}

/* ---- the profile of a linear function --------------------------------------------------- */

/* The best gaussian among those with a'x = t has the precision P(c) of before on the hyperplane, so its covariance is
 * P^-1 - v v' / q with v = P^-1 a and q = a'v: the same factor, one more solve. Its objective,
 * F(t) = E f - log|Sigma| on the hyperplane, is a lower bound of -log p(t, y) up to a constant. */

typedef struct {
    double *v;     /* dim: P^-1 a */
    double *along; /* rows: W v */
    double q;
} pin;

/* the spreads of the rows on the hyperplane; 0 if they exist */
static int pinned_spreads(const elvi_nested *p, const pin *k, workspace *w, double *s)
{
    if (covariance(p, w)) return 1;
    elvi_nested_spreads(p, w->inverse, s);
    if (p->joint)
        elvi_joint_pin(p->lines, p->rows, k->along, k->q, s);
    else
        for (int i = 0; i < p->rows; i++) s[i] = sqrt(fmax(s[i] * s[i] - k->along[i] * k->along[i] / k->q, 0.0));
    return 0;
}

/* Everything at (mu, c) given a'x = a'mu; w->L holds the factor of P(c), and the pin belongs to it. */
static void evaluate_pinned(const elvi_nested_task *task, const pin *k, workspace *w, point *x)
{
    const elvi_nested *p = task->plan;
    const int d = p->pattern.dim;
    double form, spread = 0.0, *off = w->small + 2 * (size_t) d;
    x->objective = HUGE_VAL;
    if (pinned_spreads(p, k, w, x->s)) return;
    predict_point(p, w, x);
    if (expect_point(p, task->rule, task->at, w, x, &spread) != ELVI_OK) return;
    for (int i = 0; i < d; i++) off[i] = x->mu[i] - p->centre[i];
    form = multiply(p, task->at->A, off, x->g);
    elvi_nested_collect(p, x->slope, x->g);
    x->objective = 0.5 * (form + d - p->constraints - 1.0 - spread) + x->sum + log_diagonal(p, w) +
                   0.5 * log(k->q);
    if (!isfinite(x->objective)) x->objective = HUGE_VAL;
}

/* what the constraint needs of the factor of P(c) in w->L */
static void solve_pin(const elvi_nested *p, const double *a, workspace *w, pin *k)
{
    memcpy(k->v, a, (size_t) p->pattern.dim * sizeof(double));
    solve(p, w, k->v);
    k->q = 0.0;
    for (int i = 0; i < p->pattern.dim; i++) k->q += a[i] * k->v[i];
    elvi_nested_predict(p, k->v, k->along);
}

/* the factor of P(c), and the constraint with it */
static int set_pin(const elvi_nested_task *task, const double *a, const double *c, workspace *w, pin *k)
{
    if (factor(task->plan, task->at, c, w)) return 1;
    solve_pin(task->plan, a, w, k);
    return !(k->q > 0.0) || !isfinite(k->q);
}

/* w->step <- Newton's step within the hyperplane, by the factor in w->L */
static void pinned_step(const elvi_nested *p, const pin *k, workspace *w, const point *x)
{
    double by = 0.0;
    memcpy(w->step, x->g, (size_t) p->pattern.dim * sizeof(double));
    solve(p, w, w->step);
    for (int i = 0; i < p->pattern.dim; i++) by += k->v[i] * x->g[i];
    for (int i = 0; i < p->pattern.dim; i++) w->step[i] = k->v[i] * by / k->q - w->step[i];
}

/* What is gained, about, by Newton's step in w->step from x and by its curvatures in the place of c, where the factor in w->L is
 * that of P(c): to second order in the one, at most in the other. */
static double left_to_gain(const elvi_nested *p, const workspace *w, const point *x, double *by_step)
{
    double turn = 0.0, form = 0.0;
    for (int i = 0; i < p->pattern.dim; i++) form -= 0.5 * w->step[i] * x->g[i];
    if (p->joint)
        turn = elvi_joint_turn(p, x->s, x->s, x->curve, x->c);
    else
        for (int i = 0; i < p->rows; i++) turn += fabs(x->curve[i] - x->c[i]) * x->s[i] * x->s[i];
    *by_step = form;
    return form + 0.25 * turn * turn;
}

/* Where little is left to gain, the last step of mu is taken without an evaluation: 0 if so. */
static int finish_pinned(const elvi_nested *p, const elvi_profile *out, const pin *k, workspace *w)
{
    double by_step;
    pinned_step(p, k, w, &w->at);
    if (!(left_to_gain(p, w, &w->at, &by_step) < out->gain)) return 1;
    for (int i = 0; i < p->pattern.dim; i++) w->at.mu[i] += w->step[i];
    w->at.objective -= by_step;
    return 0;
}

/* Is w->at, whose factor is in w->L, close to its optimum? Where Newton's steps end elsewhere, as after a start at which
 * exponentials are huge, its objective says nothing. Losses that are not convex have no such measure. */
static int is_settled(const elvi_nested *p, const elvi_profile *out, const pin *k, workspace *w)
{
    const double enough = 0.1; /* nats */
    double by_step;
    if (!isfinite(w->at.objective)) return 0;
    if (!out->steps || !is_convex(p)) return 1;
    pinned_step(p, k, w, &w->at);
    return left_to_gain(p, w, &w->at, &by_step) < enough;
}

/* The optimum given a'x = a'mu, from w->at on, whose factor is in w->L. 0 if it was found. */
static int solve_pinned(const elvi_nested_task *task, const elvi_profile *out, pin *k, workspace *w)
{
    const elvi_nested *p = task->plan;
    const int d = p->pattern.dim;
    const size_t pairs = elvi_nested_pairs(p);
    evaluate_pinned(task, k, w, &w->at);
    for (int step = 0; step < out->steps; step++) {
        double gained = -HUGE_VAL;
        if (isfinite(w->at.objective) && !finish_pinned(p, out, k, w)) return 0;
        for (double size = 1.0; size > 0.01; size *= 0.5) {
            for (size_t i = 0; i < pairs; i++) w->to.c[i] = w->at.c[i] + size * (w->at.curve[i] - w->at.c[i]);
            if (set_pin(task, out->a, w->to.c, w, k)) continue; /* not definite, of a loss that is not convex */
            pinned_step(p, k, w, &w->at);
            for (int i = 0; i < d; i++) w->to.mu[i] = w->at.mu[i] + size * w->step[i];
            evaluate_pinned(task, k, w, &w->to);
            gained = w->at.objective - w->to.objective;
            if (gained > 0.0) break;
        }
        if (!(gained > 0.0)) return set_pin(task, out->a, w->at.c, w, k) || !is_settled(p, out, k, w);
        swap(w);
    }
    if (out->steps && isfinite(w->at.objective) && !finish_pinned(p, out, k, w)) return 0;
    return !is_settled(p, out, k, w);
}

static void start_profile(const elvi_nested *p, const double *mu, const double *c, workspace *w)
{
    memcpy(w->at.mu, mu, (size_t) p->pattern.dim * sizeof(double));
    memcpy(w->at.c, c, elvi_nested_pairs(p) * sizeof(double));
}

/* A node that has been passed: its means and curvatures, of which P(c) is definite. */
typedef struct {
    double *mu, *c;
} passed;

enum { WAY = 3 }; /* nodes from which the next one is guessed */

static passed pass(const elvi_nested *p, const elvi_profile *out, const workspace *w, passed to)
{
    memcpy(to.mu, w->at.mu, (size_t) p->pattern.dim * sizeof(double));
    memcpy(to.c, out->steps && is_convex(p) ? w->at.curve : w->at.c, elvi_nested_pairs(p) * sizeof(double));
    return to;
}

/* A curvature one step on. Those of convex losses change by factors, which are kept within reason. */
static double continued(double c1, double c2, double c3, int known)
{
    const double most = 8.0;
    if (c1 > 0.0 && c2 > 0.0 && c3 > 0.0) {
        const double by = c1 / c2, ratio = known > 2 ? by * by * c3 / c2 : by;
        return c1 * fmin(fmax(ratio, 1.0 / most), most);
    }
    return known > 2 ? 3.0 * (c1 - c2) + c3 : 2.0 * c1 - c2;
}

/* w->at <- where the nodes passed lead to, the last of them first. 0 if there are enough, and P(c) has a factor, which is in
 * w->L. Not for losses that are not convex: what has not converged would be magnified. */
static int continue_way(const elvi_nested_task *task, const elvi_profile *out, const passed *way, int known, pin *k, workspace *w)
{
    const elvi_nested *p = task->plan;
    const size_t pairs = elvi_nested_pairs(p);
    if (known < 2 || !out->steps || !is_convex(p)) return 1;
    const passed a = way[0], b = way[1], c = way[known > 2 ? 2 : 1];
    for (int i = 0; i < p->pattern.dim; i++)
        w->at.mu[i] = known > 2 ? 3.0 * (a.mu[i] - b.mu[i]) + c.mu[i] : 2.0 * a.mu[i] - b.mu[i];
    for (size_t i = 0; i < pairs; i++) w->at.c[i] = continued(a.c[i], b.c[i], c.c[i], known);
    return set_pin(task, out->a, w->at.c, w, k);
}

/* w->at <- the last node, moved along the conditional mean */
static int move_on(const elvi_nested_task *task, const elvi_profile *out, const passed *last, double by, pin *k, workspace *w)
{
    const elvi_nested *p = task->plan;
    memcpy(w->at.c, last->c, elvi_nested_pairs(p) * sizeof(double));
    if (set_pin(task, out->a, w->at.c, w, k)) return 1;
    for (int i = 0; i < p->pattern.dim; i++) w->at.mu[i] = last->mu[i] + k->v[i] * by / k->q;
    return 0;
}

/* log density, up to a constant, of points of squared length r2 in n dimensions, a share of them spread out by `wide` */
static double log_widened(double r2, int n, double share, double wide)
{
    return -0.5 * r2 + log1p(share * (exp(0.5 * r2 * (1.0 - 1.0 / (wide * wide))) / pow(wide, n) - 1.0));
}

/* x <- mu + L^-T (z - e e'z), a point of the hyperplane; returns the square of its length in whitened coordinates. */
static double point_on(const elvi_nested *p, const workspace *w, const double *e, const double *z, double *x)
{
    double by = 0.0, r2 = 0.0;
    for (int i = 0; i < p->pattern.dim; i++) by += e[i] * z[i];
    for (int i = 0; i < p->pattern.dim; i++) {
        x[i] = z[i] - e[i] * by;
        r2 += x[i] * x[i];
    }
    elvi_sparse_backward(&p->pattern, w->L, x);
    for (int i = 0; i < p->pattern.dim; i++) x[i] += w->at.mu[i];
    return r2;
}

/* minus the log density at x, with the losses of the rows */
static double minus_log_density(const elvi_nested_task *task, workspace *w, const double *x)
{
    const elvi_nested *p = task->plan;
    const size_t lines = elvi_nested_lines(p);
    const elvi_dispersion a = elvi_loss_dispersion(p, task->at);
    double form, *off = w->small + p->pattern.dim;
    for (int i = 0; i < p->pattern.dim; i++) off[i] = x[i] - p->centre[i];
    form = multiply(p, task->at->A, off, w->step);
    elvi_nested_predict(p, x, w->to.eta);
    for (size_t i = 0; i < lines; i++) w->to.eta[i] += w->offset[i];
    if (p->joint) {
        const elvi_joint_rows rows = { p->rows, p->lines, w->y, w->weight, w->to.eta, NULL };
        return 0.5 * form + elvi_joint_loss(p->joint, task->at->hyper, &rows, NULL);
    }
    return 0.5 * form + losses(p, &a, p->rows, w->y, w->weight, w->to.eta);
}

/* The integral over the hyperplane by weighted points in the place of its lower bound, and the means there. The same points at
 * every node, so that what they leave is nearly the same. */
static void weigh_node(const elvi_nested_task *task, const pin *k, workspace *w, elvi_profile *out, int at)
{
    const elvi_nested *p = task->plan;
    const int d = p->pattern.dim;
    double *e = w->small, *x = w->to.mu, *sum = w->to.g, top = -HUGE_VAL, total = 0.0, squares = 0.0;
    memcpy(e, out->a, (size_t) d * sizeof(double));
    elvi_sparse_forward(&p->pattern, w->L, e);
    for (int i = 0; i < d; i++) e[i] /= sqrt(k->q);
    memset(sum, 0, (size_t) d * sizeof(double));
    for (int j = 0; j < out->points; j++) {
        const double r2 = point_on(p, w, e, out->z + (size_t) j * (size_t) d, x);
        const double ratio = -minus_log_density(task, w, x) - log_widened(r2, d - 1, out->share, out->wide);
        if (!isfinite(ratio)) continue;
        if (ratio > top) {
            const double by = exp(top - ratio);
            for (int i = 0; i < d; i++) sum[i] *= by;
            total *= by;
            squares *= by * by;
            top = ratio;
        }
        const double weight = exp(ratio - top);
        for (int i = 0; i < d; i++) sum[i] += weight * x[i];
        total += weight;
        squares += weight * weight;
    }
    out->value[at] = top + log(total / out->points) - log_diagonal(p, w) - 0.5 * log(k->q);
    out->effective[at] = total * total / (squares * out->points);
    if (out->mean)
        for (int i = 0; i < d; i++) out->mean[(size_t) at * (size_t) d + (size_t) i] = sum[i] / total;
}

static void keep_node(const elvi_nested_task *task, const pin *k, workspace *w, elvi_profile *out, int at)
{
    const size_t d = (size_t) task->plan->pattern.dim;
    out->value[at] = -w->at.objective;
    if (out->mean) memcpy(out->mean + (size_t) at * d, w->at.mu, d * sizeof(double));
    if (out->points) weigh_node(task, k, w, out, at);
}

/* Where the nodes of a profile are kept: the first two for the other side, the others in turn. */
typedef struct {
    passed middle, below, turns[WAY];
} passed_room;

/* The nodes on one side. */
static void follow_side(const elvi_nested_task *task, elvi_profile *out, int side, const passed_room *room, pin *k, workspace *w)
{
    const elvi_nested *p = task->plan;
    const double by = side * out->width * out->sd;
    passed way[WAY] = { room->middle, room->below };
    int known = side > 0 && out->below > 0 ? 2 : 1;
    double top = out->value[out->most];
    for (int node = 1; node <= out->most; node++) {
        if ((continue_way(task, out, way, known, k, w) || solve_pinned(task, out, k, w)) &&
            (move_on(task, out, &way[0], by, k, w) || solve_pinned(task, out, k, w)))
            return;
        keep_node(task, k, w, out, out->most + side * node);
        *(side < 0 ? &out->below : &out->above) = node;
        if (side < 0 && node == 1) pass(p, out, w, room->below); /* before a side of one node ends: the other begins with it */
        top = fmax(top, out->value[out->most + side * node]);
        if (out->value[out->most + side * node] < top - out->drop) return;
        for (int i = WAY - 1; i > 0; i--) way[i] = way[i - 1];
        way[0] = pass(p, out, w, room->turns[node % WAY]);
        if (known < WAY) known++;
    }
}

void elvi_nested_profile(const elvi_nested_task *task, elvi_profile *out)
{
    const elvi_nested *p = task->plan;
    workspace w = bind(p, task->work, task->links);
    const memory *past = w.past;
    const passed_room room = { { past[0].step, past[0].turn },
                               { past[1].step, past[1].turn },
                               { { past[1].mu, past[1].c }, { past[2].mu, past[2].c }, { past[3].mu, past[3].c } } };
    pin k = { .v = past[0].mu, .along = past[0].c, .q = 0.0 };
    const size_t nodes = 2 * (size_t) out->most + 1;
    out->status = ELVI_SINGULAR_SCALE;
    out->below = out->above = 0;
    for (size_t i = 0; i < nodes; i++) out->value[i] = -HUGE_VAL; /* nodes that are not needed */
    if (out->mean) memset(out->mean, 0, nodes * (size_t) p->pattern.dim * sizeof(double));
    set_rows(p, task->at, &w);
    start_profile(p, task->at->mu, task->at->c, &w);
    if (set_pin(task, out->a, w.at.c, &w, &k)) return;
    out->sd = sqrt(k.q);
    out->at = 0.0;
    for (int i = 0; i < p->pattern.dim; i++) out->at += out->a[i] * w.at.mu[i];
    if (solve_pinned(task, out, &k, &w)) return;
    keep_node(task, &k, &w, out, out->most);
    pass(p, out, &w, room.middle);
    for (int side = -1; side <= 1; side += 2) follow_side(task, out, side, &room, &k, &w);
    out->status = isfinite(out->value[out->most]) ? ELVI_OK : ELVI_SINGULAR_SCALE;
}

/* How far a predictor of this spread is moved for differences: in its own unit */
static double move_of(double spread)
{
    return spread > 0.0 ? 0.5 * spread : 0.01;
}

/* Curvatures at predictors moved to either side: their differences are the expected third and fourth derivatives. */
static int expect_moved(const elvi_nested_task *task, workspace *w, double *third, double *fourth)
{
    const elvi_nested *p = task->plan;
    const int n = p->rows;
    point *x = &w->at;
    for (int side = -1; side <= 1; side++) {
        for (int i = 0; i < n; i++) w->reach[i] = x->eta[i] + side * move_of(x->s[i]);
        const elvi_lines rows = { n, w->y, w->weight, w->reach, x->s };
        elvi_expected expected = { .slope = x->slope, .curve = x->curve };
        if (elvi_nested_expect_rows(p, task->rule, task->at, &rows, &expected) != ELVI_OK) return 1;
        for (int i = 0; i < n; i++) {
            const double by = move_of(x->s[i]);
            if (side < 0) third[i] = fourth[i] = 0.0;
            third[i] += side * x->curve[i] / (2.0 * by);
            fourth[i] += (side ? 1.0 : -2.0) * x->curve[i] / (by * by);
        }
    }
    return 0;
}

/* The same for two predictors, one of them moved at a time: the distinct third derivatives (4) and fourth ones (5) of each row. */
static int expect_both_moved(const elvi_nested_task *task, workspace *w, double *third, double *fourth)
{
    const elvi_nested *p = task->plan;
    const size_t n = (size_t) p->rows;
    point *x = &w->at;
    for (int line = 0; line < ELVI_LINES; line++)
        for (int side = -1; side <= 1; side++) {
            memcpy(w->reach, x->eta, ELVI_LINES * n * sizeof(double));
            for (size_t i = 0; i < n; i++) w->reach[ELVI_LINES * i + line] += side * elvi_joint_reach(x->s + ELVI_PAIRS * i, line);
            const elvi_joint_rows rows = { p->rows, p->lines, w->y, w->weight, w->reach, x->s };
            elvi_joint_expected expected = { .slope = x->slope, .curve = x->curve };
            if (elvi_joint_expect(p->joint, task->rule, task->at->hyper, &rows, &expected) != ELVI_OK) return 1;
            for (size_t i = 0; i < n; i++) {
                const double by = elvi_joint_reach(x->s + ELVI_PAIRS * i, line), *curve = x->curve + ELVI_PAIRS * i;
                double *t = third + 4 * i, *f = fourth + 5 * i;
                for (int k = line ? 2 : 0; k < ELVI_PAIRS; k++)
                    t[k + line] = (side < 0 ? 0.0 : t[k + line]) + side * curve[k] / (2.0 * by);
                for (int k = line; k < ELVI_PAIRS; k++)
                    f[k + 2 * line] = (side < 0 ? 0.0 : f[k + 2 * line]) + (side ? 1.0 : -2.0) * curve[k] / (by * by);
            }
        }
    return 0;
}

/* Sums over rows of minus the third and fourth derivatives along the predictors' moves u: for any number of predictors, by
 * differences of the curvature u' C u with the predictors moved to either side. */
static int add_along(const elvi_nested_task *task, workspace *w, const double *u, double *sum3, double *sum4)
{
    const elvi_nested *p = task->plan;
    const size_t n = (size_t) p->rows, lines = (size_t) p->lines, pairs = (size_t) elvi_pairs_of(p->lines);
    point *x = &w->at;
    double *by = w->lag; /* rows: how far */
    for (size_t i = 0; i < n; i++) {
        double most = 0.0;
        for (size_t l = 0; l < lines; l++) most = fmax(most, fabs(u[lines * i + l]));
        by[i] = most > 0.0 ? move_of(sqrt(x->s[pairs * i])) / most : 0.0;
    }
    for (int side = -1; side <= 1; side++) {
        for (size_t i = 0; i < n; i++)
            for (size_t l = lines * i; l < lines * (i + 1); l++) w->reach[l] = x->eta[l] + side * by[i] * u[l];
        const elvi_joint_rows rows = { p->rows, p->lines, w->y, w->weight, w->reach, x->s };
        elvi_joint_expected expected = { .slope = x->slope, .curve = x->curve };
        if (elvi_joint_expect(p->joint, task->rule, task->at->hyper, &rows, &expected) != ELVI_OK) return 1;
        for (size_t i = 0; i < n; i++) {
            if (by[i] == 0.0) continue;
            const double form = elvi_joint_form(p->lines, x->curve + pairs * i, u + lines * i);
            *sum3 -= side * form / (2.0 * by[i]);
            *sum4 -= (side ? 1.0 : -2.0) * form / (by[i] * by[i]);
        }
    }
    return 0;
}

/* factor, predictors and spreads at the optimum */
static elvi_status set_optimum(const elvi_nested_task *task, workspace *w)
{
    const elvi_nested *p = task->plan;
    set_rows(p, task->at, w);
    start_profile(task->plan, task->at->mu, task->at->c, w);
    if (factor(p, task->at, w->at.c, w)) return ELVI_SINGULAR_SCALE;
    if (covariance(p, w)) return ELVI_SINGULAR_SCALE;
    elvi_nested_spreads(p, w->inverse, w->at.s);
    predict_point(p, w, &w->at);
    return ELVI_OK;
}

/* the same, and the expected third and fourth derivatives of the rows' losses there, of one predictor or two */
static elvi_status set_derivatives(const elvi_nested_task *task, workspace *w, double *third, double *fourth)
{
    const elvi_status status = set_optimum(task, w);
    if (status != ELVI_OK) return status;
    return (task->plan->joint ? expect_both_moved : expect_moved)(task, w, third, fourth) ? ELVI_NO_EXPECTATION : ELVI_OK;
}

elvi_status elvi_nested_cumulants(const elvi_nested_task *task, int n, const double *a, double *third, double *fourth)
{
    const elvi_nested *p = task->plan;
    workspace w = bind(p, task->work, task->links);
    pin k = { .v = w.past[0].mu, .along = w.past[0].c, .q = 0.0 };
    double *l3 = w.past[1].c, *l4 = w.past[2].c; /* and what follows there, for two predictors: 4 and 5 numbers a row */
    const int several = p->lines > ELVI_LINES;
    const elvi_status status = several ? set_optimum(task, &w) : set_derivatives(task, &w, l3, l4);
    if (status != ELVI_OK) return status;
    for (int j = 0; j < n; j++) {
        double sum3 = 0.0, sum4 = 0.0;
        solve_pin(p, a + (size_t) j * (size_t) p->pattern.dim, &w, &k);
        if (several) {
            if (add_along(task, &w, k.along, &sum3, &sum4)) return ELVI_NO_EXPECTATION;
        } else if (p->joint) {
            elvi_joint_cumulants(p->rows, l3, l4, k.along, &sum3, &sum4);
        } else {
            for (int i = 0; i < p->rows; i++) {
                const double u = k.along[i];
                sum3 -= l3[i] * u * u * u;
                sum4 -= l4[i] * u * u * u * u;
            }
        }
        third[j] = sum3 / (k.q * sqrt(k.q));
        fourth[j] = sum4 / (k.q * k.q);
    }
    return ELVI_OK;
}

/* ---- one unknown given those after it ------------------------------------------------------------ */

/* What one of them moves. The rows are gathered. */
typedef struct {
    int *first;                          /* dim: the columns before j that v_j can have are first[j], ..., j - 1 */
    double *v;                           /* dim: column j of L^-T, 0 elsewhere */
    double *seen;                        /* rows: the last j that a row was gathered for, plus 1 */
    double *y, *weight, *eta, *s, *move; /* gathered; move: what the predictor moves by with z_j */
    double *to, *narrow;                 /* their predictors and spreads at a node */
    double *slope, *curve;
    int rows;
} near_rows;

static near_rows near_of(const workspace *w)
{
    const near_rows out = {
        .first = w->links,
        .v = w->past[1].mu,
        .seen = w->past[1].c,
        .y = w->past[1].turn,
        .weight = w->past[1].reach,
        .eta = w->past[2].c,
        .s = w->past[2].turn,
        .move = w->past[2].reach,
        .to = w->past[3].c,
        .narrow = w->past[3].turn,
        .slope = w->past[3].reach,
        .curve = w->near,
    };
    return out;
}

/* entry (row, column) of a factor for a column of its dense tail */
static double tail_entry(const elvi_pattern *f, const double *L, int row, int column) { return L[elvi_pattern_at(f, row, column)]; }

/* Descendants of a column in the tree of the factor come before it; the first of them. */
static void first_descendants(const elvi_pattern *f, int *first)
{
    for (int j = 0; j < f->dim; j++) first[j] = j;
    for (int j = 0; j < f->dim - 1; j++) {
        const int in_tail = j >= f->head, alone = !in_tail && f->start[j] + 1 == f->start[j + 1];
        if (alone) continue;
        const int parent = in_tail ? j + 1 : f->row[f->start[j] + 1];
        if (first[j] < first[parent]) first[parent] = first[j];
    }
}

/* v <- column j of L^-T */
static void inverse_column(const elvi_pattern *f, const double *L, int j, const near_rows *k)
{
    k->v[j] = 1.0 / L[elvi_pattern_at(f, j, j)];
    for (int i = j - 1; i >= k->first[j]; i--) {
        double sum = 0.0;
        if (i >= f->head)
            for (int r = i + 1; r <= j; r++) sum += tail_entry(f, L, r, i) * k->v[r];
        else
            for (int e = f->start[i] + 1; e < f->start[i + 1] && f->row[e] <= j; e++) sum += L[e] * k->v[f->row[e]];
        k->v[i] = sum == 0.0 ? 0.0 : -sum / L[elvi_pattern_at(f, i, i)];
    }
}

/* the rows that v moves, and by how much */
static void gather_rows(const elvi_nested *p, const elvi_residuals *out, const workspace *w, int j, near_rows *k)
{
    k->rows = 0;
    for (int column = k->first[j]; column <= j; column++) {
        if (k->v[column] == 0.0) continue;
        for (int e = out->start[column]; e < out->start[column + 1]; e++) {
            const int i = out->row[e], n = k->rows;
            double move = 0.0;
            if (k->seen[i] == j + 1.0) continue;
            k->seen[i] = j + 1.0;
            for (int a = p->start[i]; a < p->start[i + 1]; a++)
                if (p->column[a] <= j) move += p->entry[a] * k->v[p->column[a]];
            k->y[n] = w->y[i];
            k->weight[n] = w->weight[i];
            k->eta[n] = w->at.eta[i];
            k->s[n] = w->at.s[i];
            k->move[n] = move;
            k->slope[n] = w->at.c[i]; /* until the first expectation */
            k->curve[n] = i;
            k->rows++;
        }
    }
}

/* -log density at z_j = t, up to a constant: the loss of the rows, and the prior's linear and quadratic part */
static double moved_loss(const elvi_nested_task *task, const near_rows *k, double linear, double square, double t)
{
    for (int i = 0; i < k->rows; i++) {
        k->to[i] = k->eta[i] + t * k->move[i];
        k->narrow[i] = sqrt(fmax(k->s[i] * k->s[i] - k->move[i] * k->move[i], 0.0));
    }
    const elvi_lines rows = { k->rows, k->y, k->weight, k->to, k->narrow };
    elvi_expected expected = { .slope = k->slope, .curve = k->curve };
    if (elvi_nested_expect_rows(task->plan, task->rule, task->at, &rows, &expected) != ELVI_OK) return HUGE_VAL;
    return expected.sum + t * (linear + 0.5 * square * t);
}

/* The density of z_j at the nodes, its mean and its standard deviation. */
static int residual_density(const elvi_nested_task *task, elvi_residuals *out, const near_rows *k, double linear, double square,
                            int j)
{
    const int nodes = 2 * out->most + 1;
    double *value = out->value + (size_t) j * (size_t) nodes, top = -HUGE_VAL, sum = 0.0, mean = 0.0, second = 0.0;
    for (int node = 0; node < nodes; node++) {
        value[node] = -moved_loss(task, k, linear, square, (node - out->most) * out->width);
        top = fmax(top, value[node]);
    }
    if (!isfinite(top)) return 1;
    for (int node = 0; node < nodes; node++) {
        const double t = (node - out->most) * out->width, by = exp(value[node] - top);
        sum += by;
        mean += by * t;
        second += by * t * t;
    }
    mean /= sum;
    out->delta[j] = mean;
    out->scale[j] = sqrt(second / sum - mean * mean);
    return 0;
}

void elvi_nested_residuals(const elvi_nested_task *task, elvi_residuals *out)
{
    const elvi_nested *p = task->plan;
    const elvi_pattern *f = &p->pattern;
    const int d = f->dim;
    workspace w = bind(p, task->work, task->links);
    near_rows k = near_of(&w);
    double *l3 = w.past[0].turn, *l4 = w.past[0].reach, *pull = w.past[0].mu, *off = w.past[0].step;
    out->status = set_derivatives(task, &w, l3, l4);
    if (out->status != ELVI_OK) return;
    for (int i = 0; i < d; i++) off[i] = w.at.mu[i] - p->centre[i];
    multiply(p, task->at->A, off, pull);
    memset(k.seen, 0, (size_t) p->rows * sizeof(double));
    memset(k.v, 0, (size_t) d * sizeof(double));
    first_descendants(f, k.first);
    for (int j = 0; j < d; j++) {
        out->delta[j] = out->change[j] = out->skew[j] = out->tail[j] = 0.0;
        out->scale[j] = 1.0;
    }
    for (int j = 0; j < d - p->dense; j++) {
        double linear = 0.0, square = 1.0;
        inverse_column(f, w.L, j, &k);
        gather_rows(p, out, &w, j, &k);
        for (int i = 0; i < k.rows; i++) {
            const int at = (int) k.curve[i];
            const double u2 = k.move[i] * k.move[i];
            out->skew[j] -= l3[at] * k.move[i] * u2;
            out->tail[j] -= l4[at] * u2 * u2;
            square -= k.slope[i] * u2;
        }
        for (int i = k.first[j]; i <= j; i++) linear += k.v[i] * pull[i];
        if (fabs(out->skew[j]) > out->third || fabs(out->tail[j]) > out->fourth) {
            if (residual_density(task, out, &k, linear, square, j)) {
                out->status = ELVI_NO_EXPECTATION;
                return;
            }
            for (int i = k.first[j]; i <= j; i++) out->change[i] += k.v[i] * k.v[i] * (out->scale[j] * out->scale[j] - 1.0);
        }
        for (int i = k.first[j]; i <= j; i++) k.v[i] = 0.0;
    }
}
