/* What an engine's status becomes for a client, before and after the engine had the request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "api/api.h"

static void test_a_full_queue_is_a_429_and_a_late_limit_a_500(void **state) {
    (void)state;
    char body[ALEA_API_ERROR_BYTES];
    alea_api_error error = {.int_code = false};
    alea__api_error_of(&error, ALEA_ELIMIT, "the queue is full");
    assert_int_equal(error.status, 429);
    alea__api_error_late(&error, ALEA_ELIMIT, "the answer is too long");
    assert_int_equal(error.status, 500);
    body[alea__api_error_body(&error, body)] = 0;
    assert_non_null(strstr(body, "\"code\":\"internal_error\""));
    assert_non_null(strstr(body, "the answer is too long"));
}

static void test_other_statuses_say_the_same_early_and_late(void **state) {
    (void)state;
    static const alea_status statuses[] = {ALEA_EINVAL,     ALEA_ECONTEXT, ALEA_EUNSUPPORTED,
                                           ALEA_ECANCELLED, ALEA_ENOMEM,   ALEA_ECORE};
    static const int expected[] = {400, 400, 400, 503, 503, 500};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        alea_api_error early = {.int_code = false}, late = {.int_code = false};
        alea__api_error_of(&early, statuses[i], "so");
        alea__api_error_late(&late, statuses[i], "so");
        assert_int_equal(early.status, expected[i]);
        assert_int_equal(late.status, expected[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_queue_is_a_429_and_a_late_limit_a_500),
        cmocka_unit_test(test_other_statuses_say_the_same_early_and_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
