/* How many elements reach a cut. */
#include "kernel/kernel_table.h"

int32_t alea__count_ge_ref(const float *x, int32_t n, float cut) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += x[i] >= cut;
    return count;
}
