/*
 * One packed position: int32 words [chosen id, chosen bits, then (id, bits) pairs]. "Bits" are a
 * float32's own, so the payload needs one type and one transfer.
 */
#ifndef ALEA_CONTRACT_PAYLOAD_H
#define ALEA_CONTRACT_PAYLOAD_H

#include <string.h>

#include "alea/base.h"

/* What an unused pair holds: an id that is none and a value that cannot be taken for a score. */
#define ALEA_NO_TOKEN (-1)

static inline int32_t alea__bits_of(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float alea__float_of(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void alea__pair_set(int32_t *pair, int32_t token, float value) {
    pair[0] = token;
    pair[1] = alea__bits_of(value);
}

#endif
