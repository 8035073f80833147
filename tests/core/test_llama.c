/*
 * The libllama core as its callers see it: what it says about a model, its token table, its
 * sequences, and one clear line for each way in which a model can be unusable.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/llama/core_llama.h"
#include "core/models.h"

static alea_bytes text_of(const char *text) {
    return (alea_bytes){(const uint8_t *)text, strlen(text)};
}

/* ---- refusals ---- */

static void assert_refused(const char *path, alea_core_options options, alea_status status,
                           const char *word) {
    alea_core *core = NULL;
    alea_error error = {.status = ALEA_OK};
    options.struct_bytes = sizeof options;
    options.model = path;
    const alea_status got = alea_core_open(alea__core_llama(), &options, &core, &error);
    if (got != status) fail_msg("status %d: %s", got, error.message);
    if (!strstr(error.message, word)) fail_msg("'%s' lacks '%s'", error.message, word);
    if (strchr(error.message, '\n')) fail_msg("more than one line: %s", error.message);
    assert_null(core);
}

static void write_file(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void test_each_unusable_path_has_its_own_line(void **state) {
    (void)state;
    const alea_core_options options = {.flags = 0};
    char path[MODEL_PATH_BYTES];
    scratch_path("nothing-here.gguf", path);
    assert_refused(path, options, ALEA_EIO, "No such file");
    scratch_path("", path);
    assert_refused(path, options, ALEA_EIO, "directory");
    assert_refused("/dev/null", options, ALEA_EIO, "regular file");
    assert_refused("", options, ALEA_EIO, "No such file");
    scratch_path("text.gguf", path);
    write_file(path, "once upon a time", 16);
    assert_refused(path, options, ALEA_EFORMAT, "not a GGUF file");
    write_file(path, "", 0);
    assert_refused(path, options, ALEA_EFORMAT, "truncated");
    write_file(path, "GGUF\1\0\0\0", 8);
    assert_refused(path, options, ALEA_EUNSUPPORTED, "version 1");
    write_file(path, "GGUF\0\0\0\3", 8);
    assert_refused(path, options, ALEA_EUNSUPPORTED, "big-endian");
}

static void test_a_truncated_model_is_named_so(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    tiny_model("--type q8_0", path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const long bytes = ftell(file);
    fclose(file);
    assert_int_equal(truncate(path, bytes - 4096), 0);
    assert_refused(path, (alea_core_options){.flags = 0}, ALEA_EFORMAT, "truncated");
}

static void test_models_that_cannot_generate_are_refused(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    tiny_model("--embedding-only", path);
    assert_refused(path, (alea_core_options){.flags = 0}, ALEA_EUNSUPPORTED, "embedding model");
    tiny_model("--architecture no-such-thing", path);
    assert_refused(path, (alea_core_options){.flags = 0}, ALEA_EFORMAT, "no-such-thing");
    tiny_model("--architecture gpt2", path); /* other tensors than a llama has */
    assert_refused(path, (alea_core_options){.flags = 0}, ALEA_EFORMAT, "libllama");
}

static bool refuse_progress(float done, void *user) {
    (void)done;
    (*(int *)user)++;
    return false;
}

/* The trial would call this model damaged; whoever cancels does not wait for it. */
static void test_opening_is_cancelled_before_the_trial_ends(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    int calls = 0;
    tiny_model("--architecture gpt2", path);
    assert_refused(path, (alea_core_options){.progress = refuse_progress, .progress_user = &calls},
                   ALEA_ECANCELLED, "cancelled");
    assert_int_equal(calls, 1);
}

static void test_a_context_is_refused_before_memory_is_taken(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    tiny_model("--type f32", path);
    assert_refused(path, (alea_core_options){.context_tokens = 513}, ALEA_EINVAL, "at most 512");
    assert_refused(path, (alea_core_options){.sequences = 257}, ALEA_EINVAL, "at most 256");
}

static void test_a_context_that_memory_cannot_hold_is_refused(void **state) {
    (void)state;
    const char *path = real_model();
    const long long bytes = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (!path || bytes > 40LL << 30) {
        print_message("SKIP: no real model, or 40 GiB of memory would hold its largest context\n");
        skip();
    }
    assert_refused(path, (alea_core_options){.sequences = 256}, ALEA_ENOMEM, "lower the context");
}

/* ---- facts and tokens ---- */

static void test_describe_tells_what_was_opened(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    alea_core_info info;
    tiny_model("--type q4_0 --chat-template", path);
    alea_core *core = open_llama(path, 0, 300, 3, 16, 1);
    alea_core_describe(core, &info);
    assert_string_equal(info.core, "llama");
    assert_non_null(strstr(info.model, ", "));
    assert_non_null(strstr(info.model, "Q4_0"));
    assert_string_equal(info.architecture, "llama");
    assert_string_equal(info.tokenizer, "BPE");
    assert_non_null(strstr(info.build, "batch-invariant"));
    assert_non_null(info.chat_template);
    assert_int_equal(info.context_tokens, 300);
    assert_int_equal(info.trained_context_tokens, 512);
    assert_int_equal(info.sequences, 3);
    assert_int_equal(info.round_tokens, 512);
    assert_int_equal(info.round_rows, 16);
    assert_int_equal(info.threads, 1);
    assert_int_equal(info.layers, 2);
    /* 512 cells for 300 tokens; K and V of 2 heads of 64 in F16, twice (layers), three streams */
    assert_int_equal(info.cache_bytes, 3 * 512 * 2 * 2 * 64 * 2 * 2);
    assert_int_equal(info.row_bytes, (uint64_t)info.vocab * 16 * sizeof(float));
    assert_true(info.batch_invariant);
    alea_core_close(core);
}

static void test_a_vocabulary_opens_without_weights(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    int32_t tokens[32];
    size_t count = 0;
    alea_core_info info;
    tiny_model("--type f32", path);
    alea_core *core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 0);
    alea_core_describe(core, &info);
    assert_int_equal(info.context_tokens, 0);
    assert_false(info.batch_invariant);
    assert_int_equal(alea_core_tokenize(core, text_of("Hello"), 0, tokens, 32, &count), ALEA_OK);
    assert_true(count > 0);
    alea_core_close(core);
}

/* The text comes back from the bytes; SPM may put one space in front, as the model asks. */
static void assert_round_trip(alea_core *core, const char *text, bool spm) {
    int32_t tokens[256];
    size_t count = 0;
    char back[512];
    size_t used = 0;
    assert_int_equal(alea_core_tokenize(core, text_of(text), 0, tokens, 256, &count), ALEA_OK);
    assert_true(count <= 256);
    for (size_t i = 0; i < count; i++) {
        alea_token_info info;
        assert_int_equal(alea_core_token(core, tokens[i], &info), ALEA_OK);
        assert_true(used + info.bytes.length < sizeof back);
        memcpy(back + used, info.bytes.data, info.bytes.length);
        used += info.bytes.length;
    }
    back[used] = '\0';
    assert_string_equal(spm && back[0] == ' ' ? back + 1 : back, text);
}

static void try_round_trips(alea_core *core, bool spm) {
    assert_round_trip(core, "Hello, world! 12345", spm);
    assert_round_trip(core, "a\nb\t c  d", spm);
    assert_round_trip(core, "\xc3\xa9t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x99\x82", spm);
}

static void test_bytes_of_tokens_give_the_text_back(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    tiny_model("--vocab bpe", path);
    alea_core *core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 0);
    try_round_trips(core, false);
    alea_core_close(core);
    tiny_model("--vocab spm", path);
    core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 0);
    try_round_trips(core, true);
    alea_core_close(core);
}

