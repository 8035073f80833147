/*
 * One allocation on the device and one pinned on the host, carved once. The inputs of a submission
 * go through pinned staging of two turns, so that a copy on its way is never overwritten.
 */
#include "contract/device.h"

#include <stdlib.h>
#include <string.h>

#include "contract/record.h"

enum { ALIGN = 256, OUT_OF_MEMORY = 2 /* cudaErrorMemoryAllocation */ };

/* What a submission brings, as it lies on the device and in the staging. */
typedef struct inputs {
    int32_t *token_ids;       /* [capacity][128]; NULL: the layout has none */
    int32_t *token_id_counts; /* [capacity] */
    alea_cuda_lane *lanes;    /* [lanes], each with its slot's request flag */
} inputs;

struct alea_device_completion {
    const alea_cuda_api *api;
    alea_device_config config;
    int32_t words;
    size_t record_bytes, payload_bytes, input_bytes; /* of a frame, of a frame, of a submission */
    size_t device_bytes, pinned_bytes;
    char *device, *pinned;
    char *records, *payloads, *here;              /* on the device */
    char *host_records, *host_payloads, *staging; /* pinned */
    alea_cuda_workspace *workspace;
    void *copy_stream;
    void *ready, *done[ALEA_FRAMES], *staged[ALEA_FRAMES];
    int32_t turn;         /* of the staging */
    int32_t *requested;   /* [capacity] of the last submission */
    int32_t *last_lane;   /* [capacity] of a slot in the submission that is being made; -1: none */
    int32_t *lane_before; /* [lanes] of the same slot */
};

