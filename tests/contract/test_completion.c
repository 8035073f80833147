/* Buffers: names, types, geometry, memory, and what a layout refuses. */
#include "contract/rig.h"

#include <stdlib.h>
#include <string.h>

static void test_zero_token_capacity_means_eight_and_others_are_literal(void **state) {
    (void)state;
    static const int32_t asked[] = {0, 1, 3, 8, 17, 64};
    static const int32_t got[] = {8, 1, 3, 8, 17, 64};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        alea_completion c;
        assert_int_equal(alea__completion_allocate(2, asked[i], 0, &c, NULL), ALEA_OK);
        assert_int_equal(c.layout.tokens, got[i]);
        alea__completion_free(&c);
    }
}

static void test_buffers_have_exact_names_types_and_shapes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        alea_word word;
        int32_t rank;
        int64_t extent[4];
    } want[ALEA_BUFFERS] = {
        {"completion_records", ALEA_WORD_INT64, 3, {2, 5, 16 + 3}},
        {"completion_logprobs", ALEA_WORD_INT32, 4, {2, 5, 3, 258}},
        {"logprob_requested", ALEA_WORD_INT32, 1, {5}},
        {"logprob_token_ids", ALEA_WORD_INT32, 2, {5, 128}},
        {"logprob_token_id_counts", ALEA_WORD_INT32, 1, {5}},
        {"prompt_target_tokens", ALEA_WORD_INT32, 1, {300}},
        {"prompt_logprobs", ALEA_WORD_INT32, 3, {2, 300, 43}},
    };
    const alea_completion_layout layout = alea__layout_complete(5, 3, 300);
    for (int i = 0; i < ALEA_BUFFERS; i++) {
        alea_buffer_shape shape;
        alea__layout_buffer(&layout, (alea_buffer)i, &shape);
        assert_string_equal(shape.name, want[i].name);
        assert_int_equal(shape.word, want[i].word);
        assert_int_equal(shape.rank, want[i].rank);
        size_t bytes = shape.word == ALEA_WORD_INT64 ? 8 : 4;
        for (int32_t d = 0; d < shape.rank; d++) {
            assert_int_equal(shape.extent[d], want[i].extent[d]);
            bytes *= (size_t)want[i].extent[d];
        }
        assert_int_equal(shape.bytes, bytes);
    }
}

static void test_tensors_are_row_major_and_contiguous(void **state) {
    const rig *r = *state;
    const size_t record = ALEA_RECORD_HEADER + RIG_TOKENS;
    assert_ptr_equal(alea__completion_record(&r->out, 0, 0), r->out.records);
    assert_ptr_equal(alea__completion_record(&r->out, 0, 1), r->out.records + record);
    assert_ptr_equal(alea__completion_record(&r->out, 1, 2),
                     r->out.records + (RIG_CAPACITY + 2) * record);
    assert_ptr_equal(alea__completion_payload(&r->out, 0, 0, 1), r->out.logprobs + 258);
    assert_ptr_equal(alea__completion_payload(&r->out, 0, 1, 0),
                     r->out.logprobs + RIG_TOKENS * 258);
    assert_ptr_equal(alea__completion_payload(&r->out, 1, 3, 5),
                     r->out.logprobs + ((RIG_CAPACITY + 3) * RIG_TOKENS + 5) * 258);
}

static void test_allocation_is_always_the_complete_bundle(void **state) {
    const rig *r = *state;
    assert_int_equal(r->out.layout.alternatives, 20);
    assert_true(r->out.layout.token_ids);
    assert_int_equal(alea__layout_words(&r->out.layout), 258);
    assert_non_null(r->out.records);
    assert_non_null(r->out.logprobs);
    assert_non_null(r->out.requested);
    assert_non_null(r->out.token_ids);
    assert_non_null(r->out.token_id_counts);
    assert_int_equal((uintptr_t)r->out.logprobs % 64, 0);
    assert_int_equal((uintptr_t)r->out.prompt_logprobs % 64, 0);
}

static void test_memory_report_equals_what_was_allocated(void **state) {
    (void)state;
    for (int32_t scored = 0; scored <= 77; scored += 77) {
        rig_allocations = 0;
        rig_allocated_bytes = 0;
        alea_completion c;
        assert_int_equal(alea__completion_allocate(3, 5, scored, &c, NULL), ALEA_OK);
        assert_int_equal(rig_allocations, 1);
        alea_buffer_shape report[ALEA_BUFFERS];
        size_t total = 0;
        size_t sum = 0;
        alea__completion_memory(&c, report, &total);
        for (int i = 0; i < ALEA_BUFFERS; i++) {
            assert_true(report[i].reserved_bytes >= report[i].bytes);
            sum += report[i].reserved_bytes;
        }
        assert_int_equal(sum, total);
        assert_int_equal(total, rig_allocated_bytes);
        assert_int_equal(total, c.block_bytes);
        alea__completion_free(&c);
    }
}

static void test_role_reports_only_the_memory_it_owns(void **state) {
    rig *r = *state;
    alea_buffer_shape report[ALEA_BUFFERS];
    size_t total = 0;
    alea__completion_memory(&r->prompt, report, &total);
    assert_int_equal(total, r->prompt.block_bytes);
    assert_int_equal(report[ALEA_BUFFER_REQUESTED].reserved_bytes, 0);
    assert_true(report[ALEA_BUFFER_LOGPROBS].reserved_bytes > 0);
    assert_ptr_equal(r->prompt.requested, r->out.requested);
    assert_null(r->prompt.prompt_logprobs);
}

