/* The only place where threads are started, and where BLAS's own are dealt with. */
#include "platform.h"
#if !(defined(ELVI_NO_DLSYM) && defined(ELVI_NO_SIGNAL_MASK)) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#ifndef ELVI_NO_DLSYM
#include <dlfcn.h>
#endif
#ifndef ELVI_NO_YIELD
#include <sched.h>
#endif
#ifndef ELVI_NO_SIGNAL_MASK
#include <signal.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif
#include "parallel.h"
#include <string.h>

/* BLAS has no standard way to say how many threads it uses. OpenBLAS, by far the
 * most common one that uses any, is asked by name; others are left alone. */
typedef struct {
    int (*get)(void);
    void (*set)(int);
} blas_threads;

static blas_threads find_blas_threads(void)
{
    blas_threads out = { NULL, NULL };
#ifndef ELVI_NO_DLSYM
    void *get = dlsym(RTLD_DEFAULT, "openblas_get_num_threads");
    void *set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
    if (get && set) {
        memcpy(&out.get, &get, sizeof get); /* C has no cast from data to code */
        memcpy(&out.set, &set, sizeof set);
    }
#endif
    return out;
}

int elvi_blas_takes_threads(void)
{
    int (*parallel)(void) = NULL;
#ifndef ELVI_NO_DLSYM
    void *found = dlsym(RTLD_DEFAULT, "openblas_get_parallel");
    if (found) memcpy(&parallel, &found, sizeof found);
#endif
    return !parallel || parallel() != 0;
}

void elvi_blas_alone(void)
{
    const blas_threads blas = find_blas_threads();
    if (blas.get && blas.get() > 1) blas.set(1);
}

int elvi_lanes(int threads)
{
    return threads < 1 ? 1 : (threads < ELVI_MOST_LANES ? threads : ELVI_MOST_LANES);
}

int elvi_slots(int lanes)
{
    return lanes == 1 ? 1 : 2 * lanes;
}

int elvi_parts_at_once(const elvi_job *job, int lanes, uint64_t left)
{
    /* about 10 milliseconds; up to ten times that, so that lanes seldom wait at the end */
    const double brief = 1e8 / job->operations, enough = 8.0;
    double each = brief > enough ? brief : (10.0 * brief < enough ? 10.0 * brief : enough);
    if (each < 1.0) each = 1.0;
    if (each > 1e6) each = 1e6;
    const uint64_t most = (uint64_t) lanes * (uint64_t) each;
    return (int) (left < most ? left : most);
}

static elvi_status work_alone(const elvi_job *job, int parts)
{
    elvi_status status = ELVI_OK;
    for (int part = 0; part < parts && status == ELVI_OK; part++) {
        job->work(job->ctx, part, 0, 0);
        status = job->add(job->ctx, 0);
    }
    return status;
}

#ifdef _OPENMP

/* Where parts are taken from, and wait for their turn to be added. */
typedef struct {
    int taken, added, failed;
    char ready[ELVI_MOST_SLOTS];
    elvi_status status;
} queue;

static int take(queue *q)
{
    int part;
#pragma omp atomic capture
    part = q->taken++;
    return part;
}

static int look(const int *shared)
{
    int value;
#pragma omp atomic read seq_cst
    value = *shared;
    return value;
}

static void count(int *shared)
{
#pragma omp atomic update seq_cst
    (*shared)++;
}

/* Waits until the part's slot is free; 0 if it is no longer wanted. */
static int wait_for_slot(const queue *q, int part, int slots)
{
    while (!look(&q->failed)) {
        if (part - slots < look(&q->added)) return 1;
#ifndef ELVI_NO_YIELD
        sched_yield();
#endif
    }
    return 0;
}

/* The part in this slot is done: adds it, and those after it that have waited for it;
 * or leaves it to the lane that does an earlier one. */
static void deliver(const elvi_job *job, queue *q, int slot, int slots)
{
    q->ready[slot] = 1;
    for (int next = q->added % slots; q->ready[next] && q->status == ELVI_OK; next = q->added % slots) {
        q->ready[next] = 0;
        q->status = job->add(job->ctx, next);
        if (q->status != ELVI_OK) count(&q->failed);
        count(&q->added);
    }
}

static void work_off(const elvi_job *job, queue *q, int lane, int slots, int parts)
{
    for (int part = take(q); part < parts && wait_for_slot(q, part, slots); part = take(q)) {
        job->work(job->ctx, part, lane, part % slots);
#pragma omp critical(elvi_deliver)
        deliver(job, q, part % slots, slots);
    }
}

static int lanes_at_once(const elvi_job *job, int lanes, int parts)
{
    const double enough = 1e6; /* below a few hundred microseconds threads cost more */
    return job->operations * parts < enough ? 1 : (lanes < parts ? lanes : parts);
}

/* A signal is for R's own thread. R's handlers may jump, in another thread to a stack that is not its own. OpenMP keeps
 * its threads, and they keep this mask. */
static void leave_signals_to_R(void)
{
#ifndef ELVI_NO_SIGNAL_MASK
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGINT);
    sigaddset(&handled, SIGUSR1);
    sigaddset(&handled, SIGUSR2);
    sigaddset(&handled, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &handled, NULL);
#endif
}

static elvi_status work_together(const elvi_job *job, int at_once, int lanes, int parts)
{
    const int slots = elvi_slots(lanes);
    queue q = { 0, 0, 0, { 0 }, ELVI_OK };
#pragma omp parallel num_threads(at_once)
    {
        const int lane = omp_get_thread_num();
        if (lane > 0) leave_signals_to_R();
        work_off(job, &q, lane, slots, parts);
    }
    return q.status;
}

#else

static int lanes_at_once(const elvi_job *job, int lanes, int parts)
{
    (void) job;
    (void) lanes;
    (void) parts;
    return 1;
}

static elvi_status work_together(const elvi_job *job, int at_once, int lanes, int parts)
{
    (void) at_once;
    (void) lanes;
    return work_alone(job, parts);
}

#endif

int elvi_in_team(void)
{
#ifdef _OPENMP
    return omp_in_parallel();
#else
    return 0;
#endif
}

elvi_status elvi_parallel(const elvi_job *job, int threads, int lanes, int parts)
{
    if (elvi_in_team()) return work_alone(job, parts); /* whose threads and BLAS are taken care of */
    /* Each lane calls BLAS by itself: with threads of its own on top, and those
     * waiting for each other, that would be slower than no threads at all. Also with
     * one lane, for sums of BLAS may depend on its threads in the last digit. */
    const blas_threads blas = find_blas_threads();
    const int before = threads > 0 && blas.get ? blas.get() : 1;
    if (before > 1) blas.set(1);
    const int at_once = lanes_at_once(job, lanes, parts);
    /* A user's R code may jump out of the work, which it must not do out of a team of
     * threads, be it a team of one. */
    const elvi_status status = at_once == 1 ? work_alone(job, parts) : work_together(job, at_once, lanes, parts);
    if (before > 1) blas.set(before);
    return status;
}
