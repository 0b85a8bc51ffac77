/* The products, factorisations and inverses of one run of elvi's engine, called bare: a logistic regression of M rows
 * in d dimensions, K iterations of N samples in blocks. No draws, no losses, no steps. */
#include <string.h>

extern void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
                   const int *, const double *, const int *, const double *, double *, const int *, size_t, size_t);
extern void dsymm_(const char *, const char *, const int *, const int *, const double *, const double *, const int *,
                   const double *, const int *, const double *, double *, const int *, size_t, size_t);
extern void dsyr2k_(const char *, const char *, const int *, const int *, const double *, const double *, const int *,
                    const double *, const int *, const double *, double *, const int *, size_t, size_t);
extern void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
extern void dpotri_(const char *, const int *, double *, const int *, int *, size_t);

/* X: M x d, S: d x d, z, x, g: d x block, eta: M x block, C, F: d x d */
void engine_floor(const int *M, const int *d, const int *N, const int *K, const int *block, const double *X,
                  const double *S, const double *z, double *x, double *g, double *eta, double *C, double *F)
{
    const double one = 1.0, zero = 0.0;
    const size_t dd = (size_t) *d * (size_t) *d;
    int info;
    for (int k = 0; k < *K; k++) {
        for (int first = 0; first < *N; first += *block) {
            const int n = *N - first < *block ? *N - first : *block;
            dsymm_("L", "L", d, &n, &one, S, d, z, d, &zero, x, d, 1, 1);
            dgemm_("N", "N", M, &n, d, &one, X, M, x, d, &zero, eta, M, 1, 1);
            dgemm_("T", "N", d, &n, M, &one, X, M, eta, M, &zero, g, d, 1, 1);
            dsyr2k_("L", "N", d, &n, &one, g, d, z, d, &zero, C, d, 1, 1);
        }
        memcpy(F, S, dd * sizeof(double));   /* gradient of log|scale| */
        dpotrf_("L", d, F, d, &info, 1);
        dpotri_("L", d, F, d, &info, 1);
        memcpy(F, S, dd * sizeof(double));   /* is the step feasible? */
        dpotrf_("L", d, F, d, &info, 1);
    }
}
