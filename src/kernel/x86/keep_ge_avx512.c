/* Mask what does not reach a cut; what stays is moved, not computed, so its bits stay. */
#include "kernel/x86/avx512_inline.h"

static inline __m512 keep(__m512 v, __m512 least) {
    const __mmask16 kept = _mm512_cmp_ps_mask(v, least, _CMP_GE_OQ);
    return _mm512_mask_blend_ps(kept, _mm512_set1_ps(NEGATIVE_INFINITY), v);
}

void alea__keep_ge_avx512(float *out, const float *x, int32_t n, float cut) {
    const __m512 least = _mm512_set1_ps(cut);
    int32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512 a = _mm512_loadu_ps(x + i), b = _mm512_loadu_ps(x + i + 16);
        const __m512 c = _mm512_loadu_ps(x + i + 32), d = _mm512_loadu_ps(x + i + 48);
        _mm512_storeu_ps(out + i, keep(a, least));
        _mm512_storeu_ps(out + i + 16, keep(b, least));
        _mm512_storeu_ps(out + i + 32, keep(c, least));
        _mm512_storeu_ps(out + i + 48, keep(d, least));
    }
    for (; i < n; i += 16) {
        const int32_t left = n - i < 16 ? n - i : 16;
        _mm512_mask_storeu_ps(out + i, head_mask(left), keep(load_head(x + i, left), least));
    }
}
