/*
 * The completion contract on a device against the one on the host: random submissions, every
 * verdict among them, by a reduction that was captured once for each frame and is replayed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "contract/device.h"
#include "contract/payload.h"
#include "contract/record.h"
#include "contract/reduce.h"
#include "cuda/cuda_copy.h"
#include "ops/cuda.h"
#include "support/fill.h"

enum { CAPACITY = 12, TOKENS = 4, LANES = 10, ROWS = 24, ROUNDS = 60 };

typedef struct rig {
    const alea_cuda_api *api;
    alea_completion host;
    alea_device_completion *device;
    void *stream, *graphs[ALEA_FRAMES], *logits;
    float *rows; /* [ROWS][vocab] */
    int32_t vocab;
    uint64_t random;
    alea_error error;
} rig;

static void must(const rig *r, alea_status status) {
    if (status < 0) fail_msg("%s", r->error.message);
}

static uint64_t below(rig *r, uint64_t n) {
    return test_random(&r->random) % n;
}

static void begin(rig *r, int32_t vocab, int32_t alternatives, bool token_ids) {
    const size_t bytes = (size_t)ROWS * (size_t)vocab * sizeof(float);
    r->vocab = vocab;
    r->rows = malloc(bytes);
    assert_non_null(r->rows);
    for (int i = 0; i < ROWS; i++) /* most are sound */
        test_fill_row(r->rows + (size_t)i * (size_t)vocab, vocab,
                      i % 8 == 7 ? TEST_FILL_NAN : (test_fill)(i % TEST_FILL_SOUND_COUNT),
                      (uint64_t)i);
    assert_int_equal(r->api->lab.stream_create(&r->stream), 0);
    assert_int_equal(r->api->lab.allocate(bytes, &r->logits), 0);
    assert_int_equal(r->api->lab.copy_in(r->logits, r->rows, bytes, r->stream), 0);
    must(r, alea__completion_allocate(CAPACITY, TOKENS, 0, &r->host, &r->error));
    r->host.layout.alternatives = alternatives;
    alea_device_config config = {.layout = r->host.layout,
                                 .lanes = LANES,
                                 .logits = r->logits,
                                 .row_bytes = vocab * (int64_t)sizeof(float),
                                 .rows = ROWS,
                                 .vocab = vocab,
                                 .dtype = ALEA_CUDA_F32};
    assert_true(r->host.layout.token_ids == token_ids);
    must(r, alea__device_create(r->api, &config, &r->device, &r->error));
    for (int32_t frame = 0; frame < ALEA_FRAMES; frame++) {
        assert_int_equal(r->api->lab.capture_begin(r->stream), 0);
        must(r, alea__device_reduce(r->device, frame, r->stream, &r->error));
        assert_int_equal(r->api->lab.capture_end(r->stream, &r->graphs[frame]), 0);
    }
}

static void end(rig *r) {
    for (int32_t frame = 0; frame < ALEA_FRAMES; frame++)
        r->api->lab.graph_destroy(r->graphs[frame]);
    alea__device_destroy(r->device);
    alea__completion_free(&r->host);
    r->api->lab.release(r->logits);
    r->api->lab.stream_destroy(r->stream);
    free(r->rows);
}

/* Records, flags and ids of a submission, on the host. */
static void make_slots(rig *r, int32_t frame) {
    for (int32_t slot = 0; slot < CAPACITY; slot++) {
        const int32_t count = (int32_t)below(r, TOKENS + 1);
        int32_t tokens[TOKENS];
        for (int i = 0; i < TOKENS; i++)
            tokens[i] = (int32_t)below(r, (uint64_t)r->vocab);
        const bool verify = count > 1 || below(r, 2);
        const alea_record record = {.epoch = 1 + (int64_t)below(r, 2),
                                    .slot = slot,
                                    .status = count ? ALEA_RECORD_EMITTED : ALEA_RECORD_NONE,
                                    .count = count,
                                    .drafted = verify ? TOKENS : 0,
                                    .accepted = verify && count ? count - 1 : 0,
                                    .role = verify ? ALEA_ROLE_VERIFY : ALEA_ROLE_DECODE,
                                    .end_index = -1,
                                    .forced = below(r, 8) & ((1u << count) - 1)};
        if (below(r, 6) == 0) {
            alea__record_clear(&r->host, frame, slot);
        } else {
            must(r, alea__record_write(&r->host, frame, &record, tokens, &r->error));
        }
        r->host.requested[slot] = (int32_t)below(r, 3) > 0;
        r->host.token_id_counts[slot] = below(r, 3) ? 0 : (int32_t)below(r, 129);
        for (int i = 0; i < ALEA_TOKEN_IDS_MAX; i++)
            r->host.token_ids[slot * ALEA_TOKEN_IDS_MAX + i] =
                (int32_t)below(r, (uint64_t)r->vocab);
    }
}

