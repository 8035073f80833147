/* Scoring over the toy core: windows against brute force, block sizes, bad rows, the context's
 * end. Every expected value is a row asked of a second core, one context at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "runtime/score.h"

enum { MOST_TOKENS = 400 };

typedef struct record {
    alea_row_report report;
    int32_t context_tokens;
} record;

typedef struct collected {
    record records[MOST_TOKENS];
    size_t n;
    size_t stop_at; /* the sink fails there; SIZE_MAX: never */
} collected;

static collected first_run, second_run;

static alea_status collect(void *user, const alea_scored *scored) {
    collected *into = user;
    assert_int_equal(scored->index, into->n);
    if (into->n == into->stop_at) return ALEA_ELIMIT;
    memset(&into->records[into->n], 0, sizeof(record));
    into->records[into->n].report = *scored->report;
    into->records[into->n].context_tokens = scored->context_tokens;
    into->n++;
    return ALEA_OK;
}

static alea_core *open_toy(const char *model, int32_t context, int32_t round_tokens,
                           int32_t round_rows) {
    const alea_core_options options = {.struct_bytes = sizeof options,
                                       .model = model,
                                       .context_tokens = context,
                                       .round_tokens = round_tokens,
                                       .round_rows = round_rows};
    alea_core *core;
    alea_error error;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, &error), ALEA_OK);
    return core;
}

static void fill_tokens(int32_t *tokens, size_t n) {
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(state >> 16) % 256;
    }
}

static alea_score_options base_options(void) {
    return (alea_score_options){.kernels = alea__kernels(), .top = 20};
}

static void run(alea_core *core, const alea_score_options *options, const int32_t *tokens, size_t n,
                collected *into) {
    alea_error error = {0};
    into->n = 0;
    into->stop_at = SIZE_MAX;
    const alea_status status = alea__score_tokens(core, options, tokens, n, collect, into, &error);
    if (status < 0) print_message("%s\n", error.message);
    assert_int_equal(status, ALEA_OK);
    assert_int_equal(into->n, n);
}

static void assert_same(const collected *a, const collected *b) {
    assert_int_equal(a->n, b->n);
    for (size_t i = 1; i < a->n; i++) {
        const alea_row_report *x = &a->records[i].report;
        const alea_row_report *y = &b->records[i].report;
        assert_memory_equal(&x->logprob, &y->logprob, sizeof x->logprob);
        assert_int_equal(x->rank, y->rank);
        assert_int_equal(x->greedy, y->greedy);
        assert_int_equal(x->n_top, y->n_top);
        assert_memory_equal(x->top, y->top, (size_t)x->n_top * sizeof *x->top);
    }
}

/* The report on tokens[index] behind exactly `context` tokens, by a core of its own. */
static alea_row_report brute_force(alea_core *core, const int32_t *tokens, size_t index,
                                   int32_t context) {
    alea_error error;
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, &error), ALEA_OK);
    const alea_round_item item = {
        .first_row = context - 1,
        .span = {.length = context, .tokens = tokens + index - (size_t)context}};
    const alea_round round = {.items = &item, .n_items = 1};
    int32_t n_rows;
    assert_int_equal(alea_core_run(core, &round, &n_rows, &error), ALEA_OK);
    alea_core_info info;
    alea_core_describe(core, &info);
    alea_row_report report;
    assert_int_equal(alea__row_report(alea__kernels(), alea_core_row(core, 0), info.vocab,
                                      tokens[index], 20, false, &report),
                     ALEA_OK);
    return report;
}

/* The most context that any window start allows: the definition, by search. */
static int32_t most_context(size_t index, int32_t window, int32_t stride) {
    for (size_t start = 0;; start += (size_t)stride)
        if (index - start <= (size_t)window) return (int32_t)(index - start);
}

