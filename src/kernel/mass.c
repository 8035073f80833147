/* Masses, draws and entropy: segments are weighed alone and aligned to the row's exponent. */
#include <math.h>
#include <stdatomic.h>

#include "base/half.h"
#include "kernel/mass.h"

/* The plain rule needs every exponent, and the sums on the way to it, exact in float32. */
#define PLAIN_LIMIT 0x1.8p20f

/* W <= 2^29.57, 1024 of them, times 2^11: below 2^51, so a shift by 51 leaves nothing. */
enum { DEEPEST_SHIFT = 50 };

/* Segments per partial sum of a draw: 64 sums for the largest row. */
enum { DRAW_GROUP = 64 };

alea_mass_rule alea__mass_rule(const alea_row_scan *scan, float scale) {
    const float top = scan->max * scale;
    alea_mass_rule rule = {.scale = scale, .slope = (double)scale * ALEA_LN2};
    rule.shifted = !(fabsf(top) <= PLAIN_LIMIT);
    rule.exponent = rule.shifted ? 0 : (int32_t)rintf(top);
    return rule;
}

bool alea__segment_exponent(const alea_row_scan *scan, const alea_mass_rule *rule, int32_t s,
                            int32_t *exponent) {
    const float max = scan->segment_max[s];
    const float top = rintf((rule->shifted ? max - scan->max : max) * rule->scale);
    if (!(top >= (float)(rule->exponent - DEEPEST_SHIFT))) return false;
    *exponent = (int32_t)top;
    return true;
}

uint64_t alea__mass_align(const alea_mass_rule *rule, uint64_t sum, int32_t exponent) {
    return (sum << ALEA_MASS_SHIFT) >> (rule->exponent - exponent);
}

/* The segment counted from the row's maximum, what is below the cut made weightless. */
static void segment_shift(const alea_row_scan *scan, const float *x, int32_t n, float cut,
                          float *buffer) {
    for (int32_t i = 0; i < n; i++)
        buffer[i] = x[i] >= cut ? x[i] - scan->max : -INFINITY;
}

static uint64_t shifted_sum_ge(const alea_row_scan *scan, const alea_mass_rule *rule,
                               const float *x, int32_t n, int32_t exponent, float cut) {
    float buffer[ALEA_SEGMENT];
    segment_shift(scan, x, n, cut, buffer);
    return scan->kernels->segment_mass(buffer, n, rule->scale, exponent);
}

uint64_t alea__segment_sum_ge(const alea_row_scan *scan, const alea_mass_rule *rule, int32_t s,
                              int32_t exponent, float cut) {
    const float *x = scan->logits + s * ALEA_SEGMENT;
    const int32_t n = alea__segment_length(scan, s);
    if (!(scan->segment_max[s] >= cut)) return 0;
    if (rule->shifted) return shifted_sum_ge(scan, rule, x, n, exponent, cut);
    if (cut == -INFINITY) return scan->kernels->segment_mass(x, n, rule->scale, exponent);
    return scan->kernels->segment_mass_ge(x, n, rule->scale, exponent, cut);
}

/* The aligned mass of one segment's tokens that reach the cut. */
static uint64_t segment_mass_ge(const alea_row_scan *scan, const alea_mass_rule *rule, int32_t s,
                                float cut) {
    int32_t exponent;
    if (!(scan->segment_max[s] >= cut)) return 0;
    if (!alea__segment_exponent(scan, rule, s, &exponent)) return 0;
    return alea__mass_align(rule, alea__segment_sum_ge(scan, rule, s, exponent, cut), exponent);
}

typedef struct mass_job {
    const alea_row_scan *scan;
    const alea_mass_rule *rule;
    float cut;
    _Atomic uint64_t mass;
} mass_job;

static void mass_task(void *user, int32_t index) {
    mass_job *job = user;
    const int32_t first = index * ALEA_ROW_TASK_SEGMENTS;
    uint64_t mass = 0;
    for (int32_t s = first; s < first + ALEA_ROW_TASK_SEGMENTS && s < job->scan->n_segments; s++)
        mass += segment_mass_ge(job->scan, job->rule, s, job->cut);
    atomic_fetch_add_explicit(&job->mass, mass, memory_order_relaxed);
}

uint64_t alea__mass_ge(const alea_row_scan *scan, const alea_mass_rule *rule, float cut) {
    mass_job job = {scan, rule, cut, 0};
    int32_t n_weighed = 0;
    for (int32_t s = 0; scan->pool && s < scan->n_segments; s++)
        n_weighed += scan->segment_max[s] >= cut;
    /* Waking threads costs as much as weighing some segments. */
    alea_pool *pool = n_weighed > 2 * ALEA_ROW_TASK_SEGMENTS ? scan->pool : NULL;
    alea__pool_run(pool, mass_task, &job, alea__row_tasks(scan));
    return job.mass;
}

