/* Rules for expectations in one dimension, and in several: R/solve-quadrature.R makes them, expectation.h uses them. */
#ifndef ELVI_QUADRATURE_H
#define ELVI_QUADRATURE_H

/* E g(z_1) = sum_q w_q (g(z_q) + g(-z_q)), trusted for spreads up to limit */
typedef struct {
    int n;
    const double *z, *w; /* n each */
    double limit;
} elvi_quadrature_level;

typedef struct {
    double value, slope, curve; /* E l, E l', E[l' z_1] / s at eta + s z_1 */
} elvi_expectation;

/* E g(z) = sum_q w_q g(z_q) for z of several dimensions */
typedef struct {
    int points;
    const double *z, *w; /* dimensions x points, points */
} elvi_cubature;

enum { ELVI_QUADRATURE_LEVELS = 8 };
typedef struct {
    elvi_quadrature_level level[ELVI_QUADRATURE_LEVELS];        /* the last has limit Inf */
    elvi_quadrature_level prior[ELVI_QUADRATURE_LEVELS];        /* the same for student priors */
    elvi_expectation (*mgf)(double rate, double eta, double s); /* E exp in closed form; NULL: it has none */
    double mgf_rate;
    elvi_cubature several; /* of a family with more than two predictors; none for others */
    double limit;          /* E f does not exist for spreads from here on */
} elvi_quadrature;

/* base.c: closed forms of E exp(eta + s z_1); a base says in R which is its own */
elvi_expectation elvi_mgf_gaussian(double rate, double eta, double s);
elvi_expectation elvi_mgf_laplace(double rate, double eta, double s);

#endif
