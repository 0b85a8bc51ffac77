/* Expectations of a function of one variable under a rule (see elvi_quadrature in quadrature.h), made for each
 * function by itself so that compilers can inline it: a macro, not a pointer. */
#ifndef ELVI_EXPECTATION_H
#define ELVI_EXPECTATION_H

#include "quadrature.h"

typedef struct {
    double l, slope; /* a function and its derivative at a point */
} elvi_piece;

/* below this spread, E[l' z] / s is l'' up to s^2, and better than a difference */
static const double elvi_tiny_spread = 1e-5;

/* elvi_expectation name(level, eta, s), of a function `piece` whose second derivative, given the
 * first two, is `second` */
#define ELVI_EXPECTATION_OF(name, piece, second)                                           \
    static elvi_expectation name(const elvi_quadrature_level *level, double eta, double s) \
    {                                                                                      \
        elvi_expectation e = { 0.0, 0.0, 0.0 };                                            \
        if (s == 0.0) {                                                                    \
            const elvi_piece at = piece(eta);                                              \
            const elvi_expectation point = { at.l, at.slope, second(eta, at) };            \
            return point;                                                                  \
        }                                                                                  \
        while (level->limit < s) level++; /* the last level has no limit */                \
        for (int q = 0; q < level->n; q++) {                                               \
            const double shift = s * level->z[q], w = level->w[q];                         \
            const elvi_piece up = piece(eta + shift), down = piece(eta - shift);           \
            e.value += w * (up.l + down.l);                                                \
            e.slope += w * (up.slope + down.slope);                                        \
            e.curve += w * level->z[q] * (up.slope - down.slope);                          \
        }                                                                                  \
        e.curve = s > elvi_tiny_spread ? e.curve / s : second(eta, piece(eta));            \
        return e;                                                                          \
    }

#endif
