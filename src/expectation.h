/* Expectations of a function of one variable under a rule (see elvi_quadrature in quadrature.h), made for each
 * function by itself so that compilers can inline it: a macro, not a pointer. */
#ifndef ELVI_EXPECTATION_H
#define ELVI_EXPECTATION_H

#include "quadrature.h"
#include <stddef.h>

typedef struct {
    double l, slope; /* a function and its derivative at a point */
} elvi_piece;

/* below this spread, E[l' z] / s is l'' up to s^2, and better than a difference */
static const double elvi_tiny_spread = 1e-5;

/* elvi_expectation name(level, g, eta, s), of a function `piece` of something given and a number, whose second derivative,
 * given the first two, is `second` */
#define ELVI_EXPECTATION_GIVEN(name, given, piece, second)                                                 \
    static elvi_expectation name(const elvi_quadrature_level *level, const given *g, double eta, double s) \
    {                                                                                                      \
        elvi_expectation e = { 0.0, 0.0, 0.0 };                                                            \
        if (s == 0.0) {                                                                                    \
            const elvi_piece at = piece(g, eta);                                                           \
            const elvi_expectation point = { at.l, at.slope, second(g, eta, at) };                         \
            return point;                                                                                  \
        }                                                                                                  \
        while (level->limit < s) level++; /* the last level has no limit */                                \
        for (int q = 0; q < level->n; q++) {                                                               \
            const double shift = s * level->z[q], w = level->w[q];                                         \
            const elvi_piece up = piece(g, eta + shift), down = piece(g, eta - shift);                     \
            e.value += w * (up.l + down.l);                                                                \
            e.slope += w * (up.slope + down.slope);                                                        \
            e.curve += w * level->z[q] * (up.slope - down.slope);                                          \
        }                                                                                                  \
        e.curve = s > elvi_tiny_spread ? e.curve / s : second(g, eta, piece(g, eta));                      \
        return e;                                                                                          \
    }

/* elvi_expectation name(level, eta, s), of a function of a number alone */
#define ELVI_EXPECTATION_OF(name, piece, second)                                           \
    static inline elvi_piece name##_piece(const void *none, double t)                      \
    {                                                                                      \
        (void) none;                                                                       \
        return piece(t);                                                                   \
    }                                                                                      \
    static inline double name##_second(const void *none, double t, elvi_piece at)          \
    {                                                                                      \
        (void) none;                                                                       \
        return second(t, at);                                                              \
    }                                                                                      \
    ELVI_EXPECTATION_GIVEN(name##_given, void, name##_piece, name##_second)                \
    static elvi_expectation name(const elvi_quadrature_level *level, double eta, double s) \
    {                                                                                      \
        return name##_given(level, NULL, eta, s);                                          \
    }

/* double name(level, g, eta, s), the expectation of a function `of` of something given and a number */
#define ELVI_MEAN_GIVEN(name, given, of)                                                         \
    static double name(const elvi_quadrature_level *level, const given *g, double eta, double s) \
    {                                                                                            \
        double sum = 0.0;                                                                        \
        if (s == 0.0) return of(g, eta);                                                         \
        while (level->limit < s) level++;                                                        \
        for (int q = 0; q < level->n; q++)                                                       \
            sum += level->w[q] * (of(g, eta + s * level->z[q]) + of(g, eta - s * level->z[q]));  \
        return sum;                                                                              \
    }

#endif
