/*
 * The checks above every core, against a fake that records what reached it: bad input must stop
 * before the core, and the error must name the field.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "alea/core.h"

enum { VOCAB = 10, CONTEXT = 16, SEQUENCES = 3, ROUND_TOKENS = 8, ROUND_ROWS = 4 };

/* ---- the fake ---- */

typedef struct fake_core {
    alea_core base;
    int32_t lengths[SEQUENCES];
    float row[VOCAB];
} fake_core;

static struct {
    int opened, closed, submitted, waited, copied, trimmed;
    alea_status open_status, submit_status, wait_status, trim_status;
    const char *message;
    int32_t vocab; /* what describe says */
} fake;

static alea_status fake_open(const alea_core_options *options, alea_core **core,
                             alea_error *error) {
    (void)options;
    fake.opened++;
    if (fake.open_status != ALEA_OK) {
        if (fake.message) (void)alea_error_set(error, fake.open_status, "%s", fake.message);
        return fake.open_status;
    }
    *core = calloc(1, sizeof(fake_core));
    return ALEA_OK;
}

static void fake_close(alea_core *core) {
    fake.closed++;
    free(core);
}

static void fake_describe(const alea_core *core, alea_core_info *info) {
    (void)core;
    assert_int_equal(info->struct_bytes, sizeof *info);
    info->vocab = fake.vocab;
    info->context_tokens = CONTEXT;
    info->sequences = SEQUENCES;
    info->round_tokens = ROUND_TOKENS;
    info->round_rows = ROUND_ROWS;
}

static void fake_token(const alea_core *core, int32_t token, alea_token_info *info) {
    (void)core;
    info->flags = (uint32_t)token;
}

static alea_status fake_tokenize(const alea_core *core, alea_bytes text, uint32_t flags,
                                 int32_t *tokens, size_t capacity, size_t *count) {
    (void)core, (void)flags, (void)tokens, (void)capacity;
    *count = text.length;
    return ALEA_OK;
}

static alea_status fake_submit(alea_core *core, const alea_round *round, alea_error *error) {
    (void)core, (void)round;
    fake.submitted++;
    if (fake.message) (void)alea_error_set(error, fake.submit_status, "%s", fake.message);
    return fake.submit_status;
}

static alea_status fake_wait(alea_core *core, alea_error *error) {
    (void)core, (void)error;
    fake.waited++;
    return fake.wait_status;
}

static const float *fake_row(alea_core *core, int32_t index) {
    (void)index;
    return ((fake_core *)core)->row;
}

static int32_t fake_length(const alea_core *core, int32_t sequence) {
    return ((const fake_core *)core)->lengths[sequence];
}

static alea_status fake_copy(alea_core *core, int32_t from, int32_t to) {
    (void)core, (void)from, (void)to;
    fake.copied++;
    return ALEA_OK;
}

static alea_status fake_trim(alea_core *core, int32_t sequence, int32_t length) {
    (void)core, (void)sequence, (void)length;
    fake.trimmed++;
    return fake.trim_status;
}

static alea_core_api fake_api = {.abi = ALEA_CORE_ABI,
                                 .struct_bytes = sizeof(alea_core_api),
                                 .name = "fake",
                                 .open = fake_open,
                                 .close = fake_close,
                                 .describe = fake_describe,
                                 .token_info = fake_token,
                                 .tokenize = fake_tokenize,
                                 .submit = fake_submit,
                                 .wait = fake_wait,
                                 .row = fake_row,
                                 .sequence_length = fake_length,
                                 .sequence_copy = fake_copy,
                                 .sequence_trim = fake_trim};

static const alea_core_options plain = {.struct_bytes = sizeof plain, .model = "m"};

static int reset(void **state) {
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.vocab = VOCAB;
    return 0;
}

static alea_core *open_fake(uint32_t flags) {
    alea_core_options options = plain;
    alea_core *core = NULL;
    options.flags = flags;
    assert_int_equal(alea_core_open(&fake_api, &options, &core, NULL), ALEA_OK);
    return core;
}

/* ---- opening ---- */

static void assert_open_fails(const alea_core_api *api, const alea_core_options *options,
                              alea_status status, const char *word) {
    alea_core *core = (alea_core *)&fake; /* must stay as it is */
    alea_error error = {.status = ALEA_OK};
    assert_int_equal(alea_core_open(api, options, &core, &error), status);
    assert_int_equal(error.status, status);
    assert_ptr_equal(core, &fake);
    if (!strstr(error.message, word)) fail_msg("'%s' lacks '%s'", error.message, word);
}

