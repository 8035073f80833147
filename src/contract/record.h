/*
 * The completion record, ABI 6: what one slot emitted in one frame, as a vector of int64. A
 * record is written by the commit and believed by everyone after it: the reduction, the merge and
 * the decoder all take the emitted prefix from here and from nowhere else.
 */
#ifndef ALEA_CONTRACT_RECORD_H
#define ALEA_CONTRACT_RECORD_H

#include "contract/completion.h"

#define ALEA_RECORD_ABI 6

/* Index of each field; tokens follow at ALEA_RECORD_HEADER. */
enum alea_record_field {
    ALEA_RECORD_AT_ABI = 0,
    ALEA_RECORD_AT_EPOCH = 1,
    ALEA_RECORD_AT_SLOT = 2,
    ALEA_RECORD_AT_STATUS = 3,
    ALEA_RECORD_AT_COUNT = 4,
    ALEA_RECORD_AT_DRAFTED = 5,
    ALEA_RECORD_AT_ACCEPTED = 6,
    ALEA_RECORD_AT_POSITION = 7,
    ALEA_RECORD_AT_BUDGET = 8,
    ALEA_RECORD_AT_OFFSET = 9,
    ALEA_RECORD_AT_ROLE = 10,
    ALEA_RECORD_AT_END = 11,
    ALEA_RECORD_AT_FORCED = 12,
    ALEA_RECORD_AT_RESERVED = 13 /* 13, 14, 15: zero */
};

/* Negative: an alea_status; the tokens emitted before the failure stand. */
enum alea_record_status {
    ALEA_RECORD_NONE = 0,    /* nothing happened to this slot in this frame */
    ALEA_RECORD_EMITTED = 1, /* and more may come */
    ALEA_RECORD_END = 2,     /* the last emitted token ends the sequence */
    ALEA_RECORD_LENGTH = 3,  /* the sequence can hold no more */
    ALEA_RECORD_BUDGET = 4   /* the output budget is spent */
};

enum alea_record_role {
    ALEA_ROLE_NONE = 0,
    ALEA_ROLE_PROMPT = 1, /* a chunk of prompt; the last one samples */
    ALEA_ROLE_DECODE = 2, /* one token */
    ALEA_ROLE_VERIFY = 3, /* 1 + n drafts */
    ALEA_ROLE_ADMISSION = 4,
    ALEA_ROLE_MAINTENANCE = 5,
    ALEA_ROLE_VISION = 6,
    ALEA_ROLE_INVALID = 7 /* 4 to 7 emit nothing, so they never have a payload */
};

typedef struct alea_record {
    int64_t epoch; /* counts admissions to the slot; 1 is the first */
    int32_t slot;
    int32_t status;
    int32_t count; /* emitted tokens, 0..T */
    int32_t drafted;
    int32_t accepted;
    int64_t position; /* of the first emitted token in its sequence */
    int64_t budget_tokens;
    uint64_t offset; /* of the random stream, after this round */
    int32_t role;
    int32_t end_index; /* of the terminating token in the emitted prefix; -1: none */
    uint64_t forced;   /* bit i: token i was not sampled, so it has no entry */
} alea_record;

/*
 * Check a record against the layout; ALEA_EFORMAT names the slot, the field and its value.
 * Ordinary sampling emits one token at most, verification at most accepted + 1.
 */
alea_status alea__record_check(const alea_completion_layout *layout, const alea_record *record,
                               alea_error *error) ALEA_MUST_USE;

/* An empty record: this slot had no part in the frame. */
void alea__record_clear(alea_completion *completion, int32_t frame, int32_t slot);

/* Write a checked record and its `count` tokens into the slot it names. Nothing is written where
 * the check fails: ALEA_EFORMAT. */
alea_status alea__record_write(alea_completion *completion, int32_t frame,
                               const alea_record *record, const int32_t *tokens,
                               alea_error *error) ALEA_MUST_USE;

/* Read and check; ALEA_EFORMAT leaves *record alone. */
alea_status alea__record_read(const alea_completion *completion, int32_t frame, int32_t slot,
                              alea_record *record, alea_error *error) ALEA_MUST_USE;

/* Token i of a record that was read, 0 <= i < count. */
static inline int32_t alea__record_token(const alea_completion *completion, int32_t frame,
                                         int32_t slot, int32_t i) {
    return (int32_t)alea__completion_record(completion, frame, slot)[ALEA_RECORD_HEADER + i];
}

static inline bool alea__record_is_forced(const alea_record *record, int32_t i) {
    return (record->forced >> i & 1) != 0;
}

#endif