bool alea__row_weigh(const alea_kernel_table *kernels, alea_pool *pool, const float *logits,
                     int32_t vocab, int32_t k, float *group, float scale, alea_row_scan *scan,
                     alea_mass_rule *rule, uint64_t *mass) {
    uint64_t masses[ALEA_SEGMENTS_MAX];
    alea__row_scan_masses(kernels, pool, logits, vocab, k, group, scale, scan, masses);
    if (!alea__row_is_sound(scan)) return false;
    *rule = alea__mass_rule(scan, scale);
    if (rule->shifted) { /* the leaf weighed logits that do not count from the maximum */
        *mass = alea__mass_ge(scan, rule, -INFINITY);
        return true;
    }
    uint64_t sum = 0;
    for (int32_t s = 0; s < scan->n_segments; s++) {
        int32_t exponent;
        if (alea__segment_exponent(scan, rule, s, &exponent)) {
            sum += alea__mass_align(rule, masses[s], exponent);
        }
    }
    *mass = sum;
    return true;
}

double alea__mass_lse(const alea_mass_rule *rule, uint64_t mass) {
    return fma((double)rule->exponent, ALEA_LN2, alea__ln((double)mass * 0x1p-40));
}

float alea__mass_entropy(const alea_row_scan *scan, const alea_mass_rule *rule, uint64_t mass) {
    __extension__ typedef __int128 wide;
    wide moments = 0;    /* B: 4096 segments of less than 2^63 */
    uint64_t depths = 0; /* D: below 2^63 * 50 / 2^50 for what lies deep, far below 2^63 in all */
    for (int32_t s = 0; s < scan->n_segments; s++) {
        int32_t exponent;
        if (!alea__segment_exponent(scan, rule, s, &exponent)) continue;
        const float *x = scan->logits + s * ALEA_SEGMENT;
        const int32_t n = alea__segment_length(scan, s);
        float buffer[ALEA_SEGMENT];
        if (rule->shifted) {
            segment_shift(scan, x, n, -INFINITY, buffer);
            x = buffer;
        }
        alea_entropy_sums sums;
        scan->kernels->segment_entropy(x, n, rule->scale, exponent, &sums);
        const int32_t depth = rule->exponent - exponent;
        moments += sums.moment >> depth; /* arithmetic: towards minus infinity */
        depths += alea__mass_align(rule, sums.mass, exponent) * (uint64_t)depth;
    }
    const double shares = (double)moments * (0x1p-24 * (1 << ALEA_MASS_SHIFT)) - (double)depths;
    const double log_mass = alea__ln((double)mass * 0x1p-40);
    const float entropy = (float)(log_mass - ALEA_LN2 * shares / (double)mass);
    return entropy > 0.0f ? entropy : 0.0f;
}

/* The token of one segment at which the running aligned mass first exceeds `left`. */
static int32_t draw_in_segment(const alea_row_scan *scan, const alea_mass_rule *rule, int32_t s,
                               float cut, uint64_t left) {
    const float *x = scan->logits + s * ALEA_SEGMENT;
    const int32_t n = alea__segment_length(scan, s);
    int32_t exponent = 0;
    (void)alea__segment_exponent(scan, rule, s, &exponent);
    uint32_t weights[ALEA_SEGMENT];
    if (rule->shifted) {
        float buffer[ALEA_SEGMENT];
        segment_shift(scan, x, n, cut, buffer);
        scan->kernels->segment_weights(buffer, n, rule->scale, exponent, weights);
    } else {
        scan->kernels->segment_weights(x, n, rule->scale, exponent, weights);
    }
    uint64_t sum = 0;
    int32_t i = 0;
    for (; i < n; i++) {
        sum += x[i] >= cut ? weights[i] : 0;
        if (alea__mass_align(rule, sum, exponent) > left) break;
    }
    return s * ALEA_SEGMENT + i;
}

int32_t alea__mass_draw(const alea_row_scan *scan, const alea_mass_rule *rule, float cut,
                        uint32_t bits, uint64_t *mass) {
    uint64_t groups[ALEA_SEGMENTS_MAX / DRAW_GROUP] = {0};
    uint64_t total = 0;
    for (int32_t s = 0; s < scan->n_segments; s++) {
        const uint64_t part = segment_mass_ge(scan, rule, s, cut);
        groups[s / DRAW_GROUP] += part;
        total += part;
    }
    *mass = total;
    __extension__ typedef unsigned __int128 wide;
    uint64_t left = (uint64_t)((wide)bits * total >> 24); /* below total, as bits < 2^24 */
    int32_t group = 0;
    while (groups[group] <= left)
        left -= groups[group++];
    for (int32_t s = group * DRAW_GROUP;; s++) {
        const uint64_t part = segment_mass_ge(scan, rule, s, cut);
        if (part > left) return draw_in_segment(scan, rule, s, cut, left);
        left -= part;
    }
}

uint64_t alea__mass_share(float p, uint64_t mass) {
    if (!(p > 0.0f)) return 0;
    const uint32_t bits = alea__float_bits(p);
    const uint32_t biased = bits >> 23;
    const uint32_t m = biased ? (bits & 0x7fffffu) | 0x800000u : bits; /* p = m * 2^-e */
    const uint32_t e = 150 - (biased ? biased : 1);
    if (e >= 88) return mass ? 1 : 0; /* m * mass < 2^87 */
    __extension__ typedef unsigned __int128 wide;
    const wide product = (wide)m * mass;
    return (uint64_t)((product + (((wide)1 << e) - 1)) >> e);
}
