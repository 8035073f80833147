/*
 * The reduction: which positions are reported, which rows are read, and that the values are those
 * of the raw row. Rows that must not be read fault when they are.
 */
#include "contract/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/payload.h"

static float chosen_logprob(const rig *r, int32_t frame, int32_t slot, int32_t position) {
    return alea__float_of(alea__completion_payload(&r->out, frame, slot, position)[1]);
}

/* A requesting lane that emitted `count` tokens 10, 11, … with readable rows. */
static int32_t emit_and_offer(rig *r, alea_lane *lane, int32_t count) {
    const float *rows[RIG_TOKENS];
    int32_t tokens[RIG_TOKENS];
    for (int32_t i = 0; i < count; i++) {
        rows[i] = rig_row(r, (uint64_t)i + 1, RIG_VOCAB);
        tokens[i] = 10 + i;
    }
    const int32_t frame = rig_begin(r, lane, 1);
    rig_emit(r, &r->out, frame, lane, count == 1 ? ALEA_ROLE_DECODE : ALEA_ROLE_VERIFY, tokens,
             count);
    rig_offer(r, lane, rows, count);
    return frame;
}

/* --- values --- */

static void test_logprob_is_that_of_the_whole_raw_row(void **state) {
    rig *r = *state;
    alea_lane lane = rig_lane(2, 1);
    const int32_t frame = emit_and_offer(r, &lane, RIG_TOKENS);
    rig_reduce(r, &r->out, frame);
    for (int32_t i = 0; i < RIG_TOKENS; i++) {
        const double want = rig_logprob(r->rows[i], RIG_VOCAB, 10 + i);
        const double bound = 0x1p-23 * fabs(want) + 1.8e-6;
        assert_true(fabs(chosen_logprob(r, frame, 2, i) - want) <= bound);
    }
}

static void test_every_verified_position_reports_its_target_row(void **state) {
    rig *r = *state;
    for (int32_t count = 1; count <= RIG_TOKENS; count++) {
        alea_lane lane = rig_lane(4, count);
        const int32_t frame = emit_and_offer(r, &lane, count);
        r->stats = (alea_reduce_stats){0};
        rig_reduce(r, &r->out, frame);
        assert_int_equal(r->stats.positions, count);
        for (int32_t i = 0; i < count; i++) {
            float want;
            const int32_t token = 10 + i;
            assert_int_equal(
                alea__row_selected(alea__kernels(), r->rows[i], RIG_VOCAB, &token, 1, &want),
                ALEA_OK);
            assert_memory_equal(&want, alea__completion_payload(&r->out, frame, 4, i) + 1, 4);
        }
        assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    }
}

static void check_natural(const rig *r, int32_t frame, int32_t slot, int32_t position,
                          const float *row, int32_t vocab) {
    float *reported = malloc((size_t)vocab * sizeof *reported);
    int32_t *ids = malloc((size_t)vocab * sizeof *ids);
    rig_order(row, vocab, reported, ids);
    const int32_t *pairs = alea__completion_payload(&r->out, frame, slot, position) + 2;
    for (int32_t i = 0; i < 20; i++) {
        if (i >= vocab) {
            assert_int_equal(pairs[2 * i], -1);
            continue;
        }
        assert_int_equal(pairs[2 * i], ids[i]);
        assert_int_equal(pairs[2 * i + 1], alea__bits_of(reported[ids[i]]));
    }
    free(ids);
    free(reported);
}

static void test_natural_alternatives_fall_by_logprob_then_rise_by_id(void **state) {
    rig *r = *state;
    alea_lane lane = rig_lane(0, 1);
    const int32_t frame = emit_and_offer(r, &lane, 3);
    rig_reduce(r, &r->out, frame);
    for (int32_t i = 0; i < 3; i++)
        check_natural(r, frame, 0, i, r->rows[i], RIG_VOCAB);
    /* Only K pairs are written: the words behind them are not this slot's. */
    assert_int_equal(alea__completion_payload(&r->out, frame, 0, 0)[2 + 2 * 20], -1);
    assert_int_equal(r->stats.words_written, 3 * 42);
}

