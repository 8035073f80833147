/* How many elements reach a cut. */
#include "kernel/x86/avx512_inline.h"

int32_t alea__count_ge_avx512(const float *x, int32_t n, float cut) {
    const __m512 least = _mm512_set1_ps(cut);
    int32_t counts[4] = {0};
    int32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int j = 0; j < 4; j++) {
            const __m512 v = _mm512_loadu_ps(x + i + 16 * j);
            counts[j] += __builtin_popcount(_mm512_cmp_ps_mask(v, least, _CMP_GE_OQ));
        }
    }
    for (; i < n; i += 16) {
        const int32_t left = n - i < 16 ? n - i : 16; /* -inf may reach the cut: count no padding */
        const __mmask16 kept = _mm512_cmp_ps_mask(load_head(x + i, left), least, _CMP_GE_OQ);
        counts[0] += __builtin_popcount((unsigned)(kept & head_mask(left)));
    }
    return counts[0] + counts[1] + (counts[2] + counts[3]);
}
