/*
 * The one natural logarithm of the project. libm's differs between hosts; this is a fixed
 * sequence of IEEE operations, so it does not. Within 2^-51 relative plus 2^-52 absolute.
 */
#ifndef ALEA_KERNEL_LN_H
#define ALEA_KERNEL_LN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ALEA_LN2 0x1.62e42fefa39efp-1
#define ALEA_LOG2E_F 0x1.715476p+0f /* L at temperature 1 */

/*
 * ln(x) of a positive normal double. With x = 2^k * m, m in [sqrt(1/2), sqrt(2)):
 * k*ln2 + 2*atanh(z), z = (m - 1)/(m + 1), |z| < 0.172, so the series ends at z^21.
 */
static inline double alea__ln(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t k = (int32_t)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)1023 << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m >= 0x1.6a09e667f3bcdp+0) { /* sqrt(2) */
        m *= 0.5;
        k++;
    }
    const double z = (m - 1.0) / (m + 1.0);
    const double w = z * z;
    double p = 1.0 / 21;
    p = fma(p, w, 1.0 / 19);
    p = fma(p, w, 1.0 / 17);
    p = fma(p, w, 1.0 / 15);
    p = fma(p, w, 1.0 / 13);
    p = fma(p, w, 1.0 / 11);
    p = fma(p, w, 1.0 / 9);
    p = fma(p, w, 1.0 / 7);
    p = fma(p, w, 1.0 / 5);
    p = fma(p, w, 1.0 / 3);
    const double twice = z + z;
    return fma((double)k, ALEA_LN2, fma(p * w, twice, twice));
}

/* fl32(ln(min_p)), -inf for 0: the offset of a min-p cut from the maximum. */
static inline float alea__ln_min_p(float min_p) {
    return min_p > 0.0f ? (float)alea__ln((double)min_p) : -INFINITY;
}

#endif
