/*
 * The toy core is what judges everything above a core, so it is judged itself: every position of a
 * context matters, chunks and neighbours do not, and each fault comes when it was asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alea/core.h"

enum { N_PROMPT = 24 };

static const int32_t prompt[N_PROMPT] = {256, 'T', 'h', 'e', ' ', 'q', 'u', 'i', 'c', 'k', 264, 1,
                                         0,   255, 97,  97,  97,  300, 7,   7,   261, 10,  11,  12};

static alea_core *open_model(const char *model) {
    const alea_core_options options = {.struct_bytes = sizeof options, .model = model};
    alea_core *core = NULL;
    alea_error error = {.status = ALEA_OK};
    if (alea_core_open(alea_core_toy(), &options, &core, &error) < 0) fail_msg("%s", error.message);
    return core;
}

static alea_round_item tokens_item(int32_t sequence, int32_t position, int32_t first_row,
                                   const int32_t *tokens, int32_t n) {
    return (alea_round_item){
        sequence, position, first_row, {ALEA_SPAN_TOKENS, n, tokens, {NULL, 0}}};
}

static alea_round_item opaque_item(int32_t position, int32_t length, const char *content) {
    return (alea_round_item){
        0,
        position,
        0,
        {ALEA_SPAN_OPAQUE, length, NULL, {(const uint8_t *)content, strlen(content)}}};
}

static void run_one(alea_core *core, alea_round_item item) {
    int32_t n_rows;
    alea_error error = {.status = ALEA_OK};
    if (alea_core_run(core, &(alea_round){&item, 1}, &n_rows, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(n_rows, item.span.length - item.first_row);
}

static size_t row_bytes(const alea_core *core) {
    return (size_t)core->vocab * sizeof(float);
}

/* Rows of the whole prompt, run at once in sequence 0: [N_PROMPT, vocab], to be freed. */
static float *rows_of_prompt(const char *model, const int32_t *tokens) {
    alea_core *core = open_model(model);
    run_one(core, tokens_item(0, 0, 0, tokens, N_PROMPT));
    float *rows = malloc(N_PROMPT * row_bytes(core));
    for (int32_t i = 0; i < N_PROMPT; i++)
        memcpy(rows + i * core->vocab, alea_core_row(core, i), row_bytes(core));
    alea_core_close(core);
    return rows;
}

static void test_rows_do_not_depend_on_chunks(void **state) {
    (void)state;
    float *right = rows_of_prompt("", prompt);
    for (int32_t chunk = 1; chunk <= N_PROMPT; chunk++) {
        alea_core *core = open_model("");
        for (int32_t at = 0; at < N_PROMPT; at += chunk) {
            const int32_t n = at + chunk < N_PROMPT ? chunk : N_PROMPT - at;
            run_one(core, tokens_item(0, at, 0, prompt + at, n));
            for (int32_t i = 0; i < n; i++)
                assert_memory_equal(alea_core_row(core, i), right + (at + i) * core->vocab,
                                    row_bytes(core));
        }
        alea_core_close(core);
    }
    free(right);
}

static void test_rows_do_not_depend_on_neighbours(void **state) {
    (void)state;
    float *right = rows_of_prompt("", prompt);
    alea_core *core = open_model("sequences=3");
    const int32_t stranger[] = {1, 2, 3, 4, 5};
    const alea_round_item items[] = {tokens_item(2, 0, 3, stranger, 5),
                                     tokens_item(1, 0, N_PROMPT - 2, prompt, N_PROMPT),
                                     tokens_item(0, 0, 5, stranger, 5)};
    int32_t n_rows;
    assert_int_equal(alea_core_run(core, &(alea_round){items, 3}, &n_rows, NULL), ALEA_OK);
    assert_int_equal(n_rows, 4);
    assert_memory_equal(alea_core_row(core, 2), right + (N_PROMPT - 2) * core->vocab,
                        row_bytes(core));
    assert_memory_equal(alea_core_row(core, 3), right + (N_PROMPT - 1) * core->vocab,
                        row_bytes(core));
    alea_core_close(core);
    free(right);
}

