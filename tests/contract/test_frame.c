/* Submissions and frames: who may set what, and when a buffer is whose. */
#include "contract/rig.h"

#include <stdlib.h>
#include <string.h>

static void test_unused_slots_are_cleared_on_each_submission(void **state) {
    rig *r = *state;
    static const int32_t ids[] = {4, 5, 6};
    alea_lane lanes[3] = {rig_lane(0, 1), rig_lane(3, 1), rig_lane(5, 1)};
    lanes[1].token_ids = ids;
    lanes[1].n_token_ids = 3;
    lanes[2].logprobs = false;
    int32_t frame = rig_begin(r, lanes, 3);
    static const int32_t flags[RIG_CAPACITY] = {1, 0, 0, 1, 0, 0};
    static const int32_t counts[RIG_CAPACITY] = {0, 0, 0, 3, 0, 0};
    assert_memory_equal(r->out.requested, flags, sizeof flags);
    assert_memory_equal(r->out.token_id_counts, counts, sizeof counts);
    assert_memory_equal(r->out.token_ids + 3 * 128, ids, sizeof ids);
    assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    /* Whatever an uploader left behind, the next submission leaves only its own. */
    for (int32_t i = 0; i < RIG_CAPACITY; i++)
        r->out.requested[i] = r->out.token_id_counts[i] = 77;
    frame = rig_begin(r, lanes + 2, 1);
    static const int32_t none[RIG_CAPACITY] = {0};
    assert_memory_equal(r->out.requested, none, sizeof none);
    assert_memory_equal(r->out.token_id_counts, none, sizeof none);
    assert_int_equal(r->frames.frame[frame].n_requesting, 0);
    assert_int_equal(r->frames.frame[frame].width_pairs, 0);
}

static void test_lanes_that_break_the_rules_upload_nothing(void **state) {
    rig *r = *state;
    int32_t ids[129] = {0};
    const alea_lane good = rig_lane(1, 1);
    static const struct {
        alea_lane lane;
        const char *names;
    } bad[] = {
        {{.slot = -1, .epoch = 1}, "lane slot is -1"},
        {{.slot = RIG_CAPACITY, .epoch = 1}, "lane slot is 6"},
        {{.slot = 2, .epoch = 0}, "epoch is 0"},
        {{.slot = 1, .epoch = 1}, "two lanes"},
        {{.slot = 2, .epoch = 1, .n_token_ids = 1}, "without asking"},
        {{.slot = 2, .epoch = 1, .logprobs = true, .n_token_ids = 129}, "129 ids"},
        {{.slot = 2, .epoch = 1, .logprobs = true, .n_token_ids = -1}, "-1 ids"},
    };
    r->out.requested[4] = 55;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        alea_lane lanes[2] = {good, bad[i].lane};
        lanes[1].token_ids = ids;
        int32_t frame = 77;
        assert_int_equal(alea__frames_begin(&r->frames, lanes, 2, &frame, &r->error), ALEA_EINVAL);
        assert_int_equal(frame, 77);
        if (!strstr(r->error.message, bad[i].names))
            fail_msg("'%s' lacks '%s'", r->error.message, bad[i].names);
        assert_int_equal(r->out.requested[1], 0);
        assert_int_equal(r->out.requested[4], 55);
        assert_int_equal(r->frames.frame[0].state, ALEA_FRAME_FREE);
    }
}

static void test_selected_ids_are_distinct_few_and_known(void **state) {
    rig *r = *state;
    int32_t ids[129];
    for (int32_t i = 0; i < 129; i++)
        ids[i] = 128 - i;
    assert_int_equal(alea__token_ids_check(ids, 128, 129, &r->error), ALEA_OK);
    assert_int_equal(alea__token_ids_check(ids, 129, 129, &r->error), ALEA_ELIMIT);
    assert_int_equal(alea__token_ids_check(ids, 0, 129, &r->error), ALEA_ELIMIT);
    assert_int_equal(alea__token_ids_check(ids, 1, 128, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "[0] is 128"));
    ids[5] = -1;
    assert_int_equal(alea__token_ids_check(ids, 128, 129, &r->error), ALEA_EINVAL);
    ids[5] = ids[2];
    assert_int_equal(alea__token_ids_check(ids, 128, 129, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "[5] repeats 126"));
}

