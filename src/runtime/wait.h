/* Condition variables on the monotonic clock: setting the date neither wakes nor delays a waiter.
 */
#ifndef ALEA_RUNTIME_WAIT_H
#define ALEA_RUNTIME_WAIT_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Like pthread_cond_init, for waits until a moment of alea__wait_deadline. */
void alea__wait_init(pthread_cond_t *condition);

/* The moment `timeout_ms` from now, which is not negative. */
struct timespec alea__wait_deadline(int32_t timeout_ms);

#endif
