/* Maxima of each segment's lanes. */
#include "kernel/x86/segment_avx512.h"

void alea__lane_max_avx512(const float *x, int32_t n, float *lanes, float *segments) {
    for (; n > 0; n -= ALEA_SEGMENT, x += ALEA_SEGMENT, lanes += ALEA_LANES, segments++) {
        const int32_t length = n < ALEA_SEGMENT ? n : ALEA_SEGMENT;
        const scanner s = segment_scan(x, length);
        *segments = scanner_end(&s, x, length, lanes);
    }
}
