/* What the target has above the draft. */
#include "kernel/kernel_table.h"

void alea__residual_ref(float *out, const float *target, const float *draft, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float above = target[i] - draft[i];
        out[i] = above > 0.0f ? above : 0.0f;
    }
}
