#include "r_elvi.h"

elvi_base r_base(SEXP base)
{
    static const char *const kinds[] = {
        "gaussian", "laplace", "uniform", "student", "power", "radial", NULL
    };
    elvi_base out = { 0 };
    const double *par = r_reals(base, "par", 2);
    out.ops = elvi_base_ops_of(r_choice(base, "kind", kinds));
    out.dim = (int) r_count(base, "dim");
    out.par[0] = par[0];
    out.par[1] = par[1];
    if (out.ops->tabulated) {
        SEXP table = r_get(base, "table");
        const R_xlen_t n = Rf_xlength(r_get(table, "r"));
        out.radial.n = (int) n;
        out.radial.r = r_reals(table, "r", n);
        out.radial.density = r_reals(table, "density", n);
        out.radial.cdf = r_reals(table, "cdf", n);
        out.radial.score = r_reals(table, "score", n);
    }
    return out;
}

SEXP elvi_r_draws(SEXP base, SEXP key, SEXP iteration, SEXP first, SEXP n)
{
    const elvi_base b = r_base(base);
    const int count = Rf_asInteger(n);
    const uint64_t from = (uint64_t) Rf_asReal(first);
    const double it = Rf_asReal(iteration); /* negative: the trace's draws */
    elvi_ziggurat zig;
    elvi_ziggurat_init(&zig);
    SEXP out = PROTECT(Rf_allocMatrix(REALSXP, b.dim, count));
    const elvi_sample sample = { r_key(key), it < 0 ? ELVI_TRACE_ITERATION : (uint64_t) it, from, count };
    elvi_base_fill(&b, &zig, &sample, REAL(out));
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_score(SEXP base, SEXP r)
{
    const elvi_base b = r_base(base);
    const R_xlen_t n = Rf_xlength(r);
    SEXP out = PROTECT(Rf_allocVector(REALSXP, n));
    double *score = REAL(out);
    for (R_xlen_t i = 0; i < n; i++) score[i] = b.ops->score(&b, REAL(r)[i]);
    UNPROTECT(1);
    return out;
}
