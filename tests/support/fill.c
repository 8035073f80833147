/* The fills; each is a function of length and seed alone. */
#include <float.h>
#include <math.h>

#include "base/half.h"
#include "support/fill.h"

uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

double test_uniform(uint64_t *state) {
    return ((double)(test_random(state) >> 11) + 0.5) * 0x1p-53;
}

double test_normal(uint64_t *state) {
    const double radius = sqrt(-2.0 * log(test_uniform(state)));
    return radius * cos(6.283185307179586 * test_uniform(state));
}

const char *test_fill_name(test_fill fill) {
    static const char *const names[TEST_FILL_COUNT] = {
        "normal",     "tied",        "constant",   "one hot", "descending", "ascending",
        "one finite", "half masked", "denormal",   "huge",    "planted",    "near ties",
        "nan",        "plus inf",    "all masked", "bits"};
    return names[fill];
}

static int32_t below(uint64_t *state, int32_t n) {
    return (int32_t)(test_random(state) % (uint64_t)n);
}

static float fill_value(test_fill fill, int32_t i, uint64_t *state) {
    switch (fill) {
    case TEST_FILL_TIED: return (float)below(state, 5) - 2.0f;
    case TEST_FILL_CONSTANT: return -1.25f;
    case TEST_FILL_ONE_HOT: return i % 3 ? 0.0f : -0.0f;
    case TEST_FILL_DESCENDING: return -1e-4f * (float)i;
    case TEST_FILL_ASCENDING: return 3e-4f * (float)i;
    case TEST_FILL_ONE_FINITE:
    case TEST_FILL_ALL_MASKED: return -INFINITY;
    case TEST_FILL_HALF_MASKED:
        return below(state, 2) ? (float)(4.0 * test_normal(state)) : -INFINITY;
    case TEST_FILL_DENORMAL: return alea__bits_float((uint32_t)test_random(state) & 0x807fffffu);
    case TEST_FILL_HUGE: {
        const float magnitude = ldexpf((float)test_uniform(state), below(state, 129));
        return below(state, 2) ? -fminf(magnitude, FLT_MAX) : fminf(magnitude, FLT_MAX);
    }
    case TEST_FILL_NEAR_TIES: return alea__bits_float(0x41800000u + (uint32_t)below(state, 9));
    case TEST_FILL_BITS: return alea__bits_float((uint32_t)test_random(state));
    default: return (float)(4.0 * test_normal(state));
    }
}

/* Copies of a few values, and their neighbours, in many places. */
static void plant(float *row, int32_t n, uint64_t *state) {
    for (int32_t round = 0; round < 4; round++) {
        const float value = row[below(state, n)];
        for (int32_t i = 0; i < 1 + n / 16; i++) {
            const float way = (float)(below(state, 3) - 1);
            row[below(state, n)] = way == 0.0f ? value : nextafterf(value, way * INFINITY);
        }
    }
}

void test_fill_row(float *row, int32_t n, test_fill fill, uint64_t seed) {
    uint64_t state = seed * 64 + (uint64_t)fill;
    for (int32_t i = 0; i < n; i++)
        row[i] = fill_value(fill, i, &state);
    const int32_t at = below(&state, n);
    switch (fill) {
    case TEST_FILL_ONE_HOT: row[at] = 30.0f; break;
    case TEST_FILL_ONE_FINITE: row[at] = -7.5f; break;
    case TEST_FILL_HALF_MASKED: row[at] = 1.0f; break;
    case TEST_FILL_PLANTED: plant(row, n, &state); break;
    case TEST_FILL_NAN: row[at] = alea__bits_float(0xffc01234u); break;
    case TEST_FILL_PLUS_INF: row[at] = INFINITY; break;
    default: break;
    }
}
