/* Records: what is written is what is read, and nothing malformed is believed. */
#include "contract/rig.h"

#include <string.h>

static void test_record_survives_a_round_trip(void **state) {
    rig *r = *state;
    const alea_record written = {
        .epoch = 5,
        .slot = 2,
        .status = ALEA_RECORD_END,
        .count = 3,
        .drafted = 4,
        .accepted = 2,
        .position = (int64_t)1 << 40,
        .budget_tokens = 9,
        .offset = UINT64_MAX - 1,
        .role = ALEA_ROLE_VERIFY,
        .end_index = 2,
        .forced = 2,
    };
    const int32_t tokens[] = {7, 0, 151935};
    assert_int_equal(alea__record_write(&r->out, 1, &written, tokens, &r->error), ALEA_OK);
    alea_record read;
    memset(&read, 0x55, sizeof read);
    assert_int_equal(alea__record_read(&r->out, 1, 2, &read, &r->error), ALEA_OK);
    assert_int_equal(read.epoch, written.epoch);
    assert_int_equal(read.status, written.status);
    assert_int_equal(read.position, written.position);
    assert_true(read.offset == written.offset);
    assert_int_equal(read.end_index, 2);
    assert_true(alea__record_is_forced(&read, 1));
    assert_false(alea__record_is_forced(&read, 0));
    assert_int_equal(alea__record_token(&r->out, 1, 2, 2), 151935);
    static const int64_t fields[16 + 4] = {6, 5, 2, 2, 3, 4, 2, (int64_t)1 << 40, 9, -2, 3,
                                           2, 2, 0, 0, 0, 7, 0, 151935,           -1};
    assert_memory_equal(alea__completion_record(&r->out, 1, 2), fields, sizeof fields);
}

static void test_records_start_empty(void **state) {
    rig *r = *state;
    for (int32_t frame = 0; frame < ALEA_FRAMES; frame++) {
        for (int32_t slot = 0; slot < RIG_CAPACITY; slot++) {
            alea_record read;
            assert_int_equal(alea__record_read(&r->out, frame, slot, &read, &r->error), ALEA_OK);
            assert_int_equal(read.role, ALEA_ROLE_NONE);
            assert_int_equal(read.count, 0);
            assert_int_equal(alea__completion_record(&r->out, frame, slot)[16], -1);
        }
    }
}

static void test_malformed_records_are_named_and_refused(void **state) {
    rig *r = *state;
    static const struct {
        int32_t field;
        int64_t value;
        const char *names;
    } bad[] = {
        {0, 5, "abi"},
        {1, -1, "epoch"},
        {1, 0, "epoch"},
        {2, 0, "slot"},
        {3, 5, "status"},
        {3, 0, "emitted count"},
        {3, (int64_t)1 << 40, "status"},
        {4, 9, "emitted count"},
        {4, -1, "emitted count"},
        {4, 3, "emitted token"},
        {5, -1, "drafts proposed"},
        {6, 8, "drafts accepted"},
        {6, 0, "emitted count"},
        {7, -1, "position"},
        {7, INT64_MAX, "position"},
        {8, -1, "budget"},
        {10, 8, "role"},
        {10, 2, "drafts proposed"},
        {10, 5, "drafts proposed"},
        {10, 0, "status"},
        {11, 0, "end index"},
        {12, 4, "forced mask"},
        {13, 1, "reserved"},
        {15, 1, "reserved"},
        {16, -1, "emitted token"},
        {17, (int64_t)1 << 33, "emitted token"},
        {18, 5, "past the prefix"},
    };
    const alea_lane lane = rig_lane(3, 4);
    const int32_t tokens[] = {10, 11};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rig_emit(r, &r->out, 0, &lane, ALEA_ROLE_VERIFY, tokens, 2);
        alea_record read = {.count = 77};
        assert_int_equal(alea__record_read(&r->out, 0, 3, &read, &r->error), ALEA_OK);
        read.count = 77;
        alea__completion_record(&r->out, 0, 3)[bad[i].field] = bad[i].value;
        assert_int_equal(alea__record_read(&r->out, 0, 3, &read, &r->error), ALEA_EFORMAT);
        assert_int_equal(read.count, 77);
        assert_non_null(strstr(r->error.message, "slot 3"));
        if (!strstr(r->error.message, bad[i].names))
            fail_msg("field %d: '%s' does not name '%s'", bad[i].field, r->error.message,
                     bad[i].names);
    }
}

