/*
 * Geometry and memory of the completion buffers. One table of shapes serves the allocation, the
 * memory report and the check of what a core declares, so they cannot disagree.
 */
#include "contract/completion.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "contract/record.h"

#define REGION_BYTES 64

alea_completion_layout alea__layout_complete(int32_t capacity, int32_t tokens,
                                             int32_t scored_rows) {
    return (alea_completion_layout){
        .capacity = capacity,
        .tokens = tokens == 0 ? ALEA_COMPLETION_TOKENS : tokens,
        .alternatives = ALEA_ALTERNATIVES_MAX,
        .token_ids = true,
        .scored_rows = scored_rows,
    };
}

alea_status alea__layout_check(const alea_completion_layout *layout, alea_error *error) {
    const alea_completion_layout *l = layout;
    if (l->capacity < 1 || l->capacity > ALEA_SLOTS_MAX)
        return alea_error_set(error, ALEA_ELIMIT, "capacity is %d slots, the range is 1..%d",
                              l->capacity, ALEA_SLOTS_MAX);
    if (l->tokens < 1 || l->tokens > ALEA_COMPLETION_TOKENS_MAX)
        return alea_error_set(error, ALEA_ELIMIT,
                              "completion_token_capacity is %d, the range is 1..%d", l->tokens,
                              ALEA_COMPLETION_TOKENS_MAX);
    if (l->alternatives < 0 || l->alternatives > ALEA_ALTERNATIVES_MAX)
        return alea_error_set(error, ALEA_EINVAL, "alternatives are %d, the range is 0..%d",
                              l->alternatives, ALEA_ALTERNATIVES_MAX);
    if (l->token_ids && l->alternatives != ALEA_ALTERNATIVES_MAX)
        return alea_error_set(error, ALEA_EINVAL,
                              "a bundle with id inputs has %d alternatives, not %d",
                              ALEA_ALTERNATIVES_MAX, l->alternatives);
    if (l->scored_rows < 0 || l->scored_rows > ALEA_SCORED_ROWS_MAX)
        return alea_error_set(error, ALEA_ELIMIT, "scored rows are %d, the range is 0..%d",
                              l->scored_rows, ALEA_SCORED_ROWS_MAX);
    if (l->scored_rows > 0 && l->alternatives != ALEA_ALTERNATIVES_MAX)
        return alea_error_set(error, ALEA_EINVAL,
                              "prompt scoring needs generation logprobs with K = %d, not %d",
                              ALEA_ALTERNATIVES_MAX, l->alternatives);
    return ALEA_OK;
}

int32_t alea__layout_words(const alea_completion_layout *layout) {
    if (layout->token_ids) return ALEA_PAYLOAD_WORDS;
    return layout->alternatives > 0 ? 2 + 2 * layout->alternatives : 0;
}

void alea__layout_buffer(const alea_completion_layout *layout, alea_buffer buffer,
                         alea_buffer_shape *shape) {
    static const char *const names[ALEA_BUFFERS] = {
        [ALEA_BUFFER_RECORDS] = "completion_records",
        [ALEA_BUFFER_LOGPROBS] = "completion_logprobs",
        [ALEA_BUFFER_REQUESTED] = "logprob_requested",
        [ALEA_BUFFER_TOKEN_IDS] = "logprob_token_ids",
        [ALEA_BUFFER_TOKEN_ID_COUNTS] = "logprob_token_id_counts",
        [ALEA_BUFFER_PROMPT_TARGETS] = "prompt_target_tokens",
        [ALEA_BUFFER_PROMPT_LOGPROBS] = "prompt_logprobs",
    };
    const int64_t slots = layout->capacity;
    const int64_t tokens = layout->tokens;
    const int64_t rows = layout->scored_rows;
    alea_buffer_shape s = {.name = names[buffer], .word = ALEA_WORD_INT32};
#define EXTENTS(n, ...) (s.rank = (n), memcpy(s.extent, (int64_t[4]){__VA_ARGS__}, sizeof s.extent))
    switch (buffer) {
    case ALEA_BUFFER_RECORDS:
        s.word = ALEA_WORD_INT64;
        EXTENTS(3, ALEA_FRAMES, slots, ALEA_RECORD_HEADER + tokens);
        break;
    case ALEA_BUFFER_LOGPROBS:
        if (layout->alternatives > 0)
            EXTENTS(4, ALEA_FRAMES, slots, tokens, alea__layout_words(layout));
        break;
    case ALEA_BUFFER_REQUESTED:
        if (layout->alternatives > 0) EXTENTS(1, slots);
        break;
    case ALEA_BUFFER_TOKEN_IDS:
        if (layout->token_ids) EXTENTS(2, slots, ALEA_TOKEN_IDS_MAX);
        break;
    case ALEA_BUFFER_TOKEN_ID_COUNTS:
        if (layout->token_ids) EXTENTS(1, slots);
        break;
    case ALEA_BUFFER_PROMPT_TARGETS:
        if (rows > 0) EXTENTS(1, rows);
        break;
    case ALEA_BUFFER_PROMPT_LOGPROBS:
        if (rows > 0) EXTENTS(3, ALEA_FRAMES, rows, ALEA_SCORE_WORDS);
        break;
    case ALEA_BUFFERS: break;
    }
#undef EXTENTS
    if (s.rank > 0) {
        /* The limits of a checked layout keep this below 2^33 bytes. */
        s.bytes = s.word == ALEA_WORD_INT64 ? sizeof(int64_t) : sizeof(int32_t);
        for (int32_t i = 0; i < s.rank; i++)
            s.bytes *= (size_t)s.extent[i];
        s.reserved_bytes = (s.bytes + REGION_BYTES - 1) & ~(size_t)(REGION_BYTES - 1);
    }
    *shape = s;
}

