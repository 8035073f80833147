/*
 * Integer masses of one row: the arithmetic of docs/numerics.md above the leaves. A row is scanned
 * once for its maxima; everything else visits only the segments that matter. Reports, choices and
 * the operators are built on this.
 */
#ifndef ALEA_KERNEL_MASS_H
#define ALEA_KERNEL_MASS_H

#include "alea/base.h"
#include "base/pool.h"
#include "kernel/exp2_poly.h"
#include "kernel/kernel_table.h"
#include "kernel/ln.h"
#include "kernel/row.h"

#define ALEA_SEGMENTS_MAX (ALEA_VOCAB_MAX / ALEA_SEGMENT)

/* Segments per task where threads share one row. */
enum { ALEA_ROW_TASK_SEGMENTS = 16 };

/* A row and its maxima. 16 KB: meant for the stack of one call. */
typedef struct alea_row_scan {
    const alea_kernel_table *kernels;
    alea_pool *pool; /* shares passes over the whole row; NULL: the caller alone */
    const float *logits;
    int32_t vocab;
    int32_t n_segments;
    float max; /* NaN if the row holds one */
    float segment_max[ALEA_SEGMENTS_MAX];
} alea_row_scan;

/*
 * Read the row's maxima, with the threads of `pool` where there is one. With 1 <= k <=
 * ALEA_TOP_MAX and k <= vocab, at least k elements reach *group and at most 64*(k - 1) exceed it,
 * 64 being a lane's elements: it is the k-th largest of the lane maxima or, where there are fewer
 * lanes, one of the least that k elements reach; -inf where none is. With k = 0 group may be NULL.
 */
void alea__row_scan(const alea_kernel_table *kernels, alea_pool *pool, const float *logits,
                    int32_t vocab, int32_t k, float *group, alea_row_scan *scan);

/* alea__row_scan, and masses [segments] as the leaf lane_max_mass gives them under `scale`. */
void alea__row_scan_masses(const alea_kernel_table *kernels, alea_pool *pool, const float *logits,
                           int32_t vocab, int32_t k, float *group, float scale, alea_row_scan *scan,
                           uint64_t *masses);

/* Whether reports and draws may use the row: no NaN, no +inf, something finite. */
static inline bool alea__row_is_sound(const alea_row_scan *scan) {
    return scan->max >= -3.402823466e38f && scan->max <= 3.402823466e38f;
}

/* Tasks of a row whose threads take ALEA_ROW_TASK_SEGMENTS segments each. */
static inline int32_t alea__row_tasks(const alea_row_scan *scan) {
    return (scan->n_segments + ALEA_ROW_TASK_SEGMENTS - 1) / ALEA_ROW_TASK_SEGMENTS;
}

/* Elements of segment `s`. */
static inline int32_t alea__segment_length(const alea_row_scan *scan, int32_t s) {
    const int32_t rest = scan->vocab - s * ALEA_SEGMENT;
    return rest < ALEA_SEGMENT ? rest : ALEA_SEGMENT;
}

/* How many elements reach `cut`. */
int32_t alea__row_count_ge(const alea_row_scan *scan, float cut);

/* The first id whose logit is the maximum, of a sound row. */
int32_t alea__row_greedy(const alea_row_scan *scan);

/* How a row is weighed under one scale. */
typedef struct alea_mass_rule {
    float scale;      /* log2(e) / temperature */
    bool shifted;     /* logits count from the maximum: huge logits or tiny temperatures */
    int32_t exponent; /* E of the row */
    double slope;     /* scale * ln 2 */
} alea_mass_rule;

/* Domain: a sound row; scale finite and positive. */
alea_mass_rule alea__mass_rule(const alea_row_scan *scan, float scale);

/*
 * alea__row_scan, the rule under `scale` and the mass of the whole row, in one pass over memory.
 * False, and neither rule nor mass: the row is not sound.
 */
bool alea__row_weigh(const alea_kernel_table *kernels, alea_pool *pool, const float *logits,
                     int32_t vocab, int32_t k, float *group, float scale, alea_row_scan *scan,
                     alea_mass_rule *rule, uint64_t *mass);

/*
 * The exponent of segment `s`; false: the segment's mass shifts to nothing, and its exponent may
 * not even be representable.
 */
bool alea__segment_exponent(const alea_row_scan *scan, const alea_mass_rule *rule, int32_t s,
                            int32_t *exponent);

/* The sum of a segment's weights, at its own exponent, as a part of the row's mass. */
uint64_t alea__mass_align(const alea_mass_rule *rule, uint64_t sum, int32_t exponent);

/* The sum of the weights of segment `s` with logit >= cut, at the exponent that
 * alea__segment_exponent gave. */
uint64_t alea__segment_sum_ge(const alea_row_scan *scan, const alea_mass_rule *rule, int32_t s,
                              int32_t exponent, float cut);

/* The mass of the tokens with logit >= cut; -INFINITY: of all. Below 2^63. */
uint64_t alea__mass_ge(const alea_row_scan *scan, const alea_mass_rule *rule, float cut);

/* ln of the sum of exponentials that a mass > 0 stands for. */
double alea__mass_lse(const alea_mass_rule *rule, uint64_t mass);

/* The reported log-probability of a logit: never above 0, never -0. Monotone in x. */
static inline float alea__logprob(const alea_row_scan *scan, const alea_mass_rule *rule, float x,
                                  double lse) {
    const double offset = rule->shifted ? (double)scan->max : 0.0;
    const float logprob = (float)fma((double)x - offset, rule->slope, -lse);
    return logprob < 0.0f ? logprob : 0.0f;
}

/* Entropy in nats; `mass` is that of the whole row. */
float alea__mass_entropy(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t mass);

/*
 * Draw among the tokens with logit >= cut by 24 random bits. *mass is their mass, which must not
 * be 0 (it is not where cut <= max). A token without weight is never drawn.
 */
int32_t alea__mass_draw(const alea_row_scan *scan, const alea_mass_rule *rule, float cut,
                        uint32_t bits, uint64_t *mass);

/* ceil(p * mass) for 0 <= p <= 1, p taken as the exact value of its float32. */
uint64_t alea__mass_share(float p, uint64_t mass);

/*
 * The largest cut that at least `target` >= 1 elements reach, or with a rule, that tokens of at
 * least the mass `target` reach; target is at most that of the whole sound row. It is a logit of
 * the row, or keeps the same tokens as one.
 */
float alea__row_cut(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target);

/* The same where `low` is known to reach the target, with the mass `reached` >= target: the cut
 * is then at or above it. */
float alea__row_cut_above(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t target,
                          float low, uint64_t reached);

#endif