/* Report one row for token `token` in slot 0. */
static int32_t reduce_row(rig *r, const float *row, int32_t vocab, int32_t token) {
    const alea_lane lane = rig_lane(0, 1);
    const int32_t frame = rig_begin(r, &lane, 1);
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    rig_offer(r, &lane, &row, 1);
    r->batch.vocab = vocab;
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    assert_int_equal(alea__frames_release(&r->frames, frame, NULL), ALEA_OK);
    return frame;
}

static void test_values_that_tie_after_the_subtraction_order_by_id(void **state) {
    rig *r = *state;
    /* Near -20000 neighbouring floats of the report are 2^-9 apart: hundreds of the logits below,
     * all distinct, must share a reported value, and then the smaller id comes first. */
    float *row = rig_row(r, 1, 400);
    row[0] = 20000.0f;
    for (int32_t i = 1; i < 400; i++)
        row[i] = (float)(i % 7) * 0x1p-20f + (float)(i % 3) * 0x1p-12f;
    float reported[400];
    int32_t ids[400];
    rig_order(row, 400, reported, ids);
    int32_t ties = 0;
    for (int32_t i = 1; i < 20; i++)
        ties += reported[ids[i]] == reported[ids[i - 1]] && row[ids[i]] != row[ids[i - 1]];
    assert_true(ties > 5);
    check_natural(r, reduce_row(r, row, 400, 3), 0, 0, row, 400);
}

static void test_equal_values_at_the_cutoff_keep_the_smallest_ids(void **state) {
    rig *r = *state;
    float *row = rig_row(r, 1, RIG_VOCAB);
    for (int32_t i = 0; i < RIG_VOCAB; i++)
        row[i] = i % 2 ? 1.0f : 0.0f;
    const int32_t frame = reduce_row(r, row, RIG_VOCAB, 0);
    const int32_t *pairs = alea__completion_payload(&r->out, frame, 0, 0) + 2;
    for (int32_t i = 0; i < 20; i++)
        assert_int_equal(pairs[2 * i], 2 * i + 1);
}

static void test_signed_zeros_are_one_value(void **state) {
    rig *r = *state;
    float *row = rig_row(r, 1, 30);
    for (int32_t i = 0; i < 30; i++)
        row[i] = i % 2 ? 0.0f : -0.0f;
    const int32_t frame = reduce_row(r, row, 30, 29);
    const int32_t *payload = alea__completion_payload(&r->out, frame, 0, 0);
    for (int32_t i = 0; i < 20; i++) {
        assert_int_equal(payload[2 + 2 * i], i);
        assert_int_equal(payload[3 + 2 * i], payload[1]);
    }
    /* A certain token reports 0, never -0. */
    for (int32_t i = 0; i < 30; i++)
        row[i] = -INFINITY;
    row[7] = -0.0f;
    const int32_t one = reduce_row(r, row, 30, 7);
    assert_int_equal(alea__completion_payload(&r->out, one, 0, 0)[1], 0);
}

static void test_padding_behind_the_vocabulary_never_enters(void **state) {
    rig *r = *state;
    static const int32_t vocabs[] = {1, 2, 19, 20, 21, 63, 64, 65, 1023, 1024, 1025};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        const float *row = rig_row(r, i + 1, vocabs[i]);
        assert_true(isinf(row[vocabs[i]]));
        const int32_t frame = reduce_row(r, row, vocabs[i], vocabs[i] - 1);
        assert_int_equal(r->stats.failed, 0);
        check_natural(r, frame, 0, 0, row, vocabs[i]);
    }
}

static void test_vocabulary_smaller_than_k_leaves_ids_of_minus_one(void **state) {
    rig *r = *state;
    const float *row = rig_row(r, 5, 3);
    const int32_t frame = reduce_row(r, row, 3, 2);
    const int32_t *pairs = alea__completion_payload(&r->out, frame, 0, 0) + 2;
    for (int32_t i = 0; i < 20; i++) {
        assert_int_equal(pairs[2 * i] >= 0, i < 3);
        assert_int_equal(isnan(alea__float_of(pairs[2 * i + 1])), i >= 3);
    }
}