static void test_every_position_of_the_context_matters(void **state) {
    (void)state;
    float *right = rows_of_prompt("", prompt);
    for (int32_t changed = 0; changed < N_PROMPT; changed++) {
        int32_t other[N_PROMPT];
        memcpy(other, prompt, sizeof prompt);
        other[changed] ^= 1;
        float *rows = rows_of_prompt("", other);
        for (int32_t i = 0; i < N_PROMPT; i++)
            assert_int_equal(!memcmp(rows + i * 320, right + i * 320, 320 * sizeof *rows),
                             i < changed);
        free(rows);
    }
    float *reseeded = rows_of_prompt("seed=2", prompt);
    assert_true(memcmp(reseeded, right, 320 * sizeof *right) != 0);
    free(reseeded);
    free(right);
}

/* Of a sequence that holds 'a', an image and 'b': the image's first row and the last row. */
static void rows_with_image(const char *content, int32_t length, float *inside, float *row) {
    alea_core *core = open_model("");
    const int32_t a = 'a', b = 'b';
    run_one(core, tokens_item(0, 0, 0, &a, 1));
    run_one(core, opaque_item(1, length, content));
    memcpy(inside, alea_core_row(core, 0), row_bytes(core));
    run_one(core, tokens_item(0, 1 + length, 0, &b, 1));
    memcpy(row, alea_core_row(core, 0), row_bytes(core));
    alea_core_close(core);
}

static void test_opaque_spans_are_context_by_content_and_length(void **state) {
    (void)state;
    enum { ONE, SAME, OTHER, LONGER };
    static float inside[4][320], last[4][320];
    rows_with_image("a cat", 4, inside[ONE], last[ONE]);
    rows_with_image("a cat", 4, inside[SAME], last[SAME]);
    rows_with_image("a dog", 4, inside[OTHER], last[OTHER]);
    rows_with_image("a cat", 5, inside[LONGER], last[LONGER]);
    assert_memory_equal(inside[ONE], inside[SAME], sizeof inside[ONE]);
    assert_memory_equal(last[ONE], last[SAME], sizeof last[ONE]);
    for (int other = OTHER; other <= LONGER; other++) {
        assert_true(memcmp(inside[ONE], inside[other], sizeof inside[ONE]) != 0);
        assert_true(memcmp(last[ONE], last[other], sizeof last[ONE]) != 0);
    }
}

