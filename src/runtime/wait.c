/* The one place where a wait meets a clock: deadlines and conditions must share it. */
#include "runtime/wait.h"

#define WAIT_CLOCK CLOCK_MONOTONIC

void alea__wait_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, WAIT_CLOCK); /* fails for CPU-time clocks alone */
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec alea__wait_deadline(int32_t timeout_ms) {
    struct timespec at;
    clock_gettime(WAIT_CLOCK, &at);
    at.tv_sec += timeout_ms / 1000;
    at.tv_nsec += (long)(timeout_ms % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_nsec -= 1000000000L;
        at.tv_sec++;
    }
    return at;
}
