/* Sum of the weights of a segment's elements that reach a cut. */
#include "kernel/kernel_table.h"
#include "kernel/ref/weight_ref.h"

uint64_t alea__segment_mass_ge_ref(const float *x, int32_t n, float scale, int32_t exponent,
                                   float cut) {
    const float floor = alea__weight_floor(scale, exponent);
    uint64_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] >= cut) sum += weight_of(x[i], scale, exponent, floor).weight;
    }
    return sum;
}
