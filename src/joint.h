/* The response given several linear predictors: two, such as those of a count and of its zero inflation, or of a location and a
 * scale; or one for each class but the first. joint.c, and a group of families in each joint_<group>.c. */
#ifndef ELVI_JOINT_H
#define ELVI_JOINT_H

#include "core.h"
#include "quadrature.h"

/* nodes of a product of two rules that are left out */
static const double elvi_least_weight = 1e-12;

enum { ELVI_LINES = 2,
       ELVI_PAIRS = 3,      /* of families of two predictors, and pairs of them: (1, 1), (1, 2), (2, 2) */
       ELVI_MOST_LINES = 7, /* of those with as many as there are classes */
       ELVI_MOST_SQUARE = ELVI_MOST_LINES * ELVI_MOST_LINES };

/* pairs of so many predictors: (1, 1), (2, 1), ..., (n, 1), (2, 2), ... */
static inline int elvi_pairs_of(int lines) { return lines * (lines + 1) / 2; }

/* of one row: l, its gradient and Hessian in the predictors, and its derivative in the logarithm of the family's own parameter;
 * at a point, or expected */
typedef struct {
    double value, slope[ELVI_LINES], curve[ELVI_PAIRS], hyper;
} elvi_joint_piece;

/* a response, and its predictors: normal with these means and (co)variances */
typedef struct {
    double y, eta[ELVI_LINES], V[ELVI_PAIRS];
} elvi_joint_row;

/* the same of as many predictors as there are lines, with as many numbers for a response */
typedef struct {
    int lines;
    const double *y, *eta, *V;
} elvi_many_row;

/* A convex loss of any number of predictors, whose response is as many numbers. Both return the loss. */
typedef struct {
    double (*at)(int lines, const double *y, const double *eta, double *slope); /* slope may be NULL */
    /* by the rule's points; curve: the derivative of the sum in V, times 2 */
    double (*expect)(const elvi_cubature *rule, const elvi_many_row *row, double *slope, double *curve);
} elvi_many;

/* R/family-joint.R has a record of the same name with what R must know. `hyper` points to the family's own parameters. */
typedef struct {
    const char *name;
    int hypers; /* parameters beside the predictors: 0 or 1 */
    elvi_joint_piece (*at)(const double *hyper, double y, const double *eta);
    /* for gaussian predictors */
    elvi_joint_piece (*expect)(const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row);
    const elvi_many *many; /* any number of predictors, in place of the two functions; NULL: two */
} elvi_joint;

const elvi_joint *elvi_joint_named(const char *name); /* NULL if there is none */
int elvi_joint_is_whole(const elvi_joint *family);

/* numbers that a response is */
static inline int elvi_joint_responses(const elvi_joint *family, int lines) { return family->many ? lines : 1; }

/* many rows; responses, predictors and covariances row by row */
typedef struct {
    int n, lines;
    const double *y, *weight; /* elvi_joint_responses() n, n */
    const double *eta;        /* lines n */
    const double *V;          /* pairs n */
} elvi_joint_rows;

typedef struct {
    double sum;    /* sum_i w_i E l */
    double widest; /* the largest standard deviation of a predictor of a row of positive weight */
    double hyper;  /* sum_i w_i E dl/d log(parameter) */
    double *slope; /* lines n: w_i E grad l */
    double *curve; /* pairs n: w_i E Hessian */
} elvi_joint_expected;

elvi_status elvi_joint_expect(const elvi_joint *family, const elvi_quadrature *rule, const double *hyper,
                              const elvi_joint_rows *rows, elvi_joint_expected *out);
/* sum_i w_i l of n rows at predictors eta; with slope, w_i grad l */
double elvi_joint_loss(const elvi_joint *family, const double *hyper, const elvi_joint_rows *rows, double *slope);

/* ---- for the families ---- */

/* Predictors as functions of two independent normal variables: eta_1 + s1 z_1 and eta_2 + with z_1 + s2 z_2, each with its rule. */
typedef struct {
    double s1, with, s2;
    const elvi_quadrature_level *first, *second;
} elvi_joint_axes;
const elvi_quadrature_level *elvi_joint_level(const elvi_quadrature *rule, double s); /* the rule for a spread s */
void elvi_joint_add(elvi_joint_piece *sum, double w, const elvi_joint_piece *e);      /* sum += w e */
elvi_joint_axes elvi_joint_axes_of(const elvi_quadrature *rule, const elvi_joint_row *row);
/* the other way round, eta_1 + with z_2 + s1 z_1 and eta_2 + s2 z_2 */
elvi_joint_axes elvi_joint_axes_given_second(const elvi_quadrature *rule, const elvi_joint_row *row);
/* node i of the 2 n that a level has */
static inline double elvi_node(const elvi_quadrature_level *level, int i) { return i & 1 ? -level->z[i / 2] : level->z[i / 2]; }

typedef elvi_joint_piece (*elvi_joint_function)(const double *hyper, double y, const double *eta);
/* by the product of two rules; a family whose expectation has no shorter way uses it */
elvi_joint_piece elvi_joint_integrate(elvi_joint_function at, const double *hyper, const elvi_quadrature *rule,
                                      const elvi_joint_row *row);

/* a function of one predictor, with its first two derivatives, and its derivative in the logarithm of the family's parameter */
typedef struct {
    double value, slope, curve, hyper;
} elvi_line_piece;
typedef elvi_line_piece (*elvi_line_function)(const double *hyper, double y, double eta);
/* E of a function of predictor `line`, added to out */
void elvi_joint_add_line(elvi_line_function at, const double *hyper, const elvi_quadrature *rule, const elvi_joint_row *row,
                         int line, elvi_joint_piece *out);

extern const elvi_joint elvi_inflated_families[], elvi_hurdle_families[], elvi_scale_families[], elvi_class_families[];

#endif
