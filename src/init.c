#include "r_elvi.h"
#include <R_ext/Rdynload.h>

/* through void (*)(void), which compilers accept as "any function" */
/* clang-format off */
#define ENTRY(name, args) { #name, (DL_FUNC) (void (*)(void)) &name, args }
/* clang-format on */

static const R_CallMethodDef call_routines[] = {
    ENTRY(elvi_r_draws, 5),
    ENTRY(elvi_r_score, 2),
    ENTRY(elvi_r_evaluate, 3),
    ENTRY(elvi_r_target_values, 3),
    ENTRY(elvi_r_curvature_max, 2),
    ENTRY(elvi_r_schedule, 2),
    ENTRY(elvi_r_horizon, 2),
    ENTRY(elvi_r_project, 4),
    ENTRY(elvi_r_gradient, 5),
    ENTRY(elvi_r_values, 8),
    ENTRY(elvi_r_gram, 2),
    ENTRY(elvi_r_sums, 2),
    ENTRY(elvi_r_extent, 2),
    ENTRY(elvi_r_squares, 2),
    ENTRY(elvi_r_cross_times, 3),
    ENTRY(elvi_r_status_names, 0),
    ENTRY(elvi_r_mills, 1),
    ENTRY(elvi_r_has_family, 2),
    ENTRY(elvi_r_checksum, 1),
    ENTRY(elvi_r_column_products, 2),
    ENTRY(elvi_r_nearest, 2),
    ENTRY(elvi_r_score_quantiles, 4),
    ENTRY(elvi_r_sync, 1),
    ENTRY(elvi_r_clock, 0),
    ENTRY(elvi_r_expect_rows, 4),
    ENTRY(elvi_r_predictor, 2),
    ENTRY(elvi_r_reach, 1),
    ENTRY(elvi_r_by_rows, 4),
    ENTRY(elvi_r_columns, 3),
    ENTRY(elvi_r_design_of_terms, 2),
    ENTRY(elvi_r_dense_from_sparse, 2),
    ENTRY(elvi_r_check_sums, 2),
    ENTRY(elvi_r_native, 1),
    ENTRY(elvi_r_native_version, 0),
    ENTRY(elvi_r_openmp, 0),
    ENTRY(elvi_r_blas_alone, 0),
    ENTRY(elvi_r_exact, 7),
    ENTRY(elvi_r_exact_parts, 6),
    ENTRY(elvi_r_pattern_pairs, 3),
    ENTRY(elvi_r_pattern_places, 3),
    ENTRY(elvi_r_sparse_inverse, 2),
    ENTRY(elvi_r_sparse_apply, 4),
    ENTRY(elvi_r_nested_solve, 6),
    ENTRY(elvi_r_nested_check, 6),
    ENTRY(elvi_r_nested_draws, 4),
    ENTRY(elvi_r_nested_look, 3),
    ENTRY(elvi_r_nested_newton, 3),
    ENTRY(elvi_r_nested_add_rows, 3),
    ENTRY(elvi_r_nested_products, 3),
    ENTRY(elvi_r_pattern_times, 3),
    ENTRY(elvi_r_nested_variances, 3),
    ENTRY(elvi_r_nested_profile, 8),
    ENTRY(elvi_r_nested_cumulants, 4),
    ENTRY(elvi_r_nested_residuals, 6),
    ENTRY(elvi_r_joint_expect, 4),
    ENTRY(elvi_r_has_joint, 1),
    ENTRY(elvi_r_run, 4),
    ENTRY(elvi_r_hmc, 4),
    { NULL, NULL, 0 }
};

void R_init_elvi(DllInfo *dll)
{
    R_registerRoutines(dll, NULL, call_routines, NULL, NULL);
    R_useDynamicSymbols(dll, FALSE);
    R_forceSymbols(dll, TRUE);
    R_RegisterCCallable("elvi", "elvi_target_pointer", (DL_FUNC) (void (*)(void)) r_target_pointer);
}
