/*
 * Text over whole vocabularies: byte-level BPE, SPM with byte fallback, the toy's and, where it is
 * there, the default model's. Whatever ids come, in whatever order, the decoder shows the text
 * that their joined bytes are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"
#include "core/models.h"
#include "support/utf8_oracle.h"
#include "text/stream.h"
#include "text/token_text.h"

enum { TOKENS_MAX = 1024, BYTES_MAX = 1 << 16 };

static const char mixed[] =
    "The probability of \"café\" — größer, привет мир, 中国的日本, مرحبا, नमस्ते!\r\n\n"
    "def f(x):\n    return x == 🙂 or '🚀👍🏽'\t\\x00\x7f<|im_end|>";
/* Tokens that an author added. libllama's SPM puts its own space behind each, as in front. */
static const char marked[] = "a <think>b</think>\n<think> 中</think>";

static alea_token_info info_of(const alea_core *core, int32_t token) {
    alea_token_info info;
    assert_int_equal(alea_core_token(core, token, &info), ALEA_OK);
    return info;
}

/* JSON-safe, never empty, and the bytes themselves or an escape of exactly them. */
static void check_shown(const alea_core *core, int32_t token) {
    static const char digits[] = "0123456789abcdef";
    const alea_token_info info = info_of(core, token);
    char out[4096];
    const size_t n = alea__token_text(&info, out, sizeof out);
    assert_true(n > 0 && n <= sizeof out);
    assert_true(alea__utf8_valid((alea_bytes){(const uint8_t *)out, n}));
    if (!info.bytes.length) return;
    if (n == info.bytes.length && !memcmp(out, info.bytes.data, n)) return;
    assert_false(alea__utf8_valid(info.bytes));
    assert_int_equal(n, 6 + 4 * info.bytes.length);
    assert_memory_equal(out, "bytes:", 6);
    for (size_t i = 0; i < info.bytes.length; i++) {
        assert_memory_equal(out + 6 + 4 * i, "\\x", 2);
        assert_int_equal(out[8 + 4 * i], digits[info.bytes.data[i] >> 4]);
        assert_int_equal(out[9 + 4 * i], digits[info.bytes.data[i] & 15]);
    }
}

/* Joined bytes of the tokens into `joined`; what the decoder shows must be what those bytes are. */
static size_t check_decoded(const alea_core *core, const int32_t *tokens, size_t n_tokens,
                            uint8_t *joined) {
    uint8_t *shown = malloc(3 * BYTES_MAX), *right = malloc(3 * BYTES_MAX);
    size_t *unit = malloc(BYTES_MAX * sizeof *unit), *starts = calloc(n_tokens + 1, sizeof *starts);
    uint64_t *offsets = calloc(n_tokens + 1, sizeof *offsets);
    size_t n = 0, n_shown = 0;
    alea_text_stream stream = {0};
    for (size_t i = 0; i < n_tokens; i++) {
        const alea_bytes bytes = info_of(core, tokens[i]).bytes;
        assert_true(n + bytes.length <= BYTES_MAX);
        starts[i] = n;
        memcpy(joined + n, bytes.data, bytes.length);
        n_shown += alea__text_stream_push(&stream, bytes, shown + n_shown, &offsets[i]);
        n += bytes.length;
    }
    n_shown += alea__text_stream_flush(&stream, shown + n_shown);
    assert_int_equal(n_shown, oracle_decode(joined, n, right, unit));
    assert_memory_equal(shown, right, n_shown);
    for (size_t i = 0; i < n_tokens; i++)
        if (info_of(core, tokens[i]).bytes.length) assert_int_equal(offsets[i], unit[starts[i]]);
    free(offsets);
    free(starts);
    free(unit);
    free(right);
    free(shown);
    return n;
}

