/* Checks first, tokens after. */
#include "contract/decode.h"

#include <inttypes.h>
#include <math.h>

#include "contract/payload.h"

/* What every message about a position names. */
typedef struct place {
    int32_t slot;
    int64_t position;
    alea_error *error;
} place;

static alea_status check_chosen(const int32_t *payload, int32_t token, const place *at) {
    if (payload[0] == ALEA_NO_TOKEN)
        return alea_error_set(at->error, ALEA_EFORMAT,
                              "slot %d, position %" PRId64 ": token %d has no logprob entry",
                              at->slot, at->position, token);
    if (payload[0] != token)
        return alea_error_set(at->error, ALEA_EFORMAT,
                              "slot %d, position %" PRId64
                              ": the entry is for token %d, but %d was emitted",
                              at->slot, at->position, payload[0], token);
    const float logprob = alea__float_of(payload[1]);
    if (isnan(logprob))
        return alea_error_set(at->error, ALEA_EROW,
                              "slot %d, position %" PRId64
                              ": the model's row holds NaN, +inf or nothing finite",
                              at->slot, at->position);
    if (logprob > 0)
        return alea_error_set(at->error, ALEA_EFORMAT,
                              "slot %d, position %" PRId64 ": logprob of token %d is above 0",
                              at->slot, at->position, token);
    return ALEA_OK;
}

static alea_status refuse_alternative(const place *at, int32_t i, const char *what) {
    return alea_error_set(at->error, ALEA_EFORMAT,
                          "slot %d, position %" PRId64 ": alternative %d %s", at->slot,
                          at->position, i, what);
}

/* Ids are distinct and of the vocabulary, as many as K and the vocabulary allow. */
static alea_status check_natural_id(const int32_t *pairs, int32_t i, int32_t due, int32_t vocab,
                                    const place *at) {
    const int32_t token = pairs[2 * i];
    if (i >= due) {
        if (token == ALEA_NO_TOKEN) return ALEA_OK;
        return refuse_alternative(at, i, "is one more than the vocabulary has tokens");
    }
    if (token == ALEA_NO_TOKEN) return refuse_alternative(at, i, "is missing");
    if (token < 0 || token >= vocab) return refuse_alternative(at, i, "is not a token");
    for (int32_t j = 0; j < i; j++)
        if (pairs[2 * j] == token) return refuse_alternative(at, i, "repeats a token");
    return ALEA_OK;
}

/* Value downward, then id upward; the chosen token is among them, or behind the last. */
static alea_status check_natural(const int32_t *payload, int32_t n, int32_t vocab,
                                 const place *at) {
    const int32_t *pairs = payload + 2;
    const int32_t due = n < vocab ? n : vocab;
    const float chosen = alea__float_of(payload[1]);
    bool listed = false;
    for (int32_t i = 0; i < n; i++) {
        const alea_status status = check_natural_id(pairs, i, due, vocab, at);
        if (status < 0) return status;
        if (i >= due) continue;
        const float logprob = alea__float_of(pairs[2 * i + 1]);
        if (!(logprob <= 0)) return refuse_alternative(at, i, "is not a logprob");
        if (pairs[2 * i] == payload[0]) {
            listed = true;
            if (logprob != chosen) return refuse_alternative(at, i, "is not the chosen logprob");
        }
        if (i == 0) continue;
        const float before = alea__float_of(pairs[2 * i - 1]);
        if (logprob > before || (logprob == before && pairs[2 * i] <= pairs[2 * i - 2]))
            return refuse_alternative(at, i, "is out of order");
    }
    if (listed) return ALEA_OK;
    const float last = alea__float_of(pairs[2 * due - 1]);
    if (chosen > last || (chosen == last && payload[0] < pairs[2 * due - 2]))
        return refuse_alternative(at, due - 1, "stands where the chosen token belongs");
    return ALEA_OK;
}

