/* Generation over the toy core: every token against a row asked for apart, seeds, ends, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "runtime/generate.h"

enum { MOST_CHOICES = 4, MOST_TOKENS = 128 };

typedef struct made {
    int32_t tokens[MOST_CHOICES][MOST_TOKENS];
    alea_row_report reports[MOST_CHOICES][MOST_TOKENS];
    int32_t lengths[MOST_CHOICES];
    alea_generate_end ends[MOST_CHOICES];
    int32_t n_finished;
} made;

static made one, other;

static alea_status take_token(void *user, const alea_generated *generated) {
    made *into = user;
    assert_int_equal(generated->index, into->lengths[generated->choice]);
    into->tokens[generated->choice][generated->index] = generated->token;
    into->reports[generated->choice][generated->index] = *generated->report;
    into->lengths[generated->choice]++;
    return ALEA_OK;
}

static alea_status take_end(void *user, int32_t choice, alea_generate_end end) {
    made *into = user;
    assert_int_equal(choice, into->n_finished++);
    into->ends[choice] = end;
    return ALEA_OK;
}

static alea_core *open_toy(const char *model, int32_t context) {
    const alea_core_options options = {.struct_bytes = sizeof options,
                                       .model = model,
                                       .context_tokens = context,
                                       .round_tokens = 5};
    alea_core *core;
    alea_error error;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, &error), ALEA_OK);
    return core;
}

static alea_generate_options base_options(void) {
    return (alea_generate_options){.kernels = alea__kernels(),
                                   .sampling = {1, 0, 1, 0},
                                   .seed = 7,
                                   .choices = 1,
                                   .max_tokens = 40,
                                   .top = 5,
                                   .ignore_end = true};
}

static const int32_t prompt[] = {256, 'H', 'e', 'l', 'l', 'o', ' '};
enum { N_PROMPT = 7 };

static void run(alea_core *core, const alea_generate_options *options, made *into) {
    memset(into, 0, sizeof *into);
    const alea_generate_sink sink = {take_token, take_end, into};
    alea_error error = {0};
    const alea_status status = alea__generate(core, options, prompt, N_PROMPT, &sink, &error);
    if (status < 0) print_message("%s\n", error.message);
    assert_int_equal(status, ALEA_OK);
    assert_int_equal(into->n_finished, options->choices);
}

static void assert_same_choice(const made *a, int32_t i, const made *b, int32_t j) {
    assert_int_equal(a->lengths[i], b->lengths[j]);
    assert_memory_equal(a->tokens[i], b->tokens[j], (size_t)a->lengths[i] * sizeof(int32_t));
    for (int32_t t = 0; t < a->lengths[i]; t++)
        assert_memory_equal(&a->reports[i][t].logprob, &b->reports[j][t].logprob, sizeof(float));
}

static void test_every_token_is_the_draw_of_its_row(void **state) {
    (void)state;
    alea_core *core = open_toy("", 128);
    alea_core *judge = open_toy("", 128);
    alea_generate_options options = base_options();
    options.sampling = (alea_sampling){0.8f, 50, 0.9f, 0.01f};
    options.choices = 3;
    run(core, &options, &one);
    for (int32_t choice = 0; choice < 3; choice++) {
        alea_error error;
        assert_int_equal(alea_core_sequence_trim(judge, 0, 0, &error), ALEA_OK);
        for (int32_t i = -N_PROMPT; i + 1 < 40; i++) { /* one token a round */
            const int32_t *token = i < 0 ? &prompt[i + N_PROMPT] : &one.tokens[choice][i];
            const alea_round_item item = {.position = i + N_PROMPT,
                                          .span = {.length = 1, .tokens = token}};
            const alea_round round = {.items = &item, .n_items = 1};
            int32_t n_rows;
            assert_int_equal(alea_core_run(judge, &round, &n_rows, &error), ALEA_OK);
            if (i < -1) continue;
            const alea_draw_at at = {7, 0, (uint32_t)choice, (uint64_t)(i + 1)};
            alea_choice expected;
            assert_int_equal(alea__row_choose(alea__kernels_ref(), alea_core_row(judge, 0), 320,
                                              &options.sampling, &at, &expected),
                             ALEA_OK);
            assert_int_equal(one.tokens[choice][i + 1], expected.token);
            assert_true(one.reports[choice][i + 1].logprob == expected.logprob);
            assert_int_equal(one.reports[choice][i + 1].n_top, 5);
        }
    }
    alea_core_close(core);
    alea_core_close(judge);
}

static void test_same_seed_gives_the_same_text_and_another_does_not(void **state) {
    (void)state;
    alea_core *core = open_toy("", 128);
    alea_generate_options options = base_options();
    run(core, &options, &one);
    run(core, &options, &other);
    assert_same_choice(&one, 0, &other, 0);
    options.seed = 8;
    run(core, &options, &other);
    assert_memory_not_equal(one.tokens[0], other.tokens[0], 40 * sizeof(int32_t));
    alea_core_close(core);
}

static void test_a_choice_does_not_depend_on_how_many_there_are(void **state) {
    (void)state;
    alea_core *core = open_toy("", 128);
    alea_core *no_trim = open_toy("trim=0", 128);
    alea_generate_options options = base_options();
    options.choices = 4;
    run(core, &options, &one);
    run(no_trim, &options, &other);
    for (int32_t i = 0; i < 4; i++)
        assert_same_choice(&one, i, &other, i);
    assert_memory_not_equal(one.tokens[0], one.tokens[1], 40 * sizeof(int32_t));
    options.choices = 1;
    run(core, &options, &other);
    assert_same_choice(&one, 0, &other, 0);
    alea_core_close(core);
    alea_core_close(no_trim);
}