static void test_selected_ids_keep_the_callers_order(void **state) {
    rig *r = *state;
    static const int32_t counts[] = {1, 2, 20, 21, 127, 128};
    int32_t ids[128];
    for (int32_t i = 0; i < 128; i++)
        ids[i] = (i * 397 + 11) % RIG_VOCAB;
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        const int32_t count = counts[n];
        assert_int_equal(alea__token_ids_check(ids, count, RIG_VOCAB, &r->error), ALEA_OK);
        alea_lane lane = rig_lane(3, 1);
        lane.n_token_ids = count;
        lane.token_ids = ids;
        const int32_t frame = emit_and_offer(r, &lane, 2);
        rig_reduce(r, &r->out, frame);
        assert_int_equal(r->stats.words_written, 2 * (2 + 2 * count));
        for (int32_t i = 0; i < 2; i++) {
            const int32_t *payload = alea__completion_payload(&r->out, frame, 3, i);
            assert_int_equal(payload[0], 10 + i);
            float reported[RIG_VOCAB];
            int32_t order[RIG_VOCAB];
            rig_order(r->rows[i], RIG_VOCAB, reported, order);
            for (int32_t j = 0; j < count; j++) {
                assert_int_equal(payload[2 + 2 * j], ids[j]);
                assert_int_equal(payload[3 + 2 * j], alea__bits_of(reported[ids[j]]));
            }
        }
        assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    }
}

static void test_chosen_token_may_lie_outside_the_alternatives(void **state) {
    rig *r = *state;
    const float *row = rig_row(r, 9, RIG_VOCAB);
    float reported[RIG_VOCAB];
    int32_t ids[RIG_VOCAB];
    rig_order(row, RIG_VOCAB, reported, ids);
    const int32_t last = ids[RIG_VOCAB - 1];
    const int32_t frame = reduce_row(r, row, RIG_VOCAB, last);
    const int32_t *payload = alea__completion_payload(&r->out, frame, 0, 0);
    assert_int_equal(payload[0], last);
    assert_int_equal(payload[1], alea__bits_of(reported[last]));
    for (int32_t i = 0; i < 20; i++)
        assert_int_not_equal(payload[2 + 2 * i], last);
}

static void test_filtering_scratch_has_no_part_in_a_report(void **state) {
    rig *r = *state;
    const float *row = rig_row(r, 9, RIG_VOCAB);
    /* What sampling does to its own copy: a temperature, and all but a few tokens masked. */
    float *scratch = rig_row(r, 9, RIG_VOCAB);
    for (int32_t i = 0; i < RIG_VOCAB; i++)
        scratch[i] = i < 5 ? scratch[i] / 0.3f : -INFINITY;
    int32_t before[42];
    int32_t frame = reduce_row(r, row, RIG_VOCAB, 3);
    memcpy(before, alea__completion_payload(&r->out, frame, 0, 0), sizeof before);
    for (int32_t i = 0; i < RIG_VOCAB; i++)
        scratch[i] = NAN;
    frame = reduce_row(r, row, RIG_VOCAB, 3);
    assert_memory_equal(before, alea__completion_payload(&r->out, frame, 0, 0), sizeof before);
}

static void test_a_token_without_weight_reports_minus_infinity(void **state) {
    rig *r = *state;
    float *row = rig_row(r, 4, 50);
    row[7] = -INFINITY;
    const int32_t ids[] = {7, 8};
    alea_lane lane = rig_lane(0, 1);
    lane.token_ids = ids;
    lane.n_token_ids = 2;
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t token = 8;
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    const float *rows[] = {row};
    rig_offer(r, &lane, rows, 1);
    r->batch.vocab = 50;
    rig_reduce(r, &r->out, frame);
    const int32_t *payload = alea__completion_payload(&r->out, frame, 0, 0);
    assert_true(alea__float_of(payload[3]) == -INFINITY);
    assert_int_equal(payload[5], payload[1]);
}

