/* The ids of the elements that reach a cut, upward, as far as there is room. */
#include "kernel/kernel_table.h"

int32_t alea__collect_ge_ref(const float *x, int32_t n, float cut, int32_t first_id, int32_t *ids,
                             int32_t capacity) {
    int32_t count = 0;
    for (int32_t i = 0; i < n && count < capacity; i++) {
        if (x[i] >= cut) ids[count++] = first_id + i;
    }
    return count;
}
