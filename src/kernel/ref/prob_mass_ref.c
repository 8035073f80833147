/* Sum of a segment's probabilities as integers. */
#include "kernel/kernel_table.h"
#include "kernel/prob_weight.h"

uint64_t alea__prob_mass_ref(const float *probs, int32_t n, int32_t exponent) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += alea__prob_weight(probs[i], exponent);
    return sum;
}