static void test_bits_do_not_depend_on_threads_or_neighbours(void **state) {
    rig *r = *state;
    alea_pool *pool = NULL;
    assert_int_equal(alea__pool_create(3, &pool), ALEA_OK);
    alea_lane lanes[RIG_CAPACITY];
    const float *row = rig_row(r, 77, RIG_VOCAB);
    int32_t alone[42];
    int32_t frame = reduce_row(r, row, RIG_VOCAB, 5);
    memcpy(alone, alea__completion_payload(&r->out, frame, 0, 0), sizeof alone);
    for (int32_t i = 0; i < RIG_CAPACITY; i++)
        lanes[i] = rig_lane(i, 3);
    frame = rig_begin(r, lanes, RIG_CAPACITY);
    const int32_t token = 5;
    for (int32_t i = RIG_CAPACITY - 1; i >= 0; i--) {
        const float *mine = i == 3 ? row : rig_row(r, (uint64_t)i, RIG_VOCAB);
        rig_emit(r, &r->out, frame, &lanes[i], ALEA_ROLE_DECODE, &token, 1);
        rig_offer(r, &lanes[i], &mine, 1);
    }
    assert_int_equal(
        alea__reduce(alea__kernels(), pool, &r->out, frame, &r->batch, &r->stats, &r->error),
        ALEA_OK);
    assert_int_equal(r->stats.positions, RIG_CAPACITY);
    assert_memory_equal(alone, alea__completion_payload(&r->out, frame, 3, 0), sizeof alone);
    alea__pool_destroy(pool);
}

static void test_reduction_changes_nothing_but_payloads(void **state) {
    rig *r = *state;
    alea_lane lane = rig_lane(2, 1);
    const int32_t frame = emit_and_offer(r, &lane, 4);
    const size_t record_bytes = sizeof(int64_t) * 2 * RIG_CAPACITY * (16 + RIG_TOKENS);
    void *records = malloc(record_bytes);
    memcpy(records, r->out.records, record_bytes);
    uint64_t sums[4] = {0};
    for (int32_t i = 0; i < 4; i++)
        for (int32_t j = 0; j < RIG_VOCAB; j++)
            sums[i] = sums[i] * 31 + (uint32_t)alea__bits_of(r->rows[i][j]);
    rig_reduce(r, &r->out, frame);
    assert_memory_equal(records, r->out.records, record_bytes);
    for (int32_t i = 0; i < 4; i++) {
        uint64_t sum = 0;
        for (int32_t j = 0; j < RIG_VOCAB; j++)
            sum = sum * 31 + (uint32_t)alea__bits_of(r->rows[i][j]);
        assert_true(sum == sums[i]);
    }
    assert_int_equal(r->out.requested[2], 1);
    free(records);
}

/* --- which positions --- */

static void test_without_a_flag_nothing_is_read_or_written(void **state) {
    rig *r = *state;
    alea_lane lane = rig_lane(1, 1);
    lane.logprobs = false;
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t token = 3;
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    const float *rows[] = {rig_unreadable()};
    const alea_reduce_lane *offered = rig_offer(r, &lane, rows, 1);
    const size_t bytes = sizeof(int32_t) * 2 * RIG_CAPACITY * RIG_TOKENS * 258;
    void *before = malloc(bytes);
    memcpy(before, r->out.logprobs, bytes);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(offered->verdict, ALEA_REDUCE_GATED);
    assert_int_equal(r->stats.values_read, 0);
    assert_int_equal(r->stats.words_written, 0);
    assert_memory_equal(before, r->out.logprobs, bytes);
    free(before);
}

static void test_only_asking_lanes_pay(void **state) {
    rig *r = *state;
    alea_lane lanes[2] = {rig_lane(0, 1), rig_lane(1, 1)};
    lanes[0].logprobs = false;
    const int32_t frame = rig_begin(r, lanes, 2);
    const int32_t token = 3;
    const float *rows[] = {rig_unreadable(), rig_row(r, 2, RIG_VOCAB)};
    for (int32_t i = 0; i < 2; i++) {
        rig_emit(r, &r->out, frame, &lanes[i], ALEA_ROLE_DECODE, &token, 1);
        rig_offer(r, &lanes[i], &rows[i], 1);
    }
    rig_reduce(r, &r->out, frame);
    assert_int_equal(r->stats.values_read, RIG_VOCAB);
    assert_int_equal(r->stats.positions, 1);
}

