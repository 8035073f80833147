/*
 * What one thread needs to work on one row, and the searches that several operators share. Nothing
 * here looks at tensors; a row is a run of float32, widened where the tensor was narrower.
 *
 * A search may start from a bound or a sample of its own making: its answer is exact all the
 * same, so no choice made here can show in a result.
 */
#ifndef ALEA_OPS_ROW_SCRATCH_H
#define ALEA_OPS_ROW_SCRATCH_H

#include <stdbool.h>

#include "base/pool.h"
#include "kernel/mass.h"

enum { ALEA_ROW_CHUNK = 16 * ALEA_SEGMENT }; /* values per task where threads split one row */

typedef struct alea_row_scratch {
    const alea_kernel_table *kernels;
    alea_pool *pool;    /* splits a row; NULL: rows are spread instead, or there is one thread */
    float *row;         /* [vocab] a widened, gathered or residual row */
    float *clean;       /* [vocab] a row with -inf in place of NaN */
    int32_t *ids;       /* [vocab] candidates, ascending … */
    float *values;      /* [vocab] … and what stands there */
    float *lanes;       /* [segments][16] maxima, see lane_max */
    uint64_t *masses;   /* [segments] of probabilities, unaligned */
    alea_row_scan scan; /* of the row that alea__row_maxima saw last */
} alea_row_scratch;

/*
 * Scan a row: scratch->lanes and scratch->scan are those of x.
 * Returns its maximum; NaN where the row holds one; -inf for an empty row.
 */
float alea__row_maxima(alea_row_scratch *scratch, const float *x, int32_t n);

/* Collect the values of at least `low` of the scanned row with their ids. Returns how many. */
int32_t alea__row_collect(alea_row_scratch *scratch, float low);

typedef struct alea_kth {
    float value;          /* the rank-th largest */
    int32_t n_candidates; /* collected: all of at least some bound at or below it; -1: none */
} alea_kth;

/* The rank-th largest of the scanned row. Domain: no NaN; 1 <= rank <= n. */
alea_kth alea__row_kth(alea_row_scratch *scratch, int32_t rank);

/* out[i] = x[i] where value[i] >= cut, else -inf. `value` is x widened, or x itself. */
void alea__row_keep(alea_row_scratch *scratch, void *out, const void *x, const float *value,
                    int32_t n, float cut, uint32_t dtype_bit);

/* Widen float16 or bfloat16 into scratch->row. */
void alea__row_widen(alea_row_scratch *scratch, const void *x, int32_t n, uint32_t dtype_bit);

/*
 * The entry that `bits` / 2^24 draws from a row of unnormalized probabilities, by integer masses.
 * Entries that are no positive finite number weigh nothing. *token is 0 and the answer false
 * where nothing weighs anything. x may be scratch->row.
 */
bool alea__row_pick(alea_row_scratch *scratch, const float *x, int32_t n, uint32_t bits,
                    int32_t *token);

#endif
