/*
 * The cut that keeps a given number or mass of a row's largest logits, without sorting the row.
 * A sample says about where it is; a few passes over the row narrow that to few elements, and
 * those are sorted. A guess that was wrong costs passes and nothing else: the bounds are counted.
 */
#include <math.h>

#include "kernel/float_key.h"
#include "kernel/mass.h"

enum {
    FEW = 1024,                 /* elements that are sorted in the end */
    SAMPLE = 1024,              /* elements that make the guess */
    GUESSES_FROM = 16 * SAMPLE, /* in rows at least this long */
    DENSE = 128,                /* where one element in so many is above, a sample knows enough */
    LINES = 6,                  /* looks along a straight line before plain bisection */
    GALLOPS = 16                /* widening steps before the lower bound falls to -inf */
};

/* low reaches the target, high does not; counts and masses are of elements that reach each. */
typedef struct bracket {
    float low, high;
    int32_t count_low, count_high;
    uint64_t reached_low, reached_high;
} bracket;

/* What is looked for: `target` elements, or with a rule, the mass `target`. */
typedef struct search {
    const alea_row_scan *scan;
    const alea_mass_rule *rule;
    uint64_t target;
} search;

/* Try a cut and let it take the place of the bound that it improves. Whether it is enough. */
static bool bracket_try(const search *s, bracket *b, float cut) {
    const int32_t count = alea__row_count_ge(s->scan, cut);
    const uint64_t reached = s->rule ? alea__mass_ge(s->scan, s->rule, cut) : (uint64_t)count;
    if (reached >= s->target) {
        b->low = cut;
        b->count_low = count;
        b->reached_low = reached;
        return true;
    }
    b->high = cut;
    b->count_high = count;
    b->reached_high = reached;
    return false;
}

/* Shell's method; its steps are short for the sizes of this file. */
static void sort_upward(uint64_t *keys, int32_t n) {
    for (int32_t gap = n / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11) {
        for (int32_t i = gap; i < n; i++) {
            const uint64_t key = keys[i];
            int32_t j = i;
            for (; j >= gap && keys[j - gap] > key; j -= gap)
                keys[j] = keys[j - gap];
            keys[j] = key;
        }
    }
}

/* A key that orders values downward, equal zeros as equals, with an index below it. */
static uint64_t downward_key(float value, int32_t index) {
    const uint32_t upward = (uint32_t)alea__float_key(value + 0.0f) ^ 0x80000000u;
    return (uint64_t)~upward << 32 | (uint32_t)index;
}

/* The value of a key, with +0 for both zeros. */
static float key_value(uint64_t key) {
    return alea__key_float((int32_t)(~(uint32_t)(key >> 32) ^ 0x80000000u));
}

/* One element of each stretch of the row, at places that no period of the data follows, sorted
 * downward. */
static void sample_take(const alea_row_scan *scan, float *values) {
    uint64_t keys[SAMPLE];
    uint32_t state = 1;
    for (int32_t i = 0; i < SAMPLE; i++) {
        const int32_t first = (int32_t)((int64_t)scan->vocab * i / SAMPLE);
        const int32_t next = (int32_t)((int64_t)scan->vocab * (i + 1) / SAMPLE);
        state = state * 1664525u + 1013904223u;
        const int32_t step = (int32_t)((uint64_t)state * (uint32_t)(next - first) >> 32);
        keys[i] = downward_key(scan->logits[first + step], 0);
    }
    sort_upward(keys, SAMPLE);
    for (int32_t i = 0; i < SAMPLE; i++)
        values[i] = key_value(keys[i]);
}

/*
 * Between which cuts the answer lies by the sample: three standard deviations of the share of what
 * is below `high` to either side. Domain: the share is that of a ratio, so that a sample with too
 * much of everything does not mislead.
 */
