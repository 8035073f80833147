/* Maxima of each segment and its mass under its own exponent. */
#include <math.h>

#include "kernel/exp2_poly.h"
#include "kernel/kernel_table.h"

void alea__lane_max_mass_ref(const float *x, int32_t n, float scale, float *lanes, float *segments,
                             uint64_t *masses) {
    for (; n > 0; n -= ALEA_SEGMENT, x += ALEA_SEGMENT, lanes += ALEA_LANES, segments++, masses++) {
        const int32_t length = n < ALEA_SEGMENT ? n : ALEA_SEGMENT;
        alea__lane_max_ref(x, length, lanes, segments);
        const float top = *segments * scale;
        *masses = alea__has_exponent(top)
                      ? alea__segment_mass_ref(x, length, scale, (int32_t)rintf(top))
                      : 0;
    }
}
