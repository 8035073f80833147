/*
 * Maxima of each segment and its mass under its own exponent. While a segment is weighed from the
 * first cache the next one is on its way there, so the row's memory costs next to nothing.
 */
#include "kernel/x86/segment_avx512.h"

static inline uint64_t segment_mass(const float *x, int32_t n, float scale, float max) {
    const float top = max * scale;
    if (!alea__has_exponent(top)) return 0;
    const int32_t exponent = _mm_cvtss_si32(_mm_set_ss(top)); /* to nearest even, as rintf */
    weigher w;
    if (!weigher_make(&w, scale, exponent)) return alea__segment_mass_ref(x, n, scale, exponent);
    return segment_weigh(&w, x, n);
}

void alea__lane_max_mass_avx512(const float *x, int32_t n, float scale, float *lanes,
                                float *segments, uint64_t *masses) {
    for (; n > 0; n -= ALEA_SEGMENT, x += ALEA_SEGMENT, lanes += ALEA_LANES, segments++, masses++) {
        const int32_t length = n < ALEA_SEGMENT ? n : ALEA_SEGMENT;
        *segments = segment_maxima(x, length, lanes);
        *masses = segment_mass(x, length, scale, *segments);
    }
}
