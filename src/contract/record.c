/* Writing, reading and checking ABI 6 records. */
#include "contract/record.h"

#include <inttypes.h>

static alea_status refuse(alea_error *error, int32_t slot, const char *field, int64_t value,
                          const char *rule) {
    return alea_error_set(error, ALEA_EFORMAT, "record of slot %" PRId32 ": %s is %" PRId64 "; %s",
                          slot, field, value, rule);
}

static alea_status check_counts(const alea_completion_layout *layout, const alea_record *r,
                                alea_error *error) {
    if (r->count < 0 || r->count > layout->tokens)
        return refuse(error, r->slot, "emitted count", r->count,
                      "it lies in 0..completion_token_capacity");
    if (r->drafted < 0)
        return refuse(error, r->slot, "drafts proposed", r->drafted, "not negative");
    if (r->accepted < 0 || r->accepted > r->drafted)
        return refuse(error, r->slot, "drafts accepted", r->accepted,
                      "it lies in 0..drafts proposed");
    if (r->role != ALEA_ROLE_VERIFY && r->drafted != 0)
        return refuse(error, r->slot, "drafts proposed", r->drafted,
                      "only verification has drafts");
    if (r->role == ALEA_ROLE_NONE || r->role >= ALEA_ROLE_ADMISSION) {
        if (r->count != 0)
            return refuse(error, r->slot, "emitted count", r->count, "this role emits nothing");
    } else if (r->count - 1 > r->accepted) { /* accepted may be the largest int32_t */
        return refuse(error, r->slot, "emitted count", r->count,
                      "at most drafts accepted plus one");
    }
    return ALEA_OK;
}

static alea_status check_end(const alea_record *r, alea_error *error) {
    if (r->status > ALEA_RECORD_BUDGET)
        return refuse(error, r->slot, "status", r->status, "the largest is 4");
    if (r->status == ALEA_RECORD_NONE && r->count != 0)
        return refuse(error, r->slot, "emitted count", r->count, "status 0 emits nothing");
    if (r->status == ALEA_RECORD_EMITTED && r->count == 0)
        return refuse(error, r->slot, "emitted count", r->count, "status 1 emits something");
    if (r->status == ALEA_RECORD_END) {
        if (r->count == 0 || r->end_index != r->count - 1)
            return refuse(error, r->slot, "end index", r->end_index,
                          "a terminating token is the last emitted one");
    } else if (r->end_index != -1) {
        return refuse(error, r->slot, "end index", r->end_index, "only status 2 has one");
    }
    return ALEA_OK;
}

alea_status alea__record_check(const alea_completion_layout *layout, const alea_record *r,
                               alea_error *error) {
    if (r->slot < 0 || r->slot >= layout->capacity)
        return refuse(error, r->slot, "slot", r->slot, "it lies in 0..capacity-1");
    if (r->role < ALEA_ROLE_NONE || r->role > ALEA_ROLE_INVALID)
        return refuse(error, r->slot, "role", r->role, "it lies in 0..7");
    if (r->epoch < 0 || (r->epoch == 0 && r->role != ALEA_ROLE_NONE))
        return refuse(error, r->slot, "epoch", r->epoch, "the first admission is 1");
    if (r->role == ALEA_ROLE_NONE && r->status != ALEA_RECORD_NONE)
        return refuse(error, r->slot, "status", r->status, "role 0 has status 0");
    if (r->position < 0) return refuse(error, r->slot, "position", r->position, "not negative");
    if (r->position > INT64_MAX - ALEA_COMPLETION_TOKENS_MAX)
        return refuse(error, r->slot, "position", r->position, "its last token has none");
    if (r->budget_tokens < 0)
        return refuse(error, r->slot, "budget", r->budget_tokens, "not negative");
    alea_status status = check_counts(layout, r, error);
    if (status == ALEA_OK) status = check_end(r, error);
    if (status < 0) return status;
    if (r->count < 64 && r->forced >> r->count != 0)
        return refuse(error, r->slot, "forced mask", (int64_t)r->forced,
                      "only emitted tokens have a bit");
    return ALEA_OK;
}

void alea__record_clear(alea_completion *completion, int32_t frame, int32_t slot) {
    int64_t *v = alea__completion_record(completion, frame, slot);
    for (int32_t i = 0; i < ALEA_RECORD_HEADER; i++)
        v[i] = 0;
    v[ALEA_RECORD_AT_ABI] = ALEA_RECORD_ABI;
    v[ALEA_RECORD_AT_SLOT] = slot;
    v[ALEA_RECORD_AT_END] = -1;
    for (int32_t i = 0; i < completion->layout.tokens; i++)
        v[ALEA_RECORD_HEADER + i] = -1;
}

