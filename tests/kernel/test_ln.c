/* Our logarithm against long double, and the integer forms of floats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "kernel/float_key.h"
#include "kernel/ln.h"
#include "kernel/prob_weight.h"
#include "support/fill.h"

static void test_ln_is_close_to_long_double(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 2000000; i++) {
        const double x = i % 2
                             ? ldexp(1 + test_uniform(&seed), (int)(test_random(&seed) % 160) - 80)
                             : 1 + (test_uniform(&seed) - 0.5) * ldexp(1, -(i % 40));
        const long double want = logl((long double)x);
        assert_true(fabsl(alea__ln(x) - want) <= 0x1p-51L * fabsl(want) + 0x1p-52L);
    }
    assert_true(alea__ln(1.0) == 0.0);
    assert_true(alea__ln(0x1p-40) == -40 * ALEA_LN2);
}

static void test_ln_has_pinned_bits(void **state) {
    (void)state;
    assert_true(alea__ln(3.0) == 0x1.193ea7aad030ap+0);
    assert_true(alea__ln(0.05f) == -0x1.7f7427973e391p+1);
    assert_true(alea__ln_min_p(1.0f) == 0.0f);
    assert_true(alea__ln_min_p(0.0f) == -INFINITY);
    assert_true(alea__ln_min_p(0.05f) == -0x1.7f7428p+1f);
}

static void test_keys_order_floats(void **state) {
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < 1000000; i++) {
        const float a = alea__bits_float((uint32_t)test_random(&seed));
        const float b = alea__bits_float((uint32_t)test_random(&seed));
        if (a != a || b != b || (a == 0 && b == 0)) continue;
        assert_int_equal(a < b, alea__float_key(a) < alea__float_key(b));
        assert_int_equal(alea__float_bits(alea__key_float(alea__float_key(a))),
                         alea__float_bits(a));
    }
    assert_int_equal(alea__float_key(-0.0f) + 1, alea__float_key(0.0f));
    assert_int_equal(alea__key_middle(INT32_MIN, INT32_MAX), -1);
}

static void test_probability_weights_floor(void **state) {
    (void)state;
    assert_int_equal(alea__prob_exponent(1.0f), 0);
    assert_int_equal(alea__prob_exponent(0.75f), -1);
    assert_int_equal(alea__prob_exponent(0x1p-149f), -149);
    assert_int_equal(alea__prob_exponent(0x1.8p-140f), -140);
    assert_int_equal(alea__prob_exponent(FLT_MAX), 127);
    assert_true(alea__prob_weight(1.0f, 0) == 1ull << 40);
    assert_true(alea__prob_weight(0x1p-149f, -149) == 1ull << 40);
    assert_true(alea__prob_weight(0x1.fffffep0f, 0) == 0x1fffffe0000ull);
    assert_true(alea__prob_weight(0x1.8p-40f, 0) == 1); /* 1.5 is cut, not rounded */
    assert_true(alea__prob_weight(0x1.fp-41f, 0) == 0);
    assert_true(alea__prob_weight(-1.0f, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ln_is_close_to_long_double),
        cmocka_unit_test(test_ln_has_pinned_bits),
        cmocka_unit_test(test_keys_order_floats),
        cmocka_unit_test(test_probability_weights_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
