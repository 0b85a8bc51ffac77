/* f(x) = (x - m)' A (x - m) / 2: the target with a known optimum for every base. */
#include "linalg.h"
#include "model.h"

static size_t quadratic_scratch_length(const elvi_model *model, int n)
{
    return 2 * (size_t) model->dim * n;
}

static elvi_status quadratic_eval(const elvi_model *model, const double *x, int n,
                                  double *value, double *grad, double *scratch)
{
    const elvi_quadratic *q = model->data;
    const int d = model->dim;
    double *off = scratch, *g = grad ? grad : scratch + (size_t) d * n;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < d; i++)
            off[(size_t) j * d + i] = x[(size_t) j * d + i] - q->m[i];
    elvi_symm(d, n, q->A, off, 0.0, g);
    for (int j = 0; value && j < n; j++) {
        double sum = 0.0;
        for (int i = 0; i < d; i++) sum += off[(size_t) j * d + i] * g[(size_t) j * d + i];
        value[j] = 0.5 * sum;
    }
    return ELVI_OK;
}

const elvi_model_ops elvi_quadratic_ops = { .eval = quadratic_eval, .scratch_length = quadratic_scratch_length };

double elvi_quadratic_cost(int dim)
{
    return 2.0 * dim * dim;
}
