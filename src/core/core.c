/*
 * The alea_core_* functions: every argument is checked here, once, so that an engine below sees
 * valid input only. Several engines end the process on input that they do not like.
 *
 * They add no policy: nothing is split, retried or reordered.
 */
#include "alea/core.h"

#include <string.h>

#define TEXT_BYTES_MAX ((size_t)1 << 30)

static const uint32_t open_flags = ALEA_CORE_VOCAB_ONLY | ALEA_CORE_FAST;
static const uint32_t tokenize_flags = ALEA_TOKENIZE_SPECIAL | ALEA_TOKENIZE_MARKUP;

/* What a core reported, made whole: a failing core may have left no words or an odd status. */
static alea_status report(const alea_core_api *api, alea_status status, const alea_error *from,
                          alea_error *error) {
    if (status == ALEA_OK) return ALEA_OK;
    if (status > ALEA_OK) status = ALEA_ECORE;
    if (from != NULL && from->message[0] != '\0')
        return alea_error_set(error, status, "%s", from->message);
    return alea_error_set(error, status, "core %s: %s", api->name, alea_status_text(status));
}

static alea_status check_options(const alea_core_options *options, alea_error *error) {
    if (options == NULL) return alea_error_set(error, ALEA_EINVAL, "core options are missing");
    if (options->struct_bytes != sizeof(*options))
        return alea_error_set(error, ALEA_EINVAL, "core options: struct_bytes is %u, expected %zu",
                              options->struct_bytes, sizeof(*options));
    if ((options->flags & ~open_flags) != 0)
        return alea_error_set(error, ALEA_EINVAL, "core options: unknown flags 0x%x",
                              options->flags & ~open_flags);
    if (options->model == NULL)
        return alea_error_set(error, ALEA_EINVAL, "core options: no model is named");
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {
        {"context_tokens", options->context_tokens},
        {"sequences", options->sequences},
        {"round_tokens", options->round_tokens},
        {"round_rows", options->round_rows},
        {"threads", options->threads},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].value < 0)
            return alea_error_set(error, ALEA_EINVAL,
                                  "core options: %s is %d, it cannot be negative", numbers[i].name,
                                  numbers[i].value);
    }
    return ALEA_OK;
}

/* Takes over the limits that every later check needs; a core that states none is refused. */
static alea_status adopt(alea_core *core, uint32_t flags, alea_error *error) {
    alea_core_info info;
    alea_core_describe(core, &info);
    const bool vocab_only = (flags & ALEA_CORE_VOCAB_ONLY) != 0;
    const bool sound =
        info.vocab > 0 && (vocab_only || (info.context_tokens > 0 && info.sequences > 0 &&
                                          info.round_tokens > 0 && info.round_rows > 0));
    if (!sound)
        return alea_error_set(error, ALEA_ECORE, "core %s: it states no sizes", core->api->name);
    core->vocab = info.vocab;
    core->context_tokens = vocab_only ? 0 : info.context_tokens;
    core->sequences = vocab_only ? 0 : info.sequences;
    core->round_tokens = vocab_only ? 0 : info.round_tokens;
    core->round_rows = vocab_only ? 0 : info.round_rows;
    core->rows_ready = 0;
    core->rows_in_flight = 0;
    core->in_flight = false;
    return ALEA_OK;
}

alea_status alea_core_open(const alea_core_api *api, const alea_core_options *options,
                           alea_core **core, alea_error *error) {
    if (api == NULL || core == NULL) return alea_error_set(error, ALEA_EINVAL, "no core to open");
    if (api->abi != ALEA_CORE_ABI || api->struct_bytes < ALEA_CORE_API_BYTES_MIN)
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "core ABI %u of %u bytes, this program speaks %u of at least %zu; "
                              "rebuild the core against this alea/core.h",
                              api->abi, api->struct_bytes, ALEA_CORE_ABI,
                              (size_t)ALEA_CORE_API_BYTES_MIN);
    alea_status status = check_options(options, error);
    if (status < 0) return status;
    alea_core *opened = NULL;
    alea_error cause = {.status = ALEA_OK};
    status = api->open(options, &opened, &cause);
    if (status == ALEA_OK && opened == NULL) status = ALEA_ECORE;
    if (status != ALEA_OK) return report(api, status, &cause, error);
    opened->api = api;
    status = adopt(opened, options->flags, error);
    if (status < 0) {
        api->close(opened);
        return status;
    }
    *core = opened;
    return ALEA_OK;
}

