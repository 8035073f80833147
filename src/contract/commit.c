/* Clipping a round's tokens into a record. */
#include "contract/commit.h"

static bool is_end(const alea_commit *commit, int32_t token) {
    for (int32_t i = 0; i < commit->n_end_tokens; i++)
        if (commit->end_tokens[i] == token) return true;
    return false;
}

/* How many tokens stand, and why no more follow. */
static int32_t clip(const alea_commit *commit, int32_t *status, int32_t *end_index) {
    int64_t most = commit->n_tokens;
    if (most > commit->room_tokens) most = commit->room_tokens;
    if (most > commit->budget_tokens) most = commit->budget_tokens;
    *end_index = -1;
    for (int32_t i = 0; i < most; i++) {
        if (!is_end(commit, commit->tokens[i])) continue;
        *status = ALEA_RECORD_END;
        *end_index = i;
        return i + 1;
    }
    if (commit->n_tokens == 0)
        *status = ALEA_RECORD_NONE;
    else if (most == commit->budget_tokens)
        *status = ALEA_RECORD_BUDGET;
    else if (most == commit->room_tokens)
        *status = ALEA_RECORD_LENGTH;
    else
        *status = ALEA_RECORD_EMITTED;
    return (int32_t)most;
}

static uint64_t low_bits(int32_t count) {
    return count >= 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1;
}

alea_status alea__commit_write(alea_completion *completion, int32_t frame,
                               const alea_commit *commit, alea_record *record, alea_error *error) {
    if (commit->n_tokens < 0 || commit->n_tokens > completion->layout.tokens)
        return alea_error_set(error, ALEA_EINVAL,
                              "slot %d produced %d tokens; completion_token_capacity is %d",
                              commit->slot, commit->n_tokens, completion->layout.tokens);
    if (commit->n_tokens - 1 > commit->accepted)
        return alea_error_set(error, ALEA_EINVAL, "slot %d produced %d tokens with %d accepted",
                              commit->slot, commit->n_tokens, commit->accepted);
    if (commit->budget_tokens < 0 || commit->room_tokens < 0)
        return alea_error_set(error, ALEA_EINVAL, "slot %d has a negative budget or room",
                              commit->slot);
    alea_record made = {
        .epoch = commit->epoch,
        .slot = commit->slot,
        .drafted = commit->drafted,
        .accepted = commit->accepted,
        .position = commit->position,
        .role = commit->role,
    };
    made.count = clip(commit, &made.status, &made.end_index);
    made.budget_tokens = commit->budget_tokens - made.count;
    made.offset = commit->offset + (uint64_t)made.count;
    made.forced = commit->forced & low_bits(made.count);
    const alea_status status = alea__record_write(completion, frame, &made, commit->tokens, error);
    if (status == ALEA_OK && record) *record = made;
    return status;
}

alea_status alea__commit_event(alea_completion *completion, int32_t frame, int32_t slot,
                               int64_t epoch, int32_t role, int64_t position, int32_t status,
                               alea_error *error) {
    if (status > 0)
        return alea_error_set(error, ALEA_EINVAL, "slot %d: an event has status %d, not 0 or less",
                              slot, status);
    const alea_record made = {
        .epoch = epoch,
        .slot = slot,
        .status = status,
        .position = position,
        .role = role,
        .end_index = -1,
    };
    return alea__record_write(completion, frame, &made, NULL, error);
}
