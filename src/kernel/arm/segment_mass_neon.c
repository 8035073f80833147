/* Sum of the weights of a segment. */
#include "kernel/arm/neon_inline.h"

uint64_t alea__segment_mass_neon(const float *x, int32_t n, float scale, int32_t exponent) {
    return segment_weigh(x, n, scale, exponent);
}