static void expect_unread(rig *r, int32_t frame, const alea_lane *lane,
                          alea_reduce_verdict verdict) {
    const float *rows[] = {rig_unreadable(), rig_unreadable()};
    const alea_reduce_lane *offered = rig_offer(r, lane, rows, 2);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(offered->verdict, verdict);
    assert_int_equal(r->stats.values_read, 0);
    assert_int_equal(r->stats.words_written, 0);
}

static void test_stale_epochs_are_not_reduced(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 7);
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t token = 3;
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    const alea_lane old = rig_lane(1, 6);
    expect_unread(r, frame, &old, ALEA_REDUCE_STALE);
}

static void test_inactive_lanes_are_not_reduced(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 7);
    const int32_t frame = rig_begin(r, &lane, 1);
    expect_unread(r, frame, &lane, ALEA_REDUCE_INACTIVE);
    alea_lane padding = lane;
    padding.slot = -1;
    r->batch.n_lanes = r->batch.n_rows = 0;
    expect_unread(r, frame, &padding, ALEA_REDUCE_INACTIVE);
}

static void test_duplicate_lanes_are_reduced_once(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 7);
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t token = 3;
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    const float *rows[] = {rig_row(r, 1, RIG_VOCAB), rig_unreadable()};
    const alea_lane stale = rig_lane(1, 6);
    const alea_reduce_lane *before = rig_offer(r, &stale, rows + 1, 1);
    const alea_reduce_lane *owner = rig_offer(r, &lane, rows, 1);
    const alea_reduce_lane *second = rig_offer(r, &lane, rows + 1, 1);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(before->verdict, ALEA_REDUCE_STALE);
    assert_int_equal(owner->verdict, ALEA_REDUCED);
    assert_int_equal(second->verdict, ALEA_REDUCE_DUPLICATE);
    assert_int_equal(r->stats.values_read, RIG_VOCAB);
}

static void test_rejected_columns_are_never_read(void **state) {
    rig *r = *state;
    for (int32_t committed = 1; committed < RIG_TOKENS; committed++) {
        const alea_lane lane = rig_lane(1, 7);
        const int32_t frame = rig_begin(r, &lane, 1);
        const float *rows[RIG_TOKENS];
        int32_t tokens[RIG_TOKENS];
        for (int32_t i = 0; i < RIG_TOKENS; i++) {
            rows[i] = i < committed ? rig_row(r, 1, RIG_VOCAB) : rig_unreadable();
            tokens[i] = i;
        }
        rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_VERIFY, tokens, committed);
        rig_offer(r, &lane, rows, RIG_TOKENS);
        rig_reduce(r, &r->out, frame);
        assert_int_equal(r->stats.values_read, committed * RIG_VOCAB);
        /* Payloads beyond the prefix are as the frame began. */
        assert_int_equal(alea__completion_payload(&r->out, frame, 1, committed)[0], -1);
        assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    }
}

static void test_exhausted_positions_are_not_reduced(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 7);
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t tokens[] = {1, 2, 3};
    alea_commit commit = {
        .slot = 1,
        .epoch = 7,
        .role = ALEA_ROLE_VERIFY,
        .room_tokens = 9,
        .drafted = 2,
        .accepted = 2,
        .tokens = tokens,
        .n_tokens = 3,
    };
    assert_int_equal(alea__commit_write(&r->out, frame, &commit, NULL, &r->error), ALEA_OK);
    expect_unread(r, frame, &lane, ALEA_REDUCE_INACTIVE);
    commit.budget_tokens = 1;
    assert_int_equal(alea__commit_write(&r->out, frame, &commit, NULL, &r->error), ALEA_OK);
    r->batch.n_lanes = r->batch.n_rows = 0;
    const float *rows[] = {rig_row(r, 1, RIG_VOCAB), rig_unreadable(), rig_unreadable()};
    rig_offer(r, &lane, rows, 3);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(r->stats.positions, 1);
}

static void test_unoffered_positions_are_not_reduced(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 7);
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t tokens[] = {1, 2, 3};
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_VERIFY, tokens, 3);
    const float *row = rig_row(r, 1, RIG_VOCAB);
    rig_offer(r, &lane, &row, 1);
    /* The next packed row is another request's. */
    r->rows[r->batch.n_rows++] = rig_unreadable();
    r->rows[r->batch.n_rows++] = rig_unreadable();
    rig_reduce(r, &r->out, frame);
    assert_int_equal(r->stats.positions, 1);
    assert_int_equal(r->stats.values_read, RIG_VOCAB);
}

