/* Reading named lists. R code has validated every value: an error here is a
 * fault of the package, not of its user. */
#include "r_elvi.h"
#include <string.h>

static R_xlen_t field(SEXP list, const char *name)
{
    SEXP names = Rf_getAttrib(list, R_NamesSymbol);
    for (R_xlen_t i = 0; i < Rf_xlength(names); i++)
        if (strcmp(CHAR(STRING_ELT(names, i)), name) == 0) return i;
    return -1;
}

SEXP r_get(SEXP list, const char *name)
{
    const R_xlen_t i = field(list, name);
    if (i < 0) Rf_error("elvi internal error: no field '%s'", name);
    return VECTOR_ELT(list, i);
}

SEXP r_get_if(SEXP list, const char *name)
{
    const R_xlen_t i = field(list, name);
    return i < 0 ? R_NilValue : VECTOR_ELT(list, i);
}

double r_number(SEXP list, const char *name)
{
    return Rf_asReal(r_get(list, name));
}

uint64_t r_count(SEXP list, const char *name)
{
    const double v = r_number(list, name);
    if (!(v >= 0.0 && v <= 9007199254740992.0))
        Rf_error("elvi internal error: field '%s' is not a count", name);
    return (uint64_t) v;
}

const double *r_reals(SEXP list, const char *name, R_xlen_t length)
{
    SEXP v = r_get(list, name);
    if (TYPEOF(v) != REALSXP || Rf_xlength(v) != length)
        Rf_error("elvi internal error: field '%s' has the wrong type or length", name);
    return REAL(v);
}

const int *r_ints(SEXP list, const char *name, R_xlen_t length)
{
    SEXP v = r_get(list, name);
    if (TYPEOF(v) != INTSXP || Rf_xlength(v) != length)
        Rf_error("elvi internal error: field '%s' has the wrong type or length", name);
    return INTEGER(v);
}

int r_choice(SEXP list, const char *name, const char *const *choices)
{
    SEXP v = r_get(list, name);
    if (TYPEOF(v) == STRSXP && Rf_xlength(v) == 1)
        for (int i = 0; choices[i]; i++)
            if (strcmp(CHAR(STRING_ELT(v, 0)), choices[i]) == 0) return i;
    Rf_error("elvi internal error: unknown value of field '%s'", name);
    return -1;
}

/* two doubles holding 32 bits each */
uint64_t r_key(SEXP key)
{
    if (TYPEOF(key) != REALSXP || Rf_xlength(key) != 2)
        Rf_error("elvi internal error: a key is two numbers");
    return ((uint64_t) (uint32_t) REAL(key)[0] << 32) | (uint32_t) REAL(key)[1];
}

SEXP r_named_list(const char *const *names)
{
    int n = 0;
    while (names[n]) n++;
    SEXP out = PROTECT(Rf_allocVector(VECSXP, n));
    SEXP labels = PROTECT(Rf_allocVector(STRSXP, n));
    for (int i = 0; i < n; i++) SET_STRING_ELT(labels, i, Rf_mkChar(names[i]));
    Rf_setAttrib(out, R_NamesSymbol, labels);
    UNPROTECT(2);
    return out;
}

SEXP r_set(SEXP list, const char *name, SEXP value)
{
    PROTECT(value);
    const R_xlen_t i = field(list, name);
    if (i < 0) Rf_error("elvi internal error: no field '%s'", name);
    SET_VECTOR_ELT(list, i, value);
    UNPROTECT(1);
    return value;
}

double *r_set_reals(SEXP list, const char *name, R_xlen_t length)
{
    return REAL(r_set(list, name, Rf_allocVector(REALSXP, length)));
}

/* ---- statuses -------------------------------------------------------------------- */

static const char *const status_names[] = {
    [ELVI_OK] = "ok",
    [ELVI_STOPPED] = "stopped",
    [ELVI_NONFINITE_GRADIENT] = "nonfinite_gradient",
    [ELVI_SINGULAR_SCALE] = "singular_scale",
    [ELVI_EIGEN_FAILED] = "eigen_failed",
    [ELVI_NO_EXPECTATION] = "no_expectation",
    [ELVI_TARGET_FAILED] = "target_failed",
    [ELVI_NO_STEP] = "no_step",
};

/* the names of statuses 0, 1, ..., by which R knows them */
SEXP elvi_r_status_names(void)
{
    const int n = sizeof status_names / sizeof *status_names;
    SEXP out = PROTECT(Rf_allocVector(STRSXP, n));
    for (int i = 0; i < n; i++) SET_STRING_ELT(out, i, Rf_mkChar(status_names[i]));
    UNPROTECT(1);
    return out;
}

void r_check(elvi_status status)
{
    if (status != ELVI_OK) Rf_error("elvi internal error: status '%s'", status_names[status]);
}

void r_check_values(elvi_status status, double *values, size_t n)
{
    if (status != ELVI_TARGET_FAILED) r_check(status);
    for (size_t i = 0; status == ELVI_TARGET_FAILED && i < n; i++) values[i] = R_NaN;
}

/* ---- interrupts ------------------------------------------------------------------ */

static void check_interrupt(void *unused)
{
    (void) unused;
    R_CheckUserInterrupt();
}

int r_interrupt_pending(void)
{
    return R_ToplevelExec(check_interrupt, NULL) == FALSE;
}

static SEXP look_for_interrupt(void *unused)
{
    (void) unused;
    R_CheckUserInterrupt();
    return R_NilValue;
}

static SEXP note_condition(SEXP condition, void *limited)
{
    *(int *) limited = Rf_inherits(condition, "error");
    return R_NilValue;
}

int r_interrupted(int *limited)
{
    SEXP conditions = PROTECT(Rf_allocVector(STRSXP, 2));
    SET_STRING_ELT(conditions, 0, Rf_mkChar("interrupt"));
    SET_STRING_ELT(conditions, 1, Rf_mkChar("error"));
    *limited = -1;
    R_tryCatch(look_for_interrupt, NULL, conditions, note_condition, limited, NULL, NULL);
    UNPROTECT(1);
    return *limited >= 0;
}

static int leave_if_interrupted(void *ctx, const elvi_state *state)
{
    (void) ctx;
    (void) state;
    R_CheckUserInterrupt();
    return 0;
}

const elvi_hooks r_interruptible = { .poll = leave_if_interrupted };
