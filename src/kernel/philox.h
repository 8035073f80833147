/*
 * Philox4x32-10, a random stream without state: a draw is a function of its key and counter, so
 * neighbours in a batch, chunks and retries leave it alone. Known answers are in
 * tests/kernel/test_philox.c.
 */
#ifndef ALEA_KERNEL_PHILOX_H
#define ALEA_KERNEL_PHILOX_H

#include <stdint.h>

typedef struct alea_philox_block {
    uint32_t word[4];
} alea_philox_block;

static inline alea_philox_block alea__philox(alea_philox_block counter, uint32_t key0,
                                             uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)counter.word[0] * 0xD2511F53u;
        const uint64_t b = (uint64_t)counter.word[2] * 0xCD9E8D57u;
        counter = (alea_philox_block){{(uint32_t)(b >> 32) ^ counter.word[1] ^ key0, (uint32_t)b,
                                       (uint32_t)(a >> 32) ^ counter.word[3] ^ key1, (uint32_t)a}};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* The 24 random bits of draw `draw` of row `row`: u = result * 2^-24 in [0, 1). */
static inline uint32_t alea__draw_bits(uint64_t seed, uint32_t draw, uint32_t row,
                                       uint64_t offset) {
    const alea_philox_block counter = {{draw, row, (uint32_t)offset, (uint32_t)(offset >> 32)}};
    return alea__philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32)).word[0] >> 8;
}

#endif
