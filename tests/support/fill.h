/* Rows of logits that are likely to be handled wrongly, made from a seed. */
#ifndef ALEA_TESTS_SUPPORT_FILL_H
#define ALEA_TESTS_SUPPORT_FILL_H

#include <stdint.h>

typedef enum test_fill {
    TEST_FILL_NORMAL, /* standard deviation 4, like a model's */
    TEST_FILL_TIED,   /* few distinct values */
    TEST_FILL_CONSTANT,
    TEST_FILL_ONE_HOT, /* one large value among zeros of both signs */
    TEST_FILL_DESCENDING,
    TEST_FILL_ASCENDING,
    TEST_FILL_ONE_FINITE,  /* all -inf but one */
    TEST_FILL_HALF_MASKED, /* every other about -inf */
    TEST_FILL_DENORMAL,
    TEST_FILL_HUGE,        /* up to the largest float32, both signs */
    TEST_FILL_PLANTED,     /* normal, with copies and neighbours of a few of its values */
    TEST_FILL_NEAR_TIES,   /* neighbouring float32 values, so that reports tie */
    TEST_FILL_SOUND_COUNT, /* all above are sound rows; those below are not */
    TEST_FILL_NAN = TEST_FILL_SOUND_COUNT,
    TEST_FILL_PLUS_INF,
    TEST_FILL_ALL_MASKED, /* nothing but -inf */
    TEST_FILL_BITS,       /* random bit patterns, NaNs with payloads among them */
    TEST_FILL_COUNT
} test_fill;

const char *test_fill_name(test_fill fill);

/* Fill row[n], n >= 1. */
void test_fill_row(float *row, int32_t n, test_fill fill, uint64_t seed);

/* A stream of random numbers: splitmix64. */
uint64_t test_random(uint64_t *state);

/* Uniform in (0, 1), and standard normal. */
double test_uniform(uint64_t *state);
double test_normal(uint64_t *state);

#endif
