/*
 * What callers get wrong about a device, and what devices refuse: each is told in a line, leaves
 * nothing behind in the operator, and is never a wrong answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/on_device.h"
#include "ops/cuda.h"
#include "ops/rig.h"

static const alea_cuda_api *device_or_skip(void) {
    alea_error error = {0};
    const alea_cuda_api *api = alea__cuda_open(&error);
    if (!api) skip();
    return api;
}

static void test_faults_are_told_in_a_line(void **state) {
    (void)state;
    const alea_cuda_api *api = device_or_skip();
    alea_error error = {0};
    alea_op_config config = rig_config((rig_how){.target = "cuda"}, 1000, 0);
    config.flags = ALEA_OP_CHECK_VALUES;
    alea_topk_mask *mask = NULL;
    assert_int_equal(alea_topk_mask_create(&config, &mask, &error), ALEA_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "wait for the device"));
    config.flags = 0;
    assert_int_equal(alea_topk_mask_create(&config, &mask, &error), ALEA_OK);
    void *data = on_device(api, NULL, 2 * 1000 * 4 + 64);
    int32_t host_k[2] = {5, 5};
    void *k = on_device(api, host_k, sizeof host_k);
    rig_tensor t[3];
    DLTensor *masked = there(rig_2d(&t[0], data, RIG_F32, 1, 1000));
    DLTensor *logits = there(rig_2d(&t[1], (char *)data + 4032, RIG_F32, 1, 1000));
    DLTensor *ks = there(rig_1d(&t[2], k, RIG_I32, 1));
    assert_int_equal(alea_topk_mask_run(mask, masked, logits, ks, NULL, &error), ALEA_OK);
    masked->device.device_id = logits->device.device_id = ks->device.device_id = 5;
    assert_int_equal(alea_topk_mask_run(mask, masked, logits, ks, NULL, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "made on CUDA device 0"));
    masked->device.device_id = logits->device.device_id = ks->device.device_id = 0;
    logits->byte_offset = 2;
    assert_int_equal(alea_topk_mask_run(mask, masked, logits, ks, NULL, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "misaligned"));
    logits->byte_offset = 0;
    logits->device.device_type = masked->device.device_type = ks->device.device_type = kDLCPU;
    logits->byte_offset = 0;
    assert_int_equal(alea_topk_mask_run(mask, masked, logits, ks, NULL, &error), ALEA_EUNSUPPORTED);
    alea_topk_mask_destroy(mask);
    assert_int_equal(api->lab.stream_wait(NULL), 0);
    api->lab.release(data);
    api->lab.release(k);
}

static void test_memory_that_is_not_there_is_no_operator(void **state) {
    (void)state;
    enum { CHUNKS = 4096 };
    const alea_cuda_api *api = device_or_skip();
    alea_error error = {0};
    static void *chunks[CHUNKS];
    int n = 0;
    for (size_t bytes = (size_t)8 << 30; bytes >= (size_t)1 << 20 && n < CHUNKS;) {
        if (api->lab.allocate(bytes, &chunks[n]) == 0) {
            n++;
        } else {
            bytes /= 2;
        }
    }
    alea_op_config config = rig_config((rig_how){.target = "cuda"}, 128256, 0);
    config.max_rows = 4096;
    alea_topk_mask *mask = NULL;
    const alea_status status = alea_topk_mask_create(&config, &mask, &error);
    while (n > 0)
        api->lab.release(chunks[--n]);
    assert_int_equal(status, ALEA_ENOMEM);
    assert_null(mask);
    assert_int_equal(alea_topk_mask_create(&config, &mask, &error), ALEA_OK);
    alea_topk_mask_destroy(mask);
}

/* ---- streams ------------------------------------------------------------------------------ */

enum { ROWS = 5, VOCAB = 40000 };

/* An operator of two launches with what it should say, to be run on streams that are good or not.
 */
typedef struct draw {
    const alea_cuda_api *api;
    alea_sample_logits *op;
    rig_tensor t[5];
    alea_sample_logits_tensors tensors;
    void *logits, *p, *tokens, *zeros;
    void *stream; /* of the last run */
    int32_t right[ROWS];
    alea_error error;
} draw;

