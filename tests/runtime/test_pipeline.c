/* The row processors: each alone against a row written by hand, then their order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "runtime/pipeline.h"

enum { VOCAB = 6, HISTORY_MOST = 16 };

static const float raw[VOCAB] = {4.0f, -2.0f, 0.5f, 6.0f, 1.0f, -1.0f};
static float row[VOCAB];

typedef struct subject {
    alea_request_params params;
    alea_history history;
    alea_seen places[64];
    alea_pipeline pipeline;
} subject;

static subject s;

/* Neutral parameters, a prompt and an output. */
static void begin(const int32_t *prompt, int32_t n_prompt, const int32_t *output,
                  int32_t n_output) {
    memset(&s, 0, sizeof s);
    assert_true(alea__history_bytes(HISTORY_MOST) <= sizeof s.places);
    s.params = alea__params_default();
    alea__history_init(&s.history, s.places, HISTORY_MOST);
    for (int32_t i = 0; i < n_prompt; i++)
        alea__history_add_prompt(&s.history, prompt[i]);
    for (int32_t i = 0; i < n_output; i++)
        alea__history_add_output(&s.history, output[i]);
    s.pipeline = (alea_pipeline){
        .params = &s.params, .history = &s.history, .output = output, .n_output = n_output};
}

static void apply(void) {
    static float before[VOCAB];
    alea_error error;
    assert_int_equal(alea__params_check(&s.params, VOCAB, &error), ALEA_OK);
    memcpy(before, raw, sizeof raw);
    assert_int_equal(alea__pipeline_apply(&s.pipeline, raw, VOCAB, row, &error), ALEA_OK);
    assert_memory_equal(raw, before, sizeof raw);
}

static void assert_row(const float expected[VOCAB]) {
    for (int32_t i = 0; i < VOCAB; i++) {
        if (row[i] != expected[i])
            fail_msg("id %d is %g, expected %g", i, (double)row[i], (double)expected[i]);
    }
}

static void test_neutral_parameters_leave_the_row_alone(void **state) {
    (void)state;
    const int32_t seen[] = {3, 3};
    begin(seen, 2, seen, 2);
    assert_true(alea__pipeline_is_neutral(&s.pipeline));
    apply();
    assert_memory_equal(row, raw, sizeof raw);
}

/* A parameter that is overlooked there would be ignored whenever it is the only one. */
static void test_each_parameter_alone_is_not_neutral(void **state) {
    (void)state;
    const int32_t id[] = {2};
    const alea_token_list word = {id, 1};
    const alea_token_bias bias = {2, 1.0f};
    const alea_grammar grammar = {0};
    for (int32_t i = 0; i < 9; i++) {
        begin(NULL, 0, NULL, 0);
        s.params.max_tokens = 1;
        s.params.biases = &bias;
        s.params.n_biases = i == 0;
        s.params.allowed = (alea_token_list){id, i == 1};
        s.params.bad_words = &word;
        s.params.n_bad_words = i == 2;
        s.params.min_tokens = i == 3;
        s.params.repetition_penalty = i == 4 ? 1.1f : 1.0f;
        s.params.frequency_penalty = i == 5 ? 0.1f : 0.0f;
        s.params.presence_penalty = i == 6 ? -0.1f : 0.0f;
        s.pipeline.grammar = i == 7 ? &grammar : NULL;
        assert_int_equal(alea__pipeline_is_neutral(&s.pipeline), i == 8);
    }
}

static void test_a_bias_is_added_and_minus_infinity_bans(void **state) {
    (void)state;
    begin(NULL, 0, NULL, 0);
    const alea_token_bias biases[] = {{0, -1.5f}, {3, -INFINITY}, {5, 100.0f}};
    s.params.biases = biases;
    s.params.n_biases = 3;
    assert_false(alea__pipeline_is_neutral(&s.pipeline));
    apply();
    assert_row((const float[]){2.5f, -2.0f, 0.5f, -INFINITY, 1.0f, 99.0f});
}

