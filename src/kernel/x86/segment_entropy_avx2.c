/* Mass of a segment and the sum of W*q, eight 32-bit pairs multiplied to 64 bits in two halves. */
#include "kernel/x86/avx2_inline.h"

typedef struct wide_sums {
    __m256i mass, moment;
} wide_sums;

static inline void add_entropy(wide_sums *sums, const weigher *w, __m256 x) {
    __m256 f;
    const __m256 t = weigh_split(w, x, &f);
    const __m256i weight = weigh_join(t, f);
    /* t holds n above zeros in its low 24 bits, so n*2^24 is a shift. */
    const __m256i whole = _mm256_slli_epi32(_mm256_castps_si256(t), 24);
    const __m256i part = _mm256_cvtps_epi32(_mm256_mul_ps(f, _mm256_set1_ps(0x1p24f)));
    const __m256i q = _mm256_add_epi32(whole, part);
    sums->mass = add_wide(sums->mass, weight);
    const __m256i even = _mm256_mul_epi32(weight, q);
    const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(weight, 32), _mm256_srli_epi64(q, 32));
    sums->moment = _mm256_add_epi64(sums->moment, _mm256_add_epi64(even, odd));
}

void alea__segment_entropy_avx2(const float *x, int32_t n, float scale, int32_t exponent,
                                alea_entropy_sums *sums) {
    weigher w;
    if (!weigher_make(&w, scale, exponent)) {
        alea__segment_entropy_ref(x, n, scale, exponent, sums);
        return;
    }
    wide_sums a = {_mm256_setzero_si256(), _mm256_setzero_si256()}, b = a;
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        add_entropy(&a, &w, _mm256_loadu_ps(x + i));
        add_entropy(&b, &w, _mm256_loadu_ps(x + i + 8));
    }
    for (; i < n; i += 8)
        add_entropy(&a, &w, load_head(x + i, n - i));
    sums->mass = sum_epu64(_mm256_add_epi64(a.mass, b.mass));
    sums->moment = (int64_t)sum_epu64(_mm256_add_epi64(a.moment, b.moment));
}