static void test_forced_tokens_are_not_reduced(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 7);
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t tokens[] = {1, 2, 3};
    const alea_commit commit = {
        .slot = 1,
        .epoch = 7,
        .role = ALEA_ROLE_VERIFY,
        .budget_tokens = 9,
        .room_tokens = 9,
        .drafted = 2,
        .accepted = 2,
        .tokens = tokens,
        .n_tokens = 3,
        .forced = 2,
    };
    assert_int_equal(alea__commit_write(&r->out, frame, &commit, NULL, &r->error), ALEA_OK);
    const float *rows[] = {rig_row(r, 1, RIG_VOCAB), rig_unreadable(), rig_row(r, 2, RIG_VOCAB)};
    rig_offer(r, &lane, rows, 3);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(r->stats.positions, 2);
    assert_int_equal(r->stats.forced, 1);
    assert_int_equal(alea__completion_payload(&r->out, frame, 1, 1)[0], -1);
}

static void test_rounds_that_emit_nothing_write_records_only(void **state) {
    rig *r = *state;
    for (int32_t role = ALEA_ROLE_ADMISSION; role <= ALEA_ROLE_INVALID; role++) {
        const alea_lane lane = rig_lane(1, 7);
        const int32_t frame = rig_begin(r, &lane, 1);
        assert_int_equal(alea__commit_event(&r->out, frame, 1, 7, role, 0, 0, NULL), ALEA_OK);
        expect_unread(r, frame, &lane, ALEA_REDUCE_INACTIVE);
        assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    }
}

static void test_only_the_active_frame_is_read_and_written(void **state) {
    rig *r = *state;
    alea_lane lane = rig_lane(2, 1);
    int32_t frame = emit_and_offer(r, &lane, 4);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    const size_t half = (size_t)RIG_CAPACITY * RIG_TOKENS * 258 * sizeof(int32_t);
    const size_t records = (size_t)RIG_CAPACITY * (16 + RIG_TOKENS) * sizeof(int64_t);
    void *payloads_before = malloc(half);
    void *records_before = malloc(records);
    memcpy(payloads_before, alea__completion_payload(&r->out, frame, 0, 0), half);
    memcpy(records_before, alea__completion_record(&r->out, frame, 0), records);
    const int32_t next = emit_and_offer(r, &lane, 2);
    assert_int_equal(next, 1 - frame);
    rig_reduce(r, &r->out, next);
    assert_memory_equal(payloads_before, alea__completion_payload(&r->out, frame, 0, 0), half);
    assert_memory_equal(records_before, alea__completion_record(&r->out, frame, 0), records);
    free(payloads_before);
    free(records_before);
}

/* --- failures --- */

static void test_a_bad_row_is_the_failure_of_its_own_position(void **state) {
    rig *r = *state;
    static const float poisons[] = {NAN, INFINITY};
    for (size_t p = 0; p < 3; p++) {
        alea_lane lanes[2] = {rig_lane(0, 1), rig_lane(1, 1)};
        const int32_t frame = rig_begin(r, lanes, 2);
        float *bad = rig_row(r, 3, RIG_VOCAB);
        if (p < 2) bad[600] = poisons[p];
        const float *rows[] = {p < 2 ? bad : NULL, rig_row(r, 4, RIG_VOCAB)};
        const int32_t token = 9;
        for (int32_t i = 0; i < 2; i++) {
            rig_emit(r, &r->out, frame, &lanes[i], ALEA_ROLE_DECODE, &token, 1);
            rig_offer(r, &lanes[i], &rows[i], 1);
        }
        rig_reduce(r, &r->out, frame);
        assert_int_equal(r->stats.failed, 1);
        assert_int_equal(r->stats.positions, 1);
        assert_true(isnan(chosen_logprob(r, frame, 0, 0)));
        assert_true(chosen_logprob(r, frame, 1, 0) < 0);
        assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    }
}