static int32_t make_lanes(rig *r, alea_device_lane *lanes, alea_reduce_lane *host) {
    const int32_t n = (int32_t)below(r, LANES + 1);
    for (int32_t i = 0; i < n; i++) {
        lanes[i] = (alea_device_lane){.slot = (int32_t)below(r, CAPACITY + 1) - 1,
                                      .epoch = 1 + (int64_t)below(r, 2),
                                      .first_row = (int32_t)below(r, ROWS - TOKENS),
                                      .offered_rows = (int32_t)below(r, TOKENS + 1)};
        host[i] = (alea_reduce_lane){.slot = lanes[i].slot,
                                     .epoch = lanes[i].epoch,
                                     .first_row = lanes[i].first_row,
                                     .offered_rows = lanes[i].offered_rows};
    }
    return n;
}

static void round_of(rig *r, int32_t frame, int32_t pairs) {
    alea_device_lane lanes[LANES];
    alea_reduce_lane host_lanes[LANES];
    const float *rows[ROWS];
    for (int i = 0; i < ROWS; i++)
        rows[i] = r->rows + (size_t)i * (size_t)r->vocab;
    make_slots(r, frame);
    const int32_t n = make_lanes(r, lanes, host_lanes);
    alea_reduce_batch batch = {
        .rows = rows, .n_rows = ROWS, .vocab = r->vocab, .lanes = host_lanes, .n_lanes = n};
    must(r, alea__reduce(alea__kernels_ref(), NULL, &r->host, frame, &batch, NULL, &r->error));

    const size_t each = ALEA_RECORD_HEADER + TOKENS;
    const int64_t *own = alea__completion_record(&r->host, frame, 0);
    assert_int_equal(r->api->lab.copy_in(alea__device_records(r->device, frame), own,
                                         CAPACITY * each * sizeof *own, r->stream),
                     0);
    must(r, alea__device_submit(r->device, r->host.requested, r->host.token_ids,
                                r->host.token_id_counts, lanes, n, r->stream, &r->error));
    assert_int_equal(r->api->lab.graph_launch(r->graphs[frame], r->stream), 0);
    must(r, alea__device_fetch(r->device, frame, pairs, r->stream, &r->error));
    const int64_t *records;
    const int32_t *payload;
    must(r, alea__device_wait(r->device, frame, &records, &payload, &r->error));
    assert_memory_equal(records, own, CAPACITY * each * sizeof *own);
    const int32_t words = alea__layout_words(&r->host.layout);
    for (int32_t slot = 0; slot < CAPACITY; slot++) {
        if (!r->host.requested[slot]) continue;
        for (int32_t i = 0; i < TOKENS; i++)
            assert_memory_equal(payload + ((size_t)slot * TOKENS + (size_t)i) * (size_t)words,
                                alea__completion_payload(&r->host, frame, slot, i),
                                (2 + 2 * (size_t)pairs) * sizeof(int32_t));
    }
}

static const alea_cuda_api *device_or_skip(void) {
    alea_error error = {0};
    const alea_cuda_api *api = alea__cuda_open(&error);
    if (!api) skip();
    return api;
}

static void test_payloads_are_those_of_the_host(void **state) {
    (void)state;
    static const int32_t vocabs[] = {13, 1000, 32003};
    for (size_t v = 0; v < 3; v++) {
        rig r = {.api = device_or_skip(), .random = v};
        begin(&r, vocabs[v], ALEA_ALTERNATIVES_MAX, true);
        for (int round = 0; round < ROUNDS; round++)
            round_of(&r, round % ALEA_FRAMES, round % 3 ? ALEA_TOKEN_IDS_MAX : 5);
        end(&r);
    }
}

static void test_memory_is_told_and_refusals_are_lines(void **state) {
    (void)state;
    rig r = {.api = device_or_skip(), .random = 9};
    begin(&r, 1000, ALEA_ALTERNATIVES_MAX, true);
    size_t device = 0, pinned = 0;
    alea__device_memory(r.device, &device, &pinned);
    assert_true(device > pinned / 2 && pinned > 0);
    alea_device_lane lanes[LANES + 1] = {{0}};
    assert_int_equal(alea__device_submit(r.device, r.host.requested, NULL, NULL, lanes, LANES + 1,
                                         r.stream, &r.error),
                     ALEA_EINVAL);
    assert_non_null(strstr(r.error.message, "11 lanes; it was made for 10"));
    assert_int_equal(alea__device_fetch(r.device, 2, 5, r.stream, &r.error), ALEA_EINVAL);
    assert_int_equal(alea__device_fetch(r.device, 0, 500, r.stream, &r.error), ALEA_EINVAL);
    assert_int_equal(alea__device_reduce(r.device, -1, r.stream, &r.error), ALEA_EINVAL);
    end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_payloads_are_those_of_the_host),
        cmocka_unit_test(test_memory_is_told_and_refusals_are_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