static void test_each_token_has_the_window_with_most_context(void **state) {
    (void)state;
    static const struct {
        int32_t window, stride;
        size_t n;
    } cases[] = {{16, 1, 40},  {16, 16, 100}, {16, 8, 16},    {16, 8, 17},
                 {16, 8, 18},  {16, 5, 90},   {1, 1, 12},     {7, 3, 71},
                 {64, 32, 65}, {64, 32, 66},  {100, 30, 301}, {3, 2, 2}};
    int32_t tokens[MOST_TOKENS];
    fill_tokens(tokens, MOST_TOKENS);
    alea_core *core = open_toy("", 128, 48, 20);
    alea_core *judge = open_toy("", 128, 128, 64);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        alea_score_options options = base_options();
        options.window_tokens = cases[c].window;
        options.stride_tokens = cases[c].stride;
        run(core, &options, tokens, cases[c].n, &first_run);
        for (size_t i = 1; i < cases[c].n; i++) {
            const int32_t context = most_context(i, cases[c].window, cases[c].stride);
            assert_int_equal(first_run.records[i].context_tokens, context);
            const alea_row_report expected = brute_force(judge, tokens, i, context);
            const alea_row_report *got = &first_run.records[i].report;
            assert_memory_equal(&got->logprob, &expected.logprob, sizeof got->logprob);
            assert_int_equal(got->rank, expected.rank);
            assert_int_equal(got->token, tokens[i]);
        }
    }
    alea_core_close(core);
    alea_core_close(judge);
}

static void test_block_size_never_changes_a_bit(void **state) {
    (void)state;
    int32_t tokens[200];
    fill_tokens(tokens, 200);
    alea_score_options options = base_options();
    options.window_tokens = 90;
    options.stride_tokens = 37;
    alea_core *core = open_toy("ties=50", 90, 0, 0);
    run(core, &options, tokens, 200, &first_run);
    for (int32_t block = 1; block <= ALEA_SCORE_BLOCK_ROWS; block++) {
        options.block_rows = block;
        run(core, &options, tokens, 200, &second_run);
        assert_same(&first_run, &second_run);
    }
    alea_core_close(core);
    for (int32_t size = 1; size <= 70; size++) { /* what the core takes in a round, too */
        core = open_toy("ties=50", 90, size, size);
        options.block_rows = 0;
        run(core, &options, tokens, 200, &second_run);
        assert_same(&first_run, &second_run);
        alea_core_close(core);
    }
}

static void test_threads_never_change_a_bit(void **state) {
    (void)state;
    int32_t tokens[300];
    fill_tokens(tokens, 300);
    alea_score_options options = base_options();
    alea_core *core = open_toy("vocab=5000", 512, 0, 0);
    run(core, &options, tokens, 300, &first_run);
    for (int32_t threads = 1; threads <= 4; threads++) {
        assert_int_equal(alea__pool_create(threads, &options.pool), ALEA_OK);
        run(core, &options, tokens, 300, &second_run);
        assert_same(&first_run, &second_run);
        alea__pool_destroy(options.pool);
    }
    alea_core_close(core);
}

static void test_a_bad_row_names_its_position(void **state) {
    (void)state;
    static const char *const models[] = {"nan_at=41", "inf_at=41", "empty_at=41"};
    int32_t tokens[80];
    fill_tokens(tokens, 80);
    for (int i = 0; i < 3; i++) {
        alea_core *core = open_toy(models[i], 128, 0, 16);
        const alea_score_options options = base_options();
        alea_error error = {0};
        first_run.n = 0;
        first_run.stop_at = SIZE_MAX;
        assert_int_equal(
            alea__score_tokens(core, &options, tokens, 80, collect, &first_run, &error), ALEA_EROW);
        assert_non_null(strstr(error.message, "token 42"));
        assert_int_equal(first_run.n, 42); /* tokens 0..41 were handed out */
        alea_core_close(core);
    }
}

static void test_context_may_be_exactly_full(void **state) {
    (void)state;
    int32_t tokens[66];
    fill_tokens(tokens, 66);
    alea_core *core = open_toy("", 64, 0, 0);
    alea_core *wide = open_toy("", 128, 0, 0);
    const alea_score_options options = base_options();
    run(core, &options, tokens, 65, &first_run); /* 64 positions tell of 65 tokens */
    run(wide, &options, tokens, 65, &second_run);
    assert_same(&first_run, &second_run);
    assert_int_equal(alea_core_sequence_length(core, 0), 64);
    run(core, &options, tokens, 66, &first_run); /* one more needs a second window */
    assert_int_equal(first_run.records[65].context_tokens, 33);
    alea_core_close(core);
    alea_core_close(wide);
}