void alea_core_close(alea_core *core) {
    if (core == NULL) return;
    if (core->in_flight) (void)core->api->wait(core, NULL);
    core->api->close(core);
}

void alea_core_describe(const alea_core *core, alea_core_info *info) {
    memset(info, 0, sizeof(*info));
    info->struct_bytes = sizeof(*info);
    core->api->describe(core, info);
}

alea_status alea_core_token(const alea_core *core, int32_t token, alea_token_info *info) {
    if (core == NULL || info == NULL || token < 0 || token >= core->vocab) return ALEA_EINVAL;
    core->api->token_info(core, token, info);
    return ALEA_OK;
}

alea_status alea_core_tokenize(const alea_core *core, alea_bytes text, uint32_t flags,
                               int32_t *tokens, size_t capacity, size_t *count) {
    if (core == NULL || count == NULL || (flags & ~tokenize_flags) != 0) return ALEA_EINVAL;
    if ((text.data == NULL && text.length > 0) || (tokens == NULL && capacity > 0))
        return ALEA_EINVAL;
    if (text.length > TEXT_BYTES_MAX) return ALEA_ELIMIT;
    return report(core->api, core->api->tokenize(core, text, flags, tokens, capacity, count), NULL,
                  NULL);
}

static alea_status check_span(const alea_core *core, const alea_span *span, int32_t at,
                              alea_error *error) {
    if (span->length < 1)
        return alea_error_set(error, ALEA_EINVAL, "round item %d: span length is %d", at,
                              span->length);
    if (span->kind == ALEA_SPAN_OPAQUE) {
        if (span->opaque.data != NULL) return ALEA_OK;
        return alea_error_set(error, ALEA_EINVAL, "round item %d: the opaque span is empty", at);
    }
    if (span->kind != ALEA_SPAN_TOKENS)
        return alea_error_set(error, ALEA_EINVAL, "round item %d: unknown span kind %u", at,
                              span->kind);
    if (span->tokens == NULL)
        return alea_error_set(error, ALEA_EINVAL, "round item %d: tokens are missing", at);
    for (int32_t i = 0; i < span->length; i++) {
        if (span->tokens[i] < 0 || span->tokens[i] >= core->vocab)
            return alea_error_set(error, ALEA_EINVAL,
                                  "round item %d: token %d at index %d is outside 0..%d", at,
                                  span->tokens[i], i, core->vocab - 1);
    }
    return ALEA_OK;
}

static alea_status check_item(const alea_core *core, const alea_round *round, int32_t at,
                              alea_error *error) {
    const alea_round_item *item = &round->items[at];
    if (item->sequence < 0 || item->sequence >= core->sequences)
        return alea_error_set(error, ALEA_EINVAL, "round item %d: sequence %d is outside 0..%d", at,
                              item->sequence, core->sequences - 1);
    /* Quadratic, over at most as many items as there are sequences. */
    for (int32_t i = 0; i < at; i++) {
        if (round->items[i].sequence == item->sequence)
            return alea_error_set(error, ALEA_EINVAL,
                                  "round item %d: sequence %d is in item %d too", at,
                                  item->sequence, i);
    }
    const alea_status status = check_span(core, &item->span, at, error);
    if (status < 0) return status;
    const int32_t present = core->api->sequence_length(core, item->sequence);
    if (item->position != present)
        return alea_error_set(error, ALEA_EINVAL,
                              "round item %d: position is %d, sequence %d holds %d", at,
                              item->position, item->sequence, present);
    if (item->first_row < 0 || item->first_row > item->span.length)
        return alea_error_set(error, ALEA_EINVAL, "round item %d: first_row %d is outside 0..%d",
                              at, item->first_row, item->span.length);
    if (item->span.length > core->context_tokens - present)
        return alea_error_set(error, ALEA_ECONTEXT,
                              "sequence %d holds %d tokens and %d more exceed the context of %d",
                              item->sequence, present, item->span.length, core->context_tokens);
    return ALEA_OK;
}

