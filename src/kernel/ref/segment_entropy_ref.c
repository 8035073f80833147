/*
 * Mass of a segment and the weighted sum of its base-2 logarithms. The moment fits: W*|q| is at
 * most 2^52.8 for any n, over 1024 elements below 2^63.
 */
#include "kernel/kernel_table.h"
#include "kernel/ref/weight_ref.h"

void alea__segment_entropy_ref(const float *x, int32_t n, float scale, int32_t exponent,
                               alea_entropy_sums *sums) {
    const float floor = alea__weight_floor(scale, exponent);
    alea_entropy_sums total = {0, 0};
    for (int32_t i = 0; i < n; i++) {
        const weight_parts parts = weight_of(x[i], scale, exponent, floor);
        const int32_t q = parts.whole * (1 << 24) + (int32_t)rintf(parts.fraction * 0x1p24f);
        total.mass += parts.weight;
        total.moment += (int64_t)parts.weight * q;
    }
    *sums = total;
}
