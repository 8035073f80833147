/* Exceptions stop here: libllama is C++, Alea is not. */
#ifndef ALEA_CORE_LLAMA_GUARD_H
#define ALEA_CORE_LLAMA_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Calls call(argument). False when it threw; `what` then holds the exception's text, cut to
 * capacity - 1 bytes. Several libllama functions let allocation failures and out-of-range lookups
 * leave through their C interface, which would end the process.
 */
bool alea__guard(void (*call)(void *argument), void *argument, char *what, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