/* Counts are data of the submission, in memory that a core may own. */
static void test_an_impossible_count_of_ids_is_a_failure_of_its_slot(void **state) {
    rig *r = *state;
    static const int32_t counts[] = {-1, INT32_MIN, 129, INT32_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        alea_lane lane = rig_lane(2, 1);
        const int32_t frame = emit_and_offer(r, &lane, 1);
        r->out.token_id_counts[2] = counts[i];
        r->stats = (alea_reduce_stats){0};
        rig_reduce(r, &r->out, frame);
        assert_int_equal(r->stats.failed, 1);
        assert_true(isnan(chosen_logprob(r, frame, 2, 0)));
        assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    }
}

static void test_impossible_batches_are_refused_before_anything_is_read(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 7);
    const int32_t frame = rig_begin(r, &lane, 1);
    const float *rows[] = {rig_unreadable()};
    alea_reduce_lane *offered = rig_offer(r, &lane, rows, 1);
    const alea_kernel_table *k = alea__kernels();
    offered->offered_rows = 2;
    assert_int_equal(alea__reduce(k, NULL, &r->out, frame, &r->batch, NULL, &r->error),
                     ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "rows"));
    offered->offered_rows = 1;
    offered->slot = RIG_CAPACITY;
    assert_int_equal(alea__reduce(k, NULL, &r->out, frame, &r->batch, NULL, &r->error),
                     ALEA_EINVAL);
    offered->slot = 1;
    assert_int_equal(alea__reduce(k, NULL, &r->out, 2, &r->batch, NULL, &r->error), ALEA_EINVAL);
    r->batch.vocab = 0;
    assert_int_equal(alea__reduce(k, NULL, &r->out, frame, &r->batch, NULL, &r->error),
                     ALEA_EINVAL);
    r->batch.vocab = RIG_VOCAB;
    const int32_t token = 3;
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    alea__completion_record(&r->out, frame, 1)[ALEA_RECORD_AT_COUNT] = 40;
    assert_int_equal(alea__reduce(k, NULL, &r->out, frame, &r->batch, NULL, &r->error),
                     ALEA_EFORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("V1", test_logprob_is_that_of_the_whole_raw_row),
        RULE("V1", test_filtering_scratch_has_no_part_in_a_report),
        RULE("V2", test_every_verified_position_reports_its_target_row),
        RULE("V3", test_forced_tokens_are_not_reduced),
        RULE("V4", test_natural_alternatives_fall_by_logprob_then_rise_by_id),
        RULE("V4", test_values_that_tie_after_the_subtraction_order_by_id),
        RULE("V4", test_equal_values_at_the_cutoff_keep_the_smallest_ids),
        RULE("V4", test_signed_zeros_are_one_value),
        RULE("V5", test_selected_ids_keep_the_callers_order),
        RULE("V5", test_a_token_without_weight_reports_minus_infinity),
        RULE("V6", test_chosen_token_may_lie_outside_the_alternatives),
        RULE("V7", test_vocabulary_smaller_than_k_leaves_ids_of_minus_one),
        RULE("V8", test_padding_behind_the_vocabulary_never_enters),
        RULE("V9", test_reduction_changes_nothing_but_payloads),
        RULE("V10", test_bits_do_not_depend_on_threads_or_neighbours),
        RULE("V11", test_a_bad_row_is_the_failure_of_its_own_position),
        RULE("V11", test_an_impossible_count_of_ids_is_a_failure_of_its_slot),
        RULE("P1", test_without_a_flag_nothing_is_read_or_written),
        RULE("P1", test_only_asking_lanes_pay),
        RULE("P2", test_stale_epochs_are_not_reduced),
        RULE("P2", test_inactive_lanes_are_not_reduced),
        RULE("P2", test_duplicate_lanes_are_reduced_once),
        RULE("P2", test_exhausted_positions_are_not_reduced),
        RULE("P2", test_unoffered_positions_are_not_reduced),
        RULE("P3", test_rejected_columns_are_never_read),
        RULE("P4", test_rounds_that_emit_nothing_write_records_only),
        RULE("P5", test_only_the_active_frame_is_read_and_written),
        RULE("P6", test_impossible_batches_are_refused_before_anything_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
