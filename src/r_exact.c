#include "r_elvi.h"
#include <string.h>

static void read_levels(SEXP levels, elvi_rule_level *out)
{
    const int n = Rf_length(levels);
    if (n > ELVI_RULE_LEVELS) Rf_error("elvi internal error: too many levels of quadrature");
    for (int i = 0; i < n; i++) {
        SEXP level = VECTOR_ELT(levels, i);
        const R_xlen_t nodes = Rf_xlength(r_get(level, "z"));
        out[i].n = (int) nodes;
        out[i].z = r_reals(level, "z", nodes);
        out[i].w = r_reals(level, "w", nodes);
        out[i].limit = r_number(level, "limit");
    }
}

static elvi_rule read_rule(SEXP list)
{
    static const char *const mgfs[] = { "none", "gaussian", "laplace", NULL };
    elvi_rule rule;
    read_levels(r_get(list, "levels"), rule.level);
    read_levels(r_get(list, "prior_levels"), rule.prior);
    rule.mgf = r_choice(list, "mgf", mgfs);
    rule.mgf_rate = r_number(list, "mgf_rate");
    rule.limit = r_number(list, "limit");
    return rule;
}

/* E f, its gradient in mu, and B as a full symmetric matrix */
SEXP elvi_r_exact(SEXP model, SEXP rule, SEXP kind, SEXP mu, SEXP scale)
{
    static const char *const names[] = { "status", "value", "g_mu", "B" };
    r_model_store store;
    const elvi_model m = r_model(model, &store);
    const elvi_rule r = read_rule(rule);
    const elvi_theta theta = { REAL(mu), REAL(scale) };   /* only read */
    SEXP out = PROTECT(r_named_list(4, names));
    SET_VECTOR_ELT(out, 2, Rf_allocVector(REALSXP, m.dim));
    SET_VECTOR_ELT(out, 3, Rf_allocMatrix(REALSXP, m.dim, m.dim));
    elvi_exact e = { 0.0, REAL(VECTOR_ELT(out, 2)), REAL(VECTOR_ELT(out, 3)) };
    double *scratch = (double *) R_alloc(elvi_exact_scratch_length(&store.glm), sizeof(double));
    const elvi_status status = elvi_glm_exact(&store.glm, &r, r_scale_kind(kind), &theta, scratch, &e);
    for (int j = 0; j < m.dim; j++)
        for (int i = j + 1; i < m.dim; i++)
            e.B[(size_t) i * m.dim + j] = e.B[(size_t) j * m.dim + i];
    SET_VECTOR_ELT(out, 0, Rf_ScalarInteger(status));
    SET_VECTOR_ELT(out, 1, Rf_ScalarReal(e.value));
    UNPROTECT(1);
    return out;
}
