/* The ids of the elements that reach a cut: sixteen are tested at once, the rare hits one by one.
 */
#include "kernel/arm/neon_inline.h"

int32_t alea__collect_ge_neon(const float *x, int32_t n, float cut, int32_t first_id, int32_t *ids,
                              int32_t capacity) {
    const float32x4_t least = vdupq_n_f32(cut);
    int32_t count = 0;
    for (int32_t i = 0; i < n && count < capacity; i += 16) {
        const int32_t left = n - i < 16 ? n - i : 16;
        if (left == 16) {
            uint32x4_t any = vcgeq_f32(vld1q_f32(x + i), least);
            for (int j = 4; j < 16; j += 4)
                any = vorrq_u32(any, vcgeq_f32(vld1q_f32(x + i + j), least));
            if (vmaxvq_u32(any) == 0) continue;
        }
        count +=
            alea__collect_ge_ref(x + i, left, cut, first_id + i, ids + count, capacity - count);
    }
    return count;
}
