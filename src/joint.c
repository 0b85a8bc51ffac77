/* What families of several predictors share: sums over rows, and quadrature in one and two dimensions. The families are in
 * joint_<group>.c, one record each. */
#include "joint.h"
#include <math.h>
#include <string.h>

static const elvi_joint *const groups[] = {
    elvi_inflated_families,
    elvi_hurdle_families,
    elvi_scale_families,
    elvi_class_families,
};

const elvi_joint *elvi_joint_named(const char *name)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const elvi_joint *family = groups[i]; family->name; family++)
            if (strcmp(family->name, name) == 0) return family;
    return NULL;
}

int elvi_joint_is_whole(const elvi_joint *family)
{
    return family->many ? family->many->at && family->many->expect : family->at && family->expect;
}

/* ---- rows ---------------------------------------------------------------------------- */

static void scale_by(int n, double w, double *x)
{
    for (int k = 0; k < n; k++) x[k] *= w;
}

static double largest_spread(int lines, const double *V)
{
    double most = 0.0;
    for (int l = 0; l < lines; V += lines - l, l++) most = fmax(most, V[0]);
    return sqrt(most);
}

/* where the derivatives of a row go */
typedef struct {
    double *slope, *curve, hyper;
} row_derivatives;

/* E of one row, not weighed */
static double expect_row(const elvi_joint *family, const elvi_quadrature *rule, const double *hyper, const elvi_joint_rows *rows,
                         size_t i, row_derivatives *out)
{
    const int lines = rows->lines;
    const double *eta = rows->eta + (size_t) lines * i, *V = rows->V + (size_t) elvi_pairs_of(lines) * i;
    if (family->many) {
        const elvi_many_row row = { lines, rows->y + (size_t) lines * i, eta, V };
        return family->many->expect(&rule->several, &row, out->slope, out->curve);
    }
    const elvi_joint_row row = { .y = rows->y[i], .eta = { eta[0], eta[1] }, .V = { V[0], V[1], V[2] } };
    const elvi_joint_piece e = family->expect(hyper, rule, &row);
    memcpy(out->slope, e.slope, sizeof e.slope);
    memcpy(out->curve, e.curve, sizeof e.curve);
    out->hyper = e.hyper;
    return e.value;
}

elvi_status elvi_joint_expect(const elvi_joint *family, const elvi_quadrature *rule, const double *hyper,
                              const elvi_joint_rows *rows, elvi_joint_expected *out)
{
    const int lines = rows->lines, pairs = elvi_pairs_of(lines);
    out->sum = out->widest = out->hyper = 0.0;
    for (size_t i = 0; i < (size_t) rows->n; i++) {
        const double w = rows->weight[i];
        double *slope = out->slope + (size_t) lines * i, *curve = out->curve + (size_t) pairs * i;
        row_derivatives mine = { slope, curve, 0.0 };
        if (!(w > 0.0)) {
            memset(slope, 0, (size_t) lines * sizeof(double));
            memset(curve, 0, (size_t) pairs * sizeof(double));
            continue;
        }
        const double value = expect_row(family, rule, hyper, rows, i, &mine);
        if (!isfinite(value)) return ELVI_NO_EXPECTATION;
        out->widest = fmax(out->widest, largest_spread(lines, rows->V + (size_t) pairs * i));
        out->hyper += w * mine.hyper;
        out->sum += w * value;
        scale_by(lines, w, slope);
        scale_by(pairs, w, curve);
    }
    return ELVI_OK;
}

static double row_loss(const elvi_joint *family, const double *hyper, const elvi_joint_rows *rows, size_t i, double *slope)
{
    const double *eta = rows->eta + (size_t) rows->lines * i;
    if (family->many) return family->many->at(rows->lines, rows->y + (size_t) rows->lines * i, eta, slope);
    const elvi_joint_piece e = family->at(hyper, rows->y[i], eta);
    if (slope) memcpy(slope, e.slope, sizeof e.slope);
    return e.value;
}

