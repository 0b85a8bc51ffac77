/* Other packages' C code as a model: see inst/include/elvi.h. */
#include "r_elvi.h"
#define ELVI_WITHOUT_R
#include "../inst/include/elvi.h"

static elvi_status native_eval(const elvi_model *model, const double *x, int n,
                               double *value, double *grad, double *scratch)
{
    const elvi_target *target = model->data;
    (void) scratch;
    return target->eval(target->data, x, n, value, grad) == 0 ? ELVI_OK : ELVI_TARGET_FAILED;
}

static size_t no_scratch(const elvi_model *model, int n)
{
    (void) model;
    (void) n;
    return 0;
}

static const elvi_model_ops native_ops = { .eval = native_eval, .scratch_length = no_scratch };

static SEXP target_tag(void)
{
    return Rf_install("elvi_target");
}

static int is_target(SEXP pointer)
{
    return TYPEOF(pointer) == EXTPTRSXP && R_ExternalPtrTag(pointer) == target_tag();
}

elvi_model r_native(SEXP pointer, int threads)
{
    elvi_target *target = is_target(pointer) ? R_ExternalPtrAddr(pointer) : NULL;
    if (!target) {
        SEXP home = PROTECT(R_FindNamespace(PROTECT(Rf_mkString("elvi"))));
        Rf_eval(PROTECT(Rf_lang1(Rf_install("target_is_gone"))), home); /* an R error with a class: does not return */
        UNPROTECT(3);
    }
    const elvi_model out = {
        .ops = &native_ops,
        .data = target,
        .dim = target->dim,
        .threads = target->concurrent ? threads : 0,
        .cost = target->cost > 0.0 ? target->cost : 1e4,
    };
    return out;
}

/* R_NilValue if this is no pointer to a target; else what the target says of itself, nothing if
 * it is gone */
SEXP elvi_r_native(SEXP pointer)
{
    static const char *const names[] = { "version", "dim", "eval", NULL };
    if (!is_target(pointer)) return R_NilValue;
    const elvi_target *target = R_ExternalPtrAddr(pointer);
    if (!target) return Rf_allocVector(VECSXP, 0);
    SEXP out = PROTECT(r_named_list(names));
    r_set(out, "version", Rf_ScalarInteger(target->version));
    r_set(out, "dim", Rf_ScalarInteger(target->dim));
    r_set(out, "eval", Rf_ScalarLogical(target->eval != NULL));
    UNPROTECT(1);
    return out;
}

SEXP elvi_r_native_version(void)
{
    return Rf_ScalarInteger(ELVI_TARGET_VERSION);
}

/* registered for other packages as "elvi_target_pointer" */
SEXP r_target_pointer(void *target, SEXP owner)
{
    return R_MakeExternalPtr(target, target_tag(), owner);
}