static void test_nth_allocation_failing_is_an_error(void **state) {
    rig *r = *state;
    alea_completion c = {.block = NULL};
    const alea_completion before = c;
    rig_fail_at = 1;
    assert_int_equal(alea__completion_allocate(3, 0, 128, &c, &r->error), ALEA_ENOMEM);
    assert_non_null(strstr(r->error.message, "bytes"));
    assert_memory_equal(&c, &before, sizeof c);
    rig_fail_at = 1;
    assert_int_equal(alea__completion_allocate_role(&r->out, &c, &r->error), ALEA_ENOMEM);
    assert_memory_equal(&c, &before, sizeof c);
}

static void test_nothing_is_allocated_in_a_round(void **state) {
    rig *r = *state;
    const float *row = rig_row(r, 3, RIG_VOCAB);
    const alea_lane lane = rig_lane(1, 1);
    rig_allocations = 0;
    for (int round = 0; round < 3; round++) {
        const int32_t frame = rig_begin(r, &lane, 1);
        const int32_t token = 17;
        rig_emit(r, &r->decode, frame, &lane, ALEA_ROLE_DECODE, &token, 1);
        rig_offer(r, &lane, &row, 1);
        rig_reduce(r, &r->decode, frame);
        assert_int_equal(alea__merge(&r->prompt, &r->decode, frame, &r->out, NULL), ALEA_OK);
        assert_int_equal(alea__frames_produced(&r->frames, frame, NULL), ALEA_OK);
        alea_decoded decoded;
        alea_entry entry;
        assert_int_equal(alea__decode_open(&r->frames, frame, &lane, &decoded, NULL), ALEA_OK);
        assert_true(alea__decode_next(&decoded, &entry));
        assert_int_equal(alea__frames_release(&r->frames, frame, NULL), ALEA_OK);
    }
    assert_int_equal(rig_allocations, 0);
}

static void test_layouts_outside_the_contract_are_refused(void **state) {
    rig *r = *state;
    static const struct {
        alea_completion_layout layout;
        const char *names;
    } bad[] = {
        {{0, 8, 20, true, 0}, "capacity"},
        {{4097, 8, 20, true, 0}, "capacity"},
        {{1, 0, 20, true, 0}, "completion_token_capacity"},
        {{1, 65, 20, true, 0}, "completion_token_capacity"},
        {{1, 8, 21, false, 0}, "alternatives"},
        {{1, 8, -1, false, 0}, "alternatives"},
        {{1, 8, 5, true, 0}, "id inputs"},
        {{1, 8, 20, true, -1}, "scored rows"},
        {{1, 8, 5, false, 128}, "prompt scoring"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(alea__layout_check(&bad[i].layout, &r->error) < 0);
        assert_non_null(strstr(r->error.message, bad[i].names));
    }
    assert_int_equal(alea__completion_allocate(2, -1, 0, &r->prompt, &r->error), ALEA_ELIMIT);
}

static void test_narrow_layouts_bind_over_foreign_memory(void **state) {
    rig *r = *state;
    int64_t records[2 * 1 * (16 + 2)];
    int32_t logprobs[2 * 1 * 2 * 12];
    int32_t requested[1];
    void *buffers[ALEA_BUFFERS] = {records, logprobs, requested};
    const alea_completion_layout layout = {.capacity = 1, .tokens = 2, .alternatives = 5};
    alea_completion c;
    assert_int_equal(alea__layout_words(&layout), 12);
    assert_int_equal(alea__completion_bind(&layout, buffers, &c, &r->error), ALEA_OK);
    assert_ptr_equal(c.logprobs, logprobs);
    assert_null(c.token_ids);
    buffers[ALEA_BUFFER_REQUESTED] = NULL;
    assert_int_equal(alea__completion_bind(&layout, buffers, &c, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "logprob_requested is missing"));
    buffers[ALEA_BUFFER_REQUESTED] = requested;
    buffers[ALEA_BUFFER_TOKEN_IDS] = requested;
    assert_int_equal(alea__completion_bind(&layout, buffers, &c, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "logprob_token_ids is not part"));
    buffers[ALEA_BUFFER_TOKEN_IDS] = NULL;
    buffers[ALEA_BUFFER_RECORDS] = (char *)records + 4;
    assert_int_equal(alea__completion_bind(&layout, buffers, &c, &r->error), ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "completion_records is not aligned"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("B1", test_buffers_have_exact_names_types_and_shapes),
        RULE("B2", test_zero_token_capacity_means_eight_and_others_are_literal),
        RULE("B3", test_tensors_are_row_major_and_contiguous),
        RULE("B4", test_allocation_is_always_the_complete_bundle),
        RULE("B5", test_memory_report_equals_what_was_allocated),
        RULE("B5", test_role_reports_only_the_memory_it_owns),
        RULE("B6", test_nothing_is_allocated_in_a_round),
        RULE("B7", test_nth_allocation_failing_is_an_error),
        RULE("B1", test_layouts_outside_the_contract_are_refused),
        RULE("B8", test_narrow_layouts_bind_over_foreign_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
