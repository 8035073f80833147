/* Mixed rounds: private bundles, one merge, and a frame that nobody may touch. */
#include "contract/rig.h"

#include <stdlib.h>
#include <string.h>

static const size_t record_half = (size_t)RIG_CAPACITY * (16 + RIG_TOKENS) * sizeof(int64_t);
static const size_t payload_half = (size_t)RIG_CAPACITY * RIG_TOKENS * 258 * sizeof(int32_t);

/* Slot 0 takes a prompt, slot 1 decodes, slot 2 verifies, slot 3 decodes without asking. */
static int32_t mixed_round(rig *r, alea_lane lanes[4]) {
    for (int32_t i = 0; i < 4; i++)
        lanes[i] = rig_lane(i, 2);
    lanes[3].logprobs = false;
    const int32_t frame = rig_begin(r, lanes, 4);
    static const int32_t tokens[] = {5, 6, 7};
    static const int32_t roles[] = {ALEA_ROLE_PROMPT, ALEA_ROLE_DECODE, ALEA_ROLE_VERIFY,
                                    ALEA_ROLE_DECODE};
    for (int32_t i = 0; i < 4; i++) {
        alea_completion *bundle = i == 0 ? &r->prompt : &r->decode;
        const int32_t count = roles[i] == ALEA_ROLE_VERIFY ? 3 : 1;
        rig_emit(r, bundle, frame, &lanes[i], roles[i], tokens, count);
        const float *rows[3];
        for (int32_t j = 0; j < count; j++)
            rows[j] = rig_row(r, (uint64_t)(10 * i + j), RIG_VOCAB);
        r->batch.n_lanes = r->batch.n_rows = 0;
        rig_offer(r, &lanes[i], rows, count);
        rig_reduce(r, bundle, frame);
    }
    return frame;
}

static void test_merge_takes_record_and_payload_of_one_role(void **state) {
    rig *r = *state;
    alea_lane lanes[4];
    const int32_t frame = mixed_round(r, lanes);
    assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_OK);
    for (int32_t slot = 0; slot < RIG_CAPACITY; slot++) {
        const alea_completion *from = slot == 0 ? &r->prompt : &r->decode;
        assert_memory_equal(alea__completion_record(&r->out, frame, slot),
                            alea__completion_record(from, frame, slot),
                            (16 + RIG_TOKENS) * sizeof(int64_t));
        const int32_t count = slot == 2 ? 3 : slot < 2 ? 1 : 0;
        for (int32_t t = 0; t < count; t++)
            assert_memory_equal(alea__completion_payload(&r->out, frame, slot, t),
                                alea__completion_payload(from, frame, slot, t), 42 * 4);
    }
    assert_int_equal(alea__completion_payload(&r->out, frame, 3, 0)[0], -1);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    for (int32_t i = 0; i < 4; i++) {
        alea_decoded decoded;
        assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[i], &decoded, &r->error),
                         ALEA_OK);
        assert_int_equal(decoded.record.count, i == 2 ? 3 : 1);
    }
}

static void test_merge_leaves_what_nobody_asked_for_and_empties_idle_slots(void **state) {
    rig *r = *state;
    alea_lane lanes[4];
    const int32_t frame = mixed_round(r, lanes);
    memset(alea__completion_payload(&r->decode, frame, 3, 0), 0x11, 258 * 4);
    memset(alea__completion_payload(&r->out, frame, 3, 0), 0x22, 258 * 4);
    const alea_lane idle = rig_lane(5, 9);
    const int32_t token = 1;
    rig_emit(r, &r->out, frame, &idle, ALEA_ROLE_DECODE, &token, 1);
    assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_OK);
    for (int32_t i = 0; i < 258; i++)
        assert_int_equal(alea__completion_payload(&r->out, frame, 3, 0)[i], 0x22222222);
    alea_record record;
    assert_int_equal(alea__record_read(&r->out, frame, 5, &record, &r->error), ALEA_OK);
    assert_int_equal(record.role, ALEA_ROLE_NONE);
}

