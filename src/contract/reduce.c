/*
 * Records and rows in, payloads out. Lanes are judged first, on the caller's thread and without a
 * look at the vocabulary; then the positions that remain are independent tasks.
 */
#include "contract/reduce.h"

#include <math.h>
#include <stdatomic.h>

#include "contract/payload.h"

/* Everything a position's task needs; shared by all tasks of a call. */
typedef struct reduction {
    const alea_kernel_table *kernels;
    alea_completion *completion;
    int32_t frame;
    const alea_reduce_batch *batch;
    int32_t columns; /* of the lane with most tokens */
    atomic_llong positions;
    atomic_llong failed;
    atomic_llong words_written;
} reduction;

/* Lanes are few and only requesting ones get here, so a scan costs less than a table. */
static bool is_duplicate(const alea_reduce_batch *batch, int32_t lane) {
    for (int32_t i = 0; i < lane; i++)
        if (batch->lanes[i].slot == batch->lanes[lane].slot &&
            batch->lanes[i].epoch == batch->lanes[lane].epoch)
            return true;
    return false;
}

static alea_reduce_verdict judge(const alea_completion *completion, int32_t frame,
                                 const alea_reduce_batch *batch, int32_t lane) {
    const alea_reduce_lane *l = &batch->lanes[lane];
    if (l->slot < 0) return ALEA_REDUCE_INACTIVE;
    if (!completion->requested || !completion->requested[l->slot]) return ALEA_REDUCE_GATED;
    const int64_t *record = alea__completion_record(completion, frame, l->slot);
    if (record[ALEA_RECORD_AT_ROLE] == ALEA_ROLE_NONE) return ALEA_REDUCE_INACTIVE;
    if (record[ALEA_RECORD_AT_EPOCH] != l->epoch) return ALEA_REDUCE_STALE;
    if (record[ALEA_RECORD_AT_COUNT] == 0) return ALEA_REDUCE_INACTIVE;
    return is_duplicate(batch, lane) ? ALEA_REDUCE_DUPLICATE : ALEA_REDUCED;
}

static alea_status check_batch(const alea_completion *completion, int32_t frame,
                               const alea_reduce_batch *batch, alea_error *error) {
    if (frame < 0 || frame >= ALEA_FRAMES)
        return alea_error_set(error, ALEA_EINVAL, "there is no frame %d", frame);
    if (batch->vocab < 1 || batch->vocab > ALEA_VOCAB_MAX)
        return alea_error_set(error, ALEA_EINVAL, "vocab is %d, the range is 1..%d", batch->vocab,
                              ALEA_VOCAB_MAX);
    for (int32_t i = 0; i < batch->n_lanes; i++) {
        const alea_reduce_lane *l = &batch->lanes[i];
        if (l->slot < 0) continue;
        if (l->slot >= completion->layout.capacity)
            return alea_error_set(error, ALEA_EINVAL, "lane %d names slot %d of %d", i, l->slot,
                                  completion->layout.capacity);
        if (l->first_row < 0 || l->offered_rows < 0 ||
            (int64_t)l->first_row + l->offered_rows > batch->n_rows)
            return alea_error_set(error, ALEA_EINVAL,
                                  "lane %d has rows %d..+%d, but the batch has %d", i, l->first_row,
                                  l->offered_rows, batch->n_rows);
    }
    return ALEA_OK;
}

/* The natural alternatives; returns the words written. */
static alea_status write_natural(const reduction *r, const float *logits, int32_t token,
                                 int32_t *payload) {
    const int32_t k = r->completion->layout.alternatives;
    alea_row_report report;
    const alea_status status =
        alea__row_report(r->kernels, logits, r->batch->vocab, token, k, false, &report);
    if (status < 0) return status;
    alea__pair_set(payload, token, report.logprob);
    for (int32_t i = 0; i < k; i++) {
        const bool used = i < report.n_top;
        alea__pair_set(payload + 2 + 2 * i, used ? report.top[i].token : ALEA_NO_TOKEN,
                       used ? report.top[i].logprob : NAN);
    }
    return ALEA_OK;
}

/* The caller's ids, in the caller's order, under the same normalization. */
static alea_status write_selected(const reduction *r, const float *logits, int32_t token,
                                  const int32_t *ids, int32_t n_ids, int32_t *payload) {
    int32_t asked[1 + ALEA_TOKEN_IDS_MAX];
    float logprobs[1 + ALEA_TOKEN_IDS_MAX];
    asked[0] = token;
    memcpy(asked + 1, ids, (size_t)n_ids * sizeof *ids);
    const alea_status status =
        alea__row_selected(r->kernels, logits, r->batch->vocab, asked, 1 + n_ids, logprobs);
    if (status < 0) return status;
    for (int32_t i = 0; i <= n_ids; i++)
        alea__pair_set(payload + 2 * i, asked[i], logprobs[i]);
    return ALEA_OK;
}

