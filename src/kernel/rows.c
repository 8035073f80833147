/* One task per row: rows are independent and take some ten microseconds each. */
#include <stdatomic.h>

#include "kernel/rows.h"

typedef struct rows_job {
    const alea_kernel_table *kernels;
    const alea_rows_query *query;
    alea_row_report *reports;
    _Atomic int32_t first_bad; /* n_rows: none */
} rows_job;

static alea_status row_run(const rows_job *job, int32_t index, alea_row_report *report) {
    const alea_rows_query *q = job->query;
    const int32_t token = q->tokens ? q->tokens[index] : -1;
    return alea__row_report(job->kernels, q->rows[index], q->vocab, token, q->k, q->want_entropy,
                            report);
}

static void row_task(void *user, int32_t index) {
    rows_job *job = user;
    if (row_run(job, index, &job->reports[index]) == ALEA_OK) return;
    int32_t seen = job->first_bad;
    while (index < seen && !atomic_compare_exchange_weak(&job->first_bad, &seen, index))
        continue;
}

alea_status alea__rows_report(const alea_kernel_table *kernels, alea_pool *pool,
                              const alea_rows_query *query, alea_row_report *reports,
                              int32_t *bad_row) {
    rows_job job = {kernels, query, reports, query->n_rows};
    alea__pool_run(pool, row_task, &job, query->n_rows);
    const int32_t bad = job.first_bad;
    if (bad == query->n_rows) return ALEA_OK;
    if (bad_row) *bad_row = bad;
    return row_run(&job, bad, &reports[bad]); /* once more, for its status */
}