double elvi_joint_loss(const elvi_joint *family, const double *hyper, const elvi_joint_rows *rows, double *slope)
{
    double sum = 0.0;
    for (size_t i = 0; i < (size_t) rows->n; i++) {
        const double w = rows->weight[i];
        double *mine = slope ? slope + (size_t) rows->lines * i : NULL;
        if (w > 0.0)
            sum += w * row_loss(family, hyper, rows, i, mine);
        else if (mine)
            memset(mine, 0, (size_t) rows->lines * sizeof(double));
        if (mine) scale_by(rows->lines, w, mine);
    }
    return sum;
}

/* ---- quadrature ----------------------------------------------------------------------- */

const elvi_quadrature_level *elvi_joint_level(const elvi_quadrature *rule, double s)
{
    const elvi_quadrature_level *level = rule->level;
    while (level->limit < s) level++; /* the last has no limit */
    return level;
}

void elvi_joint_add(elvi_joint_piece *sum, double w, const elvi_joint_piece *e)
{
    sum->value += w * e->value;
    sum->hyper += w * e->hyper;
    for (int l = 0; l < ELVI_LINES; l++) sum->slope[l] += w * e->slope[l];
    for (int k = 0; k < ELVI_PAIRS; k++) sum->curve[k] += w * e->curve[k];
}

elvi_joint_axes elvi_joint_axes_of(const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const double s1 = sqrt(fmax(row->V[0], 0.0)), s2 = sqrt(fmax(row->V[2], 0.0)), with = s1 > 0.0 ? row->V[1] / s1 : 0.0;
    const elvi_joint_axes out = {
        .s1 = s1,
        .with = with,
        .s2 = sqrt(fmax(row->V[2] - with * with, 0.0)),
        .first = elvi_joint_level(rule, s1),
        .second = elvi_joint_level(rule, s2),
    };
    return out;
}

elvi_joint_axes elvi_joint_axes_given_second(const elvi_quadrature *rule, const elvi_joint_row *row)
{
    const elvi_joint_row turned = { .V = { row->V[2], row->V[1], row->V[0] } };
    const elvi_joint_axes x = elvi_joint_axes_of(rule, &turned);
    const elvi_joint_axes out = { .s1 = x.s2, .with = x.with, .s2 = x.s1, .first = x.second, .second = x.first };
    return out;
}

elvi_joint_piece elvi_joint_integrate(elvi_joint_function at, const double *hyper, const elvi_quadrature *rule,
                                      const elvi_joint_row *row)
{
    const elvi_joint_axes x = elvi_joint_axes_of(rule, row);
    elvi_joint_piece sum = { 0 };
    for (int i = 0; i < 2 * x.first->n; i++)
        for (int j = 0; j < 2 * x.second->n; j++) {
            const double z1 = elvi_node(x.first, i), z2 = elvi_node(x.second, j), w = x.first->w[i / 2] * x.second->w[j / 2];
            const double eta[ELVI_LINES] = { row->eta[0] + x.s1 * z1, row->eta[1] + x.with * z1 + x.s2 * z2 };
            if (w < elvi_least_weight) continue;
            const elvi_joint_piece e = at(hyper, row->y, eta);
            elvi_joint_add(&sum, w, &e);
        }
    return sum;
}

void elvi_joint_add_line(elvi_line_function at, const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row,
                         int line, elvi_joint_piece *out)
{
    const int own = line ? ELVI_PAIRS - 1 : 0;
    const double s = sqrt(fmax(row->V[own], 0.0));
    const elvi_quadrature_level *level = elvi_joint_level(rule, s);
    for (int a = 0; a < 2 * level->n; a++) {
        const double z = elvi_node(level, a), w = level->w[a / 2];
        const elvi_line_piece e = at(hyper, row->y, row->eta[line] + s * z);
        out->value += w * e.value;
        out->slope[line] += w * e.slope;
        out->curve[own] += w * e.curve;
        out->hyper += w * e.hyper;
    }
}