static void reduce_position(reduction *r, int32_t slot, int32_t position, const float *logits) {
    const alea_completion *c = r->completion;
    const int32_t token = alea__record_token(c, r->frame, slot, position);
    const int32_t n_ids = c->token_id_counts ? c->token_id_counts[slot] : 0;
    int32_t *payload = alea__completion_payload(c, r->frame, slot, position);
    alea_status status = ALEA_EROW;
    if (logits && n_ids == 0)
        status = write_natural(r, logits, token, payload);
    else if (logits && n_ids > 0 && n_ids <= ALEA_TOKEN_IDS_MAX)
        status = write_selected(r, logits, token, c->token_ids + (size_t)slot * ALEA_TOKEN_IDS_MAX,
                                n_ids, payload);
    if (status < 0) {
        /* No number may stand here: the decoder makes this the request's error. */
        alea__pair_set(payload, token, NAN);
        atomic_fetch_add_explicit(&r->failed, 1, memory_order_relaxed);
        return;
    }
    const int32_t pairs = 1 + (n_ids > 0 ? n_ids : c->layout.alternatives);
    atomic_fetch_add_explicit(&r->positions, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->words_written, 2 * pairs, memory_order_relaxed);
}

/* Task `index` is one (lane, column); columns beyond the committed prefix end here, unread. */
static void reduce_task(void *user, int32_t index) {
    reduction *r = user;
    const alea_reduce_lane *lane = &r->batch->lanes[index / r->columns];
    const int32_t column = index % r->columns;
    if (lane->verdict != ALEA_REDUCED || column >= lane->offered_rows) return;
    const int64_t *record = alea__completion_record(r->completion, r->frame, lane->slot);
    if (column >= record[ALEA_RECORD_AT_COUNT]) return;
    if ((uint64_t)record[ALEA_RECORD_AT_FORCED] >> column & 1) return;
    reduce_position(r, lane->slot, column, r->batch->rows[lane->first_row + column]);
}

/* Forced tokens among the positions that a lane would have reduced. */
static int64_t count_forced(const alea_completion *completion, int32_t frame,
                            const alea_reduce_lane *lane) {
    const int64_t *record = alea__completion_record(completion, frame, lane->slot);
    int64_t forced = 0;
    for (int32_t i = 0; i < record[ALEA_RECORD_AT_COUNT] && i < lane->offered_rows; i++)
        forced += (int64_t)((uint64_t)record[ALEA_RECORD_AT_FORCED] >> i & 1);
    return forced;
}

alea_status alea__reduce(const alea_kernel_table *kernels, alea_pool *pool,
                         alea_completion *completion, int32_t frame, alea_reduce_batch *batch,
                         alea_reduce_stats *stats, alea_error *error) {
    alea_status status = check_batch(completion, frame, batch, error);
    if (status < 0) return status;
    reduction r = {.kernels = kernels, .completion = completion, .frame = frame, .batch = batch};
    alea_reduce_stats done = {0};
    for (int32_t i = 0; i < batch->n_lanes; i++) {
        alea_reduce_lane *lane = &batch->lanes[i];
        lane->verdict = judge(completion, frame, batch, i);
        done.lanes[lane->verdict]++;
        if (lane->verdict != ALEA_REDUCED) continue;
        alea_record record;
        status = alea__record_read(completion, frame, lane->slot, &record, error);
        if (status < 0) return status;
        if (r.columns < record.count) r.columns = record.count;
        done.forced += count_forced(completion, frame, lane);
    }
    if (done.lanes[ALEA_REDUCED] > 0)
        alea__pool_run(pool, reduce_task, &r, batch->n_lanes * r.columns);
    if (stats) {
        for (int i = 0; i < ALEA_REDUCE_VERDICTS; i++)
            stats->lanes[i] += done.lanes[i];
        const int64_t positions = atomic_load(&r.positions);
        stats->positions += positions;
        stats->forced += done.forced;
        stats->failed += atomic_load(&r.failed);
        stats->values_read += positions * batch->vocab;
        stats->words_written += atomic_load(&r.words_written);
    }
    return ALEA_OK;
}
