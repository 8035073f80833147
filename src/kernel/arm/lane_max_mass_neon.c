/* Maxima of each segment and its mass under its own exponent, while it is in the first cache. */
#include "kernel/arm/neon_inline.h"

void alea__lane_max_mass_neon(const float *x, int32_t n, float scale, float *lanes, float *segments,
                              uint64_t *masses) {
    for (; n > 0; n -= ALEA_SEGMENT, x += ALEA_SEGMENT, lanes += ALEA_LANES, segments++, masses++) {
        const int32_t length = n < ALEA_SEGMENT ? n : ALEA_SEGMENT;
        *segments = segment_maxima(x, length, lanes);
        const float top = *segments * scale;
        *masses =
            alea__has_exponent(top) ? segment_weigh(x, length, scale, vcvtns_s32_f32(top)) : 0;
    }
}
