/* Decoding: every token accounted for, every missing entry an error of its own request. */
#include "contract/rig.h"

#include <math.h>
#include <string.h>

#include "contract/payload.h"

static const int32_t three[] = {10, 11, 12};

/* A pending frame in which slot 1 (epoch 4) verified three tokens and slot 2 one. */
static int32_t pending(rig *r, alea_lane lanes[2]) {
    lanes[0] = rig_lane(1, 4);
    lanes[1] = rig_lane(2, 9);
    const int32_t frame = rig_begin(r, lanes, 2);
    const float *rows[] = {rig_row(r, 1, RIG_VOCAB), rig_row(r, 2, RIG_VOCAB),
                           rig_row(r, 3, RIG_VOCAB)};
    rig_emit(r, &r->out, frame, &lanes[0], ALEA_ROLE_VERIFY, three, 3);
    rig_emit(r, &r->out, frame, &lanes[1], ALEA_ROLE_DECODE, three, 1);
    rig_offer(r, &lanes[0], rows, 3);
    rig_offer(r, &lanes[1], rows, 1);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    return frame;
}

static void test_tokens_come_in_generation_order_with_their_entries(void **state) {
    rig *r = *state;
    alea_lane lanes[2];
    const int32_t frame = pending(r, lanes);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[0], &decoded, &r->error), ALEA_OK);
    for (int32_t i = 0; i < 3; i++) {
        assert_true(alea__decode_next(&decoded, &entry));
        assert_int_equal(entry.token, three[i]);
        assert_int_equal(entry.position, 100 + i);
        assert_true(entry.has_logprob);
        assert_false(entry.ends);
        assert_int_equal(entry.n_alternatives, 20);
        const double want = rig_logprob(r->rows[i], RIG_VOCAB, three[i]);
        assert_true(fabs(entry.logprob - want) < 1e-5);
        double mass = 0;
        for (int32_t j = 0; j < 20; j++) {
            const alea_alternative a = alea__entry_alternative(&entry, j);
            assert_true(a.logprob <= 0);
            mass += exp(a.logprob);
        }
        assert_true(mass <= 1 + 1e-5);
    }
    assert_false(alea__decode_next(&decoded, &entry));
}

static void test_a_host_stop_suppresses_later_tokens_of_the_frame(void **state) {
    rig *r = *state;
    alea_lane lanes[2];
    const int32_t frame = pending(r, lanes);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[0], &decoded, &r->error), ALEA_OK);
    assert_true(alea__decode_next(&decoded, &entry));
    alea__decode_stop(&decoded);
    assert_false(alea__decode_next(&decoded, &entry));
    /* The neighbour's tokens are its own. */
    assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[1], &decoded, &r->error), ALEA_OK);
    assert_true(alea__decode_next(&decoded, &entry));
}

static void test_small_vocabularies_decode_to_fewer_alternatives(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(0, 1);
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t token = 1;
    const float *row = rig_row(r, 1, 3);
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
    rig_offer(r, &lane, &row, 1);
    r->batch.vocab = r->frames.vocab = 3;
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    assert_true(alea__decode_next(&decoded, &entry));
    assert_int_equal(entry.n_alternatives, 3);
    for (int32_t vocab = 2; vocab <= 4; vocab += 2) { /* three are one too many, one too few */
        r->frames.vocab = vocab;
        assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error),
                         ALEA_EFORMAT);
        assert_non_null(strstr(r->error.message, "alternative"));
    }
}

static void test_forced_tokens_have_no_entry_and_need_none(void **state) {
    rig *r = *state;
    const alea_lane lane = rig_lane(1, 4);
    const int32_t frame = rig_begin(r, &lane, 1);
    const int32_t ends[] = {12};
    const alea_commit commit = {
        .slot = 1,
        .epoch = 4,
        .role = ALEA_ROLE_VERIFY,
        .budget_tokens = 9,
        .room_tokens = 9,
        .drafted = 2,
        .accepted = 2,
        .tokens = three,
        .n_tokens = 3,
        .forced = 1,
        .end_tokens = ends,
        .n_end_tokens = 1,
    };
    assert_int_equal(alea__commit_write(&r->out, frame, &commit, NULL, NULL), ALEA_OK);
    const float *rows[] = {rig_unreadable(), rig_row(r, 2, RIG_VOCAB), rig_row(r, 3, RIG_VOCAB)};
    rig_offer(r, &lane, rows, 3);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    for (int32_t i = 0; i < 3; i++) {
        assert_true(alea__decode_next(&decoded, &entry));
        assert_int_equal(entry.forced, i == 0);
        assert_int_equal(entry.has_logprob, i > 0);
        assert_int_equal(isnan(entry.logprob), i == 0);
        assert_int_equal(entry.ends, i == 2);
    }
}

