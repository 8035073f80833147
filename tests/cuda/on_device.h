/* Memory and tensors of device 0, for tests that call the operators with them. */
#ifndef ALEA_TESTS_CUDA_ON_DEVICE_H
#define ALEA_TESTS_CUDA_ON_DEVICE_H

#include "alea/ops.h"
#include "ops/cuda.h"

/* Device memory that a test filled from the host. */
static inline void *on_device(const alea_cuda_api *api, const void *host, size_t bytes) {
    void *there = NULL;
    assert_int_equal(api->lab.allocate(bytes, &there), 0);
    if (host) assert_int_equal(api->lab.copy_in(there, host, bytes, NULL), 0);
    assert_int_equal(api->lab.stream_wait(NULL), 0);
    return there;
}

static inline DLTensor *there(DLTensor *t) {
    t->device = (DLDevice){kDLCUDA, 0};
    return t;
}

#endif
