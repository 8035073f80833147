/*
 * Threads that share out the tasks of one run at a time.
 *
 * A run is published in one 64-bit word, `ticket`: its number above, the next free task below.
 * A task is claimed by compare-and-swap on that word, so a thread that wakes up late, even runs
 * later, can claim nothing of a run that is over; the caller therefore waits for tasks, never for
 * threads. Everything shared is atomic and sequentially consistent: a run costs microseconds, and
 * weaker orders would save nothing worth the proof.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/pool.h"
#include "base/size.h"

/* Looks before sleeping, about 50 us: waking a sleeper costs as much as a small run. */
enum { SPINS = 1000 };

#define CLOSED 0xffffffffu /* a task index that no run reaches */

struct alea_pool {
    _Atomic uint64_t ticket;
    _Atomic alea_task_fn task;
    void *_Atomic user;
    _Atomic uint32_t n_tasks;
    _Atomic uint32_t finished;  /* tasks of this run that are done */
    _Atomic int32_t sleepers;   /* workers that wait on `wake` */
    _Atomic bool caller_sleeps; /* the caller waits on `done` */
    _Atomic bool resting;       /* no run is near: sleep at once */
    _Atomic bool stop;
    pthread_mutex_t lock; /* guards nothing but the two waits */
    pthread_cond_t wake, done;
    uint32_t spins;
    int32_t n_workers;
    pthread_t workers[];
};

int32_t alea__cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    const int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
}

static void spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint32_t run_of(uint64_t ticket) {
    return (uint32_t)(ticket >> 32);
}

/*
 * Run tasks of run `run` until none is free. The task, its argument and their number are read
 * between two looks at the ticket; the swap succeeds only if the run was open all that time, and
 * the next run closes the ticket before it changes them.
 */
static void pool_work(alea_pool *pool, uint32_t run) {
    uint64_t ticket = pool->ticket;
    while (run_of(ticket) == run) {
        const alea_task_fn task = pool->task;
        void *const user = pool->user;
        const uint32_t n_tasks = pool->n_tasks;
        const uint32_t index = (uint32_t)ticket;
        if (index >= n_tasks) return; /* all claimed, or closed */
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
        task(user, (int32_t)index);
        if (atomic_fetch_add(&pool->finished, 1) + 1 == n_tasks && pool->caller_sleeps) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
        ticket = pool->ticket;
    }
}

/* Wait until the ticket shows another run than `seen`, or the pool stops. */
static void worker_wait(alea_pool *pool, uint32_t seen) {
    for (uint32_t i = 0; i < pool->spins && !pool->resting; i++) {
        if (run_of(pool->ticket) != seen || pool->stop) return;
        spin_pause();
    }
    pthread_mutex_lock(&pool->lock);
    pool->sleepers++;
    while (run_of(pool->ticket) == seen && !pool->stop) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    pool->sleepers--;
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *argument) {
    alea_pool *pool = argument;
    uint32_t seen = 0;
    for (;;) {
        worker_wait(pool, seen);
        if (pool->stop) return NULL;
        seen = run_of(pool->ticket);
        pool_work(pool, seen);
    }
}

/* A worker that saw the ticket change is awake; one that went to sleep before counted itself
 * first, so either this sees it or it sees the ticket. */
static void wake_sleepers(alea_pool *pool) {
    if (pool->sleepers == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void alea__pool_run(alea_pool *pool, alea_task_fn task, void *user, int32_t n_tasks) {
    if (!pool || pool->n_workers == 0 || n_tasks < 2) {
        for (int32_t i = 0; i < n_tasks; i++)
            task(user, i);
        return;
    }
    const uint32_t run = run_of(pool->ticket) + 1;
    pool->ticket = (uint64_t)run << 32 | CLOSED;
    pool->task = task;
    pool->user = user;
    pool->n_tasks = (uint32_t)n_tasks;
    pool->finished = 0;
    pool->resting = false;
    pool->ticket = (uint64_t)run << 32;
    wake_sleepers(pool);
    pool_work(pool, run);

    for (uint32_t i = 0; i < pool->spins && pool->finished != (uint32_t)n_tasks; i++)
        spin_pause();
    if (pool->finished == (uint32_t)n_tasks) return;
    pthread_mutex_lock(&pool->lock);
    pool->caller_sleeps = true;
    while (pool->finished != (uint32_t)n_tasks)
        pthread_cond_wait(&pool->done, &pool->lock);
    pool->caller_sleeps = false;
    pthread_mutex_unlock(&pool->lock);
}

alea_status alea__pool_create(int32_t n_threads, alea_pool **pool) {
    if (n_threads < 0) return ALEA_EINVAL;
    const int32_t n_cpus = alea__cpu_count();
    if (n_threads == 0) n_threads = n_cpus;
    const size_t n_workers = (size_t)n_threads - 1;
    size_t bytes;
    if (!alea__size_mul(n_workers, sizeof(pthread_t), &bytes) ||
        !alea__size_add(bytes, sizeof(alea_pool), &bytes)) {
        return ALEA_ENOMEM;
    }
    alea_pool *made = calloc(1, bytes);
    if (!made) return ALEA_ENOMEM;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->wake, NULL);
    pthread_cond_init(&made->done, NULL);
    made->ticket = CLOSED;
    made->spins =
        n_threads > n_cpus ? 0 : SPINS; /* spinning would take the processor it waits for */
    for (size_t i = 0; i < n_workers; i++) {
        if (pthread_create(&made->workers[i], NULL, worker_main, made) != 0) {
            alea__pool_destroy(made);
            return ALEA_ENOMEM;
        }
        made->n_workers++;
    }
    *pool = made;
    return ALEA_OK;
}

void alea__pool_destroy(alea_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 0; i < pool->n_workers; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void alea__pool_rest(alea_pool *pool) {
    if (pool) pool->resting = true;
}

int32_t alea__pool_threads(const alea_pool *pool) {
    return pool ? pool->n_workers + 1 : 1;
}