static void test_open_names_the_bad_option(void **state) {
    (void)state;
    alea_core_options bad = plain;
    bad.struct_bytes--;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "struct_bytes");
    bad = plain, bad.model = NULL;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "model");
    bad = plain, bad.flags = 1u << 31;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "flags");
    bad = plain, bad.context_tokens = -1;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "context_tokens");
    bad = plain, bad.sequences = -2;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "sequences is -2");
    bad = plain, bad.round_tokens = INT32_MIN;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "round_tokens");
    bad = plain, bad.round_rows = -1;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "round_rows");
    bad = plain, bad.threads = -1;
    assert_open_fails(&fake_api, &bad, ALEA_EINVAL, "threads");
    assert_open_fails(&fake_api, NULL, ALEA_EINVAL, "options");
    assert_open_fails(NULL, &plain, ALEA_EINVAL, "core");
    assert_int_equal(fake.opened, 0);
}

static void test_open_refuses_another_abi(void **state) {
    (void)state;
    alea_core_api other = fake_api;
    other.abi++;
    assert_open_fails(&other, &plain, ALEA_EUNSUPPORTED, "ABI");
    assert_int_equal(fake.opened, 0);
}

static void test_open_always_reports_a_failure_with_words(void **state) {
    (void)state;
    fake.open_status = ALEA_EIO;
    assert_open_fails(&fake_api, &plain, ALEA_EIO, "fake");
    fake.message = "disk on fire";
    assert_open_fails(&fake_api, &plain, ALEA_EIO, "disk on fire");
    fake.open_status = ALEA_MORE; /* a positive verdict is no way to fail */
    fake.message = NULL;
    assert_open_fails(&fake_api, &plain, ALEA_ECORE, "fake");
}

static void test_open_refuses_a_core_without_sizes(void **state) {
    (void)state;
    fake.vocab = 0;
    assert_open_fails(&fake_api, &plain, ALEA_ECORE, "sizes");
    assert_int_equal(fake.closed, 1);
}

static void test_close_finishes_a_round_in_flight(void **state) {
    (void)state;
    alea_core *core = open_fake(0);
    const int32_t token = 1;
    const alea_round_item item = {0, 0, 0, {ALEA_SPAN_TOKENS, 1, &token, {NULL, 0}}};
    int32_t rows = 0;
    assert_int_equal(alea_core_submit(core, &(alea_round){&item, 1}, &rows, NULL), ALEA_OK);
    alea_core_close(core);
    assert_int_equal(fake.waited, 1);
    assert_int_equal(fake.closed, 1);
    alea_core_close(NULL);
}

/* ---- tokens ---- */

static void test_token_ids_are_checked(void **state) {
    (void)state;
    alea_core *core = open_fake(0);
    alea_token_info info = {.flags = 99};
    assert_int_equal(alea_core_token(core, -1, &info), ALEA_EINVAL);
    assert_int_equal(alea_core_token(core, VOCAB, &info), ALEA_EINVAL);
    assert_int_equal(info.flags, 99);
    assert_int_equal(alea_core_token(core, VOCAB - 1, &info), ALEA_OK);
    assert_int_equal(info.flags, VOCAB - 1);
    alea_core_close(core);
}

static void test_tokenize_arguments_are_checked(void **state) {
    (void)state;
    alea_core *core = open_fake(0);
    const alea_bytes text = {(const uint8_t *)"abc", 3};
    const alea_bytes huge = {(const uint8_t *)"abc", ((size_t)1 << 30) + 1};
    size_t count = 77;
    assert_int_equal(alea_core_tokenize(core, text, 1u << 9, NULL, 0, &count), ALEA_EINVAL);
    assert_int_equal(alea_core_tokenize(core, text, 0, NULL, 5, &count), ALEA_EINVAL);
    assert_int_equal(alea_core_tokenize(core, (alea_bytes){NULL, 1}, 0, NULL, 0, &count),
                     ALEA_EINVAL);
    assert_int_equal(alea_core_tokenize(core, huge, 0, NULL, 0, &count), ALEA_ELIMIT);
    assert_int_equal(count, 77);
    assert_int_equal(alea_core_tokenize(core, text, 0, NULL, 0, &count), ALEA_OK);
    assert_int_equal(count, 3);
    alea_core_close(core);
}

/* ---- rounds ---- */

