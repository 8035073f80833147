/* Statuses, byte spans and errors: the words that every other header uses. */
#ifndef ALEA_BASE_H
#define ALEA_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ALEA_API __attribute__((visibility("default")))
#define ALEA_MUST_USE __attribute__((warn_unused_result))
#define ALEA_PRINTF(string, first) __attribute__((format(printf, string, first)))
#else
#define ALEA_API
#define ALEA_MUST_USE
#define ALEA_PRINTF(string, first)
#endif

#define ALEA_VERSION_MAJOR 0
#define ALEA_VERSION_MINOR 1
#define ALEA_VERSION_PATCH 0

/**
 * Every status there is: name, value, text. Negative is failure, 0 is success, positive is a
 * verdict that needs the caller's next move. Callers test `< 0`.
 */
#define ALEA_STATUS_LIST(X)                                                                        \
    X(ALEA_DONE, 2, "nothing is left")                                                             \
    X(ALEA_MORE, 1, "not yet: call again")                                                         \
    X(ALEA_OK, 0, "ok")                                                                            \
    X(ALEA_EINVAL, -1, "an argument is outside its domain")                                        \
    X(ALEA_ENOMEM, -2, "out of memory")                                                            \
    X(ALEA_EIO, -3, "reading or writing failed")                                                   \
    X(ALEA_EFORMAT, -4, "the data is malformed")                                                   \
    X(ALEA_EUNSUPPORTED, -5, "this build or core does not offer that")                             \
    X(ALEA_EROW, -6, "a row of logits holds NaN, +inf or nothing finite")                          \
    X(ALEA_EEMPTY, -7, "a constraint left no token to choose from")                                \
    X(ALEA_ECONTEXT, -8, "the context is full")                                                    \
    X(ALEA_ECORE, -9, "the core failed")                                                           \
    X(ALEA_ECANCELLED, -10, "cancelled")                                                           \
    X(ALEA_ELIMIT, -11, "a limit was exceeded")

typedef enum alea_status {
#define X(name, value, text) name = value,
    ALEA_STATUS_LIST(X)
#undef X
} alea_status;

/** Bytes with a length; no terminator is implied. */
typedef struct alea_bytes {
    const uint8_t *data;
    size_t length;
} alea_bytes;

/**
 * What went wrong, in one line that names the thing and the remedy. Optional wherever it is a
 * parameter: NULL asks for the status alone. Written only on failure.
 */
typedef struct alea_error {
    alea_status status;
    char message[256];
} alea_error;

/**
 * The text of a status.
 *
 * Shape     —
 * Domain    any value; an unknown one gives "unknown status"
 * Result    a constant string, lower case, no period
 * Exact     —
 * Errors    none
 * Memory    static
 * Threads   reentrant
 */
ALEA_API const char *alea_status_text(alea_status status);

/** The library's version, "major.minor.patch"; static memory, reentrant. */
ALEA_API const char *alea_version(void);

/**
 * Fill an optional error and hand its status back, so that a failing function can end in
 * `return alea_error_set(error, ALEA_EINVAL, "k is %d, the range is 1..%d", k, n);`.
 *
 * Shape     message is cut to the 255 bytes that fit
 * Domain    error may be NULL; status is negative
 * Result    status
 * Exact     —
 * Errors    none
 * Memory    allocates nothing
 * Threads   reentrant
 */
ALEA_API alea_status alea_error_set(alea_error *error, alea_status status, const char *format, ...)
    ALEA_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