static void test_merge_never_touches_the_inactive_frame(void **state) {
    rig *r = *state;
    alea_lane lanes[4];
    const int32_t frame = mixed_round(r, lanes);
    /* Poison the other half of every bundle: what is read there shows, what is written too. */
    alea_completion *bundles[] = {&r->out, &r->prompt, &r->decode};
    for (int i = 0; i < 3; i++) {
        memset(alea__completion_record(bundles[i], 1 - frame, 0), 0xa5 + i, record_half);
        memset(alea__completion_payload(bundles[i], 1 - frame, 0, 0), 0xa5 + i, payload_half);
    }
    assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_OK);
    for (int i = 0; i < 3; i++) {
        const unsigned char *records =
            (const unsigned char *)alea__completion_record(bundles[i], 1 - frame, 0);
        const unsigned char *payloads =
            (const unsigned char *)alea__completion_payload(bundles[i], 1 - frame, 0, 0);
        for (size_t b = 0; b < record_half; b++)
            assert_int_equal(records[b], 0xa5 + i);
        for (size_t b = 0; b < payload_half; b++)
            assert_int_equal(payloads[b], 0xa5 + i);
    }
}

/* Each round finds its private bundles empty, whichever of them the slot's last round used. */
static void test_a_new_frame_empties_both_private_bundles(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(0, 1);
    const int32_t token = 7;
    alea_completion *const bundles[] = {&r->prompt, &r->decode};
    for (int32_t i = 0; i < 2; i++) {
        int32_t frame = rig_begin(r, &lane, 1);
        rig_emit(r, bundles[i], frame, &lane, ALEA_ROLE_PROMPT, &token, 1);
        assert_int_equal(alea__frames_abandon(&r->frames, frame, &r->error), ALEA_OK);
        frame = rig_begin(r, &lane, 1);
        assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_OK);
        alea_record record;
        assert_int_equal(alea__record_read(&r->out, frame, 0, &record, &r->error), ALEA_OK);
        assert_int_equal(record.role, ALEA_ROLE_NONE);
        assert_int_equal(alea__frames_abandon(&r->frames, frame, &r->error), ALEA_OK);
    }
}

static void test_merge_refuses_a_slot_with_two_roles(void **state) {
    rig *r = *state;
    alea_lane lanes[4];
    const int32_t frame = mixed_round(r, lanes);
    const int32_t token = 5;
    rig_emit(r, &r->prompt, frame, &lanes[2], ALEA_ROLE_PROMPT, &token, 1);
    unsigned char *before = malloc(record_half);
    memcpy(before, alea__completion_record(&r->out, frame, 0), record_half);
    assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "slot 2"));
    assert_memory_equal(before, alea__completion_record(&r->out, frame, 0), record_half);
    /* A chunk that samples nothing claims its slot all the same. */
    assert_int_equal(alea__commit_event(&r->prompt, frame, 2, 2, ALEA_ROLE_PROMPT, 0, 0, &r->error),
                     ALEA_OK);
    assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_EFORMAT);
    free(before);
}

static void test_merge_refuses_malformed_records_and_other_layouts(void **state) {
    rig *r = *state;
    alea_lane lanes[4];
    const int32_t frame = mixed_round(r, lanes);
    assert_int_equal(alea__merge(&r->prompt, &r->decode, 2, &r->out, &r->error), ALEA_EINVAL);
    alea__completion_record(&r->decode, frame, 5)[0] = 7;
    assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "slot 5"));
    alea_completion other;
    assert_int_equal(alea__completion_allocate(RIG_CAPACITY, 4, 0, &other, NULL), ALEA_OK);
    assert_int_equal(alea__merge(&other, &r->decode, frame, &r->out, &r->error), ALEA_EINVAL);
    alea__completion_free(&other);
}

static void test_merge_copies_as_many_ids_as_were_asked(void **state) {
    rig *r = *state;
    int32_t ids[128];
    for (int32_t i = 0; i < 128; i++)
        ids[i] = 3 * i;
    alea_lane lane = rig_lane(4, 1);
    lane.token_ids = ids;
    lane.n_token_ids = 128;
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t token = 5;
    rig_emit(r, &r->prompt, frame, &lane, ALEA_ROLE_PROMPT, &token, 1);
    const float *row = rig_row(r, 1, RIG_VOCAB);
    rig_offer(r, &lane, &row, 1);
    rig_reduce(r, &r->prompt, frame);
    assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, &r->error), ALEA_OK);
    assert_memory_equal(alea__completion_payload(&r->out, frame, 4, 0),
                        alea__completion_payload(&r->prompt, frame, 4, 0), 258 * 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("M1", test_merge_takes_record_and_payload_of_one_role),
        RULE("M1", test_merge_leaves_what_nobody_asked_for_and_empties_idle_slots),
        RULE("M1", test_merge_copies_as_many_ids_as_were_asked),
        RULE("M2", test_merge_never_touches_the_inactive_frame),
        RULE("M1", test_a_new_frame_empties_both_private_bundles),
        RULE("M3", test_merge_refuses_a_slot_with_two_roles),
        RULE("M3", test_merge_refuses_malformed_records_and_other_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