static void test_a_refused_record_writes_nothing(void **state) {
    rig *r = *state;
    const size_t bytes = (16 + RIG_TOKENS) * sizeof(int64_t);
    int64_t before[16 + RIG_TOKENS];
    memcpy(before, alea__completion_record(&r->out, 0, 1), bytes);
    alea_record bad = {.epoch = 1, .slot = 1, .status = ALEA_RECORD_EMITTED, .count = 2};
    bad.role = ALEA_ROLE_DECODE;
    bad.end_index = -1;
    const int32_t tokens[] = {1, 2};
    assert_int_equal(alea__record_write(&r->out, 0, &bad, tokens, &r->error), ALEA_EFORMAT);
    bad.count = 1;
    const int32_t negative[] = {-3};
    assert_int_equal(alea__record_write(&r->out, 0, &bad, negative, &r->error), ALEA_EFORMAT);
    assert_memory_equal(before, alea__completion_record(&r->out, 0, 1), bytes);
    /* The largest counts are no overflow. */
    bad.role = ALEA_ROLE_VERIFY;
    bad.drafted = bad.accepted = INT32_MAX;
    bad.count = 2;
    assert_int_equal(alea__record_write(&r->out, 0, &bad, tokens, &r->error), ALEA_OK);
}

/* One row of the table: what a round produced and what stands. */
typedef struct cut {
    const char *what;
    int64_t budget, room;
    int32_t n, accepted;
    int32_t tokens[8];
    int32_t count, status, end_index;
} cut;

static void test_budget_length_and_end_cut_the_prefix(void **state) {
    rig *r = *state;
    static const cut cuts[] = {
        {"one of many", 9, 9, 1, 0, {5}, 1, ALEA_RECORD_EMITTED, -1},
        {"the budget's last", 1, 9, 1, 0, {5}, 1, ALEA_RECORD_BUDGET, -1},
        {"the last place", 9, 1, 1, 0, {5}, 1, ALEA_RECORD_LENGTH, -1},
        {"budget before length", 1, 1, 1, 0, {5}, 1, ALEA_RECORD_BUDGET, -1},
        {"end before budget", 1, 1, 1, 0, {99}, 1, ALEA_RECORD_END, 0},
        {"no budget", 0, 9, 1, 0, {5}, 0, ALEA_RECORD_BUDGET, -1},
        {"no budget hides an end", 0, 9, 1, 0, {99}, 0, ALEA_RECORD_BUDGET, -1},
        {"no room", 9, 0, 1, 0, {5}, 0, ALEA_RECORD_LENGTH, -1},
        {"all drafts", 99, 99, 8, 7, {1, 2, 3, 4, 5, 6, 7, 8}, 8, ALEA_RECORD_EMITTED, -1},
        {"budget inside drafts", 3, 99, 5, 4, {1, 2, 3, 4, 5}, 3, ALEA_RECORD_BUDGET, -1},
        {"room inside drafts", 99, 2, 5, 4, {1, 2, 3, 4, 5}, 2, ALEA_RECORD_LENGTH, -1},
        {"end inside drafts", 99, 99, 5, 4, {1, 98, 3, 99, 5}, 2, ALEA_RECORD_END, 1},
        {"end beyond the budget", 2, 99, 5, 4, {1, 2, 99, 4, 5}, 2, ALEA_RECORD_BUDGET, -1},
        {"a prompt chunk", 5, 99, 0, 0, {0}, 0, ALEA_RECORD_NONE, -1},
    };
    static const int32_t ends[] = {99, 98};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const cut *c = &cuts[i];
        const alea_commit commit = {
            .slot = 1,
            .epoch = 3,
            .role = c->accepted > 0 ? ALEA_ROLE_VERIFY : ALEA_ROLE_PROMPT,
            .position = 40,
            .budget_tokens = c->budget,
            .room_tokens = c->room,
            .drafted = c->accepted,
            .accepted = c->accepted,
            .tokens = c->tokens,
            .n_tokens = c->n,
            .forced = 0xff,
            .end_tokens = ends,
            .n_end_tokens = 2,
            .offset = 1000,
        };
        alea_record got, read;
        assert_int_equal(alea__commit_write(&r->out, 0, &commit, &got, &r->error), ALEA_OK);
        assert_int_equal(alea__record_read(&r->out, 0, 1, &read, &r->error), ALEA_OK);
        assert_int_equal(got.count, read.count);
        assert_int_equal(got.status, read.status);
        if (got.count != c->count || got.status != c->status || got.end_index != c->end_index)
            fail_msg("%s: count %d status %d end %d", c->what, got.count, got.status,
                     got.end_index);
        assert_int_equal(got.budget_tokens, c->budget - c->count);
        assert_int_equal(got.offset, 1000 + c->count);
        assert_int_equal(got.forced, c->count == 0 ? 0 : (1 << c->count) - 1);
    }
}