static void test_copied_and_trimmed_sequences_continue_as_if_run_alone(void **state) {
    (void)state;
    float *right = rows_of_prompt("", prompt);
    alea_core *core = open_model("sequences=2");
    const int32_t wrong[] = {9, 9, 9};
    run_one(core, tokens_item(0, 0, 10, prompt, 10));
    run_one(core, tokens_item(1, 0, 3, wrong, 3));
    assert_int_equal(alea_core_sequence_copy(core, 0, 1, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(core, 1), 10);
    run_one(core, tokens_item(0, 10, 3, wrong, 3));
    run_one(core, tokens_item(1, 10, 0, prompt + 10, 1));
    assert_memory_equal(alea_core_row(core, 0), right + 10 * core->vocab, row_bytes(core));

    assert_int_equal(alea_core_sequence_trim(core, 0, 7, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(core, 0), 7);
    run_one(core, tokens_item(0, 7, 0, prompt + 7, 1));
    assert_memory_equal(alea_core_row(core, 0), right + 7 * core->vocab, row_bytes(core));
    alea_core_close(core);
    free(right);
}

static void test_a_core_without_trim_drops_whole_sequences_only(void **state) {
    (void)state;
    alea_core *core = open_model("trim=0");
    run_one(core, tokens_item(0, 0, 4, prompt, 4));
    assert_int_equal(alea_core_sequence_trim(core, 0, 2, NULL), ALEA_EUNSUPPORTED);
    assert_int_equal(alea_core_sequence_length(core, 0), 4);
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(core, 0), 0);
    alea_core_close(core);
}

static const float *first_row(alea_core *core, const int32_t *tokens, int32_t n) {
    run_one(core, tokens_item(0, 0, n - 1, tokens, n));
    return alea_core_row(core, 0);
}

static int32_t best_of(const float *row, int32_t vocab) {
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static void test_peak_counts_up_and_leads_by_what_was_asked(void **state) {
    (void)state;
    for (int32_t token = 0; token < 320; token++) {
        alea_core *core = open_model("peak=25");
        const float *row = first_row(core, &token, 1);
        assert_int_equal(best_of(row, 320), (token + 1) % 320);
        for (int32_t i = 0; i < 320; i++)
            if (i != (token + 1) % 320) assert_true(row[(token + 1) % 320] - row[i] >= 25.0f);
        alea_core_close(core);
    }
}

static int compare_floats(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int32_t count_distinct(const float *row, int32_t vocab) {
    float sorted[320];
    memcpy(sorted, row, (size_t)vocab * sizeof *row);
    qsort(sorted, (size_t)vocab, sizeof *sorted, compare_floats);
    int32_t count = 1;
    for (int32_t i = 1; i < vocab; i++)
        count += sorted[i] != sorted[i - 1];
    return count;
}

static void test_rows_have_the_shape_that_was_asked_for(void **state) {
    (void)state;
    alea_core *core = open_model("");
    const float *row = first_row(core, prompt, N_PROMPT);
    for (int32_t i = 0; i < 320; i++)
        assert_true(row[i] >= -10.0f && row[i] < 10.0f);
    assert_true(count_distinct(row, 320) > 310);
    alea_core_close(core);

    core = open_model("ties=4");
    assert_int_equal(count_distinct(first_row(core, prompt, N_PROMPT), 320), 4);
    alea_core_close(core);

    core = open_model("holes=50");
    row = first_row(core, prompt, N_PROMPT);
    int32_t holes = 0;
    for (int32_t i = 0; i < 320; i++)
        holes += row[i] == -INFINITY;
    assert_in_range(holes, 120, 200);
    alea_core_close(core);

    core = open_model("holes=100");
    row = first_row(core, prompt, N_PROMPT);
    holes = 0;
    for (int32_t i = 0; i < 320; i++)
        holes += row[i] == -INFINITY;
    assert_int_equal(holes, 319);
    alea_core_close(core);
}

static void test_text_mode_writes_characters_and_ends(void **state) {
    (void)state;
    alea_core *core = open_model("text=1,context=4096");
    int32_t token = 256, n_ends = 0, n_letters = 0;
    for (int32_t i = 0; i < 4000; i++) {
        run_one(core, tokens_item(0, i, 0, &token, 1));
        token = best_of(alea_core_row(core, 0), 320);
        alea_token_info info;
        assert_int_equal(alea_core_token(core, token, &info), ALEA_OK);
        n_ends += (info.flags & ALEA_TOKEN_END) != 0;
        for (size_t b = 0; b < info.bytes.length; b++)
            n_letters += info.bytes.data[b] == ' ' ||
                         (info.bytes.data[b] >= 'a' && info.bytes.data[b] <= 'z');
    }
    assert_in_range(n_ends, 1, 400);
    assert_true(n_letters > 2000);
    alea_core_close(core);
}

static void test_bad_rows_come_where_they_were_asked_for(void **state) {
    (void)state;
    static const struct {
        const char *model;
        bool nan, inf, empty;
    } cases[] = {
        {"nan_at=5,sequences=2,fault_sequence=1", true, false, false},
        {"inf_at=5,sequences=2,fault_sequence=1", false, true, false},
        {"empty_at=5,sequences=2,fault_sequence=1", false, false, true},
    };
    for (size_t c = 0; c < 3; c++) {
        alea_core *core = open_model(cases[c].model);
        const alea_round_item items[] = {tokens_item(0, 0, 0, prompt, 8),
                                         tokens_item(1, 0, 0, prompt, 8)};
        int32_t n_rows;
        assert_int_equal(alea_core_run(core, &(alea_round){items, 2}, &n_rows, NULL), ALEA_OK);
        for (int32_t r = 0; r < n_rows; r++) {
            const float *row = alea_core_row(core, r);
            int32_t n_nan = 0, n_inf = 0, n_finite = 0;
            for (int32_t i = 0; i < 320; i++) {
                n_nan += isnan(row[i]) != 0;
                n_inf += row[i] == INFINITY;
                n_finite += isfinite(row[i]) != 0;
            }
            const bool here = r == 8 + 5;
            assert_int_equal(n_nan > 0, here && cases[c].nan);
            assert_int_equal(n_inf > 0, here && cases[c].inf);
            assert_int_equal(n_finite == 0, here && cases[c].empty);
        }
        alea_core_close(core);
    }
}

static void test_rounds_fail_when_they_were_asked_to(void **state) {
    (void)state;
    alea_core *core = open_model("refuse_at=1,fail_at=2");
    alea_error error = {.status = ALEA_OK};
    int32_t n_rows = -7;
    run_one(core, tokens_item(0, 0, 0, prompt, 2));

    const alea_round_item next = tokens_item(0, 2, 0, prompt + 2, 1);
    assert_int_equal(alea_core_run(core, &(alea_round){&next, 1}, &n_rows, &error), ALEA_ECORE);
    assert_string_equal(error.message, "toy model: round 1 was refused, as asked");
    assert_int_equal(n_rows, -7);
    assert_int_equal(alea_core_sequence_length(core, 0), 2);

    assert_int_equal(alea_core_run(core, &(alea_round){&next, 1}, &n_rows, &error), ALEA_ECORE);
    assert_string_equal(error.message, "toy model: round 2 failed, as asked");
    assert_null(alea_core_row(core, 0));

    assert_int_equal(alea_core_sequence_trim(core, 0, 2, NULL), ALEA_OK);
    run_one(core, next);
    assert_non_null(alea_core_row(core, 0));
    alea_core_close(core);
}

static void test_slow_rounds_are_slow(void **state) {
    (void)state;
    alea_core *core = open_model("slow_ms=30");
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    run_one(core, tokens_item(0, 0, 0, prompt, 1));
    clock_gettime(CLOCK_MONOTONIC, &after);
    const int64_t ms =
        (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    assert_true(ms >= 30);
    alea_core_close(core);
}

static void test_bad_model_strings_name_what_is_wrong(void **state) {
    (void)state;
    static const struct {
        const char *model, *part;
    } cases[] = {
        {"vocab", "\"vocab\" is not of the form"},
        {"vocab=", "vocab must be a number in 261..4194304"},
        {"vocab=260", "vocab must be a number in 261..4194304, not \"260\""},
        {"vocab=300x", "not \"300x\""},
        {"vocab=300,colour=1", "there is no setting \"colour\""},
        {"nan_at=99999999999999999999", "nan_at must be"},
        {"context=16777216,sequences=4096", "more than 1 GiB"},
        {"vocab=4194304", "more than 1 GiB"}, /* 64 rows of it */
        {"model.gguf", "is not of the form key=value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const alea_core_options options = {.struct_bytes = sizeof options, .model = cases[i].model};
        alea_core *core = NULL;
        alea_error error = {.status = ALEA_OK};
        assert_true(alea_core_open(alea_core_toy(), &options, &core, &error) < 0);
        assert_null(core);
        if (!strstr(error.message, cases[i].part))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].model, error.message, cases[i].part);
    }
}

static void test_tokens_join_to_the_text_and_markup_is_opt_in(void **state) {
    (void)state;
    alea_core *core = open_model("");
    const char *text = "the <|im_end|> the";
    const alea_bytes bytes = {(const uint8_t *)text, strlen(text)};
    int32_t tokens[32];
    size_t count;
    assert_int_equal(alea_core_tokenize(core, bytes, 0, tokens, 32, &count), ALEA_OK);
    assert_int_equal(count, 1 + 1 + 10 + 1); /* the, space, ten letters, " the" */
    for (size_t i = 0; i < count; i++)
        assert_true(tokens[i] != 259 && tokens[i] != 265);

    const uint32_t flags = ALEA_TOKENIZE_SPECIAL | ALEA_TOKENIZE_MARKUP;
    assert_int_equal(alea_core_tokenize(core, bytes, flags, tokens, 32, &count), ALEA_OK);
    const int32_t right[] = {256, 263, ' ', 259, 264};
    assert_int_equal(count, 5);
    assert_memory_equal(tokens, right, sizeof right);

    int32_t few[2] = {-5, -5};
    assert_int_equal(alea_core_tokenize(core, bytes, flags, few, 1, &count), ALEA_OK);
    assert_int_equal(count, 5);
    assert_int_equal(few[1], -5);
    assert_int_equal(alea_core_tokenize(core, bytes, flags, NULL, 0, &count), ALEA_OK);
    assert_int_equal(count, 5);
    alea_core_close(core);
}

static void test_two_ids_share_one_text_and_some_end_inside_a_character(void **state) {
    (void)state;
    alea_core *core = open_model("");
    alea_token_info one, twin;
    assert_int_equal(alea_core_token(core, 264, &one), ALEA_OK);
    assert_int_equal(alea_core_token(core, 265, &twin), ALEA_OK);
    assert_int_equal(one.bytes.length, twin.bytes.length);
    assert_memory_equal(one.bytes.data, twin.bytes.data, one.bytes.length);
    int32_t n_fragments = 0;
    for (int32_t i = 261; i < 320; i++) {
        assert_int_equal(alea_core_token(core, i, &one), ALEA_OK);
        if (one.bytes.length) n_fragments += one.bytes.data[one.bytes.length - 1] == 0x9a;
    }
    assert_int_equal(n_fragments, 2);
    alea_core_close(core);
}

static bool refuse_progress(float done, void *user) {
    (void)done;
    return *(const bool *)user;
}

static void test_opening_can_be_cancelled_or_stop_at_the_vocabulary(void **state) {
    (void)state;
    bool go_on = false;
    alea_core_options options = {.struct_bytes = sizeof options,
                                 .model = "",
                                 .progress = refuse_progress,
                                 .progress_user = &go_on};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_ECANCELLED);
    assert_null(core);

    go_on = true;
    options.flags = ALEA_CORE_VOCAB_ONLY;
    options.model = "vocab=4194304,context=16777216";
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    const alea_round_item item = tokens_item(0, 0, 0, prompt, 1);
    int32_t n_rows;
    assert_int_equal(alea_core_run(core, &(alea_round){&item, 1}, &n_rows, NULL),
                     ALEA_EUNSUPPORTED);
    alea_core_close(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_do_not_depend_on_chunks),
        cmocka_unit_test(test_rows_do_not_depend_on_neighbours),
        cmocka_unit_test(test_every_position_of_the_context_matters),
        cmocka_unit_test(test_opaque_spans_are_context_by_content_and_length),
        cmocka_unit_test(test_copied_and_trimmed_sequences_continue_as_if_run_alone),
        cmocka_unit_test(test_a_core_without_trim_drops_whole_sequences_only),
        cmocka_unit_test(test_peak_counts_up_and_leads_by_what_was_asked),
        cmocka_unit_test(test_rows_have_the_shape_that_was_asked_for),
        cmocka_unit_test(test_text_mode_writes_characters_and_ends),
        cmocka_unit_test(test_bad_rows_come_where_they_were_asked_for),
        cmocka_unit_test(test_rounds_fail_when_they_were_asked_to),
        cmocka_unit_test(test_slow_rounds_are_slow),
        cmocka_unit_test(test_bad_model_strings_name_what_is_wrong),
        cmocka_unit_test(test_tokens_join_to_the_text_and_markup_is_opt_in),
        cmocka_unit_test(test_two_ids_share_one_text_and_some_end_inside_a_character),
        cmocka_unit_test(test_opening_can_be_cancelled_or_stop_at_the_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