static alea_status check_selected(const int32_t *payload, const alea_lane *lane, const place *at) {
    const int32_t *pairs = payload + 2;
    for (int32_t i = 0; i < lane->n_token_ids; i++) {
        if (pairs[2 * i] != lane->token_ids[i])
            return refuse_alternative(at, i, "is not the id that was asked for");
        const float logprob = alea__float_of(pairs[2 * i + 1]);
        if (!(logprob <= 0)) return refuse_alternative(at, i, "is not a logprob");
        if (pairs[2 * i] == payload[0] && logprob != alea__float_of(payload[1]))
            return refuse_alternative(at, i, "is not the chosen logprob");
    }
    return ALEA_OK;
}

static alea_status check_entries(const alea_frames *frames, int32_t frame, const alea_lane *lane,
                                 const alea_record *record, alea_error *error) {
    const alea_completion *completion = frames->out;
    for (int32_t i = 0; i < record->count; i++) {
        if (alea__record_is_forced(record, i)) continue;
        const place at = {lane->slot, record->position + i, error};
        const int32_t *payload = alea__completion_payload(completion, frame, lane->slot, i);
        const int32_t token = alea__record_token(completion, frame, lane->slot, i);
        alea_status status = check_chosen(payload, token, &at);
        if (status < 0) return status;
        if (lane->n_token_ids > 0)
            status = check_selected(payload, lane, &at);
        else
            status = check_natural(payload, completion->layout.alternatives, frames->vocab, &at);
        if (status < 0) return status;
    }
    return ALEA_OK;
}

alea_status alea__decode_open(const alea_frames *frames, int32_t frame, const alea_lane *lane,
                              alea_decoded *decoded, alea_error *error) {
    const alea_completion *completion = frames->out;
    if (frame < 0 || frame >= ALEA_FRAMES || frames->frame[frame].state != ALEA_FRAME_PENDING)
        return alea_error_set(error, ALEA_EINVAL, "frame %d is not pending; nothing to decode",
                              frame);
    if (lane->slot < 0 || lane->slot >= completion->layout.capacity)
        return alea_error_set(error, ALEA_EINVAL, "there is no slot %d", lane->slot);
    alea_decoded open = {.completion = completion, .frame = frame};
    alea_status status = alea__record_read(completion, frame, lane->slot, &open.record, error);
    if (status < 0) return status;
    if (open.record.epoch != lane->epoch) {
        /* Another admission's record: nothing in it is this request's. */
        open.record = (alea_record){.slot = lane->slot, .epoch = lane->epoch, .end_index = -1};
        *decoded = open;
        return ALEA_OK;
    }
    if (lane->logprobs) {
        if (open.record.count > 0 && !alea__frame_requested(&frames->frame[frame], lane->slot))
            return alea_error_set(error, ALEA_EFORMAT,
                                  "slot %d, position %" PRId64
                                  ": the frame was submitted without this request's logprobs",
                                  lane->slot, open.record.position);
        status = check_entries(frames, frame, lane, &open.record, error);
        if (status < 0) return status;
        open.pairs = lane->n_token_ids > 0 ? lane->n_token_ids : completion->layout.alternatives;
    }
    *decoded = open;
    return ALEA_OK;
}

bool alea__decode_next(alea_decoded *decoded, alea_entry *entry) {
    const alea_record *record = &decoded->record;
    if (decoded->next >= record->count) return false;
    const int32_t i = decoded->next++;
    alea_entry e = {
        .token = alea__record_token(decoded->completion, decoded->frame, record->slot, i),
        .position = record->position + i,
        .ends = i == record->end_index,
        .forced = alea__record_is_forced(record, i),
        .logprob = NAN,
    };
    if (decoded->pairs > 0 && !e.forced) {
        const int32_t *payload =
            alea__completion_payload(decoded->completion, decoded->frame, record->slot, i);
        e.has_logprob = true;
        e.logprob = alea__float_of(payload[1]);
        e.pairs = payload + 2;
        while (e.n_alternatives < decoded->pairs && e.pairs[2 * e.n_alternatives] != ALEA_NO_TOKEN)
            e.n_alternatives++;
    }
    *entry = e;
    return true;
}

void alea__decode_stop(alea_decoded *decoded) {
    decoded->next = decoded->record.count;
}

alea_alternative alea__entry_alternative(const alea_entry *entry, int32_t i) {
    return (alea_alternative){
        .token = entry->pairs[2 * i],
        .logprob = alea__float_of(entry->pairs[2 * i + 1]),
    };
}