static void test_a_single_token_has_nothing_to_score(void **state) {
    (void)state;
    const int32_t token = 65;
    alea_core *core = open_toy("", 64, 0, 0);
    const alea_score_options options = base_options();
    run(core, &options, &token, 1, &first_run);
    assert_true(isnan(first_run.records[0].report.logprob));
    assert_int_equal(first_run.records[0].report.rank, 0);
    assert_int_equal(first_run.records[0].report.n_top, 0);
    alea_core_close(core);
}

static void test_parameters_outside_their_domain_are_named(void **state) {
    (void)state;
    alea_core *core = open_toy("vocab=300", 64, 0, 0);
    const int32_t tokens[2] = {1, 2};
    const int32_t bad_tokens[2] = {1, 300};
    alea_score_options options[5];
    for (int i = 0; i < 5; i++)
        options[i] = base_options();
    options[0].window_tokens = 65;
    options[1].stride_tokens = 65;
    options[2].top = 21;
    options[3].block_rows = 65;
    static const char *const words[] = {"window is 65", "stride is 65", "top is 21", "block is 65",
                                        "token 1 is 300"};
    for (int i = 0; i < 5; i++) {
        alea_error error = {0};
        first_run.n = 0;
        assert_int_equal(alea__score_tokens(core, &options[i], i == 4 ? bad_tokens : tokens, 2,
                                            collect, &first_run, &error),
                         ALEA_EINVAL);
        assert_non_null(strstr(error.message, words[i]));
        assert_int_equal(first_run.n, 0);
    }
    alea_core_close(core);
}

static void test_cancel_and_sink_stop_the_run(void **state) {
    (void)state;
    int32_t tokens[100];
    fill_tokens(tokens, 100);
    alea_core *core = open_toy("", 128, 0, 8);
    alea_score_options options = base_options();
    alea_error error = {0};
    first_run.n = 0;
    first_run.stop_at = 30;
    assert_int_equal(alea__score_tokens(core, &options, tokens, 100, collect, &first_run, &error),
                     ALEA_ELIMIT);
    assert_int_equal(first_run.n, 30);
    const volatile sig_atomic_t cancel = 1;
    options.cancel = &cancel;
    first_run.n = 0;
    first_run.stop_at = SIZE_MAX;
    assert_int_equal(alea__score_tokens(core, &options, tokens, 100, collect, &first_run, &error),
                     ALEA_ECANCELLED);
    alea_core_close(core);
}

static void count_work(void *user, size_t computed) {
    *(size_t *)user = computed;
}

static void test_progress_ends_at_the_work_that_was_told(void **state) {
    (void)state;
    int32_t tokens[MOST_TOKENS];
    fill_tokens(tokens, MOST_TOKENS);
    alea_core *core = open_toy("", 64, 24, 10);
    for (int32_t window = 1; window <= 64; window += 9)
        for (int32_t stride = 1; stride <= window; stride += 5)
            for (size_t n = 1; n < 200; n += 13) {
                size_t computed = 0;
                alea_score_options options = base_options();
                options.top = 0;
                options.window_tokens = window;
                options.stride_tokens = stride;
                options.progress = count_work;
                options.progress_user = &computed;
                run(core, &options, tokens, n, &first_run);
                assert_int_equal(computed, alea__score_work_tokens(n, window, stride));
            }
    alea_core_close(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_token_has_the_window_with_most_context),
        cmocka_unit_test(test_block_size_never_changes_a_bit),
        cmocka_unit_test(test_threads_never_change_a_bit),
        cmocka_unit_test(test_a_bad_row_names_its_position),
        cmocka_unit_test(test_context_may_be_exactly_full),
        cmocka_unit_test(test_a_single_token_has_nothing_to_score),
        cmocka_unit_test(test_parameters_outside_their_domain_are_named),
        cmocka_unit_test(test_cancel_and_sink_stop_the_run),
        cmocka_unit_test(test_progress_ends_at_the_work_that_was_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