static void test_allowed_ids_keep_their_logits_and_empty_the_rest(void **state) {
    (void)state;
    begin(NULL, 0, NULL, 0);
    const int32_t allowed[] = {1, 4};
    s.params.allowed = (alea_token_list){allowed, 2};
    apply();
    assert_row((const float[]){-INFINITY, -2.0f, -INFINITY, -INFINITY, 1.0f, -INFINITY});
}

static void test_a_bad_word_bans_its_last_id_after_its_beginning_only(void **state) {
    (void)state;
    const int32_t word[] = {2, 5, 3}, single[] = {0};
    const alea_token_list words[] = {{word, 3}, {single, 1}};
    const int32_t met[] = {1, 2, 5}, apart[] = {2, 1, 5}, begun[] = {2}, past[] = {2, 5, 3},
                  exact[] = {2, 5};
    const struct {
        const int32_t *output;
        int32_t n;
        bool banned;
    } cases[] = {
        {met, 3, true}, {apart, 3, false}, {begun, 1, false}, {past, 3, false}, {exact, 2, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin(word, 2, cases[i].output, cases[i].n); /* the prompt is not the output */
        s.params.bad_words = words;
        s.params.n_bad_words = 2;
        apply();
        assert_row((const float[]){-INFINITY, -2.0f, 0.5f, cases[i].banned ? -INFINITY : 6.0f, 1.0f,
                                   -1.0f});
    }
}

static void test_below_min_tokens_nothing_that_ends_may_be_drawn(void **state) {
    (void)state;
    const int32_t output[] = {1, 1, 1}, ends[] = {3}, stops[] = {0, 5};
    for (int32_t n = 1; n <= 3; n++) {
        begin(NULL, 0, output, n);
        s.pipeline.end_tokens = ends;
        s.pipeline.n_end_tokens = 1;
        s.params.stop_tokens = (alea_token_list){stops, 2};
        s.params.min_tokens = 2;
        s.params.max_tokens = 4;
        apply();
        if (n < 2)
            assert_row((const float[]){-INFINITY, -2.0f, 0.5f, -INFINITY, 1.0f, -INFINITY});
        else
            assert_row(raw);
    }
}

/* OPS-17: once for a token, however often it occurred, in prompt and output alike. */
static void test_repetition_divides_a_token_once(void **state) {
    (void)state;
    const int32_t threes[] = {3, 3, 3, 3}, mixed[] = {1, 3};
    begin(threes, 4, mixed, 2);
    s.params.repetition_penalty = 2.0f;
    apply();
    assert_row((const float[]){4.0f, -4.0f, 0.5f, 3.0f, 1.0f, -1.0f});
    const int32_t small[] = {2}; /* what is positive is divided, however small */
    begin(small, 1, NULL, 0);
    s.params.repetition_penalty = 2.0f;
    apply();
    assert_row((const float[]){4.0f, -2.0f, 0.25f, 6.0f, 1.0f, -1.0f});
}

static void test_frequency_counts_and_presence_does_not_and_the_prompt_is_neither(void **state) {
    (void)state;
    const int32_t prompt[] = {0, 0, 4}, output[] = {3, 3, 3, 1};
    begin(prompt, 3, output, 4);
    s.params.frequency_penalty = 0.5f;
    apply();
    assert_row((const float[]){4.0f, -2.5f, 0.5f, 4.5f, 1.0f, -1.0f});
    s.params.frequency_penalty = 0;
    s.params.presence_penalty = 1.5f;
    apply();
    assert_row((const float[]){4.0f, -3.5f, 0.5f, 4.5f, 1.0f, -1.0f});
    s.params.presence_penalty = -1.5f;
    apply();
    assert_row((const float[]){4.0f, -0.5f, 0.5f, 7.5f, 1.0f, -1.0f});
}

static void forbid_zero(void *user, float *logits, int32_t vocab) {
    assert_int_equal(vocab, VOCAB);
    *(float *)user = logits[0];
    logits[0] = -INFINITY;
}

static void test_the_grammar_sees_the_row_after_every_other(void **state) {
    (void)state;
    const int32_t output[] = {0};
    begin(NULL, 0, output, 1);
    float seen = 0;
    const alea_grammar grammar = {.restrict_row = forbid_zero, .user = &seen};
    const alea_token_bias bias[] = {{0, 2.0f}};
    s.pipeline.grammar = &grammar;
    s.params.biases = bias;
    s.params.n_biases = 1;
    s.params.repetition_penalty = 2.0f;
    s.params.frequency_penalty = 0.25f;
    s.params.presence_penalty = 0.5f;
    apply();
    assert_true(seen == 2.25f); /* (4 + 2) / 2 - 0.25 - 0.5: bias, then repetition, then the rest */
    assert_row((const float[]){-INFINITY, -2.0f, 0.5f, 6.0f, 1.0f, -1.0f});
}

static void test_allowed_ids_keep_their_bias(void **state) {
    (void)state;
    begin(NULL, 0, NULL, 0);
    const int32_t allowed[] = {2};
    const alea_token_bias biases[] = {{2, 0.25f}, {3, 50.0f}};
    s.params.allowed = (alea_token_list){allowed, 1};
    s.params.biases = biases;
    s.params.n_biases = 2;
    apply();
    assert_row((const float[]){-INFINITY, -INFINITY, 0.75f, -INFINITY, -INFINITY, -INFINITY});
}

/* Whether a row is one must not depend on what is banned: asked for, its logprobs would fail. */
static void test_a_ban_does_not_cover_up_a_bad_row(void **state) {
    (void)state;
    const int32_t two[] = {2}, three[] = {3};
    const alea_token_list word = {three, 1};
    static const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        float broken[VOCAB];
        memcpy(broken, raw, sizeof raw);
        broken[3] = bad[i % 2];
        alea_error error;
        begin(NULL, 0, NULL, 0);
        if (i < 2) {
            s.params.allowed = (alea_token_list){two, 1};
        } else {
            s.params.bad_words = &word;
            s.params.n_bad_words = 1;
        }
        assert_int_equal(alea__pipeline_apply(&s.pipeline, broken, VOCAB, row, &error), ALEA_EROW);
    }
}

