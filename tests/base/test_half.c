/* All 65,536 half values, and narrowing at every boundary between two of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/half.h"

/* The value of a float16 by its definition. */
static double f16_value(uint32_t half) {
    const int exponent = half >> 10 & 0x1f;
    const double fraction = (double)(half & 0x3ff);
    const double magnitude =
        exponent ? ldexp(1024.0 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
}

static void test_f16_widens_to_its_definition(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        const float value = alea__f16_widen((uint16_t)half);
        const uint32_t bits = alea__float_bits(value);
        assert_int_equal(bits >> 31, half >> 15);
        if ((half & 0x7c00) != 0x7c00) {
            assert_true((double)value == f16_value(half));
        } else if ((half & 0x3ff) == 0) {
            assert_true(isinf(value));
        } else {
            assert_int_equal(bits & 0x7fffff, 0x400000 | (half & 0x3ff) << 13);
        }
    }
}

static void test_narrowing_undoes_widening(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 65536; half++) {
        const float f16 = alea__f16_widen((uint16_t)half);
        const uint32_t quiet = f16 != f16 ? 0x200 : 0;
        assert_int_equal(alea__f16_narrow(f16), half | quiet);
        const float bf16 = alea__bf16_widen((uint16_t)half);
        assert_int_equal(alea__float_bits(bf16), half << 16);
        assert_int_equal(alea__bf16_narrow(bf16), half | (bf16 != bf16 ? 0x40 : 0));
    }
}

/* Halfway between neighbours goes to the even one, a hair beside it to the nearer one. */
static void test_narrowing_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t half = 0; half < 0x7bff; half++) {
        const float low = alea__f16_widen((uint16_t)half);
        const float high = alea__f16_widen((uint16_t)(half + 1));
        const float middle = low + (high - low) / 2; /* exact: float32 has bits to spare */
        assert_int_equal(alea__f16_narrow(middle), half + (half & 1));
        assert_int_equal(alea__f16_narrow(nextafterf(middle, 0.0f)), half);
        assert_int_equal(alea__f16_narrow(-nextafterf(middle, 1e9f)), 0x8000 | (half + 1));
    }
    for (uint32_t half = 0; half < 0x7f7f; half++) {
        const float middle = alea__bits_float(half << 16 | 0x8000);
        assert_int_equal(alea__bf16_narrow(middle), half + (half & 1));
        assert_int_equal(alea__bf16_narrow(nextafterf(middle, 0.0f)), half);
        assert_int_equal(alea__bf16_narrow(-nextafterf(middle, INFINITY)), 0x8000 | (half + 1));
    }
}

static void test_overflow_narrows_to_infinity(void **state) {
    (void)state;
    assert_int_equal(alea__f16_narrow(65519.0f), 0x7bff);
    assert_int_equal(alea__f16_narrow(65520.0f), 0x7c00);
    assert_int_equal(alea__f16_narrow(-1e30f), 0xfc00);
    assert_int_equal(alea__bf16_narrow(3.4028235e38f), 0x7f80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_widens_to_its_definition),
        cmocka_unit_test(test_narrowing_undoes_widening),
        cmocka_unit_test(test_narrowing_rounds_to_nearest_even),
        cmocka_unit_test(test_overflow_narrows_to_infinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
