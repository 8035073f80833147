/* What the engine allocates and when: all of it at creation and submission, none in a round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine_rig.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static atomic_int allocations;
static atomic_size_t allocated_bytes;
static atomic_int fail_at = -1; /* countdown; the allocation that meets 0 fails */

static int refuses(size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    if (atomic_load(&fail_at) >= 0 && atomic_fetch_sub(&fail_at, 1) == 0) return 1;
    atomic_fetch_add(&allocated_bytes, bytes);
    return 0;
}

void *__wrap_malloc(size_t bytes) {
    return refuses(bytes) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return refuses(count * bytes) ? NULL : __real_calloc(count, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return refuses(bytes) ? NULL : __real_aligned_alloc(alignment, bytes);
}

static alea_request_params busy_params(void) {
    alea_request_params params = alea__params_default();
    params.max_tokens = 50;
    params.ignore_end = true;
    params.top = 20;
    params.want_sampled = params.want_entropy = true;
    params.repetition_penalty = 1.1f;
    params.sampling.top_p = 0.9f;
    return params;
}

static void test_rounds_allocate_nothing(void **state) {
    (void)state;
    const alea_engine_options options = {.threads = 2};
    rig r = rig_open("vocab=320,text=1", 4, 64, options);
    static rig_choice choices[4];
    alea_request *requests[4];
    const alea_request_params params = busy_params();
    for (int32_t i = 0; i < 4; i++) {
        const int32_t prompt[] = {i, 2, 3, 4, 5};
        requests[i] = rig_submit(&r, prompt, 5, &params);
    }
    atomic_store(&allocations, 0);
    while (alea__engine_step(r.engine, 1) == ALEA_OK) {
    }
    assert_int_equal(atomic_load(&allocations), 0);
    for (int32_t i = 0; i < 4; i++) {
        rig_finish(&r, requests[i], &choices[i]);
        assert_int_equal(choices[i].n, 50);
    }
    rig_close(&r);
}

static void test_the_report_is_what_was_allocated(void **state) {
    (void)state;
    alea_core *core = NULL;
    const alea_core_options options = {
        .struct_bytes = sizeof options, .model = "vocab=320", .sequences = 4};
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    const alea_engine_options engine_options = {.threads = 1, .no_overlap = true};
    alea_engine *engine = NULL;
    alea_error error;
    alea_capability offer;
    atomic_store(&allocated_bytes, 0);
    assert_int_equal(alea__core_capability(core, 4, 0, &offer, &error), ALEA_OK);
    const size_t reading = atomic_load(&allocated_bytes); /* the manifest's: freed at once */
    atomic_store(&allocated_bytes, 0);
    assert_int_equal(alea__engine_create(core, &engine_options, &engine, &error), ALEA_OK);
    alea_engine_stats stats;
    alea__engine_stats_read(engine, &stats);
    /* Beside the report stand only the engine's and the pool's own structs. */
    assert_in_range(atomic_load(&allocated_bytes) - reading, stats.memory_bytes,
                    stats.memory_bytes + 4096);
    alea__engine_destroy(engine);
    alea_core_close(core);
}

static void test_every_failing_allocation_is_an_error(void **state) {
    (void)state;
    alea_core *core = NULL;
    const alea_core_options options = {
        .struct_bytes = sizeof options, .model = "vocab=320", .sequences = 2};
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    const alea_engine_options engine_options = {.threads = 1, .no_overlap = true};
    int32_t n = 0;
    for (;; n++) {
        alea_engine *engine = NULL;
        alea_error error = {0};
        atomic_store(&fail_at, n);
        const alea_status status = alea__engine_create(core, &engine_options, &engine, &error);
        const bool used = atomic_load(&fail_at) < 0;
        atomic_store(&fail_at, -1);
        if (!used) {
            assert_int_equal(status, ALEA_OK);
            const int32_t prompt[] = {1};
            const alea_request_params params = busy_params();
            alea_request *request = NULL;
            atomic_store(&fail_at, 0);
            assert_int_equal(alea__engine_submit(engine, prompt, 1, &params, &request, &error),
                             ALEA_ENOMEM);
            atomic_store(&fail_at, -1);
            assert_null(request);
            alea__engine_destroy(engine);
            break;
        }
        assert_int_equal(status, ALEA_ENOMEM);
        assert_null(engine);
    }
    assert_true(n >= 3);
    alea_core_close(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_allocate_nothing),
        cmocka_unit_test(test_the_report_is_what_was_allocated),
        cmocka_unit_test(test_every_failing_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
