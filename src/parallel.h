/* Threads: parallel.c. */
#ifndef ELVI_PARALLEL_H
#define ELVI_PARALLEL_H

#include "core.h"

/* Work is cut into parts that do not depend on the threads. Each thread (a "lane",
 * with memory of its own) takes the next part when it is free and leaves the result
 * in a slot; results are added up in the order of the parts. So results do not depend
 * on the threads, and a lane that is held up for a while does not hold up the others,
 * for there are more slots than lanes. */
enum {
    ELVI_MOST_LANES = 64,
    ELVI_MOST_SLOTS = 2 * ELVI_MOST_LANES
};
typedef struct {
    void (*work)(void *ctx, int part, int lane, int slot); /* several at once */
    elvi_status (*add)(void *ctx, int slot);               /* one at a time, in order */
    void *ctx;
    double operations; /* of one part, roughly */
} elvi_job;

/* May several threads call BLAS at once? Not that OpenBLAS which is built for one thread (openblas-serial of Debian): its
 * buffers are shared without a lock, and now and then a product has another thread's numbers in it. */
int elvi_blas_takes_threads(void);
void elvi_blas_alone(void);  /* from now on BLAS has one thread, where that can be set */
int elvi_lanes(int threads); /* how many lanes so many threads take */
int elvi_slots(int lanes);   /* and how many slots these */
/* how many of the parts that are left to do before the next poll for interrupts */
int elvi_parts_at_once(const elvi_job *job, int lanes, uint64_t left);
/* All parts, or those before the first that fails, with one thread if there is not
 * enough to do for more; meanwhile BLAS has one thread, or its own number if threads
 * is 0. */
elvi_status elvi_parallel(const elvi_job *job, int threads, int lanes, int parts);
/* Is this one of several lanes at work? Then a job of its own is done in this lane. */
int elvi_in_team(void);

#endif