static void test_tokenizing_tells_how_much_room_it_needs(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    int32_t tokens[64];
    size_t needed = 0;
    size_t count = 0;
    tiny_model("--vocab bpe", path);
    alea_core *core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 0);
    const alea_bytes text = text_of("one two three");
    assert_int_equal(alea_core_tokenize(core, text, 0, NULL, 0, &needed), ALEA_OK);
    assert_int_equal(alea_core_tokenize(core, text, 0, tokens, needed, &count), ALEA_OK);
    assert_int_equal(count, needed);
    assert_int_equal(alea_core_tokenize(core, text_of(""), 0, tokens, 64, &count), ALEA_OK);
    assert_int_equal(count, 0);
    assert_int_equal(alea_core_tokenize(core, text_of("a\xff z"), 0, tokens, 64, &count),
                     ALEA_EFORMAT);
    assert_int_equal(alea_core_tokenize(core, text_of("\xed\xa0\x80"), 0, tokens, 64, &count),
                     ALEA_EFORMAT);
    alea_core_close(core);
}

/* Names of control tokens in a text are text, unless the caller vouches for it. */
static void test_markup_is_read_on_request_only(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    int32_t tokens[64];
    size_t count = 0;
    alea_core_info info;
    alea_token_info eos;
    tiny_model("--vocab bpe", path);
    alea_core *core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 0);
    alea_core_describe(core, &info);
    assert_int_equal(alea_core_token(core, info.eos, &eos), ALEA_OK);
    assert_int_equal(eos.bytes.length, 0);
    assert_true(eos.name.length > 0);
    assert_int_equal(eos.flags & (ALEA_TOKEN_CONTROL | ALEA_TOKEN_END),
                     ALEA_TOKEN_CONTROL | ALEA_TOKEN_END);
    assert_int_equal(alea_core_tokenize(core, eos.name, ALEA_TOKENIZE_MARKUP, tokens, 64, &count),
                     ALEA_OK);
    assert_int_equal(count, 1);
    assert_int_equal(tokens[0], info.eos);
    assert_int_equal(alea_core_tokenize(core, eos.name, 0, tokens, 64, &count), ALEA_OK);
    assert_true(count > 1);
    for (size_t i = 0; i < count; i++)
        assert_int_not_equal(tokens[i], info.eos);
    alea_core_close(core);
}

