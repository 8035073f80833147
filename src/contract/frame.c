/* Submissions: who may set which input, and which frame is whose. */
#include "contract/frame.h"

#include <string.h>

void alea__frames_init(alea_frames *frames, int32_t vocab, alea_completion *out,
                       alea_completion *prompt, alea_completion *decode) {
    *frames = (alea_frames){.vocab = vocab, .out = out, .prompt = prompt, .decode = decode};
}

alea_status alea__token_ids_check(const int32_t *token_ids, int32_t n_token_ids, int32_t vocab,
                                  alea_error *error) {
    if (n_token_ids < 1 || n_token_ids > ALEA_TOKEN_IDS_MAX)
        return alea_error_set(error, ALEA_ELIMIT,
                              "logprob_token_ids holds %d ids, the range is 1..%d", n_token_ids,
                              ALEA_TOKEN_IDS_MAX);
    for (int32_t i = 0; i < n_token_ids; i++) {
        if (token_ids[i] < 0 || token_ids[i] >= vocab)
            return alea_error_set(error, ALEA_EINVAL,
                                  "logprob_token_ids[%d] is %d, the range is 0..%d", i,
                                  token_ids[i], vocab - 1);
        for (int32_t j = 0; j < i; j++)
            if (token_ids[j] == token_ids[i])
                return alea_error_set(error, ALEA_EINVAL,
                                      "logprob_token_ids[%d] repeats %d; ids are distinct", i,
                                      token_ids[i]);
    }
    return ALEA_OK;
}

/* Check one lane and mark its slot as seen. */
static alea_status check_lane(const alea_completion_layout *layout, const alea_lane *lane,
                              uint64_t seen[ALEA_SLOTS_MAX / 64], alea_error *error) {
    if (lane->slot < 0 || lane->slot >= layout->capacity)
        return alea_error_set(error, ALEA_EINVAL, "lane slot is %d, the range is 0..%d", lane->slot,
                              layout->capacity - 1);
    if (lane->epoch < 1)
        return alea_error_set(error, ALEA_EINVAL, "slot %d: epoch is %lld, the first is 1",
                              lane->slot, (long long)lane->epoch);
    const uint64_t bit = (uint64_t)1 << (lane->slot % 64);
    if (seen[lane->slot / 64] & bit)
        return alea_error_set(error, ALEA_EINVAL, "slot %d has two lanes in one submission",
                              lane->slot);
    seen[lane->slot / 64] |= bit;
    if (lane->n_token_ids < 0 || lane->n_token_ids > ALEA_TOKEN_IDS_MAX)
        return alea_error_set(error, ALEA_EINVAL, "slot %d selects %d ids, the range is 0..%d",
                              lane->slot, lane->n_token_ids, ALEA_TOKEN_IDS_MAX);
    if (lane->n_token_ids > 0 && !lane->logprobs)
        return alea_error_set(error, ALEA_EINVAL, "slot %d selects ids without asking for logprobs",
                              lane->slot);
    if (lane->logprobs && layout->alternatives == 0)
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "slot %d asks for logprobs, which this core does not offer",
                              lane->slot);
    if (lane->n_token_ids > 0 && !layout->token_ids)
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "slot %d selects ids, which this core does not offer", lane->slot);
    return ALEA_OK;
}

/* Pick the frame: the one that is free, and only when nothing is in flight. */
static alea_status pick(const alea_frames *frames, int32_t *frame, alea_error *error) {
    int32_t free_frame = -1;
    for (int32_t i = ALEA_FRAMES - 1; i >= 0; i--) {
        if (frames->frame[i].state == ALEA_FRAME_IN_FLIGHT)
            return alea_error_set(error, ALEA_EINVAL,
                                  "frame %d is in flight; its inputs may not be replaced", i);
        if (frames->frame[i].state == ALEA_FRAME_FREE) free_frame = i;
    }
    if (free_frame < 0)
        return alea_error_set(error, ALEA_EINVAL,
                              "both frames await decoding; release one before submitting");
    *frame = free_frame;
    return ALEA_OK;
}

static void upload(alea_completion *out, const alea_lane *lanes, int32_t n_lanes) {
    const size_t capacity = (size_t)out->layout.capacity;
    if (!out->requested) return;
    memset(out->requested, 0, capacity * sizeof *out->requested);
    if (out->token_id_counts) memset(out->token_id_counts, 0, capacity * sizeof(int32_t));
    for (int32_t i = 0; i < n_lanes; i++) {
        const alea_lane *lane = &lanes[i];
        if (!lane->logprobs) continue;
        out->requested[lane->slot] = 1;
        if (lane->n_token_ids == 0) continue;
        out->token_id_counts[lane->slot] = lane->n_token_ids;
        memcpy(out->token_ids + (size_t)lane->slot * ALEA_TOKEN_IDS_MAX, lane->token_ids,
               (size_t)lane->n_token_ids * sizeof(int32_t));
    }
}

