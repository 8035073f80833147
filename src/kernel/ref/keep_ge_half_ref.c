/* Mask 16-bit values by their widened ones. */
#include "kernel/kernel_table.h"

void alea__keep_ge_half_ref(uint16_t *out, const uint16_t *in, const float *x, int32_t n, float cut,
                            uint16_t dropped) {
    for (int32_t i = 0; i < n; i++)
        out[i] = x[i] >= cut ? in[i] : dropped;
}
