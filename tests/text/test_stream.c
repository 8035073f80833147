/* The decoder at once, byte by byte and at every split, against a decoder by definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "support/utf8_oracle.h"
#include "text/stream.h"

enum { TEXT_MAX = 256, OUT_MAX = 3 * TEXT_MAX + 16 };

static const char *const texts[] = {
    "",
    "plain",
    "été, größer, ещё, 中国的, 日本, مرحبا, नमस्ते, 🙂🚀👍🏽",
    "a\xF0\x9F\x9A", /* ends inside a character */
    "\xF0\x9F\x9A"
    "b",                                                      /* and one that a letter breaks */
    "\xF0\x9F\xF0\x9F\x99\x82",                               /* and one that another breaks */
    "\x80\xBF\xC0\xAF\xFF\xFE",                               /* never valid */
    "\xED\xA0\x80\xED\xB0\x80 \xF4\x90\x80\x80 \xE0\x9F\xBF", /* surrogates, too large, overlong */
    "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
    "A",
    "x\xEF\xBF\xBDy", /* a real U+FFFD is text like another */
    "\xC3\xC3\xA9\xC3",
};

enum { N_TEXTS = sizeof texts / sizeof *texts };

/* Pushes p cut at the given places and compares with the oracle; checks each delta's validity and
 * every token's offset. */
static void check_cuts(const uint8_t *p, size_t n, const size_t *cuts, size_t n_cuts) {
    uint8_t right[OUT_MAX], got[OUT_MAX];
    size_t unit[TEXT_MAX], n_got = 0, from = 0;
    const size_t n_right = oracle_decode(p, n, right, unit);

    alea_text_stream stream = {0};
    for (size_t i = 0; i <= n_cuts; i++) {
        const size_t to = i < n_cuts ? cuts[i] : n;
        uint8_t *delta = malloc(ALEA_STREAM_BOUND(to - from)); /* sized to the byte for ASan */
        uint64_t offset;
        const size_t n_delta =
            alea__text_stream_push(&stream, (alea_bytes){p + from, to - from}, delta, &offset);
        assert_true(n_delta <= ALEA_STREAM_BOUND(to - from));
        assert_true(alea__utf8_valid((alea_bytes){delta, n_delta}));
        if (to > from) assert_int_equal(offset, unit[from]);
        assert_true(n_got + n_delta <= sizeof got);
        memcpy(got + n_got, delta, n_delta);
        n_got += n_delta;
        assert_int_equal(stream.characters, alea__utf8_count((alea_bytes){got, n_got}));
        free(delta);
        from = to;
    }
    n_got += alea__text_stream_flush(&stream, got + n_got);
    assert_int_equal(n_got, n_right);
    assert_memory_equal(got, right, n_right);
    assert_int_equal(stream.characters, alea__utf8_count((alea_bytes){got, n_got}));
    assert_int_equal(alea__text_stream_flush(&stream, got), 0);
}

static void check_every_way(const uint8_t *p, size_t n) {
    check_cuts(p, n, NULL, 0);
    size_t each[TEXT_MAX];
    for (size_t i = 0; i < n; i++)
        each[i] = i; /* starts with an empty token */
    check_cuts(p, n, each, n);
    for (size_t i = 0; i <= n; i++)
        for (size_t j = i; j <= n; j++)
            check_cuts(p, n, (const size_t[]){i, j}, 2);
}

static void test_deltas_are_the_text_at_every_split(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TEXTS; i++)
        check_every_way((const uint8_t *)texts[i], strlen(texts[i]));
}

static void test_random_bytes_decode_as_by_definition(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        uint8_t p[24];
        const size_t n = (size_t)round % sizeof p;
        for (size_t i = 0; i < n; i++)
            p[i] = oracle_random_byte(&seed);
        check_every_way(p, n);
    }
}

static void test_stream_holds_partial_utf8(void **state) {
    (void)state;
    alea_text_stream stream = {0};
    uint8_t out[ALEA_STREAM_BOUND(4)];
    static const uint8_t rocket[] = {0xf0, 0x9f, 0x9a, 0x80};
    for (size_t i = 0; i < 3; i++) {
        uint64_t offset = 99;
        assert_int_equal(alea__text_stream_push(&stream, (alea_bytes){rocket + i, 1}, out, &offset),
                         0);
        assert_int_equal(offset, 0);
    }
    assert_int_equal(alea__text_stream_push(&stream, (alea_bytes){rocket + 3, 1}, out, NULL), 4);
    assert_memory_equal(out, rocket, 4);
    assert_int_equal(stream.characters, 1);
}

static void test_stream_never_replaces_what_may_still_become_whole(void **state) {
    (void)state;
    alea_text_stream stream = {0};
    uint8_t out[ALEA_STREAM_BOUND(8)];
    const alea_bytes half = {(const uint8_t *)"ab\xE4\xB8", 4};
    assert_int_equal(alea__text_stream_push(&stream, half, out, NULL), 2);
    assert_int_equal(alea__text_stream_push(&stream, (alea_bytes){half.data, 0}, out, NULL), 0);
    assert_int_equal(alea__text_stream_flush(&stream, out), 3);
    assert_memory_equal(out, ALEA_UTF8_REPLACEMENT, 3);
    assert_int_equal(stream.characters, 3);
}

static void test_token_that_breaks_a_character_starts_behind_it(void **state) {
    (void)state;
    alea_text_stream stream = {0};
    uint8_t out[ALEA_STREAM_BOUND(4)];
    uint64_t offset;
    assert_int_equal(
        alea__text_stream_push(&stream, (alea_bytes){(const uint8_t *)"\xF0\x9F", 2}, out, NULL),
        0);
    const size_t n =
        alea__text_stream_push(&stream, (alea_bytes){(const uint8_t *)"A", 1}, out, &offset);
    assert_int_equal(n, 4);
    assert_memory_equal(out, ALEA_UTF8_REPLACEMENT "A", 4);
    assert_int_equal(offset, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deltas_are_the_text_at_every_split),
        cmocka_unit_test(test_random_bytes_decode_as_by_definition),
        cmocka_unit_test(test_stream_holds_partial_utf8),
        cmocka_unit_test(test_stream_never_replaces_what_may_still_become_whole),
        cmocka_unit_test(test_token_that_breaks_a_character_starts_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