alea_status alea__record_write(alea_completion *completion, int32_t frame,
                               const alea_record *record, const int32_t *tokens,
                               alea_error *error) {
    const alea_status status = alea__record_check(&completion->layout, record, error);
    if (status < 0) return status;
    for (int32_t i = 0; i < record->count; i++)
        if (tokens[i] < 0) return refuse(error, record->slot, "token", tokens[i], "not negative");
    alea__record_clear(completion, frame, record->slot);
    int64_t *v = alea__completion_record(completion, frame, record->slot);
    v[ALEA_RECORD_AT_EPOCH] = record->epoch;
    v[ALEA_RECORD_AT_STATUS] = record->status;
    v[ALEA_RECORD_AT_COUNT] = record->count;
    v[ALEA_RECORD_AT_DRAFTED] = record->drafted;
    v[ALEA_RECORD_AT_ACCEPTED] = record->accepted;
    v[ALEA_RECORD_AT_POSITION] = record->position;
    v[ALEA_RECORD_AT_BUDGET] = record->budget_tokens;
    v[ALEA_RECORD_AT_OFFSET] = (int64_t)record->offset;
    v[ALEA_RECORD_AT_ROLE] = record->role;
    v[ALEA_RECORD_AT_END] = record->end_index;
    v[ALEA_RECORD_AT_FORCED] = (int64_t)record->forced;
    for (int32_t i = 0; i < record->count; i++)
        v[ALEA_RECORD_HEADER + i] = tokens[i];
    return ALEA_OK;
}

/* A field that must fit 32 bits before it may be narrowed. */
static bool fits(int64_t value) {
    return value >= INT32_MIN && value <= INT32_MAX;
}

static alea_status check_vector(const int64_t *v, int32_t slot, int32_t tokens, alea_error *error) {
    static const struct {
        enum alea_record_field field;
        const char *name;
    } narrow[] = {
        {ALEA_RECORD_AT_STATUS, "status"},
        {ALEA_RECORD_AT_COUNT, "emitted count"},
        {ALEA_RECORD_AT_DRAFTED, "drafts proposed"},
        {ALEA_RECORD_AT_ACCEPTED, "drafts accepted"},
        {ALEA_RECORD_AT_ROLE, "role"},
        {ALEA_RECORD_AT_END, "end index"},
    };
    if (v[ALEA_RECORD_AT_ABI] != ALEA_RECORD_ABI)
        return refuse(error, slot, "abi", v[ALEA_RECORD_AT_ABI], "this reader knows 6");
    if (v[ALEA_RECORD_AT_SLOT] != slot)
        return refuse(error, slot, "slot", v[ALEA_RECORD_AT_SLOT], "a record lies in its own slot");
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        if (!fits(v[narrow[i].field]))
            return refuse(error, slot, narrow[i].name, v[narrow[i].field], "out of range");
    for (int32_t i = ALEA_RECORD_AT_RESERVED; i < ALEA_RECORD_HEADER; i++)
        if (v[i] != 0) return refuse(error, slot, "a reserved field", v[i], "it is zero in ABI 6");
    const int64_t count = v[ALEA_RECORD_AT_COUNT];
    if (count < 0 || count > tokens)
        return refuse(error, slot, "emitted count", count,
                      "it lies in 0..completion_token_capacity");
    for (int32_t i = 0; i < tokens; i++) {
        const int64_t token = v[ALEA_RECORD_HEADER + i];
        if (i < count && (token < 0 || !fits(token)))
            return refuse(error, slot, "an emitted token", token, "not a token id");
        if (i >= count && token != -1)
            return refuse(error, slot, "a token past the prefix", token, "it is -1");
    }
    return ALEA_OK;
}

alea_status alea__record_read(const alea_completion *completion, int32_t frame, int32_t slot,
                              alea_record *record, alea_error *error) {
    const int64_t *v = alea__completion_record(completion, frame, slot);
    alea_status status = check_vector(v, slot, completion->layout.tokens, error);
    if (status < 0) return status;
    const alea_record read = {
        .epoch = v[ALEA_RECORD_AT_EPOCH],
        .slot = slot,
        .status = (int32_t)v[ALEA_RECORD_AT_STATUS],
        .count = (int32_t)v[ALEA_RECORD_AT_COUNT],
        .drafted = (int32_t)v[ALEA_RECORD_AT_DRAFTED],
        .accepted = (int32_t)v[ALEA_RECORD_AT_ACCEPTED],
        .position = v[ALEA_RECORD_AT_POSITION],
        .budget_tokens = v[ALEA_RECORD_AT_BUDGET],
        .offset = (uint64_t)v[ALEA_RECORD_AT_OFFSET],
        .role = (int32_t)v[ALEA_RECORD_AT_ROLE],
        .end_index = (int32_t)v[ALEA_RECORD_AT_END],
        .forced = (uint64_t)v[ALEA_RECORD_AT_FORCED],
    };
    status = alea__record_check(&completion->layout, &read, error);
    if (status == ALEA_OK) *record = read;
    return status;
}
