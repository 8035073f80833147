/* Maxima of each segment and its mass under its own exponent. */
#include "kernel/x86/segment_avx512.h"
/* After it: */
#include "kernel/x86/lane_max_mass.h"

void alea__lane_max_mass_avx512(const float *x, int32_t n, float scale, float *lanes,
                                float *segments, uint64_t *masses) {
    lane_max_mass(x, n, scale, lanes, segments, masses);
}
