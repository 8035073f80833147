/* What a token looks like by itself, and that the tokens of a text join to the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text/token_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/stream.h"

static const char mixed[] =
    "The probability of \"café\" — größer, привет мир, 中国的日本, مرحبا, नमस्ते!\r\n\n"
    "def f(x):\n    return x == 🙂 or '🚀👍🏽'\t<think>\\x00</think>\x7f<|eos|>";

static alea_token_info info_of(const char *bytes, const char *name, uint32_t flags) {
    return (alea_token_info){
        {(const uint8_t *)bytes, strlen(bytes)}, {(const uint8_t *)name, strlen(name)}, flags};
}

static void check_text(alea_token_info info, const char *right) {
    char out[128];
    const size_t n = alea__token_text(&info, out, sizeof out);
    assert_int_equal(n, strlen(right));
    assert_memory_equal(out, right, n);
}

static void test_valid_bytes_are_the_text(void **state) {
    (void)state;
    check_text(info_of(" the", " the", 0), " the");
    check_text(info_of("中", "中", 0), "中");
    check_text(info_of("\n", "\n", ALEA_TOKEN_BYTE), "\n");
}

static void test_fragments_show_their_bytes_in_hex(void **state) {
    (void)state;
    check_text(info_of("\xF0\x9F", "\xF0\x9F", 0), "bytes:\\xf0\\x9f");
    check_text(info_of("\n\xF0\x9F\x9A", "?", 0), "bytes:\\x0a\\xf0\\x9f\\x9a");
    check_text(info_of("\x82 ", "?", 0), "bytes:\\x82\\x20");
    check_text(info_of("\xED\xA0\x80", "?", 0), "bytes:\\xed\\xa0\\x80");
}

static void test_control_tokens_show_their_names(void **state) {
    (void)state;
    check_text(info_of("", "<|im_end|>", ALEA_TOKEN_CONTROL), "<|im_end|>");
    check_text(info_of("", "", ALEA_TOKEN_UNUSED), "");
    check_text(info_of("", "\xFF", ALEA_TOKEN_CONTROL), "bytes:\\xff");
}

static void test_nothing_is_written_where_it_does_not_fit(void **state) {
    (void)state;
    const alea_token_info whole = info_of("four", "four", 0), fragment = info_of("\xF0", "\xF0", 0);
    char out[16];
    memset(out, '#', sizeof out);
    assert_int_equal(alea__token_text(&whole, out, 3), 4);
    assert_int_equal(alea__token_text(&whole, NULL, 0), 4);
    assert_int_equal(alea__token_text(&fragment, out, 9), 10);
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], '#');
    assert_int_equal(alea__token_text(&fragment, out, 10), 10);
    assert_int_equal(out[10], '#');
    assert_int_equal(alea__token_text(&whole, out, 4), 4);
    assert_memory_equal(out, "four", 4);
}

/* ---- whole vocabularies: the toy's here, real ones where a core is linked ---- */

static alea_core *open_toy(void) {
    const alea_core_options options = {.struct_bytes = sizeof options, .model = "vocab=300"};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    return core;
}

static void test_every_token_of_a_vocabulary_has_a_json_safe_text(void **state) {
    (void)state;
    alea_core *core = open_toy();
    alea_core_info info;
    alea_core_describe(core, &info);
    for (int32_t i = 0; i < info.vocab; i++) {
        alea_token_info token;
        char out[256];
        assert_int_equal(alea_core_token(core, i, &token), ALEA_OK);
        const size_t n = alea__token_text(&token, out, sizeof out);
        assert_true(n > 0 && n <= sizeof out);
        assert_true(alea__utf8_valid((alea_bytes){(const uint8_t *)out, n}));
        assert_null(memmem(out, n, ALEA_UTF8_REPLACEMENT, ALEA_UTF8_REPLACEMENT_BYTES));
    }
    alea_core_close(core);
}

static void test_joined_token_bytes_are_the_text(void **state) {
    (void)state;
    alea_core *core = open_toy();
    const alea_bytes text = {(const uint8_t *)mixed, sizeof mixed - 1};
    int32_t tokens[512];
    size_t n_tokens = 0, n = 0, n_shown = 0;
    assert_int_equal(alea_core_tokenize(core, text, 0, tokens, 512, &n_tokens), ALEA_OK);
    assert_true(n_tokens < 512);

    uint8_t joined[sizeof mixed], shown[3 * sizeof mixed];
    alea_text_stream stream = {0};
    for (size_t i = 0; i < n_tokens; i++) {
        alea_token_info token;
        uint64_t offset;
        assert_int_equal(alea_core_token(core, tokens[i], &token), ALEA_OK);
        assert_true(n + token.bytes.length <= text.length);
        memcpy(joined + n, token.bytes.data, token.bytes.length);
        n_shown += alea__text_stream_push(&stream, token.bytes, shown + n_shown, &offset);
        /* The character that holds byte n is behind all that start at or before it. */
        size_t starts = 0;
        for (size_t b = 0; b <= n; b++)
            starts += (text.data[b] & 0xc0) != 0x80;
        assert_int_equal(offset, starts - 1);
        n += token.bytes.length;
    }
    n_shown += alea__text_stream_flush(&stream, shown + n_shown);
    assert_int_equal(n, text.length);
    assert_memory_equal(joined, mixed, n);
    assert_int_equal(n_shown, n);
    assert_memory_equal(shown, mixed, n);
    alea_core_close(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_bytes_are_the_text),
        cmocka_unit_test(test_fragments_show_their_bytes_in_hex),
        cmocka_unit_test(test_control_tokens_show_their_names),
        cmocka_unit_test(test_nothing_is_written_where_it_does_not_fit),
        cmocka_unit_test(test_every_token_of_a_vocabulary_has_a_json_safe_text),
        cmocka_unit_test(test_joined_token_bytes_are_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
