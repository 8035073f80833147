/* Joint encoding and sums, over the toy tokenizer, whose pieces include words with their space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "runtime/score_text.h"

static alea_core *core;

static int open_core(void **state) {
    (void)state;
    const alea_core_options options = {.struct_bytes = sizeof options, .model = ""};
    alea_error error;
    return alea_core_open(alea_core_toy(), &options, &core, &error);
}

static int close_core(void **state) {
    (void)state;
    alea_core_close(core);
    return 0;
}

static alea_bytes bytes_of(const char *text) {
    return (alea_bytes){(const uint8_t *)text, strlen(text)};
}

static size_t spell(const alea_token_ids *ids, size_t from, char *out) {
    size_t n = 0;
    for (size_t i = from; i < ids->n_tokens; i++) {
        alea_token_info info;
        assert_int_equal(alea_core_token(core, ids->tokens[i], &info), ALEA_OK);
        if (info.bytes.length) memcpy(out + n, info.bytes.data, info.bytes.length);
        n += info.bytes.length;
    }
    out[n] = 0;
    return n;
}

/* The rule again, byte by byte: who holds the first byte of the continuation. */
static void check_joint(const char *prompt, const char *continuation) {
    char joint[512], spelled[512], tail[512];
    strcpy(joint, prompt);
    strcat(joint, continuation);
    alea_token_ids ids, whole;
    alea_error error;
    assert_int_equal(alea__joint_encode(core, bytes_of(prompt), bytes_of(continuation),
                                        ALEA_TOKENIZE_SPECIAL, &ids, &error),
                     ALEA_OK);
    assert_int_equal(
        alea__text_encode(core, bytes_of(joint), ALEA_TOKENIZE_SPECIAL, &whole, &error), ALEA_OK);
    assert_int_equal(ids.n_tokens, whole.n_tokens);
    assert_memory_equal(ids.tokens, whole.tokens, ids.n_tokens * sizeof *ids.tokens);
    spell(&ids, 0, spelled);
    assert_string_equal(spelled, joint);

    size_t boundary = strlen(prompt);
    while (boundary && strchr(" \t\n\r\v\f", joint[boundary - 1]))
        boundary--;
    const size_t tail_length = spell(&ids, ids.continuation, tail);
    const size_t before = strlen(joint) - tail_length; /* bytes in front of the first token */
    assert_true(before <= boundary);
    alea_token_info first;
    assert_int_equal(alea_core_token(core, ids.tokens[ids.continuation], &first), ALEA_OK);
    assert_true(before + first.bytes.length > boundary);
    alea__token_ids_free(&ids);
    alea__token_ids_free(&whole);
}

static void test_continuation_starts_at_the_token_with_its_first_byte(void **state) {
    (void)state;
    static const char *const parts[] = {
        "Answer:", "Answer: ", "Answer: \n\t", "th", "the", " the", "yes", "\xf0\x9f",
        "é",       "a b c ",   "in",           "er", " ",   "\n",   "\xc3"};
    const size_t n = sizeof parts / sizeof *parts;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            check_joint(parts[i], parts[j]);
}

static void test_trailing_blanks_move_to_the_continuation(void **state) {
    (void)state;
    char tail[64];
    alea_token_ids ids;
    alea_error error;
    assert_int_equal(alea__joint_encode(core, bytes_of("Q:\t \n"), bytes_of("zz"), 0, &ids, &error),
                     ALEA_OK);
    spell(&ids, ids.continuation, tail);
    assert_string_equal(tail, "\t \nzz");
    alea__token_ids_free(&ids);
}

typedef struct summed {
    alea_score_sums sums;
    double continuation; /* added up here, from the place that the encoding names */
    int32_t n_continuation;
} summed;

static alea_status add_up(void *user, const alea_scored *scored) {
    summed *s = user;
    alea__score_sums_add(&s->sums, scored, 1);
    if (scored->index < s->sums.continuation) return ALEA_OK;
    s->continuation += (double)scored->report->logprob;
    s->n_continuation++;
    return ALEA_OK;
}

static void test_only_the_continuation_is_summed_from_where_the_context_ends_CON_17(void **state) {
    (void)state;
    static const struct {
        const char *context, *continuation, *tail;
    } cases[] = {
        {"Answer: ", "yes", " yes"}, /* the blank is the continuation's */
        {"Is it a t", "he", " the"}, /* one token holds the end of one and the start of the other */
    };
    for (size_t i = 0; i < 2; i++) {
        char tail[64];
        alea_token_ids ids;
        alea_error error;
        assert_int_equal(alea__joint_encode(core, bytes_of(cases[i].context),
                                            bytes_of(cases[i].continuation), 0, &ids, &error),
                         ALEA_OK);
        spell(&ids, ids.continuation, tail);
        assert_string_equal(tail, cases[i].tail);
        const alea_score_options how = {.kernels = alea__kernels()};
        summed s = {.sums = alea__score_sums_start(ids.continuation)};
        assert_int_equal(
            alea__score_tokens(core, &how, ids.tokens, ids.n_tokens, add_up, &s, &error), ALEA_OK);
        assert_true(s.sums.continuation_sum_logprob == s.continuation);
        assert_true(s.sums.sum_logprob < s.continuation);
        assert_int_equal((size_t)s.n_continuation, ids.n_tokens - ids.continuation);
        alea__token_ids_free(&ids);
    }
}

