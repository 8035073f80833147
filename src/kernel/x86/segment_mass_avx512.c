/* Sum of the weights of a segment. */
#include "kernel/x86/segment_avx512.h"

uint64_t alea__segment_mass_avx512(const float *x, int32_t n, float scale, int32_t exponent) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) return alea__segment_mass_ref(x, n, scale, exponent);
    return segment_weigh(&w, x, n, NULL);
}
