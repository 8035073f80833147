/*
 * The tiny models stand for real ones in every other test, so they must load with every weight type
 * and vocabulary, spread their logits, heed the context, and have the same bytes everywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/models.h"

static const char *const types[] = {"f32", "f16", "bf16", "q4_0", "q4_1", "q8_0", "q4_k", "q6_k"};

enum { N_TYPES = sizeof types / sizeof *types, N_PROMPT = 48, VOCAB_MAX = 1024 };

static uint64_t hash_of_file(const char *path) { /* FNV-1a */
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int c; (c = getc(file)) != EOF;)
        hash = (hash ^ (uint64_t)c) * UINT64_C(0x100000001b3);
    fclose(file);
    return hash;
}

static void test_bytes_depend_on_the_options_alone(void **state) {
    (void)state;
    static const struct {
        const char *options;
        uint64_t hash;
    } known[] = {
        {"", UINT64_C(0xad760fd4a1121421)},
        {"--type q4_0", UINT64_C(0x7582fe4651dbc126)},
        {"--type q4_k --vocab spm --seed 7", UINT64_C(0x67db3da44b4f07bd)},
        {"--type q6_k --chat-template", UINT64_C(0xaadb3f33043781ab)},
        {"--type bf16 --embedding-only", UINT64_C(0x94c4ca24c42b0024)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char path[MODEL_PATH_BYTES];
        tiny_model(known[i].options, path);
        const uint64_t hash = hash_of_file(path);
        if (hash != known[i].hash)
            fail_msg("\"%s\" has the hash 0x%016llx", known[i].options, (unsigned long long)hash);
    }
}

/* The row behind the last token. */
static void last_row(alea_core *core, const int32_t *tokens, float *row) {
    const alea_round_item item = {
        0, 0, N_PROMPT - 1, {ALEA_SPAN_TOKENS, N_PROMPT, tokens, {NULL, 0}}};
    int32_t n_rows;
    alea_error error = {.status = ALEA_OK};
    if (alea_core_run(core, &(alea_round){&item, 1}, &n_rows, &error) < 0)
        fail_msg("%s", error.message);
    memcpy(row, alea_core_row(core, 0), (size_t)core->vocab * sizeof *row);
    assert_int_equal(alea_core_sequence_trim(core, 0, 0, NULL), ALEA_OK);
}

static void check_spread(const float *row, int32_t vocab, const char *options) {
    double sum = 0, squares = 0, largest = 0;
    for (int32_t i = 0; i < vocab; i++) {
        assert_true(isfinite(row[i]));
        sum += (double)row[i];
        squares += (double)row[i] * (double)row[i];
        largest = fmax(largest, fabs((double)row[i]));
    }
    const double deviation = sqrt(squares / vocab - (sum / vocab) * (sum / vocab));
    if (deviation < 2 || deviation > 5 || largest < 6 || largest > 25)
        fail_msg("%s: logits deviate by %.2f and reach %.2f", options, deviation, largest);
}

/* How far two rows are apart: the mean absolute difference of their logits. */
static double distance(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += fabs((double)a[i] - (double)b[i]);
    return sum / n;
}

static void check_model(const char *options) {
    char path[MODEL_PATH_BYTES];
    tiny_model(options, path);
    alea_core *core = open_llama(path, 0, 0, 0, 0, 1);
    assert_in_range(core->vocab, 320, 600);
    int32_t tokens[N_PROMPT];
    float row[VOCAB_MAX], other[VOCAB_MAX];
    for (int32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = 10 + (i * 37) % 250;
    last_row(core, tokens, row);
    check_spread(row, core->vocab, options);
    tokens[0]++; /* far behind the row */
    last_row(core, tokens, other);
    assert_true(distance(row, other, core->vocab) > 1e-3);
    tokens[0]--;
    last_row(core, tokens, other);
    assert_memory_equal(row, other, (size_t)core->vocab * sizeof *row);
    alea_core_close(core);
}

static void test_every_type_and_vocabulary_loads_and_heeds_its_context(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (int spm = 0; spm < 2; spm++) {
            char options[64];
            snprintf(options, sizeof options, "--type %s --vocab %s", types[i],
                     spm ? "spm" : "bpe --pre smollm --layers 3");
            check_model(options);
        }
}

static void test_another_seed_is_another_model(void **state) {
    (void)state;
    float rows[2][VOCAB_MAX];
    int32_t tokens[N_PROMPT];
    int32_t vocab = 0;
    for (int32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = 10 + i;
    for (int seed = 0; seed < 2; seed++) {
        char path[MODEL_PATH_BYTES], options[32];
        snprintf(options, sizeof options, "--seed %d", seed + 1);
        tiny_model(options, path);
        alea_core *core = open_llama(path, 0, 0, 0, 0, 1);
        vocab = core->vocab;
        last_row(core, tokens, rows[seed]);
        alea_core_close(core);
    }
    assert_true(distance(rows[0], rows[1], vocab) > 1);
}

static int clean_up(void **state) {
    (void)state;
    remove_models();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_depend_on_the_options_alone),
        cmocka_unit_test(test_every_type_and_vocabulary_loads_and_heeds_its_context),
        cmocka_unit_test(test_another_seed_is_another_model),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
