/*
 * CompletionOutputs: the buffers that carry what was emitted and how probable it was, from the
 * side that computes rows to the side that presents tokens. This file owns their names, types,
 * geometry and memory; it gives no meaning to their contents (record.h, reduce.h, decode.h do).
 *
 * The one thing to know: everything is [2, ...]: two frames, one being filled while the other is
 * being decoded. All tensors are row-major and contiguous. docs/contract.md tells the whole.
 */
#ifndef ALEA_CONTRACT_COMPLETION_H
#define ALEA_CONTRACT_COMPLETION_H

#include <stdbool.h>

#include "alea/base.h"

#define ALEA_FRAMES 2
#define ALEA_SLOTS_MAX 4096           /* bounds the request masks, which are not allocated */
#define ALEA_COMPLETION_TOKENS 8      /* T where a core names none */
#define ALEA_COMPLETION_TOKENS_MAX 64 /* the forced tokens of a record are bits of one word */
#define ALEA_ALTERNATIVES_MAX 20      /* K */
#define ALEA_TOKEN_IDS_MAX 128
#define ALEA_PAYLOAD_WORDS (2 + 2 * ALEA_TOKEN_IDS_MAX)
#define ALEA_RECORD_HEADER 16
#define ALEA_SCORE_WORDS (3 + 2 * ALEA_ALTERNATIVES_MAX)
#define ALEA_SCORED_ROWS_MAX (1 << 22)

/* The geometry of one bundle. */
typedef struct alea_completion_layout {
    int32_t capacity;     /* physical slots, padded */
    int32_t tokens;       /* T: most tokens that a slot emits in one round */
    int32_t alternatives; /* K: 0 (records alone) to 20 */
    bool token_ids;       /* the explicit-id inputs exist; then K is 20 */
    int32_t scored_rows;  /* C: rows of the largest scored prefill; 0: no scoring */
} alea_completion_layout;

typedef enum alea_buffer {
    ALEA_BUFFER_RECORDS,
    ALEA_BUFFER_LOGPROBS,
    ALEA_BUFFER_REQUESTED,
    ALEA_BUFFER_TOKEN_IDS,
    ALEA_BUFFER_TOKEN_ID_COUNTS,
    ALEA_BUFFER_PROMPT_TARGETS,
    ALEA_BUFFER_PROMPT_LOGPROBS,
    ALEA_BUFFERS
} alea_buffer;

typedef enum alea_word { ALEA_WORD_INT32, ALEA_WORD_INT64 } alea_word;

/* What a buffer is under a layout. */
typedef struct alea_buffer_shape {
    const char *name;
    alea_word word;
    int32_t rank; /* 0: the layout does not have this buffer */
    int64_t extent[4];
    size_t bytes;          /* product of the extents times the size of an element */
    size_t reserved_bytes; /* what the allocation spends on it: bytes up to a multiple of 64 */
} alea_buffer_shape;

/* One bundle. A buffer that the layout lacks is NULL. */
typedef struct alea_completion {
    alea_completion_layout layout;
    int64_t *records;         /* [2, capacity, 16 + T] */
    int32_t *logprobs;        /* [2, capacity, T, words] */
    int32_t *requested;       /* [capacity] */
    int32_t *token_ids;       /* [capacity, 128] */
    int32_t *token_id_counts; /* [capacity] */
    int32_t *prompt_targets;  /* [C] */
    int32_t *prompt_logprobs; /* [2, C, 43] */
    void *block;              /* the one allocation behind the buffers that it owns; NULL: bound */
    size_t block_bytes;
    bool owned[ALEA_BUFFERS];
} alea_completion;

/* The complete layout, which every core of ours exports. tokens 0 means 8; others are literal. */
alea_completion_layout alea__layout_complete(int32_t capacity, int32_t tokens, int32_t scored_rows);

/* ALEA_EINVAL or ALEA_ELIMIT names the field and its range. */
alea_status alea__layout_check(const alea_completion_layout *layout,
                               alea_error *error) ALEA_MUST_USE;

/* int32 words of one packed position: 258 with id inputs, 2 + 2K without, 0 without payload. */
int32_t alea__layout_words(const alea_completion_layout *layout);

/* For a layout that passed its check. */
void alea__layout_buffer(const alea_completion_layout *layout, alea_buffer buffer,
                         alea_buffer_shape *shape);

/*
 * Allocate the complete bundle as one block: every buffer at a multiple of 64 bytes, inputs zero,
 * records empty, payloads -1 (an id that is none, and NaN).
 *
 * Shape     capacity 1..4096; tokens 0 (meaning 8) to 64; scored_rows 0 (no scoring buffers) on
 * Result    *completion, whole
 * Errors    ALEA_EINVAL, ALEA_ELIMIT, ALEA_ENOMEM (with the bytes): *completion untouched
 * Memory    one allocation, freed by alea__completion_free
 */
alea_status alea__completion_allocate(int32_t capacity, int32_t tokens, int32_t scored_rows,
                                      alea_completion *completion, alea_error *error) ALEA_MUST_USE;

/*
 * The private outputs of one role of a mixed round: records and payloads of its own in one
 * block, the inputs borrowed from `whole`, which must outlive it. Errors as above.
 */
alea_status alea__completion_allocate_role(const alea_completion *whole, alea_completion *role,
                                           alea_error *error) ALEA_MUST_USE;

/*
 * A bundle over memory that a core owns, in any valid layout; buffers[i] is NULL exactly where the
 * layout lacks buffer i. Nothing is written. ALEA_EINVAL names the buffer that is missing,
 * superfluous or not aligned to its elements.
 */
alea_status alea__completion_bind(const alea_completion_layout *layout,
                                  void *const buffers[ALEA_BUFFERS], alea_completion *completion,
                                  alea_error *error) ALEA_MUST_USE;

/* Also for a bound or zeroed bundle; leaves it zeroed. */
void alea__completion_free(alea_completion *completion);

/*
 * What each buffer costs. Buffers that the bundle borrows or lacks report 0 bytes. The sum of
 * reserved_bytes is *total_bytes, which is exactly what was asked of the allocator.
 */
void alea__completion_memory(const alea_completion *completion,
                             alea_buffer_shape report[ALEA_BUFFERS], size_t *total_bytes);

/* A slot's record and the packed positions of a slot; arguments are in range. */
static inline int64_t *alea__completion_record(const alea_completion *completion, int32_t frame,
                                               int32_t slot) {
    const alea_completion_layout *layout = &completion->layout;
    size_t row = (size_t)frame * (size_t)layout->capacity + (size_t)slot;
    return completion->records + row * ((size_t)ALEA_RECORD_HEADER + (size_t)layout->tokens);
}

static inline int32_t *alea__completion_payload(const alea_completion *completion, int32_t frame,
                                                int32_t slot, int32_t position) {
    const alea_completion_layout *layout = &completion->layout;
    size_t row = (size_t)frame * (size_t)layout->capacity + (size_t)slot;
    row = row * (size_t)layout->tokens + (size_t)position;
    return completion->logprobs + row * (size_t)alea__layout_words(layout);
}

#endif
