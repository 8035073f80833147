/* Waits end when their time is over by the monotonic clock, which is the clock of deadlines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>

#include "base/clock.h"
#include "runtime/wait.h"

static void test_a_deadline_is_told_by_the_monotonic_clock(void **state) {
    (void)state;
    static const int32_t timeouts[] = {0, 1, 999, 1000, 1999, 86400000};
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        const uint64_t before = alea__clock_ns();
        const struct timespec at = alea__wait_deadline(timeouts[i]);
        const uint64_t after = alea__clock_ns();
        assert_in_range(at.tv_nsec, 0, 999999999);
        const uint64_t ns = (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec -
                            (uint64_t)timeouts[i] * 1000000u;
        assert_in_range(ns, before, after);
    }
}

/* On another clock the moment would be decades away, or long past. */
static void test_a_condition_waits_by_the_same_clock(void **state) {
    (void)state;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    alea__wait_init(&condition);
    pthread_mutex_lock(&mutex);
    const uint64_t start = alea__clock_ns();
    const struct timespec until = alea__wait_deadline(30);
    int waited = 0;
    while (waited == 0)
        waited = pthread_cond_timedwait(&condition, &mutex, &until);
    assert_int_equal(waited, ETIMEDOUT);
    assert_in_range(alea__clock_ns() - start, 30000000, 10000000000);
    pthread_mutex_unlock(&mutex);
    pthread_cond_destroy(&condition);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_deadline_is_told_by_the_monotonic_clock),
        cmocka_unit_test(test_a_condition_waits_by_the_same_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
