/* Other packages' C code as a model: see inst/include/elvi.h. */
#include "r_elvi.h"
#include <math.h>
#define ELVI_WITHOUT_R
#include "../inst/include/elvi.h"

static elvi_status native_eval(const elvi_model *model, const double *x, int n,
                               double *value, double *grad, double *scratch)
{
    const elvi_target *target = model->data;
    (void) scratch;
    if (target->eval(target->data, x, n, value, grad) == 0) return ELVI_OK;
    /* not every caller asks whether it failed: none shall use what eval has left there */
    for (int i = 0; value && i < n; i++) value[i] = NAN;
    for (size_t i = 0; grad && i < (size_t) model->dim * n; i++) grad[i] = NAN;
    return ELVI_TARGET_FAILED;
}

static size_t no_scratch(const elvi_model *model, int n)
{
    (void) model;
    (void) n;
    return 0;
}

static const elvi_model_ops native_ops = { native_eval, no_scratch };

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
    if (!target)
        Rf_error("The C target of this model is gone: it lives as long as the session that made it. "
                 "Make the model again with model_native().");
    const elvi_model out = { &native_ops, target, target->dim, target->concurrent ? threads : 0,
                             target->cost > 0.0 ? target->cost : 1e4 };
    return out;
}

/* R_NilValue if this is no pointer to a target; else what the target says of itself, nothing if
 * it is gone */
SEXP elvi_r_native(SEXP pointer)
{
    static const char *const names[] = { "version", "dim", "eval" };
    if (!is_target(pointer)) return R_NilValue;
    const elvi_target *target = R_ExternalPtrAddr(pointer);
    if (!target) return Rf_allocVector(VECSXP, 0);
    SEXP out = PROTECT(r_named_list(3, names));
    SET_VECTOR_ELT(out, 0, Rf_ScalarInteger(target->version));
    SET_VECTOR_ELT(out, 1, Rf_ScalarInteger(target->dim));
    SET_VECTOR_ELT(out, 2, Rf_ScalarLogical(target->eval != NULL));
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
