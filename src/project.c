/* The feasible set of mu. That of the scale is its kind's business. */
#include "run.h"
#include <float.h>
#include <math.h>

void elvi_project_ball(int d, const double *centre, double radius, double *mu)
{
    double dist2 = 0.0;
    if (radius >= DBL_MAX) return;
    for (int i = 0; i < d; i++) dist2 += (mu[i] - centre[i]) * (mu[i] - centre[i]);
    const double dist = sqrt(dist2);
    if (dist <= radius) return;
    for (int i = 0; i < d; i++) mu[i] = centre[i] + (mu[i] - centre[i]) * (radius / dist);
}
