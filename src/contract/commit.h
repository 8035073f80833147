/*
 * The commit: the one place where budget, length and end tokens cut what a round produced. What
 * it writes into the record is final; the reduction and the reader clip nothing again.
 */
#ifndef ALEA_CONTRACT_COMMIT_H
#define ALEA_CONTRACT_COMMIT_H

#include "contract/record.h"

/* What one slot's round produced, before any cut. */
typedef struct alea_commit {
    int32_t slot;
    int64_t epoch;
    int32_t role;          /* ALEA_ROLE_PROMPT, _DECODE or _VERIFY */
    int64_t position;      /* that tokens[0] takes in its sequence */
    int64_t budget_tokens; /* output tokens that the request may still emit */
    int64_t room_tokens;   /* positions that the sequence has left */
    int32_t drafted;       /* only for verification */
    int32_t accepted;
    const int32_t *tokens;     /* accepted drafts, then the token drawn after them */
    int32_t n_tokens;          /* 0: a prompt chunk that does not sample */
    uint64_t forced;           /* bit i: tokens[i] was not sampled */
    const int32_t *end_tokens; /* terminating ids; none where the request ignores them */
    int32_t n_end_tokens;
    uint64_t offset; /* random offset of tokens[0] */
} alea_commit;

/*
 * Write the slot's record: the longest prefix of the tokens that budget, room and T allow, up to
 * and including the first end token. An end token wins over a spent budget, and that over a full
 * sequence. A zero budget emits nothing and is no failure.
 *
 * Result    *record holds what was written, where record is not NULL
 * Errors    ALEA_EINVAL (more than T tokens, more than accepted + 1), ALEA_EFORMAT (a field of the
 *           record, named): nothing written
 * Memory    allocates nothing
 */
alea_status alea__commit_write(alea_completion *completion, int32_t frame,
                               const alea_commit *commit, alea_record *record,
                               alea_error *error) ALEA_MUST_USE;

/*
 * Write a record alone: admission, maintenance, vision or an invalid round (status 0), or any
 * role that failed before it emitted (status negative).
 */
alea_status alea__commit_event(alea_completion *completion, int32_t frame, int32_t slot,
                               int64_t epoch, int32_t role, int64_t position, int32_t status,
                               alea_error *error) ALEA_MUST_USE;

#endif