static void draw_begin(draw *d, const alea_cuda_api *api) {
    *d = (draw){.api = api};
    float *x = malloc(ROWS * VOCAB * sizeof *x);
    assert_non_null(x);
    float p[ROWS];
    int64_t zeros[ROWS] = {0};
    rig_normal(x, ROWS * VOCAB, 3);
    for (int i = 0; i < ROWS; i++)
        p[i] = 0.2f + 0.15f * (float)i; /* some are settled by the second launch */
    rig_sample_logits((rig_how){.target = "cpu-ref"}, (rig_choice){.tokens = d->right}, x, RIG_F32,
                      ROWS, VOCAB,
                      (rig_params){.top_p = p, .seed = zeros, .offset = zeros, .n_seeds = ROWS});
    d->logits = on_device(api, x, ROWS * VOCAB * sizeof *x);
    d->p = on_device(api, p, sizeof p);
    d->zeros = on_device(api, zeros, sizeof zeros);
    d->tokens = on_device(api, NULL, ROWS * sizeof(int32_t));
    free(x);
    const alea_op_config config = rig_config((rig_how){.target = "cuda"}, VOCAB, 0);
    assert_int_equal(alea_sample_logits_create(&config, &d->op, &d->error), ALEA_OK);

    d->tensors = (alea_sample_logits_tensors){
        .struct_bytes = sizeof d->tensors,
        .logits = there(rig_2d(&d->t[0], d->logits, RIG_F32, ROWS, VOCAB)),
        .top_p = there(rig_1d(&d->t[1], d->p, RIG_F32, ROWS)),
        .seed = there(rig_1d(&d->t[2], d->zeros, RIG_I64, ROWS)),
        .offset = there(rig_1d(&d->t[3], d->zeros, RIG_I64, ROWS)),
        .tokens = there(rig_1d(&d->t[4], d->tokens, RIG_I32, ROWS))};
}

static alea_status draw_run(draw *d, void *stream) {
    assert_int_equal(d->api->lab.fill(d->tokens, 0xff, ROWS * sizeof(int32_t), NULL), 0);
    assert_int_equal(d->api->lab.stream_wait(NULL), 0);
    d->stream = stream;
    return alea_sample_logits_run(d->op, &d->tensors, stream, &d->error);
}

static void expect_tokens(draw *d, const int32_t *right) {
    int32_t got[ROWS];
    assert_int_equal(d->api->lab.stream_wait(d->stream), 0);
    assert_int_equal(d->api->lab.copy_out(got, d->tokens, sizeof got, NULL), 0);
    assert_int_equal(d->api->lab.stream_wait(NULL), 0);
    assert_memory_equal(got, right, sizeof got);
}

/* The last run was refused, in a line that begins so, and wrote nothing. */
static void expect_refused(draw *d, const char *says) {
    static const int32_t nothing[ROWS] = {-1, -1, -1, -1, -1};
    d->stream = NULL;
    if (strncmp(d->error.message, says, strlen(says)) != 0) fail_msg("%s", d->error.message);
    expect_tokens(d, nothing);
}

static void draw_end(draw *d) {
    alea_sample_logits_destroy(d->op);
    d->api->lab.release(d->logits);
    d->api->lab.release(d->p);
    d->api->lab.release(d->zeros);
    d->api->lab.release(d->tokens);
}

/* Someone waits for a stream in the middle of its capture. */
static void test_a_spoilt_capture_is_told(void **state) {
    (void)state;
    const alea_cuda_api *api = device_or_skip();
    void *stream, *graph = NULL;
    draw d;
    draw_begin(&d, api);
    assert_int_equal(api->lab.stream_create(&stream), 0);
    for (int before = 0; before < 2; before++) { /* a launch of the same capture */
        assert_int_equal(api->lab.capture_begin(stream), 0);
        if (before)
            assert_int_equal(alea_sample_logits_run(d.op, &d.tensors, stream, &d.error), ALEA_OK);
        assert_int_not_equal(api->lab.stream_wait(stream), 0);
        assert_int_equal(alea_sample_logits_run(d.op, &d.tensors, stream, &d.error), ALEA_ECORE);
        assert_non_null(strstr(d.error.message, "sample_logits: operation failed"));
        assert_non_null(strstr(d.error.message, "capture"));
        assert_int_not_equal(api->lab.capture_end(stream, &graph), 0);
        assert_null(graph);
        assert_int_equal(draw_run(&d, stream), ALEA_OK);
        expect_tokens(&d, d.right);
    }
    api->lab.stream_destroy(stream);
    draw_end(&d);
}