/*
 * Payloads of earlier rounds stay in the buffer, and one of them could agree with a new record by
 * accident. So what a requesting lane will read starts out as "no id here".
 */
static void empty_frame(alea_completion *bundle, int32_t frame, const alea_lane *lanes,
                        int32_t n_lanes) {
    if (!bundle) return;
    for (int32_t slot = 0; slot < bundle->layout.capacity; slot++)
        alea__record_clear(bundle, frame, slot);
    for (int32_t i = 0; i < n_lanes; i++) {
        if (!lanes[i].logprobs) continue;
        for (int32_t t = 0; t < bundle->layout.tokens; t++)
            *alea__completion_payload(bundle, frame, lanes[i].slot, t) = -1;
    }
}

alea_status alea__frames_begin(alea_frames *frames, const alea_lane *lanes, int32_t n_lanes,
                               int32_t *frame, alea_error *error) {
    const alea_completion_layout *layout = &frames->out->layout;
    int32_t index = 0;
    alea_status status = pick(frames, &index, error);
    if (status < 0) return status;
    if (n_lanes < 0 || n_lanes > layout->capacity)
        return alea_error_set(error, ALEA_EINVAL, "a submission has %d lanes, the range is 0..%d",
                              n_lanes, layout->capacity);
    alea_frame next = {.state = ALEA_FRAME_IN_FLIGHT};
    uint64_t seen[ALEA_SLOTS_MAX / 64] = {0};
    for (int32_t i = 0; i < n_lanes; i++) {
        status = check_lane(layout, &lanes[i], seen, error);
        if (status < 0) return status;
        if (!lanes[i].logprobs) continue;
        next.requested[lanes[i].slot / 64] |= (uint64_t)1 << (lanes[i].slot % 64);
        next.n_requesting++;
        if (next.width_pairs < layout->alternatives) next.width_pairs = layout->alternatives;
        if (next.width_pairs < lanes[i].n_token_ids) next.width_pairs = lanes[i].n_token_ids;
    }
    upload(frames->out, lanes, n_lanes);
    empty_frame(frames->out, index, lanes, n_lanes);
    empty_frame(frames->prompt, index, lanes, n_lanes);
    empty_frame(frames->decode, index, lanes, n_lanes);
    frames->frame[index] = next;
    *frame = index;
    return ALEA_OK;
}

static alea_status move(alea_frames *frames, int32_t frame, enum alea_frame_state from,
                        enum alea_frame_state to, alea_error *error) {
    static const char *const names[] = {"free", "in flight", "pending"};
    if (frame < 0 || frame >= ALEA_FRAMES)
        return alea_error_set(error, ALEA_EINVAL, "there is no frame %d", frame);
    alea_frame *f = &frames->frame[frame];
    if (f->state != from)
        return alea_error_set(error, ALEA_EINVAL, "frame %d is %s, not %s", frame, names[f->state],
                              names[from]);
    if (to == ALEA_FRAME_FREE)
        *f = (alea_frame){.state = to};
    else
        f->state = to;
    return ALEA_OK;
}

alea_status alea__frames_produced(alea_frames *frames, int32_t frame, alea_error *error) {
    return move(frames, frame, ALEA_FRAME_IN_FLIGHT, ALEA_FRAME_PENDING, error);
}

alea_status alea__frames_release(alea_frames *frames, int32_t frame, alea_error *error) {
    return move(frames, frame, ALEA_FRAME_PENDING, ALEA_FRAME_FREE, error);
}

alea_status alea__frames_abandon(alea_frames *frames, int32_t frame, alea_error *error) {
    return move(frames, frame, ALEA_FRAME_IN_FLIGHT, ALEA_FRAME_FREE, error);
}

size_t alea__frame_copy(const alea_frames *frames, int32_t frame, alea_completion *to) {
    const alea_completion *from = frames->out;
    const alea_completion_layout *layout = &from->layout;
    const size_t slots = (size_t)layout->capacity;
    size_t bytes = slots * (size_t)(ALEA_RECORD_HEADER + layout->tokens) * sizeof(int64_t);
    memcpy(alea__completion_record(to, frame, 0), alea__completion_record(from, frame, 0), bytes);
    if (frames->frame[frame].n_requesting == 0) return bytes;
    const size_t width = (2 + 2 * (size_t)frames->frame[frame].width_pairs) * sizeof(int32_t);
    for (int32_t slot = 0; slot < layout->capacity; slot++) {
        for (int32_t t = 0; t < layout->tokens; t++, bytes += width)
            memcpy(alea__completion_payload(to, frame, slot, t),
                   alea__completion_payload(from, frame, slot, t), width);
    }
    return bytes;
}
