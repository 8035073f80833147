/* The monotonic clock of the system, in nanoseconds. */
#include <time.h>

#include "base/clock.h"

uint64_t alea__clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock on Linux */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
