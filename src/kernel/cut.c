/*
 * The cut that keeps a given number or mass of a row's largest logits, without sorting the row:
 * bisection over cuts until few elements lie between the bounds, then over those elements.
 */
#include <math.h>

#include "kernel/float_key.h"
#include "kernel/mass.h"

enum {
    FEW = 1024,  /* elements that are sorted in the end */
    GALLOPS = 16 /* widening steps before the lower bound falls to -inf */
};

/* low reaches the target, high does not; counts are of elements that reach each. */
typedef struct bracket {
    float low, high;
    int32_t count_low, count_high;
} bracket;

/* A cut tried: how many elements reach it, and whether that is enough. */
typedef struct trial {
    int32_t count;
    bool enough;
} trial;

static trial cut_try(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target,
                     float cut) {
    const int32_t count = alea__row_count_ge(scan, cut);
    const uint64_t reached = rule ? alea__mass_ge(scan, rule, cut) : (uint64_t)count;
    return (trial){count, reached >= target};
}

static void bracket_narrow(bracket *b, float cut, trial t) {
    if (t.enough) {
        b->low = cut;
        b->count_low = t.count;
    } else {
        b->high = cut;
        b->count_high = t.count;
    }
}

/* From the maximum downward in growing steps, until a cut is low enough. */
static void bracket_open(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target,
                         bracket *b) {
    float step = rule ? 1.0f / rule->scale : 1.0f; /* logits that halve or so the weight */
    for (int32_t i = 0; i < GALLOPS; i++, step *= 2.0f) {
        const float cut = scan->max - step;
        if (!(cut < b->high && cut > -INFINITY)) continue;
        const trial t = cut_try(scan, rule, target, cut);
        bracket_narrow(b, cut, t);
        if (t.enough) return;
    }
    b->low = -INFINITY;
    b->count_low = scan->vocab;
}

/* By value while that makes progress, by key every other time, which always ends. */
static float bracket_middle(const bracket *b, int32_t turn) {
    const float middle = b->low + (b->high - b->low) * 0.5f;
    if (turn % 2 == 0 && middle > b->low && middle < b->high) return middle;
    return alea__key_float(alea__key_middle(alea__float_key(b->low), alea__float_key(b->high)));
}

static void sort_downward(float *values, int32_t n) {
    for (int32_t gap = n / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11) {
        for (int32_t i = gap; i < n; i++) {
            const float value = values[i];
            int32_t j = i;
            for (; j >= gap && values[j - gap] < value; j -= gap)
                values[j] = values[j - gap];
            values[j] = value;
        }
    }
}

/* The elements in [low, high), at most FEW; returns how many. */
static int32_t bracket_collect(const alea_row_scan *scan, const bracket *b, float *values) {
    int32_t n_values = 0;
    for (int32_t s = 0; s < scan->n_segments; s++) {
        if (!(scan->segment_max[s] >= b->low)) continue;
        int32_t ids[ALEA_SEGMENT];
        const float *x = scan->logits + s * ALEA_SEGMENT;
        const int32_t n = scan->kernels->collect_ge(x, alea__segment_length(scan, s), b->low, 0,
                                                    ids, ALEA_SEGMENT);
        for (int32_t i = 0; i < n && n_values < FEW; i++) {
            if (x[ids[i]] < b->high) values[n_values++] = x[ids[i]];
        }
    }
    return n_values;
}

/* The largest of the few values that reaches the target; the smallest does. */
static float cut_among(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target,
                       const bracket *b) {
    float values[FEW];
    const int32_t n = bracket_collect(scan, b, values);
    sort_downward(values, n);
    if (!rule) return values[target - (uint64_t)b->count_high - 1];
    int32_t first = 0, last = n - 1; /* the answer is in [first, last] */
    while (first < last) {
        const int32_t middle = first + (last - first) / 2;
        if (alea__mass_ge(scan, rule, values[middle]) >= target) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    return values[first];
}

float alea__row_cut(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target) {
    const trial top = cut_try(scan, rule, target, scan->max);
    if (top.enough) return scan->max;
    bracket b = {.high = scan->max, .count_high = top.count};
    bracket_open(scan, rule, target, &b);
    for (int32_t turn = 0; b.count_low - b.count_high > FEW; turn++) {
        const float cut = bracket_middle(&b, turn);
        /* Neighbouring values: what lies between is equal to low. */
        if (alea__float_key(cut) == alea__float_key(b.low)) return b.low;
        bracket_narrow(&b, cut, cut_try(scan, rule, target, cut));
    }
    return cut_among(scan, rule, target, &b);
}