static void test_continuation_without_anything_before_it_is_refused(void **state) {
    (void)state;
    alea_token_ids ids = {.n_tokens = 77};
    alea_error error = {0};
    assert_int_equal(alea__joint_encode(core, bytes_of(""), bytes_of("yes"), 0, &ids, &error),
                     ALEA_EINVAL);
    assert_non_null(strstr(error.message, "longer prompt"));
    assert_int_equal(alea__joint_encode(core, bytes_of("yes"), bytes_of(""), 0, &ids, &error),
                     ALEA_EINVAL);
    assert_non_null(strstr(error.message, "empty"));
    assert_int_equal(ids.n_tokens, 77);
    /* a model that puts a token in front gives the first one its context */
    assert_int_equal(alea__joint_encode(core, bytes_of(""), bytes_of("yes"), ALEA_TOKENIZE_SPECIAL,
                                        &ids, &error),
                     ALEA_OK);
    assert_int_equal(ids.continuation, 1);
    alea__token_ids_free(&ids);
}

static void test_long_texts_are_encoded_whole(void **state) {
    (void)state;
    static uint8_t text[200000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(i * 131 % 251);
    alea_token_ids ids;
    alea_error error;
    assert_int_equal(alea__text_encode(core, (alea_bytes){text, sizeof text}, 0, &ids, &error),
                     ALEA_OK);
    size_t at = 0;
    for (size_t i = 0; i < ids.n_tokens; i++) {
        alea_token_info info;
        assert_int_equal(alea_core_token(core, ids.tokens[i], &info), ALEA_OK);
        assert_memory_equal(info.bytes.data, text + at, info.bytes.length);
        at += info.bytes.length;
    }
    assert_int_equal(at, sizeof text);
    alea__token_ids_free(&ids);
}

static void test_sums_leave_out_the_first_token_and_follow_order(void **state) {
    (void)state;
    static const float logprobs[] = {NAN, -1.5f, -0.1f, -1e-8f, -20.25f};
    alea_score_sums sums = alea__score_sums_start(3);
    double sum = 0, continuation = 0;
    for (size_t i = 0; i < 5; i++) {
        const alea_row_report report = {
            .token = (int32_t)i, .logprob = logprobs[i], .greedy = i == 1 ? 99 : (int32_t)i};
        const alea_scored scored = {.index = i, .token = (int32_t)i, .report = &report};
        alea__score_sums_add(&sums, &scored, i);
        if (i > 0) sum += (double)logprobs[i];
        if (i > 2) continuation += (double)logprobs[i];
    }
    assert_int_equal(sums.n_tokens, 5);
    assert_int_equal(sums.n_scored, 4);
    assert_int_equal(sums.scored_bytes, 1 + 2 + 3 + 4);
    assert_true(sums.sum_logprob == sum);
    assert_true(sums.continuation_sum_logprob == continuation);
    assert_true(sums.is_greedy); /* token 1 is before the continuation */
    assert_true(alea__score_perplexity(&sums) == exp(-sum / 4));
    const double bits = -sum / log(2.0) / 10;
    assert_true(fabs(alea__score_bits_per_byte(&sums) - bits) < 1e-12);
}

static void test_one_surprise_ends_is_greedy(void **state) {
    (void)state;
    alea_score_sums sums = alea__score_sums_start(1);
    const alea_row_report report = {.token = 5, .logprob = -0.0f, .rank = 1, .greedy = 4};
    const alea_scored scored = {.index = 1, .token = 5, .report = &report};
    alea__score_sums_add(&sums, &scored, 1); /* rank 1 by a tie, but not what greedy emits */
    assert_false(sums.is_greedy);
}

static void test_nothing_scored_has_no_perplexity(void **state) {
    (void)state;
    const alea_score_sums sums = alea__score_sums_start(ALEA_NO_CONTINUATION);
    assert_true(isnan(alea__score_perplexity(&sums)));
    assert_true(isnan(alea__score_bits_per_byte(&sums)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_continuation_starts_at_the_token_with_its_first_byte),
        cmocka_unit_test(test_trailing_blanks_move_to_the_continuation),
        cmocka_unit_test(test_only_the_continuation_is_summed_from_where_the_context_ends_CON_17),
        cmocka_unit_test(test_continuation_without_anything_before_it_is_refused),
        cmocka_unit_test(test_long_texts_are_encoded_whole),
        cmocka_unit_test(test_sums_leave_out_the_first_token_and_follow_order),
        cmocka_unit_test(test_one_surprise_ends_is_greedy),
        cmocka_unit_test(test_nothing_scored_has_no_perplexity),
    };
    return cmocka_run_group_tests(tests, open_core, close_core);
}
