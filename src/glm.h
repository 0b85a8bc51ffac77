/* Regressions, and their exact expectations: model_glm.c, exact.c. */
#ifndef ELVI_GLM_H
#define ELVI_GLM_H

#include "family.h"
#include "model.h"
#include "prior.h"

/* f(x) = sum_i weight_i l(X_i b + offset_i, a; y_i) - log prior(x), where b are the first
 * entries of x and a, if it is not known, the entry number dispersion_at */
typedef struct {
    elvi_rows rows;
    elvi_likelihood likelihood;
    elvi_prior prior;
    int dispersion_at; /* -1 if it is known, and then in the weights */
    elvi_tally tally;  /* of responses, for families with `dispersion_terms` */
} elvi_glm;

extern const elvi_model_ops elvi_glm_ops;

/* operations per point, roughly */
double elvi_glm_cost(const elvi_glm *glm);
/* out = (P + X' diag(bound * weight) X) v, P the largest curvature of the prior;
 * scratch as for eval with n = 1 */
void elvi_glm_curvature(const elvi_glm *glm, double bound, const double *v,
                        double *out, double *scratch);

/* the largest curvature of a GLM, in other coordinates if affine is not NULL:
 * out = A' (P + X' diag(bound * weight) X) A v */
typedef struct {
    const elvi_glm *glm;
    const elvi_affine *affine;
    double bound;
    double *scratch; /* as for eval with n = 1 */
    double *moved;   /* d */
} elvi_curvature;
void elvi_curvature_apply(const elvi_curvature *c, const double *v, double *out);

/* ---- exact expectations: exact.c ------------------------------------------ */

typedef struct {
    double value;  /* E f */
    double *g_mu;  /* d */
    double widest; /* the largest spread of a linear predictor */
    /* the gradient of E f with respect to the scale is B scale, B = P + X' diag(c) X */
    double *B;       /* d x d, lower triangle; or NULL, and then its parts: */
    double *own;     /* d: P, which is diagonal */
    double *curve;   /* rows: c */
    double *squares; /* d: the diagonal of X' diag(c) X */
    /* sums over rows of E of the third derivative of the loss along each direction; none: NULL */
    const double *direction; /* d x directions */
    int directions;
    double *third; /* directions */
    double *scratch;
} elvi_exact;

/* of what `out` asks for: B or its parts, and directions */
size_t elvi_exact_scratch_length(const elvi_model *model, const elvi_scale *kind, const elvi_exact *out);
/* With a scale of zeros this is f, its gradient and its Hessian at mu. */
elvi_status elvi_glm_exact(const elvi_model *model, const elvi_quadrature *rule,
                           const elvi_scale *kind, const elvi_theta *theta, elvi_exact *out, const elvi_hooks *hooks);

#endif
