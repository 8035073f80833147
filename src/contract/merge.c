/* Choosing each slot's role. */
#include "contract/merge.h"

#include <string.h>

static bool same_outputs(const alea_completion *a, const alea_completion *b) {
    return a->layout.capacity == b->layout.capacity && a->layout.tokens == b->layout.tokens &&
           alea__layout_words(&a->layout) == alea__layout_words(&b->layout);
}

/* The role that claims a slot; NULL: neither. */
static alea_status choose(const alea_completion *prompt, const alea_completion *decode,
                          int32_t frame, int32_t slot, const alea_completion **chosen,
                          alea_record *record, alea_error *error) {
    alea_record p, d;
    alea_status status = alea__record_read(prompt, frame, slot, &p, error);
    if (status == ALEA_OK) status = alea__record_read(decode, frame, slot, &d, error);
    if (status < 0) return status;
    if (p.role != ALEA_ROLE_NONE && d.role != ALEA_ROLE_NONE)
        return alea_error_set(error, ALEA_EFORMAT,
                              "slot %d has a prompt and a decode record in one frame", slot);
    *chosen = p.role != ALEA_ROLE_NONE ? prompt : d.role != ALEA_ROLE_NONE ? decode : NULL;
    *record = *chosen == decode ? d : p;
    return ALEA_OK;
}

/* Words of a packed position that this slot's request can read. */
static size_t payload_words(const alea_completion *out, int32_t slot) {
    const int32_t selected = out->token_id_counts ? out->token_id_counts[slot] : 0;
    return 2 + 2 * (size_t)(selected > 0 ? selected : out->layout.alternatives);
}

static void copy_slot(const alea_completion *from, int32_t frame, int32_t slot, int32_t count,
                      alea_completion *out) {
    const size_t fields = (size_t)(ALEA_RECORD_HEADER + out->layout.tokens);
    memcpy(alea__completion_record(out, frame, slot), alea__completion_record(from, frame, slot),
           fields * sizeof(int64_t));
    if (!out->requested || !out->requested[slot]) return;
    const size_t bytes = payload_words(out, slot) * sizeof(int32_t);
    for (int32_t t = 0; t < count; t++)
        memcpy(alea__completion_payload(out, frame, slot, t),
               alea__completion_payload(from, frame, slot, t), bytes);
}

alea_status alea__merge(const alea_completion *prompt, const alea_completion *decode, int32_t frame,
                        alea_completion *out, alea_error *error) {
    if (!same_outputs(prompt, out) || !same_outputs(decode, out))
        return alea_error_set(error, ALEA_EINVAL, "the bundles of a merge differ in layout");
    if (frame < 0 || frame >= ALEA_FRAMES)
        return alea_error_set(error, ALEA_EINVAL, "there is no frame %d", frame);
    const alea_completion *chosen = NULL;
    alea_record record;
    for (int32_t slot = 0; slot < out->layout.capacity; slot++) {
        const alea_status status = choose(prompt, decode, frame, slot, &chosen, &record, error);
        if (status < 0) return status;
    }
    for (int32_t slot = 0; slot < out->layout.capacity; slot++) {
        const alea_status status = choose(prompt, decode, frame, slot, &chosen, &record, error);
        if (status < 0) return status; /* cannot happen: the first pass read the same records */
        if (chosen)
            copy_slot(chosen, frame, slot, record.count, out);
        else
            alea__record_clear(out, frame, slot);
    }
    return ALEA_OK;
}