static void test_a_frame_walks_from_free_to_pending_and_back(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(0, 1);
    int32_t extra = 77;
    const int32_t first = rig_begin(r, &lane, 1);
    assert_int_equal(alea__frames_begin(&r->frames, &lane, 1, &extra, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "in flight"));
    assert_int_equal(alea__frames_release(&r->frames, first, &r->error), ALEA_EINVAL);
    assert_int_equal(alea__frames_produced(&r->frames, first, &r->error), ALEA_OK);
    assert_int_equal(alea__frames_produced(&r->frames, first, &r->error), ALEA_EINVAL);
    assert_int_equal(alea__frames_abandon(&r->frames, first, &r->error), ALEA_EINVAL);
    const int32_t second = rig_begin(r, &lane, 1);
    assert_int_not_equal(second, first);
    assert_int_equal(alea__frames_produced(&r->frames, second, &r->error), ALEA_OK);
    assert_int_equal(alea__frames_begin(&r->frames, &lane, 1, &extra, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "await decoding"));
    assert_int_equal(alea__frames_release(&r->frames, first, &r->error), ALEA_OK);
    assert_int_equal(rig_begin(r, &lane, 1), first);
    assert_int_equal(alea__frames_release(&r->frames, 2, &r->error), ALEA_EINVAL);
    assert_int_equal(extra, 77);
}

static void test_a_pending_frame_keeps_its_mask_and_width(void **state) {
    rig *r = *state;
    int32_t ids[128];
    for (int32_t i = 0; i < 128; i++)
        ids[i] = i;
    static const struct {
        int32_t n_ids[3]; /* -1: no logprobs; 0: natural */
        int32_t width, requesting;
    } cases[] = {
        {{-1, -1, -1}, 0, 0}, {{0, -1, -1}, 20, 1},   {{5, -1, -1}, 20, 1},
        {{0, 21, -1}, 21, 2}, {{3, 128, 64}, 128, 3},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        alea_lane lanes[3];
        for (int32_t i = 0; i < 3; i++) {
            const int32_t n = cases[c].n_ids[i];
            lanes[i] = rig_lane(2 * i, 1);
            lanes[i].logprobs = n >= 0;
            lanes[i].n_token_ids = n > 0 ? n : 0;
            lanes[i].token_ids = ids;
        }
        const int32_t frame = rig_begin(r, lanes, 3);
        assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
        const alea_frame *f = &r->frames.frame[frame];
        assert_int_equal(f->width_pairs, cases[c].width);
        assert_int_equal(f->n_requesting, cases[c].requesting);
        for (int32_t i = 0; i < 3; i++) {
            assert_int_equal(alea__frame_requested(f, 2 * i), cases[c].n_ids[i] >= 0);
            assert_false(alea__frame_requested(f, 2 * i + 1));
        }
        assert_int_equal(alea__frames_release(&r->frames, frame, NULL), ALEA_OK);
    }
}

static void test_copies_move_one_half_and_w_pairs(void **state) {
    rig *r = *state;
    alea_completion to;
    assert_int_equal(alea__completion_allocate(RIG_CAPACITY, RIG_TOKENS, 0, &to, NULL), ALEA_OK);
    const size_t words = (size_t)2 * RIG_CAPACITY * RIG_TOKENS * 258;
    const size_t record_bytes = (size_t)RIG_CAPACITY * (16 + RIG_TOKENS) * sizeof(int64_t);
    for (size_t i = 0; i < words; i++)
        r->out.logprobs[i] = (int32_t)i;
    alea_lane lane = rig_lane(2, 1);
    const int32_t frame = rig_begin(r, &lane, 1);
    memset(to.logprobs, 0x7e, words * sizeof(int32_t));
    const size_t bytes = alea__frame_copy(&r->frames, frame, &to);
    assert_int_equal(bytes, record_bytes + (size_t)RIG_CAPACITY * RIG_TOKENS * 42 * 4);
    for (size_t i = 0; i < words; i++) {
        const bool half = i / (words / 2) == (size_t)frame;
        const bool copied = half && i % 258 < 42;
        assert_int_equal(to.logprobs[i], copied ? r->out.logprobs[i] : 0x7e7e7e7e);
    }
    assert_int_equal(alea__frames_abandon(&r->frames, frame, NULL), ALEA_OK);
    int32_t ids[100];
    for (int32_t i = 0; i < 100; i++)
        ids[i] = i;
    lane.token_ids = ids;
    lane.n_token_ids = 100;
    const int32_t wide = rig_begin(r, &lane, 1);
    assert_int_equal(alea__frame_copy(&r->frames, wide, &to),
                     record_bytes + (size_t)RIG_CAPACITY * RIG_TOKENS * 202 * 4);
    assert_memory_equal(alea__completion_payload(&to, wide, 2, 7),
                        alea__completion_payload(&r->out, wide, 2, 7), 202 * 4);
    assert_int_equal(alea__frames_abandon(&r->frames, wide, NULL), ALEA_OK);
    lane = rig_lane(2, 1);
    lane.logprobs = false;
    const int32_t quiet = rig_begin(r, &lane, 1);
    memset(to.logprobs, 0x7e, words * sizeof(int32_t));
    assert_int_equal(alea__frame_copy(&r->frames, quiet, &to), record_bytes);
    for (size_t i = 0; i < words; i++)
        assert_int_equal(to.logprobs[i], 0x7e7e7e7e);
    alea__completion_free(&to);
}