/* One way to spoil the payload of slot 1, and what the error must say. */
typedef struct spoil {
    int32_t position, word;
    int32_t value;
    alea_status status;
    const char *names;
} spoil;

static void test_missing_or_wrong_data_fails_only_its_request(void **state) {
    rig *r = *state;
    static const spoil spoils[] = {
        {0, 0, -1, ALEA_EFORMAT, "position 100: token 10 has no logprob entry"},
        {2, 0, -1, ALEA_EFORMAT, "position 102: token 12 has no logprob entry"},
        {1, 0, 12, ALEA_EFORMAT, "the entry is for token 12, but 11 was emitted"},
        {1, 1, 0x7fc00000, ALEA_EROW, "position 101: the model's row"},
        {1, 1, 0x3f800000, ALEA_EFORMAT, "above 0"},
        {1, 2, -1, ALEA_EFORMAT, "alternative 0 is missing"},
        {1, 2, -5, ALEA_EFORMAT, "alternative 0 is not a token"},
        {1, 3, 0x7fc00000, ALEA_EFORMAT, "alternative 0 is not a logprob"},
        {1, 6, -1, ALEA_EFORMAT, "alternative 2 is missing"},
        {1, 40, -1, ALEA_EFORMAT, "alternative 19 is missing"},
        {1, 4, RIG_VOCAB, ALEA_EFORMAT, "alternative 1 is not a token"},
        {1, 41, (int32_t)0x80000000u, ALEA_EFORMAT, "alternative 19 is out of order"},
    };
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        alea_lane lanes[2];
        const int32_t frame = pending(r, lanes);
        alea__completion_payload(&r->out, frame, 1, spoils[i].position)[spoils[i].word] =
            spoils[i].value;
        alea_decoded decoded = {.next = 55};
        assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[0], &decoded, &r->error),
                         spoils[i].status);
        assert_int_equal(decoded.next, 55);
        assert_non_null(strstr(r->error.message, "slot 1"));
        if (!strstr(r->error.message, spoils[i].names))
            fail_msg("'%s' lacks '%s'", r->error.message, spoils[i].names);
        assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[1], &decoded, &r->error),
                         ALEA_OK);
        assert_int_equal(alea__frames_release(&r->frames, frame, NULL), ALEA_OK);
    }
}

static void test_an_alternative_that_repeats_is_refused(void **state) {
    rig *r = *state;
    alea_lane lanes[2];
    const int32_t frame = pending(r, lanes);
    int32_t *payload = alea__completion_payload(&r->out, frame, 1, 0);
    memcpy(payload + 2 + 2 * 5, payload + 2 + 2 * 4, 2 * sizeof *payload);
    alea_decoded decoded;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[0], &decoded, &r->error),
                     ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "alternative 5 repeats a token"));
}

static void test_a_new_frame_forgets_the_records_of_its_last_round(void **state) {
    rig *r = *state;
    alea_lane lanes[2];
    int32_t frame = pending(r, lanes);
    assert_int_equal(alea__frames_release(&r->frames, frame, NULL), ALEA_OK);
    frame = rig_begin(r, lanes, 1);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    for (int32_t i = 0; i < 2; i++) {
        alea_decoded decoded;
        alea_entry entry;
        assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[i], &decoded, &r->error),
                         ALEA_OK);
        assert_int_equal(decoded.record.role, ALEA_ROLE_NONE);
        assert_false(alea__decode_next(&decoded, &entry));
    }
}

