/*
 * As much of cmocka as check_kernels uses, for targets that have no cmocka: a failure ends the
 * program. Names and meanings are cmocka's.
 */
#ifndef ALEA_TESTS_KERNEL_BARE_CMOCKA_H
#define ALEA_TESTS_KERNEL_BARE_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

#define cmocka_unit_test(test)                                                                     \
    { #test, test }
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    bare_run(tests, sizeof(tests) / sizeof *(tests))

#define print_message(...) printf(__VA_ARGS__)
#define fail_msg(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define assert_true(truth)                                                                         \
    ((truth) ? (void)0 : fail_msg("%s:%d: not true: %s", __FILE__, __LINE__, #truth))
#define assert_int_equal(a, b) assert_true((a) == (b))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_string_not_equal(a, b) assert_true(strcmp(a, b) != 0)

static inline int bare_run(const struct CMUnitTest *tests, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tests[i].run(NULL);
        printf("[       OK ] %s\n", tests[i].name);
    }
    return 0;
}

#endif