static void test_bundles_without_payload_take_no_flags(void **state) {
    rig *r = *state;
    int64_t records[2 * 2 * (16 + 8)] = {0};
    void *buffers[ALEA_BUFFERS] = {records};
    const alea_completion_layout layout = {.capacity = 2, .tokens = 8};
    alea_completion c;
    assert_int_equal(alea__completion_bind(&layout, buffers, &c, NULL), ALEA_OK);
    alea_frames frames;
    alea__frames_init(&frames, RIG_VOCAB, &c, NULL, NULL);
    alea_lane lane = rig_lane(0, 1);
    int32_t frame = -1;
    assert_int_equal(alea__frames_begin(&frames, &lane, 1, &frame, &r->error), ALEA_EUNSUPPORTED);
    lane.logprobs = false;
    assert_int_equal(alea__frames_begin(&frames, &lane, 1, &frame, &r->error), ALEA_OK);
    /* Such a core serves: its records are committed and decoded, without entries. */
    const int32_t token = 4;
    rig_emit(r, &c, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    const float *rows[] = {rig_unreadable()};
    rig_offer(r, &lane, rows, 1);
    rig_reduce(r, &c, frame);
    assert_int_equal(r->stats.lanes[ALEA_REDUCE_GATED], 1);
    assert_int_equal(alea__frames_produced(&frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    assert_true(alea__decode_next(&decoded, &entry));
    assert_int_equal(entry.token, 4);
    assert_false(entry.has_logprob);
}

static void test_narrow_bundles_serve_natural_alternatives_only(void **state) {
    rig *r = *state;
    enum { K = 5, WORDS = 2 + 2 * K };
    int64_t records[2 * 2 * (16 + 8)] = {0};
    int32_t payload[2 * 2 * 8 * WORDS];
    int32_t requested[2];
    void *buffers[ALEA_BUFFERS] = {records, payload, requested};
    const alea_completion_layout layout = {.capacity = 2, .tokens = 8, .alternatives = K};
    alea_completion c;
    assert_int_equal(alea__completion_bind(&layout, buffers, &c, NULL), ALEA_OK);
    alea_frames frames;
    alea__frames_init(&frames, RIG_VOCAB, &c, NULL, NULL);
    static const int32_t ids[] = {1};
    alea_lane lane = rig_lane(1, 1);
    lane.token_ids = ids;
    lane.n_token_ids = 1;
    int32_t frame = -1;
    assert_int_equal(alea__frames_begin(&frames, &lane, 1, &frame, &r->error), ALEA_EUNSUPPORTED);
    assert_non_null(strstr(r->error.message, "ids"));
    lane.n_token_ids = 0;
    assert_int_equal(alea__frames_begin(&frames, &lane, 1, &frame, &r->error), ALEA_OK);
    assert_int_equal(frames.frame[frame].width_pairs, K);
    const int32_t token = 4;
    rig_emit(r, &c, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    const float *row = rig_row(r, 8, RIG_VOCAB);
    rig_offer(r, &lane, &row, 1);
    rig_reduce(r, &c, frame);
    assert_int_equal(r->stats.words_written, WORDS);
    assert_int_equal(alea__frames_produced(&frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    assert_true(alea__decode_next(&decoded, &entry));
    assert_int_equal(entry.n_alternatives, K);
    float reported[RIG_VOCAB];
    int32_t order[RIG_VOCAB];
    rig_order(row, RIG_VOCAB, reported, order);
    for (int32_t i = 0; i < K; i++)
        assert_int_equal(alea__entry_alternative(&entry, i).token, order[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("F1", test_unused_slots_are_cleared_on_each_submission),
        RULE("F2", test_lanes_that_break_the_rules_upload_nothing),
        RULE("F3", test_selected_ids_are_distinct_few_and_known),
        RULE("F4", test_a_frame_walks_from_free_to_pending_and_back),
        RULE("F5", test_a_pending_frame_keeps_its_mask_and_width),
        RULE("F6", test_copies_move_one_half_and_w_pairs),
        RULE("K1", test_bundles_without_payload_take_no_flags),
        RULE("K2", test_narrow_bundles_serve_natural_alternatives_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
