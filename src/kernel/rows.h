/* Reports of many rows at once, spread over a pool; the bits do not depend on its threads. */
#ifndef ALEA_KERNEL_ROWS_H
#define ALEA_KERNEL_ROWS_H

#include "base/pool.h"
#include "kernel/row.h"

/* What is asked of every row of a block. */
typedef struct alea_rows_query {
    const float *const *rows; /* [n_rows], each [vocab] */
    const int32_t *tokens;    /* [n_rows]; NULL: no token is asked about */
    int32_t n_rows;
    int32_t vocab;
    int32_t k;
    bool want_entropy;
} alea_rows_query;

/*
 * Report on each row as alea__row_report does.
 *
 * Shape     reports [n_rows]
 * Domain    as alea__row_report
 * Result    reports of all sound rows
 * Exact     as alea__row_report
 * Errors    that of the first row that has one, its index in *bad_row (which may be NULL): its
 *           report is untouched, those of the other rows are there
 * Memory    allocates nothing
 * Threads   one run at a time per pool; NULL runs on the caller
 */
alea_status alea__rows_report(const alea_kernel_table *kernels, alea_pool *pool,
                              const alea_rows_query *query, alea_row_report *reports,
                              int32_t *bad_row) ALEA_MUST_USE;

#endif
