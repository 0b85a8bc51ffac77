/* What families of two predictors share: sums over rows, and quadrature in one and two dimensions. The families are in
 * joint_<group>.c, one record each. */
#include "joint.h"
#include <math.h>
#include <string.h>

static const elvi_joint *const groups[] = {
    elvi_inflated_families,
    elvi_hurdle_families,
    elvi_scale_families,
};

const elvi_joint *elvi_joint_named(const char *name)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        for (const elvi_joint *family = groups[i]; family->name; family++)
            if (strcmp(family->name, name) == 0) return family;
    return NULL;
}

int elvi_joint_is_whole(const elvi_joint *family) { return family->at && family->expect; }

/* ---- rows ---------------------------------------------------------------------------- */

static double scaled(double w, const elvi_joint_piece *e, double *slope, double *curve)
{
    if (slope)
        for (int l = 0; l < ELVI_LINES; l++) slope[l] = w * e->slope[l];
    if (curve)
        for (int k = 0; k < ELVI_PAIRS; k++) curve[k] = w * e->curve[k];
    return w * e->value;
}

elvi_status elvi_joint_expect(const elvi_joint *family, const elvi_quadrature *rule, const double *hyper,
                              const elvi_joint_rows *rows, elvi_joint_expected *out)
{
    out->sum = out->widest = out->hyper = 0.0;
    for (int i = 0; i < rows->n; i++) {
        const double w = rows->weight[i], *eta = rows->eta + ELVI_LINES * (size_t) i, *V = rows->V + ELVI_PAIRS * (size_t) i;
        double *slope = out->slope + ELVI_LINES * (size_t) i, *curve = out->curve + ELVI_PAIRS * (size_t) i;
        elvi_joint_piece e = { 0 };
        if (w > 0.0) {
            const elvi_joint_row row = { .y = rows->y[i], .eta = { eta[0], eta[1] }, .V = { V[0], V[1], V[2] } };
            const double s = sqrt(fmax(fmax(V[0], V[2]), 0.0));
            e = family->expect(hyper, rule, &row);
            if (!isfinite(e.value)) return ELVI_NO_EXPECTATION;
            if (s > out->widest) out->widest = s;
            out->hyper += w * e.hyper;
        }
        out->sum += scaled(w, &e, slope, curve);
    }
    return ELVI_OK;
}

double elvi_joint_loss(const elvi_joint *family, const double *hyper, const elvi_joint_rows *rows, double *slope)
{
    double sum = 0.0;
    for (int i = 0; i < rows->n; i++) {
        elvi_joint_piece e = { 0 };
        if (rows->weight[i] > 0.0) e = family->at(hyper, rows->y[i], rows->eta + ELVI_LINES * (size_t) i);
        sum += scaled(rows->weight[i], &e, slope ? slope + ELVI_LINES * (size_t) i : NULL, NULL);
    }
    return sum;
}

/* ---- quadrature ----------------------------------------------------------------------- */

static const elvi_quadrature_level *level_for(const elvi_quadrature *rule, double s)
{
    const elvi_quadrature_level *level = rule->level;
    while (level->limit < s) level++; /* the last has no limit */
    return level;
}

static void add_piece(elvi_joint_piece *sum, double w, const elvi_joint_piece *e)
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
        .first = level_for(rule, s1),
        .second = level_for(rule, s2),
    };
    return out;
}

elvi_joint_piece elvi_joint_integrate(elvi_joint_function at, const double *hyper, const elvi_quadrature *rule,
                                      const elvi_joint_row *row)
{
    const double least = 1e-14; /* of a node's weight */
    const elvi_joint_axes x = elvi_joint_axes_of(rule, row);
    elvi_joint_piece sum = { 0 };
    for (int i = 0; i < 2 * x.first->n; i++)
        for (int j = 0; j < 2 * x.second->n; j++) {
            const double z1 = elvi_node(x.first, i), z2 = elvi_node(x.second, j), w = x.first->w[i / 2] * x.second->w[j / 2];
            const double eta[ELVI_LINES] = { row->eta[0] + x.s1 * z1, row->eta[1] + x.with * z1 + x.s2 * z2 };
            if (w < least) continue;
            const elvi_joint_piece e = at(hyper, row->y, eta);
            add_piece(&sum, w, &e);
        }
    return sum;
}

void elvi_joint_add_line(elvi_line_function at, const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row,
                         int line, elvi_joint_piece *out)
{
    const int own = line ? ELVI_PAIRS - 1 : 0;
    const double s = sqrt(fmax(row->V[own], 0.0));
    const elvi_quadrature_level *level = level_for(rule, s);
    for (int a = 0; a < 2 * level->n; a++) {
        const double z = elvi_node(level, a), w = level->w[a / 2];
        const elvi_line_piece e = at(hyper, row->y, row->eta[line] + s * z);
        out->value += w * e.value;
        out->slope[line] += w * e.slope;
        out->curve[own] += w * e.curve;
        out->hyper += w * e.hyper;
    }
}
