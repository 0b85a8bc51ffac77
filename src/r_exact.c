#include "r_elvi.h"
#include "linalg.h"

static void read_levels(SEXP levels, elvi_quadrature_level *out)
{
    const int n = Rf_length(levels);
    if (n > ELVI_QUADRATURE_LEVELS) Rf_error("elvi internal error: too many levels of quadrature");
    for (int i = 0; i < n; i++) {
        SEXP level = VECTOR_ELT(levels, i);
        const R_xlen_t nodes = Rf_xlength(r_get(level, "z"));
        out[i].n = (int) nodes;
        out[i].z = r_reals(level, "z", nodes);
        out[i].w = r_reals(level, "w", nodes);
        out[i].limit = r_number(level, "limit");
    }
}

static elvi_cubature read_cubature(SEXP rule)
{
    elvi_cubature out = { 0 };
    if (Rf_isNull(rule)) return out;
    out.points = Rf_length(r_get(rule, "w"));
    out.z = r_reals(rule, "z", Rf_xlength(r_get(rule, "z")));
    out.w = r_reals(rule, "w", out.points);
    return out;
}

elvi_quadrature r_quadrature(SEXP list)
{
    static const char *const names[] = { "none", "gaussian", "laplace", NULL };
    static elvi_expectation (*const mgfs[])(double, double, double) = { NULL, elvi_mgf_gaussian, elvi_mgf_laplace };
    elvi_quadrature rule;
    read_levels(r_get(list, "levels"), rule.level);
    read_levels(r_get(list, "prior_levels"), rule.prior);
    rule.mgf = mgfs[r_choice(list, "mgf", names)];
    rule.mgf_rate = r_number(list, "mgf_rate");
    rule.limit = r_number(list, "limit");
    rule.several = read_cubature(r_get_if(list, "several"));
    return rule;
}

/* E f and its derivatives at mu and scale, to where `out` points */
static elvi_status exact_into(elvi_exact *out, const elvi_model *model, SEXP rule, SEXP kind, SEXP mu, SEXP scale)
{
    const elvi_quadrature r = r_quadrature(rule);
    const elvi_scale k = r_scale(kind, model->dim, scale);
    const elvi_theta theta = { REAL(mu), REAL(scale) }; /* only read */
    out->scratch = (double *) R_alloc(elvi_exact_scratch_length(model, &k, out), sizeof(double));
    return elvi_glm_exact(model, &r, &k, &theta, out, &r_interruptible);
}

static SEXP exact_list(SEXP out, elvi_status status, const elvi_exact *e)
{
    r_set(out, "status", Rf_ScalarInteger(status));
    r_set(out, "value", Rf_ScalarReal(e->value));
    r_set(out, "widest", Rf_ScalarReal(e->widest));
    return out;
}

/* E f, its gradient in mu, B as a full symmetric matrix, and the widest spread; third derivatives along the
 * columns of `directions`, a matrix or NULL */
SEXP elvi_r_exact(SEXP model, SEXP rule, SEXP kind, SEXP mu, SEXP scale, SEXP directions, SEXP threads)
{
    static const char *const plain[] = { "status", "value", "widest", "g_mu", "B", NULL };
    static const char *const along[] = { "status", "value", "widest", "g_mu", "B", "third", NULL };
    r_model_store store;
    const elvi_model m = r_model(model, &store, Rf_asInteger(threads));
    SEXP out = PROTECT(r_named_list(Rf_isNull(directions) ? plain : along));
    elvi_exact e = {
        .g_mu = r_set_reals(out, "g_mu", m.dim),
        .B = REAL(r_set(out, "B", Rf_allocMatrix(REALSXP, m.dim, m.dim))),
        .directions = Rf_isNull(directions) ? 0 : Rf_ncols(directions),
    };
    if (e.directions) {
        e.direction = REAL(directions);
        e.third = r_set_reals(out, "third", e.directions);
    }
    const elvi_status status = exact_into(&e, &m, rule, kind, mu, scale);
    elvi_mirror(m.dim, e.B);
    exact_list(out, status, &e);
    UNPROTECT(1);
    return out;
}

/* the same with parts of B instead of it, which need no d x d matrix */
SEXP elvi_r_exact_parts(SEXP model, SEXP rule, SEXP kind, SEXP mu, SEXP scale, SEXP threads)
{
    static const char *const names[] = { "status", "value", "widest", "g_mu", "own", "curve", "squares", NULL };
    r_model_store store;
    const elvi_model m = r_model(model, &store, Rf_asInteger(threads));
    SEXP out = PROTECT(r_named_list(names));
    elvi_exact e = {
        .g_mu = r_set_reals(out, "g_mu", m.dim),
        .own = r_set_reals(out, "own", m.dim),
        .curve = r_set_reals(out, "curve", store.glm.rows.rows),
        .squares = r_set_reals(out, "squares", m.dim),
    };
    const elvi_status status = exact_into(&e, &m, rule, kind, mu, scale);
    exact_list(out, status, &e);
    UNPROTECT(1);
    return out;
}

/* phi(t) / Phi(t) */
SEXP elvi_r_mills(SEXP t)
{
    SEXP out = PROTECT(Rf_allocVector(REALSXP, Rf_xlength(t)));
    double *ratio = REAL(out);
    for (R_xlen_t i = 0; i < Rf_xlength(t); i++) ratio[i] = elvi_mills(REAL(t)[i]);
    UNPROTECT(1);
    return out;
}

/* elvi_expect_rows() for rows with y, weight, eta and s */
SEXP elvi_r_expect_rows(SEXP likelihood, SEXP rule, SEXP dispersion, SEXP rows)
{
    static const char *const names[] = { "status", "sum", "slope", "curve", "widest", NULL };
    const elvi_likelihood lik = r_likelihood(likelihood);
    const elvi_quadrature r = r_quadrature(rule);
    const R_xlen_t n = Rf_xlength(r_get(rows, "y"));
    const elvi_lines lines = { (int) n, r_reals(rows, "y", n), r_reals(rows, "weight", n), r_reals(rows, "eta", n),
                               r_reals(rows, "s", n) };
    SEXP out = PROTECT(r_named_list(names));
    elvi_expected expected = { .slope = r_set_reals(out, "slope", n), .curve = r_set_reals(out, "curve", n) };
    const elvi_dispersion a = elvi_dispersion_of(Rf_length(dispersion), REAL(dispersion));
    const elvi_status status = elvi_expect_rows(&lik, &r, &a, &lines, &expected);
    r_set(out, "status", Rf_ScalarInteger(status));
    r_set(out, "sum", Rf_ScalarReal(expected.sum));
    r_set(out, "widest", Rf_ScalarReal(expected.widest));
    UNPROTECT(1);
    return out;
}
