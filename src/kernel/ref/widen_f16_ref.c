/* float16 to float32, exactly. */
#include "base/half.h"
#include "kernel/kernel_table.h"

void alea__widen_f16_ref(float *out, const uint16_t *in, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        out[i] = alea__f16_widen(in[i]);
}