static void test_temperature_zero_is_greedy(void **state) {
    (void)state;
    alea_core *core = open_toy("peak=3", 128);
    alea_generate_options options = base_options();
    options.sampling.temperature = 0;
    run(core, &options, &one);
    for (int32_t i = 0; i < 40; i++) {
        assert_int_equal(one.tokens[0][i], one.reports[0][i].greedy);
        assert_int_equal(one.reports[0][i].rank, 1);
    }
    assert_int_equal(one.tokens[0][0], ' ' + 1);
    alea_core_close(core);
}

static void test_an_end_token_ends_and_has_no_entry(void **state) {
    (void)state;
    alea_core *core =
        open_toy("peak=50", 300); /* counts up: ' ' + 1, … 255, 256 (bos), 257 (eos) */
    alea_generate_options options = base_options();
    options.sampling.temperature = 0;
    options.ignore_end = false;
    options.max_tokens = 128;
    const int32_t start[] = {250};
    memset(&one, 0, sizeof one);
    const alea_generate_sink sink = {take_token, take_end, &one};
    alea_error error = {0};
    assert_int_equal(alea__generate(core, &options, start, 1, &sink, &error), ALEA_OK);
    assert_int_equal(one.ends[0], ALEA_GENERATE_STOP);
    assert_int_equal(one.lengths[0], 6); /* 251..255, 256 */
    assert_int_equal(one.tokens[0][5], 256);
    alea_core_close(core);
}

static void test_context_end_is_a_length_end(void **state) {
    (void)state;
    alea_core *core = open_toy("", 20);
    alea_generate_options options = base_options();
    run(core, &options, &one);
    assert_int_equal(one.lengths[0], 20 - N_PROMPT + 1); /* the last one needs no place */
    assert_int_equal(one.ends[0], ALEA_GENERATE_LENGTH);
    alea_core_close(core);
    core = open_toy("", N_PROMPT);
    run(core, &options, &one);
    assert_int_equal(one.lengths[0], 1);
    alea_core_close(core);
}

static void test_max_tokens_is_a_length_end(void **state) {
    (void)state;
    alea_core *core = open_toy("", 128);
    alea_generate_options options = base_options();
    options.max_tokens = 1;
    run(core, &options, &one);
    assert_int_equal(one.lengths[0], 1);
    assert_int_equal(one.ends[0], ALEA_GENERATE_LENGTH);
    alea_core_close(core);
}

static void test_bad_parameters_prompts_and_rows_are_refused(void **state) {
    (void)state;
    alea_core *core = open_toy("nan_at=9", 12);
    alea_generate_options good = base_options();
    alea_generate_options bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].sampling.temperature = NAN;
    bad[1].sampling.top_p = NAN;
    bad[2].sampling.min_p = 1.5f;
    bad[3].choices = 0;
    bad[4].max_tokens = 0;
    bad[5].top = 21;
    memset(&one, 0, sizeof one);
    const alea_generate_sink sink = {take_token, take_end, &one};
    alea_error error;
    for (int i = 0; i < 6; i++)
        assert_int_equal(alea__generate(core, &bad[i], prompt, N_PROMPT, &sink, &error),
                         ALEA_EINVAL);
    assert_int_equal(alea__generate(core, &good, prompt, 0, &sink, &error), ALEA_EINVAL);
    const int32_t zeros[13] = {0};
    assert_int_equal(alea__generate(core, &good, zeros, 13, &sink, &error), ALEA_ECONTEXT);
    assert_int_equal(one.lengths[0], 0);
    assert_int_equal(alea__generate(core, &good, prompt, N_PROMPT, &sink, &error), ALEA_EROW);
    assert_non_null(strstr(error.message, "token 3")); /* position 9's row */
    assert_int_equal(one.lengths[0], 3);
    alea_core_close(core);
}

static void test_cancel_stops_before_the_next_token(void **state) {
    (void)state;
    alea_core *core = open_toy("", 128);
    alea_generate_options options = base_options();
    const volatile sig_atomic_t cancel = 1;
    options.cancel = &cancel;
    memset(&one, 0, sizeof one);
    const alea_generate_sink sink = {take_token, take_end, &one};
    alea_error error;
    assert_int_equal(alea__generate(core, &options, prompt, N_PROMPT, &sink, &error),
                     ALEA_ECANCELLED);
    assert_int_equal(one.lengths[0], 0);
    alea_core_close(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_token_is_the_draw_of_its_row),
        cmocka_unit_test(test_same_seed_gives_the_same_text_and_another_does_not),
        cmocka_unit_test(test_a_choice_does_not_depend_on_how_many_there_are),
        cmocka_unit_test(test_temperature_zero_is_greedy),
        cmocka_unit_test(test_an_end_token_ends_and_has_no_entry),
        cmocka_unit_test(test_context_end_is_a_length_end),
        cmocka_unit_test(test_max_tokens_is_a_length_end),
        cmocka_unit_test(test_bad_parameters_prompts_and_rows_are_refused),
        cmocka_unit_test(test_cancel_stops_before_the_next_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
