/* The environment check notices a wrong rounding mode and flushed denormals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/fenv_check.h"

static void test_the_usual_environment_passes(void **state) {
    (void)state;
    assert_int_equal(alea__fenv_check(NULL), ALEA_OK);
}

static void test_each_other_rounding_is_noticed(void **state) {
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < 3; i++) {
        alea_error error;
        assert_int_equal(fesetround(modes[i]), 0);
        const alea_status status = alea__fenv_check(&error);
        fesetround(FE_TONEAREST);
        assert_int_equal(status, ALEA_EUNSUPPORTED);
        assert_non_null(strstr(error.message, "rounding"));
    }
}

static void test_flushed_denormals_are_noticed(void **state) {
    (void)state;
#if defined(__x86_64__)
    const unsigned saved = _mm_getcsr();
    static const unsigned bits[] = {0x8000, 0x0040}; /* FTZ, DAZ */
    for (size_t i = 0; i < 2; i++) {
        alea_error error;
        _mm_setcsr(saved | bits[i]);
        const alea_status status = alea__fenv_check(&error);
        _mm_setcsr(saved);
        assert_int_equal(status, ALEA_EUNSUPPORTED);
        assert_non_null(strstr(error.message, "denormals"));
    }
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_usual_environment_passes),
        cmocka_unit_test(test_each_other_rounding_is_noticed),
        cmocka_unit_test(test_flushed_denormals_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
