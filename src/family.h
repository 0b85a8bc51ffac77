/* The response given its linear predictor: likelihood.c, and a group of families in each likelihood_<group>.c. */
#ifndef ELVI_FAMILY_H
#define ELVI_FAMILY_H

#include "quadrature.h"
#include "rows.h"

/* The family's own hyperparameters, all positive: most have at most one, a dispersion. */
typedef struct {
    double log, natural, inverse; /* of the first: a, e^a = sigma or phi, e^-a */
    int count;
    const double *hyper; /* count: all of them */
} elvi_dispersion;
extern const elvi_dispersion elvi_no_dispersion; /* of 1 */
elvi_dispersion elvi_dispersion_at(double log);
elvi_dispersion elvi_dispersion_of(int count, const double *hyper);

/* distinct responses and their total weights */
typedef struct {
    int n;
    const double *y, *weight; /* n each */
} elvi_tally;

/* rows whose predictors are eta_i + s_i z_1 */
typedef struct {
    int n;
    const double *y, *weight, *eta, *s; /* n each */
} elvi_lines;

typedef struct {
    double sum;    /* sum_i w_i E l(eta_i + s_i z_1; y_i) */
    double widest; /* the largest s_i of a row of positive weight */
    double *slope; /* n: w_i E l' */
    double *curve; /* n: w_i E[l' z_1] / s_i, >= 0 for convex losses */
} elvi_expected;

/* One of these rows, and its slope and curve, both times its weight. */
typedef struct {
    double y, weight, eta, s, slope, curve;
} elvi_expected_row;

typedef struct elvi_family elvi_family;
typedef struct {
    const elvi_family *family;
    double error_df; /* degrees of freedom of the errors, where there are any */
} elvi_likelihood;

/* R/family.R has a record of the same name with the parts that R needs. `a` is elvi_no_dispersion
 * for families without one. */
struct elvi_family {
    const char *name;
    int convex;    /* is l convex in eta? */
    int quadratic; /* is it even quadratic? */
    double cost;   /* operations for a row's slope, roughly */
    /* sum_i w_i l(eta_i; y_i) */
    double (*loss)(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,
                   const double *eta);
    /* eta_i <- w_i l'(eta_i; y_i), and returns sum_i w_i dl/da */
    double (*slope)(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_part *rows,
                    double *eta);
    /* of one row, for hyperparameters that are given */
    elvi_expectation (*expect)(const elvi_likelihood *lik, const elvi_dispersion *a,
                               const elvi_quadrature *rule, double y, double eta, double s);
    /* of many rows, as elvi_expect_rows() does it, where there is a faster way; or NULL */
    elvi_status (*expect_many)(const elvi_dispersion *a, const elvi_quadrature *rule, const elvi_lines *rows, elvi_expected *out);
    /* has the loss of a row with response y an exponential in it, whose expectation may
     * not exist? */
    int (*exponential)(double y);
    /* the sum of what has no eta in it, and its derivative in a; NULL if that is 0 */
    double (*dispersion_terms)(const elvi_dispersion *a, const elvi_tally *tally, double *slope);
    /* adds to out (a->count) the weight times E dl / d log of each hyperparameter, of one row. A family whose record in R
     * says conditional$dispersion = "own" must have it (elvi_family_is_whole); for all others it is NULL, as nothing
     * calls it. */
    void (*add_hyper_slopes)(const elvi_likelihood *lik, const elvi_dispersion *a, const elvi_quadrature *rule,
                             const elvi_expected_row *row, double *out);
};

const elvi_family *elvi_family_named(const char *name); /* NULL if there is none */
/* Has its record every entry that it must have, `add_hyper_slopes` if that is asked for? */
int elvi_family_is_whole(const elvi_family *family, int with_hyper_slopes);

/* Fills *out, whose pointers are the caller's. `a` has sigma or phi where the family has one, else it is not
 * used. normal: log sigma + (y - eta)^2 / (2 sigma^2) is the loss, so its log sigma is in the sum; neg_binomial_2:
 * (y + phi) log(1 + e^u) - y u, u = eta - log phi, so y log phi is in it, but not the gamma functions of (y, phi). With
 * s = 0 these are l, l' and l''. ELVI_NO_EXPECTATION if one does not exist. */
elvi_status elvi_expect_rows(const elvi_likelihood *lik, const elvi_quadrature *rule, const elvi_dispersion *a,
                             const elvi_lines *rows, elvi_expected *out);

/* expect_logit.c, as above; elementwise.c: E log(1 + e^t), E 1 / (1 + e^-t) and
 * E[z / (1 + e^-t)], t = eta_i + s_i z */
elvi_status elvi_logit_expect_rows(const elvi_dispersion *a, const elvi_quadrature *rule, const elvi_lines *rows,
                                   elvi_expected *out);
typedef struct {
    double *value, *slope, *turn; /* one for each row */
} elvi_logit_expected;
void elvi_logit_integrals(int n, const double *eta, const double *s, const elvi_quadrature_level *level,
                          const elvi_logit_expected *out);

/* phi(t) / Phi(t) of the normal distribution, to a few units in the last place for all t */
double elvi_mills(double t);

/* elementwise.c: sum_i w_i l(eta_i; y_i), and eta_i <- w_i l'(eta_i; y_i), over n rows */
double elvi_logit_loss(int n, const double *y, const double *w, const double *eta);
double elvi_poisson_loss(int n, const double *y, const double *w, const double *eta);
void elvi_logit_slope(int n, const double *y, const double *w, double *eta);
void elvi_poisson_slope(int n, const double *y, const double *w, double *eta);
/* log|y_i|; and sum_i w_i (e^u - u), u = shape (log|y_i| + centre - eta_i), without the - u where y_i is negative */
void elvi_log_sizes(int n, const double *y, double *out);
double elvi_survival_loss(int n, const double *y, const double *w, const double *eta, double shape, double centre);

#endif
