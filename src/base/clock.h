/* Monotonic time, for durations and deadlines; it says nothing about the date. */
#ifndef ALEA_BASE_CLOCK_H
#define ALEA_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed moment; never goes back. */
uint64_t alea__clock_ns(void);

#endif