static void bracket_guess(const search *s, bracket *b) {
    float values[SAMPLE];
    uint32_t weights[SAMPLE];
    double behind = 0; /* squares of the weights behind the present one */
    sample_take(s->scan, values);
    if (s->rule) {
        s->scan->kernels->segment_weights(values, SAMPLE, s->rule->scale, s->rule->exponent,
                                          weights);
    }
    int32_t first = 0;
    while (first < SAMPLE && values[first] >= b->high)
        first++;
    double total = 0;
    for (int32_t i = first; i < SAMPLE; i++) {
        const double weight = s->rule ? weights[i] : 1.0;
        total += weight;
        behind += weight * weight;
    }
    const uint64_t all =
        s->rule ? alea__mass_ge(s->scan, s->rule, -INFINITY) : (uint64_t)s->scan->vocab;
    const double share = (double)(s->target - b->reached_high) / (double)(all - b->reached_high);
    double sum = 0, squares = 0;
    int32_t high = -1, low = -1;
    for (int32_t i = first; i < SAMPLE && low < 0; i++) {
        const double weight = s->rule ? weights[i] : 1.0;
        sum += weight;
        squares += weight * weight;
        behind -= weight * weight;
        const double rest = 1 - share;
        const double spread = 3 * sqrt(rest * rest * squares + share * share * fabs(behind));
        if (sum + spread < share * total) high = i;
        if (sum - spread >= share * total) low = i;
    }
    if (high >= 0 && values[high] > b->low && bracket_try(s, b, values[high])) return;
    if (low >= 0 && values[low] < b->high && values[low] > b->low) {
        (void)bracket_try(s, b, values[low]);
    }
}

/*
 * From the maximum downward in growing steps. Near the maximum few segments need a look, and a
 * sample would know little; further down the sample takes over.
 */
static void bracket_open(const search *s, bracket *b) {
    const int32_t vocab = s->scan->vocab;
    bool guessed = vocab < GUESSES_FROM || (s->rule && s->rule->shifted);
    float step = s->rule ? 1.0f / s->rule->scale : 1.0f; /* logits that halve or so the weight */
    const float known = b->low;
    for (int32_t i = 0; i < GALLOPS && b->low == known; i++, step *= 2.0f) {
        if (!guessed && b->count_high >= vocab / DENSE) {
            bracket_guess(s, b);
            guessed = true;
        }
        const float cut = s->scan->max - step;
        if (!(cut > known)) return;
        if (b->low == known && cut < b->high) (void)bracket_try(s, b, cut);
    }
}

/*
 * Where to look next: to either side of where a straight line puts the answer, for then it is
 * often between; later by value while that makes progress, and by key every other time, which
 * always ends.
 */
static float bracket_middle(const search *s, const bracket *b, int32_t turn) {
    double share = 0.5;
    if (turn < LINES && b->low > -INFINITY) {
        share = (double)(s->target - b->reached_high) / (double)(b->reached_low - b->reached_high) +
                (turn % 2 ? -0.03 : 0.03);
        share = share < 0.02 ? 0.02 : share > 0.98 ? 0.98 : share;
    }
    const float middle = b->high + (b->low - b->high) * (float)share;
    if ((turn < LINES || turn % 2 == 0) && middle > b->low && middle < b->high) return middle;
    return alea__key_float(alea__key_middle(alea__float_key(b->low), alea__float_key(b->high)));
}

/* The elements of one segment in [low, high), ids within the segment; returns how many. The
 * leaf knows one bound, so the other is turned into it: -x >= what is next above -high. */
static int32_t segment_between(const alea_row_scan *scan, int32_t s, const bracket *b,
                               int32_t *ids) {
    const float *x = scan->logits + s * ALEA_SEGMENT;
    const int32_t n = alea__segment_length(scan, s);
    const float low = b->low, high = -b->high + 0.0f;
    const float cut = alea__key_float(alea__float_key(high) + 1);
    float turned[ALEA_SEGMENT];
    for (int32_t i = 0; i < n; i++)
        turned[i] = x[i] >= low ? -x[i] : -INFINITY;
    return scan->kernels->collect_ge(turned, n, cut, 0, ids, ALEA_SEGMENT);
}

