/* Messages reach the sink by level, whole, and nobody where there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/log.h"

typedef struct heard {
    int n;
    alea_log_level level;
    char message[1024];
} heard;

static void listen(void *user, alea_log_level level, const char *message) {
    heard *h = user;
    h->n++;
    h->level = level;
    strncpy(h->message, message, sizeof h->message - 1);
}

static void test_levels_are_filtered(void **state) {
    (void)state;
    heard h = {0};
    alea__log_to(listen, &h, ALEA_LOG_WARNING);
    alea__log(ALEA_LOG_INFO, "not heard");
    assert_int_equal(h.n, 0);
    alea__log(ALEA_LOG_WARNING, "row %d of %s", 7, "x");
    assert_int_equal(h.n, 1);
    assert_int_equal(h.level, ALEA_LOG_WARNING);
    assert_string_equal(h.message, "row 7 of x");
    alea__log_to(NULL, NULL, ALEA_LOG_DEBUG);
    alea__log(ALEA_LOG_ERROR, "nobody");
    assert_int_equal(h.n, 1);
}

static void test_long_messages_are_cut(void **state) {
    (void)state;
    heard h = {0};
    alea__log_to(listen, &h, ALEA_LOG_DEBUG);
    alea__log(ALEA_LOG_DEBUG, "%0900d", 5);
    assert_int_equal(strlen(h.message), 511);
    alea__log_to(NULL, NULL, ALEA_LOG_DEBUG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_are_filtered),
        cmocka_unit_test(test_long_messages_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
