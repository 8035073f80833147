/* Mask what does not reach a cut. */
#include <math.h>

#include "kernel/kernel_table.h"

void alea__keep_ge_ref(float *out, const float *x, int32_t n, float cut) {
    for (int32_t i = 0; i < n; i++)
        out[i] = x[i] >= cut ? x[i] : -INFINITY;
}