static void set_buffer(alea_completion *completion, alea_buffer buffer, void *memory) {
    switch (buffer) {
    case ALEA_BUFFER_RECORDS: completion->records = memory; break;
    case ALEA_BUFFER_LOGPROBS: completion->logprobs = memory; break;
    case ALEA_BUFFER_REQUESTED: completion->requested = memory; break;
    case ALEA_BUFFER_TOKEN_IDS: completion->token_ids = memory; break;
    case ALEA_BUFFER_TOKEN_ID_COUNTS: completion->token_id_counts = memory; break;
    case ALEA_BUFFER_PROMPT_TARGETS: completion->prompt_targets = memory; break;
    case ALEA_BUFFER_PROMPT_LOGPROBS: completion->prompt_logprobs = memory; break;
    case ALEA_BUFFERS: break;
    }
}

/* Carve the buffers marked in completion->owned out of one new block. */
static alea_status allocate_owned(alea_completion *completion, alea_error *error) {
    alea_buffer_shape shapes[ALEA_BUFFERS];
    size_t total = 0;
    for (int i = 0; i < ALEA_BUFFERS; i++) {
        alea__layout_buffer(&completion->layout, (alea_buffer)i, &shapes[i]);
        if (!completion->owned[i]) continue;
        if (!alea__size_add(total, shapes[i].reserved_bytes, &total))
            return alea_error_set(error, ALEA_ELIMIT, "the completion buffers exceed memory");
    }
    unsigned char *block = aligned_alloc(REGION_BYTES, total);
    if (!block)
        return alea_error_set(error, ALEA_ENOMEM,
                              "%zu bytes for the completion buffers were refused; use fewer "
                              "slots or a smaller completion_token_capacity",
                              total);
    memset(block, 0, total);
    completion->block = block;
    completion->block_bytes = total;
    for (int i = 0; i < ALEA_BUFFERS; i++) {
        if (!completion->owned[i] || shapes[i].rank == 0) continue;
        set_buffer(completion, (alea_buffer)i, block);
        const bool payload = i == ALEA_BUFFER_LOGPROBS || i == ALEA_BUFFER_PROMPT_LOGPROBS;
        if (payload || i == ALEA_BUFFER_PROMPT_TARGETS) memset(block, 0xff, shapes[i].bytes);
        block += shapes[i].reserved_bytes;
    }
    for (int32_t frame = 0; frame < ALEA_FRAMES; frame++)
        for (int32_t slot = 0; slot < completion->layout.capacity; slot++)
            alea__record_clear(completion, frame, slot);
    return ALEA_OK;
}

alea_status alea__completion_allocate(int32_t capacity, int32_t tokens, int32_t scored_rows,
                                      alea_completion *completion, alea_error *error) {
    alea_completion made = {.layout = alea__layout_complete(capacity, tokens, scored_rows)};
    alea_status status = alea__layout_check(&made.layout, error);
    if (status < 0) return status;
    for (int i = 0; i < ALEA_BUFFERS; i++)
        made.owned[i] = true;
    status = allocate_owned(&made, error);
    if (status == ALEA_OK) *completion = made;
    return status;
}

alea_status alea__completion_allocate_role(const alea_completion *whole, alea_completion *role,
                                           alea_error *error) {
    alea_completion made = {
        .layout = whole->layout,
        .requested = whole->requested,
        .token_ids = whole->token_ids,
        .token_id_counts = whole->token_id_counts,
    };
    /* A scored prefill never takes a role of a mixed round. */
    made.layout.scored_rows = 0;
    made.owned[ALEA_BUFFER_RECORDS] = true;
    made.owned[ALEA_BUFFER_LOGPROBS] = true;
    const alea_status status = allocate_owned(&made, error);
    if (status == ALEA_OK) *role = made;
    return status;
}

alea_status alea__completion_bind(const alea_completion_layout *layout,
                                  void *const buffers[ALEA_BUFFERS], alea_completion *completion,
                                  alea_error *error) {
    const alea_status status = alea__layout_check(layout, error);
    if (status < 0) return status;
    alea_completion made = {.layout = *layout};
    for (int i = 0; i < ALEA_BUFFERS; i++) {
        alea_buffer_shape shape;
        alea__layout_buffer(layout, (alea_buffer)i, &shape);
        if ((buffers[i] != NULL) != (shape.rank > 0))
            return alea_error_set(error, ALEA_EINVAL, "buffer %s is %s", shape.name,
                                  buffers[i] ? "not part of this layout" : "missing");
        const size_t alignment = shape.word == ALEA_WORD_INT64 ? 8 : 4;
        if ((uintptr_t)buffers[i] % alignment != 0)
            return alea_error_set(error, ALEA_EINVAL, "buffer %s is not aligned to %zu bytes",
                                  shape.name, alignment);
        set_buffer(&made, (alea_buffer)i, buffers[i]);
    }
    *completion = made;
    return ALEA_OK;
}

void alea__completion_free(alea_completion *completion) {
    free(completion->block);
    *completion = (alea_completion){0};
}

void alea__completion_memory(const alea_completion *completion,
                             alea_buffer_shape report[ALEA_BUFFERS], size_t *total_bytes) {
    size_t total = 0;
    for (int i = 0; i < ALEA_BUFFERS; i++) {
        alea__layout_buffer(&completion->layout, (alea_buffer)i, &report[i]);
        if (!completion->owned[i]) report[i].bytes = report[i].reserved_bytes = 0;
        total += report[i].reserved_bytes;
    }
    *total_bytes = total;
}
