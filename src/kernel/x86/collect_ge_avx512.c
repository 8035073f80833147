/*
 * The ids of the elements that reach a cut. Compressed in a register, then stored: compressing
 * into memory is slow on some processors.
 */
#include "kernel/x86/avx512_inline.h"

typedef struct collection {
    int32_t *ids;
    int32_t count, capacity;
} collection;

static inline void collect(collection *c, __m512i ids, __mmask16 kept) {
    const __m512i packed = _mm512_maskz_compress_epi32(kept, ids);
    const int32_t room = c->capacity - c->count;
    const int32_t found = __builtin_popcount(kept);
    if (room >= 16) {
        _mm512_storeu_si512(c->ids + c->count, packed);
        c->count += found;
    } else {
        const int32_t taken = found < room ? found : room;
        _mm512_mask_storeu_epi32(c->ids + c->count, head_mask(taken), packed);
        c->count += taken;
    }
}

int32_t alea__collect_ge_avx512(const float *x, int32_t n, float cut, int32_t first_id,
                                int32_t *ids, int32_t capacity) {
    const __m512 least = _mm512_set1_ps(cut);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    collection c = {ids, 0, capacity};
    int32_t i = 0;
    for (; i + 64 <= n && c.count < capacity; i += 64) {
        __mmask16 kept[4];
        unsigned any = 0;
        for (int j = 0; j < 4; j++) {
            kept[j] = _mm512_cmp_ps_mask(_mm512_loadu_ps(x + i + 16 * j), least, _CMP_GE_OQ);
            any |= kept[j];
        }
        if (!any) continue;
        for (int j = 0; j < 4; j++) {
            if (!kept[j]) continue;
            const __m512i here = _mm512_set1_epi32(first_id + i + 16 * j);
            collect(&c, _mm512_add_epi32(here, lane), kept[j]);
        }
    }
    for (; i < n && c.count < capacity; i += 16) {
        const int32_t left = n - i < 16 ? n - i : 16;
        const __mmask16 kept = _mm512_cmp_ps_mask(load_head(x + i, left), least, _CMP_GE_OQ);
        const __m512i here = _mm512_set1_epi32(first_id + i);
        collect(&c, _mm512_add_epi32(here, lane), (__mmask16)(kept & head_mask(left)));
    }
    return c.count;
}
