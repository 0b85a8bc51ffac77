/* Draws z, and their distributions: rng.c, base.c. */
#ifndef ELVI_BASE_H
#define ELVI_BASE_H

#include "core.h"

/* ---- random numbers: rng.c ---------------------------------------------- */

enum { ELVI_ZIG_LAYERS = 256 };

/* Tables of the ziggurat method; built once per call, then only read. */
typedef struct {
    double edge[ELVI_ZIG_LAYERS + 1]; /* right edge of each layer */
    double ratio[ELVI_ZIG_LAYERS];    /* edge[i + 1] / edge[i] */
} elvi_ziggurat;

/* A stream is a pure function of (key, iteration, index): see elvi_stream_at. */
typedef struct {
    uint64_t s[4];
    const elvi_ziggurat *zig;
} elvi_stream;

void elvi_ziggurat_init(elvi_ziggurat *zig);
elvi_stream elvi_stream_at(const elvi_ziggurat *zig, uint64_t key,
                           uint64_t iteration, uint64_t index);
double elvi_uniform(elvi_stream *st); /* in (0, 1) */
void elvi_fill_normal(elvi_stream *st, double *z, int n);
double elvi_gamma(elvi_stream *st, double shape); /* rate 1 */

/* ---- bases: base.c ------------------------------------------------------- */

typedef enum {
    ELVI_GAUSSIAN,
    ELVI_LAPLACE,
    ELVI_UNIFORM,
    ELVI_STUDENT,
    ELVI_POWER,
    ELVI_RADIAL
} elvi_base_kind;

/* The distribution of R for a user's radial density, tabulated by R/base.R. */
typedef struct {
    int n;
    const double *r;       /* n nodes, increasing */
    const double *density; /* n: density of R at the nodes, up to a factor */
    const double *cdf;     /* n: cumulated trapezoids, from 0 to 1 */
    const double *score;   /* n: (phi'/phi)(r) */
} elvi_radial;

typedef struct elvi_base_ops elvi_base_ops;
typedef struct {
    const elvi_base_ops *ops;
    int dim;
    double par[2];      /* laplace: rate; uniform: radius; student: df;
                           power: shape, rate */
    elvi_radial radial; /* radial only */
} elvi_base;

struct elvi_base_ops {
    /* factor that turns a normal vector of the given norm into a draw z */
    double (*stretch)(const elvi_base *base, elvi_stream *st, double norm);
    /* (phi'/phi)(r) */
    double (*score)(const elvi_base *base, double r);
    int tabulated; /* is the law a table, which comes from R? */
};

const elvi_base_ops *elvi_base_ops_of(elvi_base_kind kind);
/* z (d x n): the draws of a sample */
void elvi_base_fill(const elvi_base *base, const elvi_ziggurat *zig, const elvi_sample *sample, double *z);

#endif
