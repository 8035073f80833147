/*
 * One sink for everything the library has to say. Without a sink it is silent: it never prints.
 */
#ifndef ALEA_BASE_LOG_H
#define ALEA_BASE_LOG_H

#include <stdbool.h>

#include "alea/base.h"

typedef enum alea_log_level {
    ALEA_LOG_ERROR = 0,
    ALEA_LOG_WARNING = 1,
    ALEA_LOG_INFO = 2,
    ALEA_LOG_DEBUG = 3
} alea_log_level;

/* `message` is one line without a newline, valid during the call. Calls never overlap. */
typedef void (*alea_log_sink)(void *user, alea_log_level level, const char *message);

/* Send messages up to `most` to `sink`; NULL silences. May be called at any time; a message in
 * flight ends first. The sink must not log. */
void alea__log_to(alea_log_sink sink, void *user, alea_log_level most);

/* Messages are cut to 511 bytes. */
void alea__log(alea_log_level level, const char *format, ...) ALEA_PRINTF(2, 3);

/* Around a fork, in both processes: no thread is inside the log meanwhile, so the child's is free.
 * There it is silent: the sink belongs to the parent and may hold locks of its own. */
void alea__log_hold(void);
void alea__log_resume(bool in_child);

#endif
