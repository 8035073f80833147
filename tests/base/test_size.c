/* Checked sizes refuse what does not fit and leave the output alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/size.h"

static void test_sums_and_products_are_checked(void **state) {
    (void)state;
    size_t out = 5;
    assert_true(alea__size_add(3, 4, &out));
    assert_int_equal(out, 7);
    assert_false(alea__size_add(SIZE_MAX, 1, &out));
    assert_false(alea__size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_int_equal(out, 7);
    assert_true(alea__size_mul(SIZE_MAX, 1, &out));
    assert_true(out == SIZE_MAX);
}

static void test_alignment_rounds_up_or_refuses(void **state) {
    (void)state;
    size_t out = 0;
    assert_true(alea__size_align(0, 64, &out));
    assert_int_equal(out, 0);
    assert_true(alea__size_align(65, 64, &out));
    assert_int_equal(out, 128);
    assert_false(alea__size_align(SIZE_MAX - 5, 64, &out));
    assert_int_equal(out, 128);
}

static void test_the_clock_does_not_go_back(void **state) {
    (void)state;
    uint64_t last = alea__clock_ns();
    for (int i = 0; i < 1000; i++) {
        const uint64_t now = alea__clock_ns();
        assert_true(now >= last);
        last = now;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_and_products_are_checked),
        cmocka_unit_test(test_alignment_rounds_up_or_refuses),
        cmocka_unit_test(test_the_clock_does_not_go_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
