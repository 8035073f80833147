/* The rig: bundles, rows and the failing allocator. */
#include "contract/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int rig_fail_at;
int rig_allocations;
size_t rig_allocated_bytes;

void *__real_malloc(size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static bool refused(size_t bytes) {
    rig_allocations++;
    rig_allocated_bytes += bytes;
    return rig_fail_at > 0 && --rig_fail_at == 0;
}

void *__wrap_malloc(size_t bytes) {
    return refused(bytes) ? NULL : __real_malloc(bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return refused(bytes) ? NULL : __real_aligned_alloc(alignment, bytes);
}

int rig_setup(void **state) {
    rig *r = __real_malloc(sizeof *r);
    *r = (rig){0};
    rig_fail_at = 0;
    if (alea__completion_allocate(RIG_CAPACITY, RIG_TOKENS, RIG_SCORED, &r->out, NULL) < 0)
        return 1;
    if (alea__completion_allocate_role(&r->out, &r->prompt, NULL) < 0) return 1;
    if (alea__completion_allocate_role(&r->out, &r->decode, NULL) < 0) return 1;
    alea__frames_init(&r->frames, RIG_VOCAB, &r->out, &r->prompt, &r->decode);
    r->batch = (alea_reduce_batch){.rows = r->rows, .vocab = RIG_VOCAB, .lanes = r->lanes};
    *state = r;
    return 0;
}

int rig_teardown(void **state) {
    rig *r = *state;
    alea__completion_free(&r->out);
    alea__completion_free(&r->prompt);
    alea__completion_free(&r->decode);
    for (int32_t i = 0; i < r->n_allocated; i++)
        free(r->allocated[i]);
    free(r);
    return 0;
}

float *rig_row(rig *r, uint64_t seed, int32_t vocab) {
    float *row = __real_malloc(((size_t)vocab + 16) * sizeof *row);
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
    for (int32_t i = 0; i < vocab; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        row[i] = (float)(int32_t)(x >> 40 & 0xffff) / 4096.0f - 8.0f;
    }
    for (int32_t i = 0; i < 16; i++)
        row[vocab + i] = INFINITY;
    assert_true(r->n_allocated < 4 * RIG_ROWS);
    r->allocated[r->n_allocated++] = row;
    return row;
}

const float *rig_unreadable(void) {
    static void *page;
    const size_t bytes = 1 << 20;
    if (!page) page = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    return page;
}

alea_lane rig_lane(int32_t slot, int64_t epoch) {
    return (alea_lane){.slot = slot, .epoch = epoch, .logprobs = true};
}

int32_t rig_begin(rig *r, const alea_lane *lanes, int32_t n_lanes) {
    int32_t frame = -1;
    assert_int_equal(alea__frames_begin(&r->frames, lanes, n_lanes, &frame, &r->error), ALEA_OK);
    r->batch.n_lanes = 0;
    r->batch.n_rows = 0;
    r->stats = (alea_reduce_stats){0};
    return frame;
}

void rig_emit(rig *r, alea_completion *bundle, int32_t frame, const alea_lane *lane, int32_t role,
              const int32_t *tokens, int32_t count) {
    const int32_t drafts = role == ALEA_ROLE_VERIFY ? RIG_TOKENS - 1 : 0;
    const alea_commit commit = {
        .slot = lane->slot,
        .epoch = lane->epoch,
        .role = role,
        .position = 100,
        .budget_tokens = 1000,
        .room_tokens = 1000,
        .drafted = drafts,
        .accepted = role == ALEA_ROLE_VERIFY && count > 0 ? count - 1 : 0,
        .tokens = tokens,
        .n_tokens = count,
        .offset = 7,
    };
    assert_int_equal(alea__commit_write(bundle, frame, &commit, NULL, &r->error), ALEA_OK);
}

alea_reduce_lane *rig_offer(rig *r, const alea_lane *lane, const float *const *rows, int32_t n) {
    alea_reduce_lane *offered = &r->lanes[r->batch.n_lanes++];
    *offered = (alea_reduce_lane){
        .slot = lane->slot,
        .epoch = lane->epoch,
        .first_row = r->batch.n_rows,
        .offered_rows = n,
    };
    for (int32_t i = 0; i < n; i++)
        r->rows[r->batch.n_rows++] = rows[i];
    assert_true(r->batch.n_rows <= RIG_ROWS);
    return offered;
}

void rig_reduce(rig *r, alea_completion *bundle, int32_t frame) {
    const alea_status status =
        alea__reduce(alea__kernels(), NULL, bundle, frame, &r->batch, &r->stats, &r->error);
    assert_int_equal(status, ALEA_OK);
}

double rig_logprob(const float *row, int32_t vocab, int32_t token) {
    long double most = -INFINITY;
    for (int32_t i = 0; i < vocab; i++)
        if (row[i] > most) most = row[i];
    long double sum = 0;
    for (int32_t i = 0; i < vocab; i++)
        sum += expl(row[i] - most);
    return (double)((long double)row[token] - most - logl(sum));
}

static const float *sort_by;

static int by_report(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a;
    const int32_t y = *(const int32_t *)b;
    if (sort_by[x] != sort_by[y]) return sort_by[x] > sort_by[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

void rig_order(const float *row, int32_t vocab, float *reported, int32_t *ids) {
    for (int32_t i = 0; i < vocab; i++)
        ids[i] = i;
    for (int32_t i = 0; i < vocab; i += ALEA_SELECTED_MAX) {
        const int32_t n = vocab - i < ALEA_SELECTED_MAX ? vocab - i : ALEA_SELECTED_MAX;
        assert_int_equal(alea__row_selected(alea__kernels(), row, vocab, ids + i, n, reported + i),
                         ALEA_OK);
    }
    sort_by = reported;
    qsort(ids, (size_t)vocab, sizeof *ids, by_report);
}
