/* Mass of a segment and the sum of W*q, sixteen 32-bit pairs multiplied to 64 bits in two halves.
 */
#include "kernel/x86/avx512_inline.h"

typedef struct wide_sums {
    __m512i mass, moment;
} wide_sums;

static inline void add_entropy(wide_sums *sums, const weigher *w, __m512 x) {
    __m512 f;
    const __m512 t = weigh_split(w, x, &f);
    const __m512i weight = weigh_join(t, f);
    /* t holds n above zeros in its low 24 bits, so n*2^24 is a shift. */
    const __m512i whole = _mm512_slli_epi32(_mm512_castps_si512(t), 24);
    const __m512i part = _mm512_cvtps_epi32(_mm512_mul_ps(f, _mm512_set1_ps(0x1p24f)));
    const __m512i q = _mm512_add_epi32(whole, part);
    sums->mass = add_wide(sums->mass, weight);
    const __m512i even = _mm512_mul_epi32(weight, q);
    const __m512i odd = _mm512_mul_epi32(_mm512_srli_epi64(weight, 32), _mm512_srli_epi64(q, 32));
    sums->moment = _mm512_add_epi64(sums->moment, _mm512_add_epi64(even, odd));
}

void alea__segment_entropy_avx512(const float *x, int32_t n, float scale, int32_t exponent,
                                  alea_entropy_sums *sums) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) {
        alea__segment_entropy_ref(x, n, scale, exponent, sums);
        return;
    }
    wide_sums a = {_mm512_setzero_si512(), _mm512_setzero_si512()}, b = a;
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        add_entropy(&a, &w, _mm512_loadu_ps(x + i));
        add_entropy(&b, &w, _mm512_loadu_ps(x + i + 16));
    }
    for (; i < n; i += 16)
        add_entropy(&a, &w, load_head(x + i, n - i));
    sums->mass = sum_epu64(_mm512_add_epi64(a.mass, b.mass));
    sums->moment = (int64_t)sum_epu64(_mm512_add_epi64(a.moment, b.moment));
}