static void test_a_round_without_reduction_cannot_pass_for_an_older_one(void **state) {
    rig *r = *state;
    alea_lane lanes[2];
    int32_t frame = pending(r, lanes);
    assert_int_equal(alea__frames_release(&r->frames, frame, NULL), ALEA_OK);
    /* The same slot, epoch and tokens in the same frame; only the reduction is missing. */
    frame = rig_begin(r, lanes, 1);
    rig_emit(r, &r->out, frame, &lanes[0], ALEA_ROLE_VERIFY, three, 3);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[0], &decoded, &r->error),
                     ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "no logprob entry"));
}

static void test_stale_payload_without_an_emitting_record_is_ignored(void **state) {
    rig *r = *state;
    alea_lane lanes[2];
    const int32_t frame = pending(r, lanes);
    alea_decoded decoded;
    alea_entry entry;
    const alea_lane later = rig_lane(1, 5);
    assert_int_equal(alea__decode_open(&r->frames, frame, &later, &decoded, &r->error), ALEA_OK);
    assert_int_equal(decoded.record.status, ALEA_RECORD_NONE);
    assert_false(alea__decode_next(&decoded, &entry));
    const alea_lane idle = rig_lane(5, 1);
    assert_int_equal(alea__decode_open(&r->frames, frame, &idle, &decoded, &r->error), ALEA_OK);
    assert_false(alea__decode_next(&decoded, &entry));
}

static void test_payloads_of_lanes_that_did_not_ask_are_never_decoded(void **state) {
    rig *r = *state;
    alea_lane lane = rig_lane(1, 4);
    lane.logprobs = false;
    const int32_t frame = rig_begin(r, &lane, 1);
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, three, 1);
    memset(alea__completion_payload(&r->out, frame, 1, 0), 0x11, 258 * 4);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    assert_true(alea__decode_next(&decoded, &entry));
    assert_false(entry.has_logprob);
    assert_int_equal(entry.n_alternatives, 0);
    /* And whoever reads a lane as asking although its frame did not know is told so. */
    lane.logprobs = true;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error),
                     ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "submitted without"));
}

static void test_selected_ids_must_be_those_that_were_asked_for(void **state) {
    rig *r = *state;
    const int32_t ids[] = {500, 3, 77};
    const int32_t others[] = {500, 4, 77};
    alea_lane lane = rig_lane(0, 1);
    lane.token_ids = ids;
    lane.n_token_ids = 3;
    const int32_t frame = rig_begin(r, &lane, 1);
    const float *row = rig_row(r, 1, RIG_VOCAB);
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, three, 1);
    rig_offer(r, &lane, &row, 1);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    assert_true(alea__decode_next(&decoded, &entry));
    assert_int_equal(entry.n_alternatives, 3);
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(alea__entry_alternative(&entry, i).token, ids[i]);
    lane.token_ids = others;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error),
                     ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "alternative 1"));
}

/* The chosen token stands apart, yet it must agree with the alternatives about its own value. */
static void test_the_chosen_token_agrees_with_its_alternatives(void **state) {
    rig *r = *state;
    const float *row = rig_row(r, 1, RIG_VOCAB);
    float reported[RIG_VOCAB];
    int32_t ids[RIG_VOCAB];
    rig_order(row, RIG_VOCAB, reported, ids);
    alea_lane lane = rig_lane(0, 1);
    const int32_t frame = rig_begin(r, &lane, 1);
    rig_emit(r, &r->out, frame, &lane, ALEA_ROLE_DECODE, &ids[7], 1);
    rig_offer(r, &lane, &row, 1);
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    alea_decoded decoded;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    int32_t *payload = alea__completion_payload(&r->out, frame, 0, 0);
    payload[1] = alea__bits_of(reported[ids[7]] - 0.001f);
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error),
                     ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "alternative 7 is not the chosen logprob"));
    /* Not among them, but more probable than their last: then one of them is wrong. */
    payload[1] = alea__bits_of(reported[ids[7]]);
    for (int32_t i = 7; i < 20; i++)
        alea__pair_set(payload + 2 + 2 * i, ids[i + 1], reported[ids[i + 1]]);
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error),
                     ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "where the chosen token belongs"));
    /* Nor may it be as probable as the last, which has the larger id. */
    alea__pair_set(payload + 2 + 2 * 19, RIG_VOCAB - 1, reported[ids[20]]);
    payload[1] = alea__bits_of(reported[ids[20]]);
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error),
                     ALEA_EFORMAT);
    assert_non_null(strstr(r->error.message, "where the chosen token belongs"));
    payload[1] = alea__bits_of(reported[ids[7]]);
    /* The same for an id that was asked for. */
    lane.token_ids = &ids[7];
    lane.n_token_ids = 1;
    alea__pair_set(payload + 2, ids[7], reported[ids[7]]);
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error), ALEA_OK);
    alea__pair_set(payload + 2, ids[7], reported[ids[7]] - 0.001f);
    assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, &r->error),
                     ALEA_EFORMAT);
}

