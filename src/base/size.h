/*
 * Sizes that come from outside are added and multiplied here, so that an overflow is an error
 * and never a small allocation. Each returns false on overflow and then leaves *out alone.
 */
#ifndef ALEA_BASE_SIZE_H
#define ALEA_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

static inline bool alea__size_add(size_t a, size_t b, size_t *out) {
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

static inline bool alea__size_mul(size_t a, size_t b, size_t *out) {
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}

/* Round up to a multiple of `alignment`, a power of two. */
static inline bool alea__size_align(size_t bytes, size_t alignment, size_t *out) {
    size_t padded;
    if (!alea__size_add(bytes, alignment - 1, &padded)) return false;
    *out = padded & ~(alignment - 1);
    return true;
}

#endif