static void test_every_token_has_a_name_and_spm_bytes_are_bytes(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    alea_core_info info;
    int32_t n_bytes = 0;
    tiny_model("--vocab spm", path);
    alea_core *core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 0);
    alea_core_describe(core, &info);
    for (int32_t token = 0; token < info.vocab; token++) {
        alea_token_info about;
        assert_int_equal(alea_core_token(core, token, &about), ALEA_OK);
        assert_true(about.name.length > 0);
        if ((about.flags & ALEA_TOKEN_BYTE) == 0) continue;
        assert_int_equal(about.bytes.length, 1);
        n_bytes++;
    }
    assert_int_equal(n_bytes, 256);
    alea_core_close(core);
}

/* ---- sequences ---- */

static alea_status run(alea_core *core, int32_t sequence, int32_t position, int32_t length,
                       int32_t first_row, const int32_t *tokens, alea_error *error) {
    const alea_round_item item = {
        sequence, position, first_row, {ALEA_SPAN_TOKENS, length, tokens, {NULL, 0}}};
    int32_t rows = 0;
    return alea_core_run(core, &(alea_round){&item, 1}, &rows, error);
}

static void test_sequences_grow_are_cut_and_are_copied(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    const int32_t tokens[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    alea_core_info info;
    tiny_model("--type f32", path);
    alea_core *core = open_llama(path, 0, 0, 2, 8, 1);
    alea_core_describe(core, &info);
    assert_int_equal(run(core, 0, 0, 8, 7, tokens, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(core, 0), 8);
    const float *row = alea_core_row(core, 0);
    assert_non_null(row);
    for (int32_t i = 0; i < info.vocab; i++)
        assert_true(isfinite(row[i]));
    assert_int_equal(alea_core_sequence_copy(core, 0, 1, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_trim(core, 0, 3, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(core, 0), 3);
    assert_int_equal(alea_core_sequence_length(core, 1), 8);
    assert_int_equal(run(core, 1, 8, 1, 0, tokens, NULL), ALEA_OK);
    assert_int_equal(run(core, 0, 3, 2, 2, tokens, NULL), ALEA_OK); /* no row at all */
    assert_null(alea_core_row(core, 0));
    /* An empty sequence copies as an empty one. */
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_copy(core, 0, 1, NULL), ALEA_OK);
    assert_int_equal(alea_core_sequence_length(core, 1), 0);
    assert_int_equal(run(core, 1, 0, 8, 7, tokens, NULL), ALEA_OK);
    alea_core_close(core);
}

static void test_a_sequence_fills_its_context_and_no_more(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    int32_t tokens[300];
    alea_error error = {.status = ALEA_OK};
    for (int32_t i = 0; i < 300; i++)
        tokens[i] = 5 + i % 100;
    tiny_model("--type f32", path);
    alea_core *core = open_llama(path, 0, 300, 2, 0, 1);
    assert_int_equal(run(core, 1, 0, 300, 299, tokens, &error), ALEA_OK);
    assert_int_equal(run(core, 1, 300, 1, 0, tokens, &error), ALEA_ECONTEXT);
    assert_int_equal(run(core, 0, 0, 300, 299, tokens, &error), ALEA_OK);
    const alea_round_item opaque = {0, 0, 1, {ALEA_SPAN_OPAQUE, 1, NULL, text_of("png")}};
    int32_t rows = 0;
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, NULL), ALEA_OK);
    assert_int_equal(alea_core_run(core, &(alea_round){&opaque, 1}, &rows, &error),
                     ALEA_EUNSUPPORTED);
    alea_core_close(core);
}

/* Items in any order of sequences: row i belongs to the items in the order they were given. */
static void test_rows_come_in_the_order_of_the_items(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    const int32_t a[3] = {20, 21, 22};
    const int32_t b[2] = {90, 91};
    alea_core_info info;
    int32_t rows = 0;
    tiny_model("--type f32", path);
    alea_core *core = open_llama(path, 0, 0, 3, 8, 2);
    alea_core_describe(core, &info);
    const size_t bytes = (size_t)info.vocab * sizeof(float);
    float *kept = malloc(5 * bytes);
    assert_non_null(kept);
    const alea_round_item forward[2] = {{0, 0, 0, {ALEA_SPAN_TOKENS, 3, a, {NULL, 0}}},
                                        {2, 0, 0, {ALEA_SPAN_TOKENS, 2, b, {NULL, 0}}}};
    const alea_round_item backward[2] = {{2, 0, 0, {ALEA_SPAN_TOKENS, 3, a, {NULL, 0}}},
                                         {0, 0, 0, {ALEA_SPAN_TOKENS, 2, b, {NULL, 0}}}};
    assert_int_equal(alea_core_run(core, &(alea_round){forward, 2}, &rows, NULL), ALEA_OK);
    assert_int_equal(rows, 5);
    for (int32_t i = 0; i < 5; i++)
        memcpy((char *)kept + (size_t)i * bytes, alea_core_row(core, i), bytes);
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(alea_core_sequence_trim(core, i, 0, NULL), ALEA_OK);
    assert_int_equal(alea_core_run(core, &(alea_round){backward, 2}, &rows, NULL), ALEA_OK);
    for (int32_t i = 0; i < 5; i++)
        assert_memory_equal((char *)kept + (size_t)i * bytes, alea_core_row(core, i), bytes);
    free(kept);
    alea_core_close(core);
}

/* The ids of this process's threads, added up; *n is how many there are. */
static long thread_ids(int *n) {
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    long sum = 0;
    *n = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const long id = strtol(entry->d_name, NULL, 10);
        sum += id;
        *n += id > 0;
    }
    closedir(folder);
    return sum;
}