static void test_one_bad_rollout_leaves_the_other_three_whole(void **state) {
    rig *r = *state;
    alea_lane lanes[4];
    const float *rows[4];
    for (int32_t i = 0; i < 4; i++) {
        lanes[i] = rig_lane(i, 1);
        float *row = rig_row(r, (uint64_t)i, RIG_VOCAB);
        if (i == 2) row[RIG_VOCAB - 1] = NAN;
        rows[i] = row;
    }
    const int32_t frame = rig_begin(r, lanes, 4);
    for (int32_t i = 0; i < 4; i++) {
        rig_emit(r, &r->out, frame, &lanes[i], ALEA_ROLE_DECODE, three, 1);
        rig_offer(r, &lanes[i], &rows[i], 1);
    }
    rig_reduce(r, &r->out, frame);
    assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
    for (int32_t i = 0; i < 4; i++) {
        alea_decoded decoded;
        assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[i], &decoded, &r->error),
                         i == 2 ? ALEA_EROW : ALEA_OK);
    }
}

static void test_only_a_pending_frame_can_be_decoded(void **state) {
    rig *r = *state;
    alea_lane lanes[2] = {rig_lane(1, 4)};
    alea_decoded decoded;
    assert_int_equal(alea__decode_open(&r->frames, 0, lanes, &decoded, &r->error), ALEA_EINVAL);
    const int32_t frame = pending(r, lanes);
    assert_int_equal(alea__decode_open(&r->frames, 2, lanes, &decoded, &r->error), ALEA_EINVAL);
    assert_int_equal(alea__frames_release(&r->frames, frame, NULL), ALEA_OK);
    assert_int_equal(alea__decode_open(&r->frames, frame, lanes, &decoded, &r->error), ALEA_EINVAL);
}

static void test_a_failed_record_keeps_the_tokens_before_the_failure(void **state) {
    rig *r = *state;
    alea_lane lanes[2];
    const int32_t frame = pending(r, lanes);
    alea__completion_record(&r->out, frame, 1)[ALEA_RECORD_AT_STATUS] = ALEA_EROW;
    alea_decoded decoded;
    alea_entry entry;
    assert_int_equal(alea__decode_open(&r->frames, frame, &lanes[0], &decoded, &r->error), ALEA_OK);
    assert_int_equal(decoded.record.status, ALEA_EROW);
    int32_t n = 0;
    while (alea__decode_next(&decoded, &entry))
        n++;
    assert_int_equal(n, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("D1", test_tokens_come_in_generation_order_with_their_entries),
        RULE("D1", test_small_vocabularies_decode_to_fewer_alternatives),
        RULE("D2", test_a_host_stop_suppresses_later_tokens_of_the_frame),
        RULE("D2", test_a_failed_record_keeps_the_tokens_before_the_failure),
        RULE("D3", test_forced_tokens_have_no_entry_and_need_none),
        RULE("D4", test_missing_or_wrong_data_fails_only_its_request),
        RULE("D4", test_one_bad_rollout_leaves_the_other_three_whole),
        RULE("D4", test_the_chosen_token_agrees_with_its_alternatives),
        RULE("D4", test_selected_ids_must_be_those_that_were_asked_for),
        RULE("D4", test_an_alternative_that_repeats_is_refused),
        RULE("D5", test_a_new_frame_forgets_the_records_of_its_last_round),
        RULE("D5", test_a_round_without_reduction_cannot_pass_for_an_older_one),
        RULE("D5", test_stale_payload_without_an_emitting_record_is_ignored),
        RULE("D6", test_payloads_of_lanes_that_did_not_ask_are_never_decoded),
        RULE("D7", test_only_a_pending_frame_can_be_decoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
