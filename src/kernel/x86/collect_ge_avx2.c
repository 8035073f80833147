/*
 * The ids of the elements that reach a cut. The eight bits of a comparison select one of 256
 * permutations, which brings the lanes of the set bits to the front.
 */
#include "kernel/x86/avx2_inline.h"

/* Lane i goes to the place that counts the set bits below i; one byte a place. */
#define PLACE(m, i)                                                                                \
    ((m) >> (i)&1 ? (uint64_t)(i) << 8 * __builtin_popcount((m) & ((1u << (i)) - 1)) : 0)
#define FRONT(m)                                                                                   \
    (PLACE(m, 0) | PLACE(m, 1) | PLACE(m, 2) | PLACE(m, 3) | PLACE(m, 4) | PLACE(m, 5) |           \
     PLACE(m, 6) | PLACE(m, 7))
#define FRONT_4(m) FRONT(m), FRONT((m) + 1), FRONT((m) + 2), FRONT((m) + 3)
#define FRONT_16(m) FRONT_4(m), FRONT_4((m) + 4), FRONT_4((m) + 8), FRONT_4((m) + 12)
#define FRONT_64(m) FRONT_16(m), FRONT_16((m) + 16), FRONT_16((m) + 32), FRONT_16((m) + 48)

static const uint64_t fronts[256] = {FRONT_64(0u), FRONT_64(64u), FRONT_64(128u), FRONT_64(192u)};

typedef struct collection {
    int32_t *ids;
    int32_t count, capacity;
} collection;

static inline void collect(collection *c, int32_t first_id, unsigned kept) {
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)&fronts[kept]);
    const __m256i ids = _mm256_add_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(first_id));
    const int32_t found = __builtin_popcount(kept);
    if (c->capacity - c->count >= 8) {
        _mm256_storeu_si256((__m256i *)(void *)(c->ids + c->count), ids);
        c->count += found;
        return;
    }
    int32_t buffer[8];
    _mm256_storeu_si256((__m256i *)(void *)buffer, ids);
    for (int32_t i = 0; i < found && c->count < c->capacity; i++)
        c->ids[c->count++] = buffer[i];
}

static inline unsigned reaches(const float *x, __m256 least) {
    const __m256 kept = _mm256_cmp_ps(_mm256_loadu_ps(x), least, _CMP_GE_OQ);
    return (unsigned)_mm256_movemask_ps(kept);
}

int32_t alea__collect_ge_avx2(const float *x, int32_t n, float cut, int32_t first_id, int32_t *ids,
                              int32_t capacity) {
    const __m256 least = _mm256_set1_ps(cut);
    collection c = {ids, 0, capacity};
    int32_t i = 0;
    for (; i + 32 <= n && c.count < capacity; i += 32) {
        const unsigned kept = reaches(x + i, least) | reaches(x + i + 8, least) << 8 |
                              reaches(x + i + 16, least) << 16 | reaches(x + i + 24, least) << 24;
        if (!kept) continue;
        for (int32_t j = 0; j < 32; j += 8)
            collect(&c, first_id + i + j, kept >> j & 0xff);
    }
    for (; i + 8 <= n && c.count < capacity; i += 8)
        collect(&c, first_id + i, reaches(x + i, least));
    if (i == n || c.count == capacity) return c.count;
    return c.count +
           alea__collect_ge_ref(x + i, n - i, cut, first_id + i, ids + c.count, capacity - c.count);
}
