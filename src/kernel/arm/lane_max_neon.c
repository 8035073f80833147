/* Maxima of each segment's lanes. */
#include "kernel/arm/neon_inline.h"

void alea__lane_max_neon(const float *x, int32_t n, float *lanes, float *segments) {
    for (; n > 0; n -= ALEA_SEGMENT, x += ALEA_SEGMENT, lanes += ALEA_LANES, segments++)
        *segments = segment_maxima(x, n < ALEA_SEGMENT ? n : ALEA_SEGMENT, lanes);
}
