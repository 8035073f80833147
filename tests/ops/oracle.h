/*
 * What is right, by definition: long double, libm and sorting, with no thought for speed and no
 * line in common with the library. test_oracle.c holds it against rows computed by hand before
 * any operator is held against it.
 */
#ifndef ALEA_TESTS_ORACLE_H
#define ALEA_TESTS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

/* What became of an entry; NEAR: so close to the cut that the arithmetic may decide either way. */
enum { DROPPED, KEPT, NEAR };

/* Masses may differ from exact ones by this share of the row (docs/numerics.md). */
#define ORACLE_MASS_BOUND 3e-6L

void oracle_topk(uint8_t *fate, const float *x, int32_t n, int32_t k);
void oracle_minp(uint8_t *fate, const float *x, int32_t n, float min_p);
void oracle_topp(uint8_t *fate, const float *x, int32_t n, float p);
void oracle_topk_topp(uint8_t *fate, const float *x, int32_t n, int32_t k, float p);

/* ln sum exp; the row is taken as good. */
long double oracle_lse(const float *x, int32_t n);
long double oracle_entropy(const float *x, int32_t n);

/* Positions by value downward (NaN first), then upward by position. */
void oracle_order(int32_t *positions, const float *x, int32_t n);

/* exp(x / temperature) over those of `fate` that are KEPT, normalized. */
void oracle_softmax(long double *probs, const float *x, const uint8_t *fate, int32_t n,
                    float temperature);

/* First word of the Philox4x32-10 block. */
uint32_t oracle_philox(uint64_t seed, uint32_t draw, uint32_t row, uint64_t offset);

/* The u of a draw, in [0, 1). */
float oracle_uniform(uint64_t seed, uint32_t draw, uint32_t row, uint64_t offset);

/*
 * The token that u picks from unnormalized weights. *sure is false where u stands so near to a
 * boundary that rounding decides.
 */
int32_t oracle_pick(const float *weights, int32_t n, float u, bool *sure);

#endif