/* A capture that others ended: the call before it is in their graph, the call after it runs. */
static void test_a_capture_may_end_between_two_calls(void **state) {
    (void)state;
    const alea_cuda_api *api = device_or_skip();
    void *stream, *graph = NULL;
    draw d;
    draw_begin(&d, api);
    assert_int_equal(api->lab.stream_create(&stream), 0);
    assert_int_equal(api->lab.capture_begin(stream), 0);
    assert_int_equal(alea_sample_logits_run(d.op, &d.tensors, stream, &d.error), ALEA_OK);
    assert_int_equal(api->lab.capture_end(stream, &graph), 0);
    for (int replayed = 0; replayed < 2; replayed++) {
        if (replayed) assert_int_equal(api->lab.graph_launch(graph, stream), 0);
        assert_int_equal(draw_run(&d, stream), ALEA_OK);
        expect_tokens(&d, d.right);
    }
    api->lab.graph_destroy(graph);
    api->lab.stream_destroy(stream);
    draw_end(&d);
}

/* The driver, for contexts of which the runtime knows nothing. */
typedef struct driver {
    int (*context_create)(void **context, unsigned flags, int device);
    int (*context_destroy)(void *context);
    int (*context_set)(void *context);
    int (*context_get)(void **context);
    int (*stream_create)(void **stream, unsigned flags);
} driver;

static driver driver_open(void) {
    driver d = {0};
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    assert_non_null(library);
    const struct {
        const char *name;
        void *at;
    } symbols[] = {{"cuCtxCreate_v2", &d.context_create},
                   {"cuCtxDestroy_v2", &d.context_destroy},
                   {"cuCtxSetCurrent", &d.context_set},
                   {"cuCtxGetCurrent", &d.context_get},
                   {"cuStreamCreate", &d.stream_create}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        assert_non_null(found);
        memcpy(symbols[i].at, &found, sizeof found);
    }
    return d;
}

/* Refused in a line, or served right. */
static void test_a_stream_of_another_context_is_never_a_wrong_answer(void **state) {
    (void)state;
    const alea_cuda_api *api = device_or_skip();
    const driver cu = driver_open();
    void *own = NULL, *other = NULL, *stream = NULL;
    draw d;
    draw_begin(&d, api);
    assert_int_equal(cu.context_get(&own), 0);
    assert_int_equal(cu.context_create(&other, 0, 0), 0);
    assert_int_equal(cu.stream_create(&stream, 1), 0);
    assert_int_equal(cu.context_set(own), 0);
    if (draw_run(&d, stream) >= 0) { /* today's drivers serve it */
        expect_tokens(&d, d.right);
    } else {
        expect_refused(&d, "sample_logits: ");
    }
    assert_int_equal(draw_run(&d, NULL), ALEA_OK);
    expect_tokens(&d, d.right);
    assert_int_equal(cu.context_destroy(other), 0);
    assert_int_equal(cu.context_set(own), 0);
    assert_int_equal(draw_run(&d, NULL), ALEA_OK);
    expect_tokens(&d, d.right);
    draw_end(&d);
}

/* Frameworks put any number where a dimension has one entry. */
static void test_strides_of_dimensions_without_a_step_are_not_read(void **state) {
    (void)state;
    const alea_cuda_api *api = device_or_skip();
    draw d;
    draw_begin(&d, api);
    for (int32_t i = 0; i < 5; i++) {
        DLTensor *t = &d.t[i].dl;
        t->shape[0] = 1;
        d.t[i].strides[0] = i % 2 ? INT64_MIN : INT64_MAX;
        d.t[i].strides[1] = 1;
        t->strides = d.t[i].strides;
    }
    assert_int_equal(draw_run(&d, NULL), ALEA_OK);
    const int32_t first[ROWS] = {d.right[0], -1, -1, -1, -1};
    expect_tokens(&d, first);
    draw_end(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults_are_told_in_a_line),
        cmocka_unit_test(test_memory_that_is_not_there_is_no_operator),
        cmocka_unit_test(test_a_spoilt_capture_is_told),
        cmocka_unit_test(test_a_capture_may_end_between_two_calls),
        cmocka_unit_test(test_a_stream_of_another_context_is_never_a_wrong_answer),
        cmocka_unit_test(test_strides_of_dimensions_without_a_step_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