static size_t padded(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The arrays of a submission at `at`; returns their bytes. */
static size_t carve_inputs(const alea_device_config *c, char *at, inputs *in) {
    const size_t slots = (size_t)c->layout.capacity, lanes = (size_t)c->lanes;
    size_t used = 0;
#define TAKE(member, count)                                                                        \
    do {                                                                                           \
        in->member = at ? (void *)(at + used) : NULL; /* NULL only measures */                     \
        used = padded(used + (count) * sizeof *in->member);                                        \
    } while (0)
    memset(in, 0, sizeof *in);
    if (c->layout.token_ids) {
        TAKE(token_ids, slots * ALEA_TOKEN_IDS_MAX);
        TAKE(token_id_counts, slots);
    }
    TAKE(lanes, lanes);
#undef TAKE
    return used;
}

static alea_status failed(const alea_device_completion *d, int code, const char *what,
                          alea_error *error) {
    return alea_error_set(error, code == OUT_OF_MEMORY ? ALEA_ENOMEM : ALEA_ECORE,
                          "device completion: %s: %s", what, d->api->error_text(code));
}

static void carve(alea_device_completion *d) {
    d->records = d->device;
    d->payloads = d->records + ALEA_FRAMES * d->record_bytes;
    d->here = d->payloads + ALEA_FRAMES * d->payload_bytes;
    d->host_records = d->pinned;
    d->host_payloads = d->host_records + ALEA_FRAMES * d->record_bytes;
    d->staging = d->host_payloads + ALEA_FRAMES * d->payload_bytes;
}

/* The empty record of every slot, as alea__record_clear writes it. */
static void clear_records(alea_device_completion *d) {
    alea_completion host = {.layout = d->config.layout,
                            .records = (int64_t *)(void *)d->host_records};
    for (int32_t slot = 0; slot < d->config.layout.capacity; slot++)
        alea__record_clear(&host, 0, slot);
    memcpy(d->host_records + d->record_bytes, d->host_records, d->record_bytes);
}

static int make(alea_device_completion *d) {
    const alea_cuda_lab *lab = &d->api->lab;
    const alea_device_config *c = &d->config;
    int code = lab->allocate(d->device_bytes, (void **)&d->device);
    if (!code) code = lab->allocate_pinned(d->pinned_bytes, (void **)&d->pinned);
    if (!code) code = lab->stream_create(&d->copy_stream);
    if (!code) code = lab->event_create(&d->ready);
    for (int i = 0; i < ALEA_FRAMES && !code; i++) {
        code = lab->event_create(&d->done[i]);
        if (!code) code = lab->event_create(&d->staged[i]);
    }
    if (!code) {
        code = d->api->workspace_create(ALEA_CUDA_LOGPROBS, (int64_t)c->lanes * c->layout.tokens,
                                        c->vocab, &d->workspace);
    }
    if (code) return code;
    carve(d);
    code = lab->fill(d->device, 0, d->device_bytes, d->copy_stream);
    if (!code) code = lab->fill(d->payloads, 0xff, ALEA_FRAMES * d->payload_bytes, d->copy_stream);
    clear_records(d);
    if (!code)
        code = lab->copy_in(d->records, d->host_records, ALEA_FRAMES * d->record_bytes,
                            d->copy_stream);
    return code ? code : lab->stream_wait(d->copy_stream);
}

static void free_host(alea_device_completion *d) {
    free(d->requested);
    free(d->last_lane);
    free(d->lane_before);
    free(d);
}

alea_status alea__device_create(const alea_cuda_api *api, const alea_device_config *config,
                                alea_device_completion **made, alea_error *error) {
    const alea_status status = alea__layout_check(&config->layout, error);
    if (status < 0) return status;
    if (config->lanes < 1 || config->lanes > ALEA_SLOTS_MAX || config->layout.alternatives < 1)
        return alea_error_set(error, ALEA_EINVAL,
                              "device completion: %d lanes and %d alternatives; at least 1 of each "
                              "and at most %d lanes",
                              config->lanes, config->layout.alternatives, ALEA_SLOTS_MAX);
    alea_device_completion *d = calloc(1, sizeof *d);
    if (d) {
        d->requested = calloc((size_t)config->layout.capacity, sizeof *d->requested);
        d->last_lane = calloc((size_t)config->layout.capacity, sizeof *d->last_lane);
        d->lane_before = calloc((size_t)config->lanes, sizeof *d->lane_before);
    }
    if (!d || !d->requested || !d->last_lane || !d->lane_before) {
        if (d) free_host(d);
        return alea_error_set(error, ALEA_ENOMEM, "no memory for a device completion");
    }
    d->api = api;
    d->config = *config;
    d->words = alea__layout_words(&config->layout);
    const size_t slots = (size_t)config->layout.capacity, tokens = (size_t)config->layout.tokens;
    inputs in;
    d->record_bytes = padded(slots * (ALEA_RECORD_HEADER + tokens) * sizeof(int64_t));
    d->payload_bytes = padded(slots * tokens * (size_t)d->words * sizeof(int32_t));
    d->input_bytes = carve_inputs(config, NULL, &in);
    d->device_bytes = ALEA_FRAMES * (d->record_bytes + d->payload_bytes) + d->input_bytes;
    d->pinned_bytes = ALEA_FRAMES * (d->record_bytes + d->payload_bytes + d->input_bytes);
    const int code = make(d);
    if (code) {
        const alea_status why = failed(d, code, "no memory on the device", error);
        alea__device_destroy(d);
        return why;
    }
    *made = d;
    return ALEA_OK;
}

void alea__device_destroy(alea_device_completion *d) {
    if (!d) return;
    const alea_cuda_lab *lab = &d->api->lab;
    if (d->copy_stream) (void)lab->stream_wait(NULL);
    d->api->workspace_destroy(d->workspace);
    for (int i = 0; i < ALEA_FRAMES; i++) {
        if (d->done[i]) (void)lab->event_destroy(d->done[i]);
        if (d->staged[i]) (void)lab->event_destroy(d->staged[i]);
    }
    if (d->ready) (void)lab->event_destroy(d->ready);
    if (d->copy_stream) (void)lab->stream_destroy(d->copy_stream);
    if (d->device) (void)lab->release(d->device);
    if (d->pinned) (void)lab->release_pinned(d->pinned);
    free_host(d);
}

int64_t *alea__device_records(const alea_device_completion *d, int32_t frame) {
    return (int64_t *)(void *)(d->records + (size_t)frame * d->record_bytes);
}

/* The lanes as the device reads them. One that repeats an earlier one's slot and epoch asks for
 * nothing. */
static void put_lanes(alea_device_completion *d, const int32_t *requested,
                      const alea_device_lane *lanes, int32_t n_lanes, alea_cuda_lane *out) {
    const int32_t capacity = d->config.layout.capacity;
    for (int32_t slot = 0; slot < capacity; slot++)
        d->last_lane[slot] = -1;
    for (int32_t i = 0; i < d->config.lanes; i++)
        out[i] = (alea_cuda_lane){.slot = -1};
    for (int32_t i = 0; i < n_lanes; i++) {
        const alea_device_lane *lane = &lanes[i];
        if (lane->slot < 0 || lane->slot >= capacity) continue;
        bool repeated = false;
        for (int32_t j = d->last_lane[lane->slot]; j >= 0 && !repeated; j = d->lane_before[j])
            repeated = lanes[j].epoch == lane->epoch;
        d->lane_before[i] = d->last_lane[lane->slot];
        d->last_lane[lane->slot] = i;
        out[i] = (alea_cuda_lane){.slot = lane->slot,
                                  .requested = repeated ? 0 : requested[lane->slot],
                                  .first_row = lane->first_row,
                                  .offered = lane->offered_rows,
                                  .epoch = lane->epoch};
    }
}

alea_status alea__device_submit(alea_device_completion *d, const int32_t *requested,
                                const int32_t *token_ids, const int32_t *token_id_counts,
                                const alea_device_lane *lanes, int32_t n_lanes, void *stream,
                                alea_error *error) {
    const alea_device_config *c = &d->config;
    if (n_lanes < 0 || n_lanes > c->lanes)
        return alea_error_set(error, ALEA_EINVAL, "device completion: %d lanes; it was made for %d",
                              n_lanes, c->lanes);
    const alea_cuda_lab *lab = &d->api->lab;
    const int32_t turn = d->turn;
    int code = lab->event_wait(d->staged[turn]); /* the copy of two submissions ago */
    if (code) return failed(d, code, "submit", error);
    inputs in;
    char *staging = d->staging + (size_t)turn * d->input_bytes;
    (void)carve_inputs(c, staging, &in);
    const size_t slots = (size_t)c->layout.capacity;
    memcpy(d->requested, requested, slots * sizeof *requested);
    if (in.token_ids && token_ids && token_id_counts) {
        memcpy(in.token_ids, token_ids, slots * ALEA_TOKEN_IDS_MAX * sizeof *token_ids);
        memcpy(in.token_id_counts, token_id_counts, slots * sizeof *token_id_counts);
    } else if (in.token_ids) {
        memset(in.token_id_counts, 0, slots * sizeof *in.token_id_counts);
    }
    put_lanes(d, requested, lanes, n_lanes, in.lanes);
    code = lab->copy_in(d->here, staging, d->input_bytes, stream);
    if (!code) code = lab->event_record(d->staged[turn], stream);
    d->turn = (turn + 1) % ALEA_FRAMES;
    return code ? failed(d, code, "submit", error) : ALEA_OK;
}

alea_status alea__device_reduce(alea_device_completion *d, int32_t frame, void *stream,
                                alea_error *error) {
    const alea_device_config *c = &d->config;
    if (frame < 0 || frame >= ALEA_FRAMES)
        return alea_error_set(error, ALEA_EINVAL, "there is no frame %d", frame);
    inputs in;
    (void)carve_inputs(c, d->here, &in);
    const alea_cuda_reduction reduction = {
        .records = alea__device_records(d, frame),
        .logprobs = (int32_t *)(void *)(d->payloads + (size_t)frame * d->payload_bytes),
        .token_ids = in.token_ids,
        .token_id_counts = in.token_id_counts,
        .slots = in.lanes,
        .logits = c->logits,
        .row_bytes = c->row_bytes,
        .lanes = c->lanes,
        .capacity = c->layout.capacity,
        .tokens = c->layout.tokens,
        .words = d->words,
        .alternatives = c->layout.alternatives,
        .rows = c->rows,
        .vocab = c->vocab,
        .dtype = c->dtype,
        .header_words = ALEA_RECORD_HEADER};
    const int code = d->api->reduce(&reduction, d->workspace, stream);
    return code ? failed(d, code, "reduce", error) : ALEA_OK;
}

/* Slots that asked and stand together are one copy. */
static int fetch_payloads(alea_device_completion *d, int32_t frame, size_t width) {
    const size_t step = (size_t)d->words * sizeof(int32_t);
    const size_t tokens = (size_t)d->config.layout.tokens;
    const int32_t slots = d->config.layout.capacity;
    int code = 0;
    for (int32_t slot = 0; slot < slots && !code;) {
        int32_t end = slot;
        while (end < slots && d->requested[end])
            end++;
        if (end > slot) {
            const size_t at = (size_t)frame * d->payload_bytes + (size_t)slot * tokens * step;
            code = d->api->lab.copy_out_rows(d->host_payloads + at, step, d->payloads + at, step,
                                             width, (size_t)(end - slot) * tokens, d->copy_stream);
        }
        slot = end + 1;
    }
    return code;
}

alea_status alea__device_fetch(alea_device_completion *d, int32_t frame, int32_t pairs,
                               void *stream, alea_error *error) {
    if (frame < 0 || frame >= ALEA_FRAMES || pairs < 0 || 2 + 2 * pairs > d->words)
        return alea_error_set(error, ALEA_EINVAL,
                              "device completion: frame %d, %d pairs; there are 2 frames of %d "
                              "pairs",
                              frame, pairs, d->words / 2 - 1);
    const alea_cuda_lab *lab = &d->api->lab;
    const size_t at = (size_t)frame * d->record_bytes;
    int code = lab->event_record(d->ready, stream);
    if (!code) code = lab->stream_wait_event(d->copy_stream, d->ready);
    if (!code)
        code =
            lab->copy_out(d->host_records + at, d->records + at, d->record_bytes, d->copy_stream);
    if (!code) code = fetch_payloads(d, frame, (2 + 2 * (size_t)pairs) * sizeof(int32_t));
    if (!code) code = lab->event_record(d->done[frame], d->copy_stream);
    return code ? failed(d, code, "fetch", error) : ALEA_OK;
}

alea_status alea__device_wait(alea_device_completion *d, int32_t frame, const int64_t **records,
                              const int32_t **payload, alea_error *error) {
    if (frame < 0 || frame >= ALEA_FRAMES)
        return alea_error_set(error, ALEA_EINVAL, "there is no frame %d", frame);
    const int code = d->api->lab.event_wait(d->done[frame]);
    if (code) return failed(d, code, "wait", error);
    *records = (const int64_t *)(void *)(d->host_records + (size_t)frame * d->record_bytes);
    *payload = (const int32_t *)(void *)(d->host_payloads + (size_t)frame * d->payload_bytes);
    return ALEA_OK;
}

void alea__device_memory(const alea_device_completion *d, size_t *device_bytes,
                         size_t *pinned_bytes) {
    *device_bytes = d->device_bytes + d->api->workspace_bytes(d->workspace);
    *pinned_bytes = d->pinned_bytes;
}
