/*
 * Decoding a pending frame: from records and payloads to the tokens of one request, in generation
 * order, each with its entry. Everything is checked before a token is handed out: an entry that
 * should exist and does not is an error of that request, never a gap.
 */
#ifndef ALEA_CONTRACT_DECODE_H
#define ALEA_CONTRACT_DECODE_H

#include "contract/frame.h"
#include "kernel/row.h"

/* One emitted token. Pointers end with the frame's release. */
typedef struct alea_entry {
    int32_t token;
    int64_t position; /* in the sequence */
    bool ends;        /* the terminating token */
    bool forced;      /* not sampled, so without a logprob */
    bool has_logprob;
    float logprob;          /* of `token`, raw */
    int32_t n_alternatives; /* natural: min(K, vocab); selected: as many as were asked for */
    const int32_t *pairs;   /* read through alea__entry_alternative */
} alea_entry;

/* The cursor over one slot's tokens of one frame. */
typedef struct alea_decoded {
    alea_record record;
    const alea_completion *completion;
    int32_t frame;
    int32_t next;
    int32_t pairs; /* of each entry; 0: the lane asked for nothing */
} alea_decoded;

/*
 * Open a slot of a pending frame.
 *
 * Domain    lane: as it was given to alea__frames_begin
 * Result    *decoded, before its first token. A record of another epoch, or none, opens empty:
 *           status NONE and no token, whatever the payload holds.
 * Errors    ALEA_EINVAL (the frame is not pending), ALEA_EFORMAT (the record is malformed, a chosen
 *           id differs from the emitted one, an entry or alternative is missing, out of order or
 *           above 0), ALEA_EROW (the row of a position was no distribution): *decoded untouched;
 *           the message names the slot and the position. Other slots are not concerned.
 * Memory    allocates nothing; payloads of lanes that did not ask are not read
 */
alea_status alea__decode_open(const alea_frames *frames, int32_t frame, const alea_lane *lane,
                              alea_decoded *decoded, alea_error *error) ALEA_MUST_USE;

/* The next token; false at the end of the emitted prefix. */
bool alea__decode_next(alea_decoded *decoded, alea_entry *entry);

/* A host-side end (a stop, an error, a cancel): later tokens of this frame are not handed out. */
void alea__decode_stop(alea_decoded *decoded);

/* Alternative i, 0 <= i < n_alternatives: its logprob may be -inf, a token without weight. */
alea_alternative alea__entry_alternative(const alea_entry *entry, int32_t i);

#endif