/* A thread made anew for a round may be put beside another one, and the round takes three times as
 * long. */
static void test_rounds_are_computed_by_the_same_threads(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    const int32_t tokens[3] = {20, 21, 22};
    int before = 0, with_core = 0, later = 0;
    alea_error error;
    tiny_model("--type f32", path);
    thread_ids(&before);
    alea_core *core = open_llama(path, 0, 0, 1, 8, 3);
    const long ids = thread_ids(&with_core);
    assert_int_equal(with_core, before + 2);
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(run(core, 0, i, 1, 0, tokens, &error), ALEA_OK);
    assert_int_equal(thread_ids(&later), ids);
    assert_int_equal(later, with_core);
    alea_core_close(core);
}

static bool stop_at_once(float done, void *user) {
    (void)done;
    ++*(int *)user;
    return false;
}

static void test_loading_can_be_cancelled(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    int calls = 0;
    tiny_model("--type f32", path);
    const alea_core_options options = {.progress = stop_at_once, .progress_user = &calls};
    assert_refused(path, options, ALEA_ECANCELLED, "cancelled");
    assert_true(calls > 0);
}

static int group_teardown(void **state) {
    (void)state;
    remove_models();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_unusable_path_has_its_own_line),
        cmocka_unit_test(test_a_truncated_model_is_named_so),
        cmocka_unit_test(test_models_that_cannot_generate_are_refused),
        cmocka_unit_test(test_opening_is_cancelled_before_the_trial_ends),
        cmocka_unit_test(test_a_context_is_refused_before_memory_is_taken),
        cmocka_unit_test(test_a_context_that_memory_cannot_hold_is_refused),
        cmocka_unit_test(test_describe_tells_what_was_opened),
        cmocka_unit_test(test_a_vocabulary_opens_without_weights),
        cmocka_unit_test(test_bytes_of_tokens_give_the_text_back),
        cmocka_unit_test(test_tokenizing_tells_how_much_room_it_needs),
        cmocka_unit_test(test_markup_is_read_on_request_only),
        cmocka_unit_test(test_every_token_has_a_name_and_spm_bytes_are_bytes),
        cmocka_unit_test(test_sequences_grow_are_cut_and_are_copied),
        cmocka_unit_test(test_a_sequence_fills_its_context_and_no_more),
        cmocka_unit_test(test_rows_come_in_the_order_of_the_items),
        cmocka_unit_test(test_rounds_are_computed_by_the_same_threads),
        cmocka_unit_test(test_loading_can_be_cancelled),
    };
    return cmocka_run_group_tests_name("llama", tests, NULL, group_teardown);
}
