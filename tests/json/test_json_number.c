/* Numbers as text: they read back as the same bits, with no digit too many, in any locale. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json_number.h"

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double double_of(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t random_bits(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint64_t x = *state ^ (*state >> 29);
    return x * UINT64_C(0xbf58476d1ce4e5b9) ^ (x >> 17);
}

/* Whether the text is a number in JSON's grammar. */
static bool is_json_number(const char *text) {
    text += *text == '-';
    if (*text == '0')
        text++;
    else if (*text >= '1' && *text <= '9')
        text += strspn(text, "0123456789");
    else
        return false;
    if (*text == '.') {
        const size_t n = strspn(text + 1, "0123456789");
        if (!n) return false;
        text += 1 + n;
    }
    if (*text == 'e') {
        text++;
        text += *text == '-' || *text == '+';
        const size_t n = strspn(text, "0123456789");
        if (!n) return false;
        text += n;
    }
    return !*text;
}

/* From the first digit that is not 0 to the last. */
static int digits_of(const char *text) {
    int n = 0, last = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text < '0' || *text > '9' || (!n && *text == '0')) continue;
        n++;
        if (*text != '0') last = n;
    }
    return last;
}

static void check_float(float value) {
    char text[ALEA_JSON_NUMBER_BYTES], shorter[ALEA_JSON_NUMBER_BYTES];
    const size_t n = alea__json_float32(value, text);
    assert_int_equal(n, strlen(text));
    assert_true(is_json_number(text));
    const float back = strtof(text, NULL);
    if (memcmp(&back, &value, sizeof value)) fail_msg("%a became %s", (double)value, text);
    for (int digits = 1; digits < 9; digits++) {
        snprintf(shorter, sizeof shorter, "%.*g", digits, (double)value);
        if (strtof(shorter, NULL) != value) continue;
        if (digits_of(text) > digits) fail_msg("%s, but %s would do", text, shorter);
        break;
    }
}

static void check_double(double value) {
    char text[ALEA_JSON_NUMBER_BYTES];
    const size_t n = alea__json_float64(value, text);
    assert_int_equal(n, strlen(text));
    assert_true(is_json_number(text));
    const double back = strtod(text, NULL);
    if (memcmp(&back, &value, sizeof value)) fail_msg("%a became %s", value, text);
}

static void test_floats_read_back_as_the_same_bits(void **state) {
    (void)state;
    uint64_t seed = 3;
    for (uint32_t exponent = 0; exponent < 255; exponent++) /* every binade and its borders */
        for (uint32_t i = 0; i < 256; i++) {
            const uint32_t edges[] = {0, 1, 0x3fffff, 0x400000, 0x7ffffe, 0x7fffff};
            const uint32_t fraction = i < 6 ? edges[i] : (uint32_t)random_bits(&seed) & 0x7fffff;
            check_float(float_of(exponent << 23 | fraction));
            check_float(float_of(UINT32_C(1) << 31 | exponent << 23 | fraction));
        }
    for (int i = 0; i < 50000; i++) /* what log-probabilities look like */
        check_float(-(float)(random_bits(&seed) >> 40) / (1 << 20));
}

static void test_six_digits_stay_six_digits(void **state) {
    (void)state;
    uint64_t seed = 9;
    for (int i = 0; i < 100000; i++) {
        char decimal[ALEA_JSON_NUMBER_BYTES], text[ALEA_JSON_NUMBER_BYTES];
        const uint64_t r = random_bits(&seed);
        snprintf(decimal, sizeof decimal, "%de%d", (int)(100000 + r % 900000),
                 (int)(r >> 32) % 35 - 5);
        (void)alea__json_float32(strtof(decimal, NULL), text);
        if (digits_of(text) > 6) fail_msg("%s became %s", decimal, text);
    }
}

static void test_doubles_read_back_as_the_same_bits(void **state) {
    (void)state;
    uint64_t seed = 5;
    for (int i = 0; i < 100000; i++) {
        const double value = double_of(random_bits(&seed));
        if (isfinite(value)) check_double(value);
    }
    check_double(0.1);
    check_double(-0.0);
    check_double(5e-324);
    check_double(1.7976931348623157e308);
}

