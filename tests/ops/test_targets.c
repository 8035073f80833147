/* Targets that a program brings: registered once, asked by name or by device, free to decline. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ops/rig.h"

/* A target for tensors of a device that nothing else serves; it fills masks with 42. */
typedef struct toy {
    alea_op_kind kind;
    int32_t runs;
    bool declines;
} toy;

static int32_t toys_alive;
static bool toy_declines;

static alea_status toy_create(void *user, alea_op_kind kind, const alea_op_config *config,
                              void **state, alea_error *error) {
    (void)config;
    if (kind == ALEA_OP_LOGPROBS) {
        return alea_error_set(error, ALEA_EUNSUPPORTED, "cannot report");
    }
    if (kind == ALEA_OP_SAMPLE_PROBS) return alea_error_set(error, ALEA_ENOMEM, "out of toys");
    toy *t = calloc(1, sizeof *t);
    t->kind = kind;
    t->declines = user != NULL;
    toys_alive++;
    *state = t;
    return ALEA_OK;
}

static void toy_destroy(void *state) {
    toys_alive--;
    free(state);
}

static alea_status toy_run(void *state, const DLTensor *const *tensors, int32_t n_tensors,
                           void *stream, alea_error *error) {
    toy *t = state;
    if (t->declines || toy_declines) {
        return alea_error_set(error, ALEA_EUNSUPPORTED, "not today");
    }
    assert_int_equal(n_tensors, 3);
    assert_ptr_equal(stream, &toys_alive);
    float *out = tensors[0]->data;
    for (int64_t i = 0; i < tensors[0]->shape[0] * tensors[0]->shape[1]; i++)
        out[i] = 42;
    t->runs++;
    return ALEA_OK;
}

static alea_op_target toy_target(const char *name, int32_t device) {
    return (alea_op_target){.struct_bytes = sizeof(alea_op_target),
                            .name = name,
                            .device_type = device,
                            .create = toy_create,
                            .destroy = toy_destroy,
                            .run = toy_run};
}

/* A top-k mask of two rows of three, on a device. */
static alea_status run_topk(const char *target, DLDeviceType device, float *out,
                            alea_error *error) {
    float x[] = {1, 2, 3, 4, 5, 6};
    int32_t k[] = {1, 1};
    rig_tensor t[3];
    DLTensor *tensors[] = {rig_2d(&t[0], out, RIG_F32, 2, 3), rig_2d(&t[1], x, RIG_F32, 2, 3),
                           rig_1d(&t[2], k, RIG_I32, 2)};
    for (int i = 0; i < 3; i++)
        tensors[i]->device.device_type = device;
    const alea_op_config config = rig_config((rig_how){.target = target}, 3, 0);
    alea_topk_mask *op = NULL;
    alea_status status = alea_topk_mask_create(&config, &op, error);
    if (status < 0) return status;
    status = alea_topk_mask_run(op, tensors[0], tensors[1], tensors[2], &toys_alive, error);
    alea_topk_mask_destroy(op);
    return status;
}

static void test_names_of_the_built_in_targets(void **state) {
    (void)state;
    assert_string_equal(alea_target_name(0), "cpu");
    assert_string_equal(alea_target_name(1), "cpu-ref");
    assert_string_equal(alea_target_name(2), "cuda");
    assert_null(alea_target_name(3));
    assert_null(alea_target_name(-1));
    assert_string_equal(alea_op_name(ALEA_OP_CHAIN_SAMPLE), "chain_sample");
    assert_string_equal(alea_op_name(ALEA_OP_KINDS), "unknown");
}

static void test_bad_targets_are_refused(void **state) {
    (void)state;
    alea_error error = {0};
    alea_op_target t = toy_target("cpu", kDLCPU);
    assert_int_equal(alea_target_register(NULL, &error), ALEA_EINVAL);
    assert_int_equal(alea_target_register(&t, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "\"cpu\" is taken"));
    const char *const bad[] = {"",           NULL,      "Upper",
                               "with space", "builtin", "a-name-that-is-far-too-long-for-it"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t = toy_target(bad[i], kDLCPU);
        assert_int_equal(alea_target_register(&t, &error), ALEA_EINVAL);
        assert_non_null(strstr(error.message, "target.name"));
    }
    t = toy_target("good", kDLCPU);
    t.struct_bytes = 1;
    assert_int_equal(alea_target_register(&t, &error), ALEA_EINVAL);
    t = toy_target("good", kDLCPU);
    t.flags = 8;
    assert_int_equal(alea_target_register(&t, &error), ALEA_EINVAL);
    t = toy_target("good", kDLCPU);
    t.run = NULL;
    assert_int_equal(alea_target_register(&t, &error), ALEA_EINVAL);
    assert_non_null(strstr(error.message, "target.run is NULL"));
    assert_null(alea_target_name(3));
}