/* The few elements of the bracket, downward. Returns how many. */
static int32_t few_sorted(const search *s, const bracket *b, uint64_t *keys, uint32_t *weights,
                          uint16_t *segments) {
    const alea_row_scan *scan = s->scan;
    int32_t n = 0;
    for (int32_t i = 0; i < scan->n_segments; i++) {
        if (!(scan->segment_max[i] >= b->low)) continue;
        int32_t ids[ALEA_SEGMENT], exponent;
        float values[ALEA_SEGMENT];
        const int32_t count = segment_between(scan, i, b, ids);
        if (count == 0) continue;
        for (int32_t j = 0; j < count; j++) {
            values[j] = scan->logits[i * ALEA_SEGMENT + ids[j]];
            keys[n + j] = downward_key(values[j], n + j);
            weights[n + j] = 0;
            segments[n + j] = (uint16_t)i;
        }
        if (s->rule && alea__segment_exponent(scan, s->rule, i, &exponent)) {
            for (int32_t j = 0; s->rule->shifted && j < count; j++)
                values[j] -= scan->max;
            scan->kernels->segment_weights(values, count, s->rule->scale, exponent, weights + n);
        }
        n += count;
    }
    sort_upward(keys, n);
    return n;
}

/* The largest of the few values that reaches the target; the smallest does. */
static float cut_among(const search *s, const bracket *b) {
    uint64_t keys[FEW];
    uint32_t weights[FEW];
    uint16_t segments[FEW];
    const int32_t n = few_sorted(s, b, keys, weights, segments);
    if (!s->rule) return key_value(keys[s->target - (uint64_t)b->count_high - 1]);

    /* A segment's sum is aligned as a whole, so each grows token by token from what is above. */
    uint64_t sums[ALEA_SEGMENTS_MAX];
    int32_t exponents[ALEA_SEGMENTS_MAX];
    for (int32_t i = 0; i < s->scan->n_segments; i++) {
        exponents[i] = s->rule->exponent;
        sums[i] = 0;
        if (!alea__segment_exponent(s->scan, s->rule, i, &exponents[i])) continue;
        sums[i] = alea__segment_sum_ge(s->scan, s->rule, i, exponents[i], b->high);
    }
    uint64_t mass = b->reached_high;
    for (int32_t i = 0; i < n; i++) {
        const uint32_t entry = (uint32_t)keys[i];
        uint64_t *sum = &sums[segments[entry]];
        const int32_t exponent = exponents[segments[entry]];
        mass -= alea__mass_align(s->rule, *sum, exponent);
        *sum += weights[entry];
        mass += alea__mass_align(s->rule, *sum, exponent);
        if (mass >= s->target) return key_value(keys[i]);
    }
    return b->low;
}

float alea__row_cut_above(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target,
                          float low, uint64_t reached) {
    const search s = {scan, rule, target};
    bracket b = {.low = low, .high = scan->max, .count_low = scan->vocab, .reached_low = reached};
    if (low > -INFINITY) b.count_low = alea__row_count_ge(scan, low);
    if (bracket_try(&s, &b, scan->max)) return scan->max;
    if (b.count_low - b.count_high > FEW) bracket_open(&s, &b);
    for (int32_t turn = 0; b.count_low - b.count_high > FEW; turn++) {
        const float cut = bracket_middle(&s, &b, turn);
        /* Neighbouring values: what lies between is equal to low. */
        if (alea__float_key(cut) == alea__float_key(b.low)) return b.low;
        (void)bracket_try(&s, &b, cut);
    }
    return cut_among(&s, &b);
}

float alea__row_cut(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target) {
    return alea__row_cut_above(scan, rule, target, -INFINITY, UINT64_MAX);
}