static alea_status check_round(const alea_core *core, const alea_round *round, int32_t *n_rows,
                               alea_error *error) {
    if (round == NULL || round->items == NULL || round->n_items < 1)
        return alea_error_set(error, ALEA_EINVAL, "the round is empty");
    if (round->n_items > core->sequences)
        return alea_error_set(error, ALEA_EINVAL, "the round has %d items for %d sequences",
                              round->n_items, core->sequences);
    int64_t tokens = 0;
    int64_t rows = 0;
    for (int32_t i = 0; i < round->n_items; i++) {
        const alea_status status = check_item(core, round, i, error);
        if (status < 0) return status;
        tokens += round->items[i].span.length;
        rows += round->items[i].span.length - round->items[i].first_row;
    }
    if (tokens > core->round_tokens)
        return alea_error_set(error, ALEA_ELIMIT, "the round has %lld tokens, the limit is %d",
                              (long long)tokens, core->round_tokens);
    if (rows > core->round_rows)
        return alea_error_set(error, ALEA_ELIMIT, "the round asks for %lld rows, the limit is %d",
                              (long long)rows, core->round_rows);
    *n_rows = (int32_t)rows;
    return ALEA_OK;
}

/* Calls that would touch a core's sequences between submit and wait, or have none to touch. */
static alea_status check_idle(const alea_core *core, alea_error *error) {
    if (core == NULL) return alea_error_set(error, ALEA_EINVAL, "the core is missing");
    if (core->round_tokens == 0)
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "the core was opened for its vocabulary only");
    if (core->in_flight)
        return alea_error_set(error, ALEA_EINVAL, "a round is in flight; wait for it first");
    return ALEA_OK;
}

alea_status alea_core_submit(alea_core *core, const alea_round *round, int32_t *n_rows,
                             alea_error *error) {
    alea_status status = check_idle(core, error);
    if (status < 0) return status;
    if (n_rows == NULL) return alea_error_set(error, ALEA_EINVAL, "n_rows is missing");
    int32_t rows = 0;
    status = check_round(core, round, &rows, error);
    if (status < 0) return status;
    core->rows_ready = 0;
    alea_error cause = {.status = ALEA_OK};
    status = report(core->api, core->api->submit(core, round, &cause), &cause, error);
    if (status < 0) return status;
    core->rows_in_flight = rows;
    core->in_flight = true;
    *n_rows = rows;
    return ALEA_OK;
}

alea_status alea_core_wait(alea_core *core, alea_error *error) {
    if (core == NULL || !core->in_flight)
        return alea_error_set(error, ALEA_EINVAL, "no round is in flight");
    core->in_flight = false;
    alea_error cause = {.status = ALEA_OK};
    const alea_status status = report(core->api, core->api->wait(core, &cause), &cause, error);
    if (status < 0) return status;
    core->rows_ready = core->rows_in_flight;
    return ALEA_OK;
}

alea_status alea_core_run(alea_core *core, const alea_round *round, int32_t *n_rows,
                          alea_error *error) {
    int32_t rows = 0;
    if (n_rows == NULL) return alea_error_set(error, ALEA_EINVAL, "n_rows is missing");
    alea_status status = alea_core_submit(core, round, &rows, error);
    if (status < 0) return status;
    status = alea_core_wait(core, error);
    if (status < 0) return status;
    *n_rows = rows;
    return ALEA_OK;
}

const float *alea_core_row(alea_core *core, int32_t index) {
    if (core == NULL || index < 0 || index >= core->rows_ready) return NULL;
    return core->api->row(core, index);
}

int32_t alea_core_sequence_length(const alea_core *core, int32_t sequence) {
    if (core == NULL || sequence < 0 || sequence >= core->sequences) return -1;
    return core->api->sequence_length(core, sequence);
}

alea_status alea_core_sequence_copy(alea_core *core, int32_t from, int32_t to, alea_error *error) {
    alea_status status = check_idle(core, error);
    if (status < 0) return status;
    if (from < 0 || from >= core->sequences || to < 0 || to >= core->sequences)
        return alea_error_set(error, ALEA_EINVAL, "cannot copy sequence %d to %d: ids are 0..%d",
                              from, to, core->sequences - 1);
    if (from == to) return ALEA_OK;
    return report(core->api, core->api->sequence_copy(core, from, to), NULL, error);
}

alea_status alea_core_sequence_trim(alea_core *core, int32_t sequence, int32_t length,
                                    alea_error *error) {
    alea_status status = check_idle(core, error);
    if (status < 0) return status;
    const int32_t present = alea_core_sequence_length(core, sequence);
    if (present < 0)
        return alea_error_set(error, ALEA_EINVAL, "sequence %d is outside 0..%d", sequence,
                              core->sequences - 1);
    if (length < 0 || length > present)
        return alea_error_set(error, ALEA_EINVAL, "cannot trim sequence %d to %d: it holds %d",
                              sequence, length, present);
    if (length == present) return ALEA_OK;
    return report(core->api, core->api->sequence_trim(core, sequence, length), NULL, error);
}
