#include "r_elvi.h"
#include "hmc.h"
#include <string.h>

/* Chains that begin at the columns of w, in the coordinates of the settings. */
SEXP elvi_r_hmc(SEXP model, SEXP settings, SEXP w, SEXP threads)
{
    static const char *const names[] = { "status", "x", "w", "step", "accept", "evaluations", "divergent", NULL };
    r_model_store store;
    const elvi_model m = r_model(model, &store, Rf_asInteger(threads));
    const int d = m.dim, chains = Rf_ncols(w);
    if (Rf_nrows(w) != d) Rf_error("elvi internal error: wrong length of the chains' points");
    const elvi_hmc_settings s = {
        .chains = chains,
        .warmup = r_count(settings, "warmup"),
        .iterations = r_count(settings, "iterations"),
        .most_steps = (int) r_count(settings, "most_steps"),
        .length = r_number(settings, "length"),
        .step = r_number(settings, "step"),
        .accept = r_number(settings, "accept"),
        .key = r_key(r_get(settings, "key")),
        .centre = r_reals(settings, "centre", d),
        .root = r_reals(settings, "root", (R_xlen_t) d * d),
    };
    elvi_hmc_account account;
    SEXP out = PROTECT(r_named_list(names));
    const elvi_hmc_points points = {
        .w = r_set_reals(out, "w", (R_xlen_t) d * chains),
        .out = r_set_reals(out, "x", (R_xlen_t) d * chains * (R_xlen_t) s.iterations),
        .room = (double *) R_alloc(elvi_hmc_room(&m, chains), sizeof(double)),
    };
    memcpy(points.w, REAL(w), (size_t) d * (size_t) chains * sizeof(double));
    const elvi_status status = elvi_hmc(&m, &s, &points, &account, &r_interruptible);
    r_set(out, "status", Rf_ScalarInteger(status));
    r_set(out, "step", Rf_ScalarReal(account.step));
    r_set(out, "accept", Rf_ScalarReal(account.accept));
    r_set(out, "evaluations", Rf_ScalarReal((double) account.evaluations));
    r_set(out, "divergent", Rf_ScalarReal((double) account.divergent));
    UNPROTECT(1);
    return out;
}