static void test_a_registered_target_serves_its_device_and_its_name(void **state) {
    (void)state;
    float out[6];
    alea_error error = {0};
    alea_op_target t = toy_target("toy", kDLExtDev);
    assert_int_equal(alea_target_register(&t, &error), ALEA_OK);
    t.name = "shadow"; /* of the CPU, but by name alone */
    t.device_type = kDLCPU;
    t.flags = ALEA_TARGET_BY_NAME;
    assert_int_equal(alea_target_register(&t, &error), ALEA_OK);
    assert_string_equal(alea_target_name(0), "shadow");

    assert_int_equal(run_topk(NULL, kDLExtDev, out, &error), ALEA_OK);
    assert_true(out[0] == 42 && out[5] == 42);
    assert_int_equal(run_topk(NULL, kDLCPU, out, &error), ALEA_OK);
    assert_true(out[2] == 3 && out[5] == 6);
    assert_int_equal(run_topk("shadow", kDLCPU, out, &error), ALEA_OK);
    assert_true(out[2] == 42);
    assert_int_equal(run_topk(ALEA_TARGET_BUILTIN, kDLCPU, out, &error), ALEA_OK);
    assert_true(out[2] == 3);
    assert_int_equal(run_topk(NULL, kDLCUDAHost, out, &error), ALEA_OK); /* pinned host memory */
    assert_true(out[2] == 3);
    assert_int_equal(toys_alive, 0);
}

static void test_nobody_serves_and_each_says_why(void **state) {
    (void)state;
    float out[6] = {7};
    alea_error error = {0};
    toy_declines = true;
    assert_int_equal(run_topk(NULL, kDLExtDev, out, &error), ALEA_EUNSUPPORTED);
    assert_string_equal(error.message, "no target serves this topk_mask: toy: not today; "
                                       "cpu: serves device type 1, these tensors are on 12");
    assert_int_equal(run_topk("shadow", kDLCPU, out, &error), ALEA_EUNSUPPORTED);
    assert_string_equal(error.message, "no target serves this topk_mask: shadow: not today");
    assert_int_equal(run_topk(ALEA_TARGET_BUILTIN, kDLExtDev, out, &error), ALEA_EUNSUPPORTED);
    assert_true(out[0] == 7);
    toy_declines = false;

    /* Declining to be made is a reason too; failing to be made is a failure. */
    alea_logprobs *report = NULL;
    alea_sample_probs *sample = NULL;
    alea_op_config config = rig_config((rig_how){.target = "toy"}, 3, 0);
    assert_int_equal(alea_logprobs_create(&config, &report, &error), ALEA_EUNSUPPORTED);
    assert_string_equal(error.message, "no target serves this logprobs: toy: cannot report");
    assert_int_equal(alea_sample_probs_create(&config, &sample, &error), ALEA_ENOMEM);
    assert_string_equal(error.message, "toy: out of toys");
    config.target = NULL;
    assert_int_equal(alea_logprobs_create(&config, &report, &error), ALEA_OK);
    alea_logprobs_destroy(report);
    assert_null(sample);
    assert_int_equal(toys_alive, 0);
}

static void test_a_call_that_a_target_declines_goes_to_the_next(void **state) {
    (void)state;
    float out[6];
    alea_error error = {0};
    static int decline;
    alea_op_target t = toy_target("fussy", kDLCPU);
    t.user = &decline;
    assert_int_equal(alea_target_register(&t, &error), ALEA_OK);
    assert_int_equal(run_topk(NULL, kDLCPU, out, &error), ALEA_OK);
    assert_true(out[2] == 3 && out[0] < 0);
}

static void test_the_registry_has_an_end(void **state) {
    (void)state;
    static const char *const names[] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"};
    alea_error error = {0};
    int32_t registered = 3;
    for (int i = 0; i < 9; i++) {
        alea_op_target t = toy_target(names[i], kDLExtDev);
        const alea_status status = alea_target_register(&t, &error);
        assert_int_equal(status, registered < 8 ? ALEA_OK : ALEA_ELIMIT);
        registered += status == ALEA_OK;
    }
    assert_non_null(alea_target_name(10));
    assert_null(alea_target_name(11));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_the_built_in_targets),
        cmocka_unit_test(test_bad_targets_are_refused),
        cmocka_unit_test(test_a_registered_target_serves_its_device_and_its_name),
        cmocka_unit_test(test_nobody_serves_and_each_says_why),
        cmocka_unit_test(test_a_call_that_a_target_declines_goes_to_the_next),
        cmocka_unit_test(test_the_registry_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