static void check_text(float value, const char *right) {
    char text[ALEA_JSON_NUMBER_BYTES];
    assert_int_equal(alea__json_float32(value, text), strlen(right));
    assert_string_equal(text, right);
}

static void test_floats_have_no_digit_too_many(void **state) {
    (void)state;
    check_text(0.1f, "0.1");
    check_text(-0.5f, "-0.5");
    check_text(0.0f, "0.0");
    check_text(-0.0f, "-0.0");
    check_text(16777216.0f, "16777216.0");
    check_text(1e10f, "1e+10");
    check_text(-1.1920929e-07f, "-1.1920929e-07");
    check_text(float_of(1), "1e-45");
    check_text(3.4028235e38f, "3.4028235e+38");
    char text[ALEA_JSON_NUMBER_BYTES];
    assert_int_equal(alea__json_float64(0.1, text), 3);
    assert_string_equal(text, "0.1");
}

static void test_integers_are_written_as_printf_writes_them(void **state) {
    (void)state;
    uint64_t random = 7;
    for (int32_t i = 0; i < 200000; i++) {
        const uint64_t value = i < 3000 ? (uint64_t)i : random_bits(&random) >> i % 64;
        char expected[ALEA_JSON_NUMBER_BYTES], text[ALEA_JSON_NUMBER_BYTES];
        snprintf(expected, sizeof expected, "%llu", (unsigned long long)value);
        assert_int_equal(alea__json_uint64(value, text), strlen(expected));
        assert_string_equal(text, expected);
        snprintf(expected, sizeof expected, "%lld", (long long)-value);
        assert_int_equal(alea__json_int64((int64_t)-value, text), strlen(expected));
        assert_string_equal(text, expected);
    }
}

static void test_what_is_not_finite_has_no_text(void **state) {
    (void)state;
    char text[ALEA_JSON_NUMBER_BYTES] = "#";
    assert_int_equal(alea__json_float32(NAN, text), 0);
    assert_int_equal(alea__json_float32(INFINITY, text), 0);
    assert_int_equal(alea__json_float32(-INFINITY, text), 0);
    assert_int_equal(alea__json_float64((double)NAN, text), 0);
    assert_int_equal(alea__json_float64((double)-INFINITY, text), 0);
    assert_int_equal(alea__json_logprob(NAN, text), 0);
    assert_int_equal(alea__json_logprob(-NAN, text), 0);
    assert_int_equal(alea__json_logprob(INFINITY, text), 0);
    assert_string_equal(text, "#");
}

static void check_logprob(float value, const char *right) {
    char text[ALEA_JSON_NUMBER_BYTES];
    assert_int_equal(alea__json_logprob(value, text), strlen(right));
    assert_string_equal(text, right);
}

static void test_no_probability_is_the_floor(void **state) {
    (void)state;
    check_logprob(-INFINITY, "-9999.0");
    check_logprob(-10000.0f, "-9999.0");
    check_logprob(-9999.0f, "-9999.0");
    check_logprob(-9998.999f, "-9998.999");
    check_logprob(-1.5f, "-1.5");
    check_logprob(0.0f, "0.0");
}

static void test_numbers_do_not_depend_on_the_locale(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    bool found = false;
    for (size_t i = 0; i < 4 && !found; i++)
        found = setlocale(LC_NUMERIC, names[i]) != NULL;
    if (!found) {
        print_message("no locale with a decimal comma is installed\n");
        skip();
    }
    char text[ALEA_JSON_NUMBER_BYTES];
    alea__json_float32(-1.25f, text);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(text, "-1.25");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats_read_back_as_the_same_bits),
        cmocka_unit_test(test_six_digits_stay_six_digits),
        cmocka_unit_test(test_doubles_read_back_as_the_same_bits),
        cmocka_unit_test(test_floats_have_no_digit_too_many),
        cmocka_unit_test(test_integers_are_written_as_printf_writes_them),
        cmocka_unit_test(test_what_is_not_finite_has_no_text),
        cmocka_unit_test(test_no_probability_is_the_floor),
        cmocka_unit_test(test_numbers_do_not_depend_on_the_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