static void test_ignored_end_tokens_do_not_cut(void **state) {
    rig *r = *state;
    const int32_t tokens[] = {1, 99, 3};
    const alea_lane lane = rig_lane(0, 1);
    rig_emit(r, &r->out, 0, &lane, ALEA_ROLE_VERIFY, tokens, 3);
    alea_record read;
    assert_int_equal(alea__record_read(&r->out, 0, 0, &read, &r->error), ALEA_OK);
    assert_int_equal(read.count, 3);
    assert_int_equal(read.status, ALEA_RECORD_EMITTED);
    assert_int_equal(read.end_index, -1);
}

static void test_commit_refuses_more_than_the_round_can_hold(void **state) {
    rig *r = *state;
    int32_t tokens[9] = {0};
    alea_commit commit = {.slot = 1, .epoch = 1, .role = ALEA_ROLE_VERIFY, .tokens = tokens};
    commit.budget_tokens = commit.room_tokens = 100;
    commit.n_tokens = 9;
    commit.drafted = commit.accepted = 8;
    assert_int_equal(alea__commit_write(&r->out, 0, &commit, NULL, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "completion_token_capacity"));
    commit.n_tokens = 3;
    commit.accepted = 1;
    assert_int_equal(alea__commit_write(&r->out, 0, &commit, NULL, &r->error), ALEA_EINVAL);
    commit.n_tokens = 1;
    commit.budget_tokens = -1;
    assert_int_equal(alea__commit_write(&r->out, 0, &commit, NULL, &r->error), ALEA_EINVAL);
}

static void test_every_token_can_be_forced_at_the_largest_capacity(void **state) {
    rig *r = *state;
    alea_completion c;
    assert_int_equal(alea__completion_allocate(1, 64, 0, &c, &r->error), ALEA_OK);
    int32_t tokens[64];
    for (int32_t i = 0; i < 64; i++)
        tokens[i] = i;
    const alea_commit commit = {
        .epoch = 1,
        .role = ALEA_ROLE_VERIFY,
        .budget_tokens = 64,
        .room_tokens = 64,
        .drafted = 63,
        .accepted = 63,
        .tokens = tokens,
        .n_tokens = 64,
        .forced = UINT64_MAX,
    };
    alea_record record;
    assert_int_equal(alea__commit_write(&c, 0, &commit, &record, &r->error), ALEA_OK);
    assert_int_equal(alea__record_read(&c, 0, 0, &record, &r->error), ALEA_OK);
    assert_true(alea__record_is_forced(&record, 63));
    alea__completion_free(&c);
}

static void test_events_write_records_that_emit_nothing(void **state) {
    rig *r = *state;
    for (int32_t role = ALEA_ROLE_PROMPT; role <= ALEA_ROLE_INVALID; role++) {
        const int32_t status = role < ALEA_ROLE_ADMISSION ? ALEA_EROW : ALEA_OK;
        assert_int_equal(alea__commit_event(&r->out, 0, 2, 8, role, 55, status, &r->error),
                         ALEA_OK);
        alea_record read;
        assert_int_equal(alea__record_read(&r->out, 0, 2, &read, &r->error), ALEA_OK);
        assert_int_equal(read.role, role);
        assert_int_equal(read.status, status);
        assert_int_equal(read.count, 0);
        assert_int_equal(read.position, 55);
    }
    assert_int_equal(alea__commit_event(&r->out, 0, 2, 8, ALEA_ROLE_VISION, 0, 1, &r->error),
                     ALEA_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("R1", test_record_survives_a_round_trip),
        RULE("R1", test_records_start_empty),
        RULE("R2", test_malformed_records_are_named_and_refused),
        RULE("R2", test_a_refused_record_writes_nothing),
        RULE("R3", test_budget_length_and_end_cut_the_prefix),
        RULE("R3", test_ignored_end_tokens_do_not_cut),
        RULE("R3", test_commit_refuses_more_than_the_round_can_hold),
        RULE("R4", test_every_token_can_be_forced_at_the_largest_capacity),
        RULE("R5", test_events_write_records_that_emit_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
