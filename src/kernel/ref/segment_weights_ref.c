/* Each weight of a segment, for draws and probabilities. */
#include "kernel/kernel_table.h"
#include "kernel/ref/weight_ref.h"

void alea__segment_weights_ref(const float *x, int32_t n, float scale, int32_t exponent,
                               uint32_t *weights) {
    const float floor = alea__weight_floor(scale, exponent);
    for (int32_t i = 0; i < n; i++)
        weights[i] = weight_of(x[i], scale, exponent, floor).weight;
}
