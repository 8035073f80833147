/* Messages reach the sink by level, whole, and nobody where there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

static atomic_bool chatter_ends;

static void *chatter(void *argument) {
    while (!chatter_ends)
        alea__log(ALEA_LOG_DEBUG, "a line");
    return argument;
}

/* A child that finds the log locked is ended by its alarm. */
static void test_a_fork_leaves_the_log_free_and_the_child_silent(void **state) {
    (void)state;
    static heard h;
    pthread_t thread;
    alea__log_to(listen, &h, ALEA_LOG_DEBUG);
    assert_int_equal(pthread_create(&thread, NULL, chatter, NULL), 0);
    for (int i = 0; i < 200; i++) {
        alea__log_hold();
        const pid_t child = fork();
        alea__log_resume(child == 0);
        assert_true(child >= 0);
        if (child == 0) {
            alarm(10);
            const int before = h.n;
            alea__log(ALEA_LOG_ERROR, "not heard");
            _exit(h.n - before);
        }
        int ended = 0;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    }
    chatter_ends = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    const int before = h.n;
    alea__log(ALEA_LOG_ERROR, "heard by the parent");
    assert_int_equal(h.n, before + 1);
    alea__log_to(NULL, NULL, ALEA_LOG_DEBUG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels_are_filtered),
        cmocka_unit_test(test_long_messages_are_cut),
        cmocka_unit_test(test_a_fork_leaves_the_log_free_and_the_child_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
