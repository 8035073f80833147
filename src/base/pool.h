/*
 * The library's own threads. A pool runs `n_tasks` independent tasks and returns when all are
 * done; the calling thread works too. Results must not depend on which thread ran what.
 */
#ifndef ALEA_BASE_POOL_H
#define ALEA_BASE_POOL_H

#include "alea/base.h"

typedef struct alea_pool alea_pool;
typedef void (*alea_task_fn)(void *user, int32_t index);

/* Processors that this process may use, by its affinity mask; at least 1. */
int32_t alea__cpu_count(void);

/* n_threads >= 1 counts the caller, so 1 makes no thread at all; 0: alea__cpu_count(). */
alea_status alea__pool_create(int32_t n_threads, alea_pool **pool) ALEA_MUST_USE;
void alea__pool_destroy(alea_pool *pool);
int32_t alea__pool_threads(const alea_pool *pool);

/* Calls task(user, i) for every i in [0, n_tasks). Not reentrant: one run at a time per pool.
 * A NULL pool runs everything on the caller. Allocates nothing. */
void alea__pool_run(alea_pool *pool, alea_task_fn task, void *user, int32_t n_tasks);

/* No run comes soon: the workers leave the processors to others instead of looking for one. A hint;
 * the next run that needs them ends it. NULL is no pool. */
void alea__pool_rest(alea_pool *pool);

#endif