static void assert_round_fails(alea_core *core, const alea_round_item *items, int32_t n,
                               alea_status status, const char *word) {
    alea_error error = {.status = ALEA_OK};
    int32_t rows = -7;
    assert_int_equal(alea_core_run(core, &(alea_round){items, n}, &rows, &error), status);
    assert_int_equal(rows, -7);
    if (!strstr(error.message, word)) fail_msg("'%s' lacks '%s'", error.message, word);
}

static void test_every_rule_of_a_round_item_is_checked(void **state) {
    (void)state;
    alea_core *core = open_fake(0);
    int32_t tokens[CONTEXT + 1] = {0};
    const alea_round_item good = {0, 0, 0, {ALEA_SPAN_TOKENS, 2, tokens, {NULL, 0}}};
    alea_round_item bad = good;
    assert_round_fails(core, &good, 0, ALEA_EINVAL, "empty");
    assert_round_fails(core, NULL, 1, ALEA_EINVAL, "empty");
    bad.sequence = SEQUENCES;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "sequence");
    bad.sequence = -1;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "sequence");
    bad = good, bad.position = 1;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "position");
    bad = good, bad.first_row = 3;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "first_row");
    bad = good, bad.first_row = -1;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "first_row");
    bad = good, bad.span.length = 0;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "length");
    bad = good, bad.span.tokens = NULL;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "tokens");
    bad = good, bad.span.kind = 9;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "kind");
    bad = good, bad.span.kind = ALEA_SPAN_OPAQUE;
    assert_round_fails(core, &bad, 1, ALEA_EINVAL, "opaque");
    tokens[1] = VOCAB;
    assert_round_fails(core, &good, 1, ALEA_EINVAL, "token 10 at index 1");
    tokens[1] = -1;
    assert_round_fails(core, &good, 1, ALEA_EINVAL, "token -1");
    tokens[1] = 0;
    const alea_round_item twice[2] = {good, good};
    assert_round_fails(core, twice, 2, ALEA_EINVAL, "item 0 too");
    const alea_round_item many[SEQUENCES + 1] = {good, good, good, good};
    assert_round_fails(core, many, SEQUENCES + 1, ALEA_EINVAL, "4 items for 3");
    ((fake_core *)core)->lengths[0] = 2;
    assert_round_fails(core, &good, 1, ALEA_EINVAL, "position is 0, sequence 0 holds 2");
    assert_int_equal(fake.submitted, 0);
    alea_core_close(core);
}

static void test_a_round_keeps_to_the_limits(void **state) {
    (void)state;
    alea_core *core = open_fake(0);
    const int32_t tokens[CONTEXT + 1] = {0};
    alea_round_item item = {0, 0, 4, {ALEA_SPAN_TOKENS, ROUND_TOKENS, tokens, {NULL, 0}}};
    int32_t rows = 0;
    assert_int_equal(alea_core_run(core, &(alea_round){&item, 1}, &rows, NULL), ALEA_OK);
    assert_int_equal(rows, ROUND_ROWS);
    item.first_row = 3;
    assert_round_fails(core, &item, 1, ALEA_ELIMIT, "5 rows");
    item.first_row = item.span.length = ROUND_TOKENS + 1;
    assert_round_fails(core, &item, 1, ALEA_ELIMIT, "9 tokens");
    ((fake_core *)core)->lengths[0] = CONTEXT - 1;
    item.position = CONTEXT - 1;
    item.first_row = item.span.length = 2;
    assert_round_fails(core, &item, 1, ALEA_ECONTEXT, "context of 16");
    item.first_row = item.span.length = INT32_MAX; /* no sum may wrap; ids run out first */
    item.span.kind = ALEA_SPAN_OPAQUE;
    item.span.opaque = (alea_bytes){(const uint8_t *)"x", 1};
    assert_round_fails(core, &item, 1, ALEA_ECONTEXT, "context");
    assert_int_equal(fake.submitted, 1);
    alea_core_close(core);
}

