/* Maxima of each segment's 16 lanes and of each segment; NaN stays. */
#include <math.h>

#include "base/half.h"
#include "kernel/exp2_poly.h"
#include "kernel/kernel_table.h"

static float max_or_nan(float a, float b) {
    if (a != a || b != b) return alea__bits_float(0x7fc00000u);
    return (a < b ? b : a) + 0.0f; /* the sum turns -0 into +0: which zero wins is never seen */
}

void alea__lane_max_ref(const float *x, int32_t n, float *lanes, float *segments) {
    for (int32_t first = 0; first < n; first += ALEA_SEGMENT) {
        const int32_t length = n - first < ALEA_SEGMENT ? n - first : ALEA_SEGMENT;
        for (int32_t lane = 0; lane < ALEA_LANES; lane++)
            lanes[lane] = -INFINITY;
        for (int32_t i = 0; i < length; i++) {
            lanes[i % ALEA_LANES] = max_or_nan(lanes[i % ALEA_LANES], x[first + i]);
        }
        float most = -INFINITY;
        for (int32_t lane = 0; lane < ALEA_LANES; lane++)
            most = max_or_nan(most, lanes[lane]);
        *segments++ = most;
        lanes += ALEA_LANES;
    }
}
