/* Every task runs exactly once, on any number of threads, run after run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <unistd.h>

#include "base/pool.h"

enum { MOST_TASKS = 1000 };

typedef struct tally {
    _Atomic int32_t runs[MOST_TASKS];
    int64_t results[MOST_TASKS]; /* plain: run's end must make them visible to the caller */
} tally;

static void count_task(void *user, int32_t index) {
    tally *t = user;
    t->runs[index]++;
    t->results[index] = (int64_t)index * index;
}

static void run_and_check(alea_pool *pool, int32_t n_tasks) {
    static tally t;
    for (int32_t i = 0; i < MOST_TASKS; i++) {
        t.runs[i] = 0;
        t.results[i] = -1;
    }
    alea__pool_run(pool, count_task, &t, n_tasks);
    for (int32_t i = 0; i < MOST_TASKS; i++) {
        assert_int_equal(t.runs[i], i < n_tasks);
        assert_true(t.results[i] == (i < n_tasks ? (int64_t)i * i : -1));
    }
}

static void test_each_task_runs_once(void **state) {
    (void)state;
    for (int32_t n_threads = 1; n_threads <= 8; n_threads++) {
        alea_pool *pool;
        assert_int_equal(alea__pool_create(n_threads, &pool), ALEA_OK);
        assert_int_equal(alea__pool_threads(pool), n_threads);
        for (int32_t n_tasks = 0; n_tasks < 40; n_tasks++)
            run_and_check(pool, n_tasks);
        run_and_check(pool, MOST_TASKS);
        alea__pool_destroy(pool);
    }
}

/* Many tiny runs back to back, so that workers arrive late, and pauses and rests, so that they
 * sleep. */
static void test_late_and_sleeping_workers_do_no_harm(void **state) {
    (void)state;
    alea_pool *pool;
    assert_int_equal(alea__pool_create(4, &pool), ALEA_OK);
    for (int32_t round = 0; round < 3000; round++) {
        run_and_check(pool, 2 + round % 5);
        if (round % 3 == 0) alea__pool_rest(pool);
        if (round % 300 == 0) usleep(2000);
    }
    alea__pool_destroy(pool);
}

static void test_no_pool_runs_on_the_caller(void **state) {
    (void)state;
    run_and_check(NULL, 17);
    assert_int_equal(alea__pool_threads(NULL), 1);
    alea__pool_destroy(NULL);
}

static void test_zero_threads_means_the_affinity_mask(void **state) {
    (void)state;
    alea_pool *pool;
    assert_true(alea__cpu_count() >= 1);
    assert_int_equal(alea__pool_create(0, &pool), ALEA_OK);
    assert_int_equal(alea__pool_threads(pool), alea__cpu_count());
    alea__pool_destroy(pool);
    assert_int_equal(alea__pool_create(-1, &pool), ALEA_EINVAL);
}

static void test_a_pool_that_never_ran_ends(void **state) {
    (void)state;
    for (int32_t i = 0; i < 50; i++) {
        alea_pool *pool;
        assert_int_equal(alea__pool_create(3, &pool), ALEA_OK);
        alea__pool_destroy(pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_task_runs_once),
        cmocka_unit_test(test_late_and_sleeping_workers_do_no_harm),
        cmocka_unit_test(test_no_pool_runs_on_the_caller),
        cmocka_unit_test(test_zero_threads_means_the_affinity_mask),
        cmocka_unit_test(test_a_pool_that_never_ran_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
