/* libllama's chatter: passed to Alea's log, and its first complaint kept for the error message. */
#ifndef ALEA_CORE_LLAMA_LLAMA_LOG_H
#define ALEA_CORE_LLAMA_LLAMA_LOG_H

#include <stdbool.h>
#include <stddef.h>

/* Take over libllama's process-wide log; any number of times. */
void alea__llama_log_take(void);

/* Forget what was kept. Before a call whose failure is to be explained. */
void alea__llama_log_clear(void);

/* The first error line since then, without its prefix; empty if there was none. */
void alea__llama_log_complaint(char *text, size_t capacity);

/* As alea__log_hold and alea__log_resume, for libllama's log and with it Alea's. */
void alea__llama_log_hold(void);
void alea__llama_log_resume(bool in_child);

#endif
