/*
 * Two frames and who owns each: free, in flight (a round fills it), pending (the reader decodes
 * it), free again. The runtime decodes one while the core fills the other.
 *
 * The request inputs exist once, not once per frame, so at most one frame is in flight: a second
 * submission would rewrite flags that the first round's reduction has yet to read.
 */
#ifndef ALEA_CONTRACT_FRAME_H
#define ALEA_CONTRACT_FRAME_H

#include "contract/record.h"

/* One request's part of a submission; ids belong to the request and outlive the frame. */
typedef struct alea_lane {
    int32_t slot;
    int64_t epoch;
    bool logprobs;            /* this lane wants a payload */
    int32_t n_token_ids;      /* 0: the K natural alternatives; else needs `logprobs` */
    const int32_t *token_ids; /* [n_token_ids], checked by alea__token_ids_check at admission */
} alea_lane;

enum alea_frame_state { ALEA_FRAME_FREE, ALEA_FRAME_IN_FLIGHT, ALEA_FRAME_PENDING };

typedef struct alea_frame {
    enum alea_frame_state state;
    int32_t n_requesting;
    int32_t width_pairs; /* W: the larger of K and the frame's largest id count; 0: no payload */
    uint64_t requested[ALEA_SLOTS_MAX / 64]; /* by physical slot */
} alea_frame;

/* `prompt` and `decode` are the private outputs of a mixed round; NULL where roles never mix. */
typedef struct alea_frames {
    int32_t vocab; /* of the rows behind the payloads: the reader counts alternatives by it */
    alea_completion *out;
    alea_completion *prompt;
    alea_completion *decode;
    alea_frame frame[ALEA_FRAMES];
} alea_frames;

/* Both frames free; vocab at least 1. Allocates nothing; the bundles must outlive it. */
void alea__frames_init(alea_frames *frames, int32_t vocab, alea_completion *out,
                       alea_completion *prompt, alea_completion *decode);

/*
 * Selected ids as a request gives them: 1 to 128, distinct, inside the vocabulary. Called once,
 * before admission; ALEA_EINVAL or ALEA_ELIMIT names the id.
 */
alea_status alea__token_ids_check(const int32_t *token_ids, int32_t n_token_ids, int32_t vocab,
                                  alea_error *error) ALEA_MUST_USE;

/*
 * Start a submission in a free frame: upload the full vectors of flags and counts (slots without
 * a lane are cleared) and each selecting lane's ids, empty the frame's records in every bundle,
 * and mark the payloads of requesting lanes as missing.
 *
 * Domain    lanes name distinct slots below the capacity; epochs from 1
 * Result    *frame, in flight
 * Errors    ALEA_EINVAL (a lane; no frame free; another in flight), ALEA_EUNSUPPORTED (logprobs
 *           of a bundle with K = 0, ids of one without id inputs): nothing written
 * Memory    allocates nothing
 */
alea_status alea__frames_begin(alea_frames *frames, const alea_lane *lanes, int32_t n_lanes,
                               int32_t *frame, alea_error *error) ALEA_MUST_USE;

/* In flight -> pending: the producer has written records and payloads and touches neither again. */
alea_status alea__frames_produced(alea_frames *frames, int32_t frame,
                                  alea_error *error) ALEA_MUST_USE;

/* Pending -> free, after decoding. */
alea_status alea__frames_release(alea_frames *frames, int32_t frame,
                                 alea_error *error) ALEA_MUST_USE;

/* In flight -> free: the round failed as a whole and has nothing to decode. */
alea_status alea__frames_abandon(alea_frames *frames, int32_t frame,
                                 alea_error *error) ALEA_MUST_USE;

static inline bool alea__frame_requested(const alea_frame *frame, int32_t slot) {
    return (frame->requested[slot / 64] >> (slot % 64) & 1) != 0;
}

/*
 * Copy a frame's half to a bundle of the same layout elsewhere (pinned or mapped memory): the
 * records, and of each packed position the chosen pair and the first W pairs. A frame without a
 * requesting lane copies no payload. Returns the bytes copied.
 */
size_t alea__frame_copy(const alea_frames *frames, int32_t frame, alea_completion *to);

#endif
