/*
 * What the toy core is told to be ("vocab=320,ties=4,nan_at=7") and the rows that it then makes.
 * A row is a function of these settings and of one 64-bit hash of everything before it, in exact
 * arithmetic: the same bits on every machine.
 */
#ifndef ALEA_CORE_TOY_TOY_MODEL_H
#define ALEA_CORE_TOY_TOY_MODEL_H

#include "alea/core.h"

/* Every setting: name, smallest, largest, default. src/core/toy/toy.c says what each does. */
#define TOY_SETTING_LIST(X)                                                                        \
    X(vocab, 261, 1 << 22, 320)                                                                    \
    X(context, 1, 1 << 24, 4096)                                                                   \
    X(sequences, 1, 4096, 1)                                                                       \
    X(seed, 0, INT64_MAX, 1)                                                                       \
    X(bos, 0, 1, 1)                                                                                \
    X(chat, 0, 1, 1)                                                                               \
    X(trim, 0, 1, 1)                                                                               \
    X(peak, 0, 1000, 0)                                                                            \
    X(text, 0, 1, 0)                                                                               \
    X(ties, 0, 1 << 20, 0)                                                                         \
    X(holes, 0, 100, 0)                                                                            \
    X(nan_at, -1, INT32_MAX, -1)                                                                   \
    X(inf_at, -1, INT32_MAX, -1)                                                                   \
    X(empty_at, -1, INT32_MAX, -1)                                                                 \
    X(fault_sequence, -1, INT32_MAX, -1)                                                           \
    X(refuse_at, -1, INT32_MAX, -1)                                                                \
    X(fail_at, -1, INT32_MAX, -1)                                                                  \
    X(slow_ms, 0, 60000, 0)

typedef struct toy_settings {
#define X(name, low, high, standard) int64_t name;
    TOY_SETTING_LIST(X)
#undef X
} toy_settings;

/* What a row stands behind. */
typedef struct toy_row {
    uint64_t hash; /* of the sequence up to and including this position */
    int32_t last;  /* the token at this position; -1 inside an opaque span */
    int32_t position;
    int32_t sequence;
} toy_row;

/* "key=value,…", in any order; missing keys keep their defaults, NULL and "" are all defaults. */
alea_status alea__toy_settings_parse(const char *text, toy_settings *settings,
                                     alea_error *error) ALEA_MUST_USE;

uint64_t alea__toy_hash_start(const toy_settings *settings);
uint64_t alea__toy_hash_token(uint64_t hash, int32_t token);
/* Position `index` of an opaque span of `length` positions whose bytes hash to `content`. */
uint64_t alea__toy_hash_opaque(uint64_t hash, uint64_t content, int32_t index, int32_t length);
uint64_t alea__toy_hash_bytes(alea_bytes bytes);

/* Fill logits [settings->vocab]. */
void alea__toy_logits(const toy_settings *settings, const toy_row *row, float *logits);

#endif
