/*
 * Maxima of each segment's lanes: sixteen lanes are one register. The instruction drops NaN, so
 * pairs of registers are tested for it, and a segment that holds one is left to the reference.
 */
#include "kernel/x86/avx512_inline.h"

enum { STRIDE = 128, STEPS = ALEA_SEGMENT / STRIDE }; /* eight registers at a time */

static inline __mmask16 any_nan(__m512 a, __m512 b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}

/* Maxima of a whole segment; returns whether it holds a NaN. */
static inline unsigned whole_segment(const float *x, __m512 *lanes) {
    __m512 m0 = _mm512_set1_ps(NEGATIVE_INFINITY), m1 = m0, m2 = m0, m3 = m0;
    unsigned nan = 0;
    for (int i = 0; i < STEPS; i++, x += STRIDE) {
        const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
        const __m512 c = _mm512_loadu_ps(x + 32), d = _mm512_loadu_ps(x + 48);
        const __m512 e = _mm512_loadu_ps(x + 64), f = _mm512_loadu_ps(x + 80);
        const __m512 g = _mm512_loadu_ps(x + 96), h = _mm512_loadu_ps(x + 112);
        m0 = _mm512_max_ps(m0, _mm512_max_ps(a, b));
        m1 = _mm512_max_ps(m1, _mm512_max_ps(c, d));
        m2 = _mm512_max_ps(m2, _mm512_max_ps(e, f));
        m3 = _mm512_max_ps(m3, _mm512_max_ps(g, h));
        nan |=
            (unsigned)(any_nan(a, b) | any_nan(c, d)) | (unsigned)(any_nan(e, f) | any_nan(g, h));
    }
    *lanes = _mm512_max_ps(_mm512_max_ps(m0, m1), _mm512_max_ps(m2, m3));
    return nan;
}

static unsigned short_segment(const float *x, int32_t n, __m512 *lanes) {
    __m512 m = _mm512_set1_ps(NEGATIVE_INFINITY);
    unsigned nan = 0;
    for (int32_t i = 0; i < n; i += 16) {
        const __m512 a = load_head(x + i, n - i);
        m = _mm512_max_ps(m, a);
        nan |= any_nan(a, a);
    }
    *lanes = m;
    return nan;
}

void alea__lane_max_avx512(const float *x, int32_t n, float *lanes, float *segments) {
    for (; n > 0; n -= ALEA_SEGMENT, x += ALEA_SEGMENT, lanes += ALEA_LANES, segments++) {
        __m512 m;
        const unsigned nan = n >= ALEA_SEGMENT ? whole_segment(x, &m) : short_segment(x, n, &m);
        if (__builtin_expect(nan != 0, 0)) {
            alea__lane_max_ref(x, n < ALEA_SEGMENT ? n : ALEA_SEGMENT, lanes, segments);
            continue;
        }
        m = _mm512_add_ps(m, _mm512_setzero_ps()); /* -0 to +0 */
        _mm512_storeu_ps(lanes, m);
        *segments = max_of_lanes(m);
    }
}