static void test_rows_exist_between_wait_and_the_next_submit(void **state) {
    (void)state;
    alea_core *core = open_fake(0);
    const int32_t token = 1;
    const alea_round_item item = {0, 0, 0, {ALEA_SPAN_TOKENS, 1, &token, {NULL, 0}}};
    const alea_round round = {&item, 1};
    int32_t rows = 0;
    assert_null(alea_core_row(core, 0));
    assert_int_equal(alea_core_wait(core, NULL), ALEA_EINVAL);
    assert_int_equal(alea_core_submit(core, &round, &rows, NULL), ALEA_OK);
    assert_null(alea_core_row(core, 0));
    assert_int_equal(alea_core_submit(core, &round, &rows, NULL), ALEA_EINVAL);
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, NULL), ALEA_EINVAL);
    assert_int_equal(alea_core_sequence_copy(core, 0, 1, NULL), ALEA_EINVAL);
    assert_int_equal(alea_core_wait(core, NULL), ALEA_OK);
    assert_non_null(alea_core_row(core, 0));
    assert_null(alea_core_row(core, 1));
    assert_null(alea_core_row(core, -1));
    fake.wait_status = ALEA_ECORE;
    alea_error error = {.status = ALEA_OK};
    assert_int_equal(alea_core_run(core, &round, &rows, &error), ALEA_ECORE);
    assert_non_null(strstr(error.message, "fake"));
    assert_null(alea_core_row(core, 0));
    fake.submit_status = ALEA_ECORE;
    assert_int_equal(alea_core_run(core, &round, &rows, NULL), ALEA_ECORE);
    assert_int_equal(alea_core_wait(core, NULL), ALEA_EINVAL);
    alea_core_close(core);
}

static void test_a_vocabulary_only_core_runs_no_rounds(void **state) {
    (void)state;
    alea_core *core = open_fake(ALEA_CORE_VOCAB_ONLY);
    const int32_t token = 1;
    const alea_round_item item = {0, 0, 0, {ALEA_SPAN_TOKENS, 1, &token, {NULL, 0}}};
    assert_round_fails(core, &item, 1, ALEA_EUNSUPPORTED, "vocabulary");
    assert_int_equal(alea_core_sequence_length(core, 0), -1);
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, NULL), ALEA_EUNSUPPORTED);
    alea_token_info info;
    assert_int_equal(alea_core_token(core, 3, &info), ALEA_OK);
    alea_core_close(core);
}

static void test_sequence_calls_are_checked(void **state) {
    (void)state;
    alea_core *core = open_fake(0);
    ((fake_core *)core)->lengths[1] = 5;
    alea_error error = {.status = ALEA_OK};
    assert_int_equal(alea_core_sequence_length(core, 1), 5);
    assert_int_equal(alea_core_sequence_length(core, SEQUENCES), -1);
    assert_int_equal(alea_core_sequence_length(core, -1), -1);
    assert_int_equal(alea_core_sequence_copy(core, 1, SEQUENCES, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "sequence"));
    assert_int_equal(alea_core_sequence_copy(core, -1, 1, NULL), ALEA_EINVAL);
    assert_int_equal(alea_core_sequence_trim(core, 1, 6, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "holds 5"));
    assert_int_equal(alea_core_sequence_trim(core, 1, -1, NULL), ALEA_EINVAL);
    assert_int_equal(alea_core_sequence_trim(core, 9, 0, NULL), ALEA_EINVAL);
    assert_int_equal(fake.copied + fake.trimmed, 0);
    assert_int_equal(alea_core_sequence_trim(core, 1, 5, NULL), ALEA_OK); /* nothing to cut */
    assert_int_equal(alea_core_sequence_copy(core, 1, 1, NULL), ALEA_OK); /* nothing to copy */
    assert_int_equal(fake.copied + fake.trimmed, 0);
    assert_int_equal(alea_core_sequence_copy(core, 1, 0, NULL), ALEA_OK);
    fake.trim_status = ALEA_EUNSUPPORTED;
    assert_int_equal(alea_core_sequence_trim(core, 1, 2, &error), ALEA_EUNSUPPORTED);
    assert_int_equal(fake.copied + fake.trimmed, 2);
    alea_core_close(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_open_names_the_bad_option, reset),
        cmocka_unit_test_setup(test_open_refuses_another_abi, reset),
        cmocka_unit_test_setup(test_open_always_reports_a_failure_with_words, reset),
        cmocka_unit_test_setup(test_open_refuses_a_core_without_sizes, reset),
        cmocka_unit_test_setup(test_close_finishes_a_round_in_flight, reset),
        cmocka_unit_test_setup(test_token_ids_are_checked, reset),
        cmocka_unit_test_setup(test_tokenize_arguments_are_checked, reset),
        cmocka_unit_test_setup(test_every_rule_of_a_round_item_is_checked, reset),
        cmocka_unit_test_setup(test_a_round_keeps_to_the_limits, reset),
        cmocka_unit_test_setup(test_rows_exist_between_wait_and_the_next_submit, reset),
        cmocka_unit_test_setup(test_a_vocabulary_only_core_runs_no_rounds, reset),
        cmocka_unit_test_setup(test_sequence_calls_are_checked, reset),
    };
    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
