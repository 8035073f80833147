/*
 * Log lines: one JSON object each, on standard error. Never a byte of a prompt or of an answer.
 *
 * The one thing to know: a line is written only where it can be taken at once. A full disk or a
 * reader that has stopped costs log lines, which are counted, and never time of the loop.
 */
#ifndef ALEA_SERVER_SERVER_LOG_H
#define ALEA_SERVER_SERVER_LOG_H

#include "base/log.h"
#include "json/json_write.h"

/* Begin a line: {"time":…,"level":…,"event":…; the caller adds members, then ends it. NULL: the
 * level is not logged. For one thread at a time; alea__log may come from any. */
alea_json_writer *alea__server_log_begin(alea_log_level level, const char *event);
void alea__server_log_end(alea_json_writer *writer);

/* Log up to this level from now on; what the library says through alea__log too. */
void alea__server_log_level(alea_log_level most);

/* Lines that could not be written so far. */
uint64_t alea__server_log_lost(void);

#endif