/* The tokens of a text join to the text; SPM puts one space in front. */
static void check_round_trip(const alea_core *core, const char *text, bool spm) {
    int32_t tokens[TOKENS_MAX];
    uint8_t *joined = malloc(BYTES_MAX);
    size_t n_tokens = 0;
    const alea_bytes bytes = {(const uint8_t *)text, strlen(text)};
    assert_int_equal(alea_core_tokenize(core, bytes, 0, tokens, TOKENS_MAX, &n_tokens), ALEA_OK);
    assert_true(n_tokens <= TOKENS_MAX);
    const size_t n = check_decoded(core, tokens, n_tokens, joined);
    assert_int_equal(n, bytes.length + spm);
    if (spm) assert_int_equal(joined[0], ' ');
    assert_memory_equal(joined + spm, text, bytes.length);
    free(joined);
}

static void check_vocabulary(const alea_core *core, bool spm) {
    int32_t tokens[TOKENS_MAX];
    uint8_t *joined = malloc(BYTES_MAX);
    for (int32_t i = 0; i < core->vocab; i++)
        check_shown(core, i);

    check_round_trip(core, mixed, spm);
    if (!spm) check_round_trip(core, marked, false);

    uint64_t seed = 13;
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < 64; i++) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            tokens[i] = (int32_t)((seed >> 33) % (uint64_t)core->vocab);
        }
        (void)check_decoded(core, tokens, 64, joined);
    }
    free(joined);
}

static void check_model(const char *path, bool spm) {
    alea_core *core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 0);
    check_vocabulary(core, spm);
    alea_core_close(core);
}

static void test_toy_vocabulary(void **state) {
    (void)state;
    const alea_core_options options = {.struct_bytes = sizeof options, .model = ""};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    check_vocabulary(core, false);
    alea_core_close(core);
}

static void test_byte_level_bpe_vocabulary(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    tiny_model("--vocab bpe", path);
    check_model(path, false);
    tiny_model("--vocab bpe --pre smollm", path);
    check_model(path, false);
}

static void test_spm_vocabulary_with_byte_fallback(void **state) {
    (void)state;
    char path[MODEL_PATH_BYTES];
    tiny_model("--vocab spm", path);
    check_model(path, true);
}

/* Room for one token at a time once made it the square of its length: half a minute here. */
static void test_long_text_of_unknown_bytes_is_quick(void **state) {
    (void)state;
    enum { LENGTH = 600000 };
    char path[MODEL_PATH_BYTES];
    tiny_model("--vocab spm", path);
    alea_core *core = open_llama(path, ALEA_CORE_VOCAB_ONLY, 0, 0, 0, 1);
    char *text = malloc(LENGTH);
    int32_t *tokens = malloc((LENGTH + 1) * sizeof *tokens);
    size_t n_tokens = 0;
    memset(text, '\a', LENGTH); /* no token's: a byte token each */
    const clock_t started = clock();
    assert_int_equal(alea_core_tokenize(core, (alea_bytes){(const uint8_t *)text, LENGTH}, 0,
                                        tokens, LENGTH + 1, &n_tokens),
                     ALEA_OK);
    assert_true((clock() - started) / CLOCKS_PER_SEC < 5);
    assert_true(n_tokens >= LENGTH && n_tokens <= LENGTH + 1);
    free(tokens);
    free(text);
    alea_core_close(core);
}

static void test_vocabulary_of_the_default_model(void **state) {
    (void)state;
    if (!real_model()) {
        print_message("the default model is not there; tools/setup brings it\n");
        skip();
    }
    check_model(real_model(), false);
}

static int clean_up(void **state) {
    (void)state;
    remove_models();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_toy_vocabulary),
        cmocka_unit_test(test_byte_level_bpe_vocabulary),
        cmocka_unit_test(test_spm_vocabulary_with_byte_fallback),
        cmocka_unit_test(test_long_text_of_unknown_bytes_is_quick),
        cmocka_unit_test(test_vocabulary_of_the_default_model),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
