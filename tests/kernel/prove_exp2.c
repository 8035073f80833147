/*
 * The error of the polynomial against 2^f in long double, over the float32 values f of
 * [-1/2, 1/2]: all 2,113,929,218 of them without arguments, each n-th with the argument n.
 * Prints the largest relative error and fails above the bound that docs/numerics.md states.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernel/ref/weight_ref.h"

#define BOUND 1.5886e-7L

/* 2^f to 2^-60; the series is much faster for the many tiny f, and exact enough there. */
static long double exp2_true(float f) {
    if (fabsf(f) > 0x1p-16f) return exp2l(f);
    const long double u = (long double)f * 0.693147180559945309417232121458L;
    return 1 + u * (1 + u / 2 * (1 + u / 3 * (1 + u / 4)));
}

int main(int argc, char **argv) {
    const uint32_t stride = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    if (stride == 0) {
        fprintf(stderr, "prove_exp2: the stride is a number from 1 on\n");
        return 2;
    }
    long double worst = 0;
    float worst_at = 0, highest = 0, lowest = 0x1p30f;
    uint64_t tried = 0;
    for (uint64_t bits = 0; bits <= 0x3f000000u; bits += stride) {
        for (uint32_t sign = 0; sign < 2; sign++) {
            const float f = alea__bits_float((uint32_t)bits | sign << 31);
            const float w = exp2_scaled(f);
            const long double error = fabsl((long double)w * 0x1p-29L / exp2_true(f) - 1);
            if (error > worst) {
                worst = error;
                worst_at = f;
            }
            highest = fmaxf(highest, w);
            lowest = fminf(lowest, w);
            tried++;
        }
    }
    printf("%llu values of f: relative error at most %.5Lg = 2^%.3Lf, at f = %a; 2^29 * 2^f is in "
           "[%a, %a]\n",
           (unsigned long long)tried, worst, log2l(worst), (double)worst_at, (double)lowest,
           (double)highest);
    if (worst > BOUND) {
        printf("above the bound of %.5Lg\n", BOUND);
        return 1;
    }
    return 0;
}
