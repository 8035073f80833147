/* Every status has its own text, and errors are filled only when there is one to fill. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "alea/base.h"

static void test_each_status_has_its_own_text(void **state) {
    (void)state;
    static const alea_status all[] = {
#define X(name, value, text) name,
        ALEA_STATUS_LIST(X)
#undef X
    };
    const size_t n = sizeof all / sizeof *all;
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(alea_status_text(all[i])) > 1);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(alea_status_text(all[i]), alea_status_text(all[j]));
        }
    }
    assert_string_equal(alea_status_text((alea_status)-99), "unknown status");
}

static void test_an_error_is_optional_and_cut_to_fit(void **state) {
    (void)state;
    alea_error error = {0};
    assert_int_equal(alea_error_set(NULL, ALEA_EIO, "%s", "x"), ALEA_EIO);
    assert_int_equal(alea_error_set(&error, ALEA_EINVAL, "k is %d", 21), ALEA_EINVAL);
    assert_int_equal(error.status, ALEA_EINVAL);
    assert_string_equal(error.message, "k is 21");
    (void)alea_error_set(&error, ALEA_EINVAL, "%0400d", 1);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_status_has_its_own_text),
        cmocka_unit_test(test_an_error_is_optional_and_cut_to_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
