/* UTF-8 against its definition: every short string, every code point, the tables of Unicode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "support/utf8_oracle.h"

#define BYTES(literal) ((alea_bytes){(const uint8_t *)(literal), sizeof(literal) - 1})

/* The first unit of every string of up to three bytes, and of all four-byte ones near a border. */
static void check_first(const uint8_t *p, size_t n) {
    const alea_utf8_unit unit = alea__utf8_first((alea_bytes){p, n});
    bool valid;
    const size_t length = oracle_unit(p, n, &valid);
    const bool partial = !valid && length == n && oracle_begins_character(p, n);
    const alea_utf8_kind kind = valid     ? ALEA_UTF8_CHARACTER
                                : partial ? ALEA_UTF8_PARTIAL
                                          : ALEA_UTF8_INVALID;
    if (unit.kind != kind || unit.length != length)
        fail_msg("%02x %02x %02x %02x (%zu bytes): kind %d length %u, right is %d and %zu", p[0],
                 n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0, n, (int)unit.kind,
                 unit.length, (int)kind, length);
}

static void test_every_short_string_is_judged_as_by_definition(void **state) {
    (void)state;
    uint8_t p[4] = {0};
    for (uint32_t i = 0; i < 1u << 8; i++) {
        p[0] = (uint8_t)i;
        check_first(p, 1);
    }
    for (uint32_t i = 0; i < 1u << 16; i++) {
        p[0] = (uint8_t)(i >> 8);
        p[1] = (uint8_t)i;
        check_first(p, 2);
    }
    for (uint32_t i = 0xc0; i < 0x100; i++) /* below, one byte already decides */
        for (uint32_t j = 0; j < 1u << 16; j++) {
            p[0] = (uint8_t)i;
            p[1] = (uint8_t)(j >> 8);
            p[2] = (uint8_t)j;
            check_first(p, 3);
        }
}

static void test_every_four_byte_string_at_a_border_is_judged_as_by_definition(void **state) {
    (void)state;
    static const uint8_t third[] = {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    for (uint32_t lead = 0xef; lead < 0x100; lead++)
        for (uint32_t second = 0; second < 0x100; second++)
            for (size_t i = 0; i < sizeof third; i++)
                for (uint32_t last = 0; last < 0x100; last++) {
                    const uint8_t p[4] = {(uint8_t)lead, (uint8_t)second, third[i], (uint8_t)last};
                    check_first(p, 4);
                }
}

static void test_every_code_point_is_valid_except_surrogates(void **state) {
    (void)state;
    for (uint32_t code = 0x800; code < 0x110000; code++) {
        uint8_t p[4];
        size_t n = 3;
        if (code < 0x10000) {
            p[0] = (uint8_t)(0xe0 | code >> 12);
        } else {
            n = 4;
            p[0] = (uint8_t)(0xf0 | code >> 18);
            p[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        }
        p[n - 2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        p[n - 1] = (uint8_t)(0x80 | (code & 0x3f));
        assert_int_equal(alea__utf8_valid((alea_bytes){p, n}), code < 0xd800 || code > 0xdfff);
    }
}

static void test_valid_length_stops_at_the_first_bad_byte(void **state) {
    (void)state;
    assert_int_equal(alea__utf8_valid_length(BYTES("")), 0);
    assert_int_equal(alea__utf8_valid_length(BYTES("plain text, longer than a word")), 30);
    assert_int_equal(alea__utf8_valid_length(BYTES("plain tex\xC3\xA9 \xC3")), 12);
    assert_int_equal(alea__utf8_valid_length(BYTES("12345678\xFF")), 8);
    assert_int_equal(alea__utf8_valid_length(BYTES("1234567\xED\xA0\x80")), 7);
    assert_int_equal(alea__utf8_valid_length(BYTES("a\0b")), 3);
}

static void test_safe_length_holds_back_only_what_may_become_whole(void **state) {
    (void)state;
    assert_int_equal(alea__utf8_safe_length(BYTES("")), 0);
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xF0")), 2);
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xF0\x9F\x9A")), 2);
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xF0\x9F\x9A\x80")), 6);
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xE4\xB8")), 2);
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\x80\x80")), 4); /* follows nothing */
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xE0\x80")), 4); /* overlong */
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xED\xA0")), 4); /* surrogate */
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xF4\x90")), 4); /* above U+10FFFF */
    assert_int_equal(alea__utf8_safe_length(BYTES("ab\xFF")), 3);
    assert_int_equal(alea__utf8_safe_length(BYTES("\xC3")), 0);
}

/* The examples of the Unicode Standard, tables 3-8 to 3-11. */
static void test_invalid_bytes_are_cut_as_unicode_advises(void **state) {
    (void)state;
    assert_int_equal(alea__utf8_count(BYTES("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41")), 9);
    assert_int_equal(alea__utf8_count(BYTES("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41")), 9);
    assert_int_equal(alea__utf8_count(BYTES("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42")), 9);
    assert_int_equal(alea__utf8_count(BYTES("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41")), 5);
}

static void test_count_counts_code_points(void **state) {
    (void)state;
    assert_int_equal(alea__utf8_count(BYTES("")), 0);
    assert_int_equal(alea__utf8_count(BYTES("été 中国 🙂")), 8);
    assert_int_equal(alea__utf8_count(BYTES("👍🏽")),
                     2); /* a character for a person, two code points */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_short_string_is_judged_as_by_definition),
        cmocka_unit_test(test_every_four_byte_string_at_a_border_is_judged_as_by_definition),
        cmocka_unit_test(test_every_code_point_is_valid_except_surrogates),
        cmocka_unit_test(test_valid_length_stops_at_the_first_bad_byte),
        cmocka_unit_test(test_safe_length_holds_back_only_what_may_become_whole),
        cmocka_unit_test(test_invalid_bytes_are_cut_as_unicode_advises),
        cmocka_unit_test(test_count_counts_code_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
