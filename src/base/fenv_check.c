/* The environment is judged by what arithmetic does, so the test needs no control registers. */
#include <float.h>

#include "base/fenv_check.h"

/* Rounds differently in each of the four modes: 1 + ulp/2 and 1 + 3*ulp/2, of either sign. */
static bool rounds_to_nearest_even(void) {
    volatile float one = 1.0f, half = FLT_EPSILON / 2;
    volatile float low = one + half;                /* a tie: down to the even 1 */
    volatile float high = (1 + FLT_EPSILON) + half; /* a tie: up to the even 1 + 2 ulp */
    volatile float low_negative = -one - half;
    return low == 1.0f && high == 1 + 2 * FLT_EPSILON && low_negative == -1.0f;
}

static bool keeps_denormals(void) {
    volatile float smallest = FLT_MIN, half = 0.5f;
    volatile float result = smallest * half; /* 0 under flush-to-zero */
    volatile float denormal = 0x1p-140f, large = 0x1p100f;
    volatile float read = denormal * large; /* 0 under denormals-are-zero */
    return result != 0 && read == 0x1p-40f;
}

alea_status alea__fenv_check(alea_error *error) {
    if (!rounds_to_nearest_even()) {
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "floating-point rounding is not to nearest even; call "
                              "fesetround(FE_TONEAREST)");
    }
    if (!keeps_denormals()) {
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "denormals are flushed to zero, perhaps by a library built with "
                              "fast-math; clear FTZ and DAZ");
    }
    return ALEA_OK;
}
