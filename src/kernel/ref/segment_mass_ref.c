/* Sum of the weights of a segment. */
#include "kernel/kernel_table.h"
#include "kernel/ref/weight_ref.h"

uint64_t alea__segment_mass_ref(const float *x, int32_t n, float scale, int32_t exponent) {
    const float floor = alea__weight_floor(scale, exponent);
    uint64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += weight_of(x[i], scale, exponent, floor).weight;
    return sum;
}
