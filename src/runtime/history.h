/*
 * Which tokens a sequence has seen, and how often its output repeated each: what the penalties
 * read. A flat open-addressing table in memory of the request, sized once for every token that
 * the request can ever hold, so that adding one never allocates.
 */
#ifndef ALEA_RUNTIME_HISTORY_H
#define ALEA_RUNTIME_HISTORY_H

#include "alea/base.h"

typedef struct alea_seen {
    int32_t token;        /* -1: a free place */
    int32_t output_count; /* 0: seen in the prompt alone */
} alea_seen;

typedef struct alea_history {
    alea_seen *places; /* a power of two, at most half full */
    uint32_t mask;
    int32_t used;
} alea_history;

/* Bytes for a history of at most `tokens` distinct tokens; SIZE_MAX: too many to count. */
size_t alea__history_bytes(int64_t tokens);

/* `memory` has alea__history_bytes(tokens) bytes, aligned to 8. */
void alea__history_init(alea_history *history, void *memory, int64_t tokens);

void alea__history_add_prompt(alea_history *history, int32_t token);
void alea__history_add_output(alea_history *history, int32_t token);

#endif