/* API-21: the processor that took the last entry is named, not the one before it. */
static void test_the_constraint_that_leaves_nothing_is_named(void **state) {
    (void)state;
    const int32_t two[] = {2};
    const alea_token_list word = {two, 1};
    alea_error error;
    begin(NULL, 0, NULL, 0);
    s.params.allowed = (alea_token_list){two, 1};
    s.params.bad_words = &word;
    s.params.n_bad_words = 1;
    assert_int_equal(alea__pipeline_apply(&s.pipeline, raw, VOCAB, row, &error), ALEA_EEMPTY);
    assert_non_null(strstr(error.message, "bad_words left no token"));
    s.params.n_bad_words = 0;
    s.params.stop_tokens = (alea_token_list){two, 1};
    s.params.min_tokens = 1;
    assert_int_equal(alea__pipeline_apply(&s.pipeline, raw, VOCAB, row, &error), ALEA_EEMPTY);
    assert_non_null(strstr(error.message, "min_tokens left no token"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neutral_parameters_leave_the_row_alone),
        cmocka_unit_test(test_each_parameter_alone_is_not_neutral),
        cmocka_unit_test(test_a_bias_is_added_and_minus_infinity_bans),
        cmocka_unit_test(test_allowed_ids_keep_their_logits_and_empty_the_rest),
        cmocka_unit_test(test_a_bad_word_bans_its_last_id_after_its_beginning_only),
        cmocka_unit_test(test_below_min_tokens_nothing_that_ends_may_be_drawn),
        cmocka_unit_test(test_repetition_divides_a_token_once),
        cmocka_unit_test(test_frequency_counts_and_presence_does_not_and_the_prompt_is_neither),
        cmocka_unit_test(test_the_grammar_sees_the_row_after_every_other),
        cmocka_unit_test(test_allowed_ids_keep_their_bias),
        cmocka_unit_test(test_a_ban_does_not_cover_up_a_bad_row),
        cmocka_unit_test(test_the_constraint_that_leaves_nothing_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
