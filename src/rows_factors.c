/* A sparse design from the variables of a formula: a column of a term is a product of a column of each of its variables, and a
 * factor has few of its columns in a row. No dense matrix is made. */
#include "rows.h"

typedef struct {
    int rows, row;
    int *column; /* NULL to count */
    double *entry;
} place;

/* Entries of a row, increasing by column: the last variable has the largest stride. Returns where the next one goes. */
static int add_products(const elvi_variable *variable, int left, const place *to, int column, double value, int at)
{
    if (!left) {
        if (to->column) {
            to->column[at] = column;
            to->entry[at] = value;
        }
        return at + 1;
    }
    const elvi_variable *v = variable + left - 1;
    if (v->value) {
        for (int j = 0; j < v->columns; j++) {
            const double x = v->value[(size_t) j * to->rows + to->row];
            if (x != 0.0) at = add_products(variable, left - 1, to, column + j * v->stride, x * value, at);
        }
        return at;
    }
    const int level = v->code[to->row] - 1;
    for (int k = v->start[level]; k < v->start[level + 1]; k++)
        at = add_products(variable, left - 1, to, column + v->column[k] * v->stride, v->entry[k] * value, at);
    return at;
}

void elvi_design_of_terms(int rows, int terms, const elvi_term *term, int *start, int *column, double *entry)
{
    place to = { rows, 0, column, entry };
    int at = start[0] = 0;
    for (int i = 0; i < rows; i++) {
        to.row = i;
        for (int t = 0; t < terms; t++)
            at = add_products(term[t].variable, term[t].variables, &to, term[t].first, 1.0, at);
        start[i + 1] = at;
    }
}

void elvi_dense_from_sparse(const elvi_design *from, double *to)
{
    for (int i = 0; i < from->rows; i++)
        for (int k = from->start[i]; k < from->start[i + 1]; k++)
            to[(size_t) from->column[k] * from->rows + i] = from->entry[k];
}
