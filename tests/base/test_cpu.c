/* Capabilities are those of the machine, less the mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/cpu.h"

static void test_avx512_implies_avx2(void **state) {
    (void)state;
    const uint32_t caps = alea__cpu_detected();
    if (caps & ALEA_CAP_AVX512) assert_true(caps & ALEA_CAP_AVX2);
}

#if defined(__x86_64__)
static void test_detection_agrees_with_the_compiler(void **state) {
    (void)state;
    __builtin_cpu_init();
    const uint32_t caps = alea__cpu_detected();
    assert_int_equal((caps & ALEA_CAP_AVX2) != 0,
                     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
    assert_int_equal((caps & ALEA_CAP_AVX512) != 0,
                     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
}
#else
static void test_detection_agrees_with_the_compiler(void **state) {
    (void)state;
    skip();
}
#endif

static void test_mask_takes_away_and_gives_back(void **state) {
    (void)state;
    alea__cpu_mask(0);
    assert_int_equal(alea__cpu_caps(), 0);
    alea__cpu_mask(ALEA_CAP_AVX2);
    assert_int_equal(alea__cpu_caps(), alea__cpu_detected() & ALEA_CAP_AVX2);
    alea__cpu_mask(ALEA_CAP_ALL);
    assert_int_equal(alea__cpu_caps(), alea__cpu_detected());
}

static void test_words_are_parsed_and_bad_ones_named(void **state) {
    (void)state;
    uint32_t mask = 77;
    alea_error error;
    assert_int_equal(alea__caps_parse("ref", &mask, &error), ALEA_OK);
    assert_int_equal(mask, 0);
    assert_int_equal(alea__caps_parse("avx512", &mask, &error), ALEA_OK);
    assert_int_equal(mask, ALEA_CAP_AVX2 | ALEA_CAP_AVX512);
    assert_int_equal(alea__caps_parse("sse9", &mask, &error), ALEA_EINVAL);
    assert_int_equal(mask, ALEA_CAP_AVX2 | ALEA_CAP_AVX512);
    assert_non_null(strstr(error.message, "\"sse9\""));
    assert_int_equal(alea__caps_parse("", &mask, NULL), ALEA_EINVAL);
}

static void test_names_climb(void **state) {
    (void)state;
    assert_string_equal(alea__caps_name(0), "ref");
    assert_string_equal(alea__caps_name(ALEA_CAP_AVX2), "avx2");
    assert_string_equal(alea__caps_name(ALEA_CAP_AVX2 | ALEA_CAP_AVX512), "avx512");
    assert_string_equal(alea__caps_name(ALEA_CAP_NEON), "neon");
}

static void test_features_fit_any_buffer(void **state) {
    (void)state;
    char whole[512], part[512];
    alea__cpu_features(whole, sizeof whole);
    for (size_t capacity = 1; capacity < 64; capacity++) {
        memset(part, 'x', sizeof part);
        alea__cpu_features(part, capacity);
        assert_true(strlen(part) < capacity);
        assert_int_equal(part[capacity], 'x');
        assert_memory_equal(part, whole, strlen(part));
    }
    alea__cpu_model(part, 4);
    assert_true(strlen(part) < 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_avx512_implies_avx2),
        cmocka_unit_test(test_detection_agrees_with_the_compiler),
        cmocka_unit_test(test_mask_takes_away_and_gives_back),
        cmocka_unit_test(test_words_are_parsed_and_bad_ones_named),
        cmocka_unit_test(test_names_climb),
        cmocka_unit_test(test_features_fit_any_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
