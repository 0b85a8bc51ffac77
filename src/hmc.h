/* Hamiltonian Monte Carlo of several chains in step, in coordinates w with x = centre + root w in which the target is
 * near standard normal. Each leapfrog step of all chains is one evaluation of the target at a block of points. */
#ifndef ELVI_HMC_H
#define ELVI_HMC_H

#include "base.h"
#include "model.h"

typedef struct {
    int chains;
    uint64_t warmup;     /* iterations in which the step size is adapted; not kept */
    uint64_t iterations; /* kept after them */
    int most_steps;      /* of a trajectory */
    double length;       /* of a trajectory, about: steps times step size */
    double step;         /* to begin with */
    double accept;       /* rate of acceptance to aim at */
    uint64_t key;
    const double *centre; /* d */
    const double *root;   /* d x d, lower triangular */
} elvi_hmc_settings;

typedef struct {
    double step;          /* after the warm-up */
    double accept;        /* mean probability of acceptance of the iterations kept */
    uint64_t evaluations; /* points at which the target was evaluated */
    uint64_t divergent;   /* of those kept: trajectories that left the domain or ended far up */
} elvi_hmc_account;

typedef struct {
    double *w;    /* d x chains: where they begin, then where they end */
    double *out;  /* d x chains x iterations: points x */
    double *room; /* elvi_hmc_room() numbers to work with */
} elvi_hmc_points;

size_t elvi_hmc_room(const elvi_model *model, int chains);
/* A point where the target is not finite is never accepted; chains must begin where it is. */
elvi_status elvi_hmc(const elvi_model *model, const elvi_hmc_settings *settings, const elvi_hmc_points *points,
                     elvi_hmc_account *account, const elvi_hooks *hooks);

#endif
