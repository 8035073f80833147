/* The first pass over a row, and what is answered by its maxima and comparisons alone. */
#include <math.h>

#include "kernel/mass.h"

enum { BLOCK = 32 }; /* segments per call of the leaf: 2 KB of lane maxima */

/* The k largest lane maxima so far, downward. */
typedef struct top_groups {
    int32_t k;
    float best[ALEA_TOP_MAX];
} top_groups;

static void groups_insert(top_groups *groups, float value) {
    int32_t i = groups->k - 1;
    for (; i > 0 && groups->best[i - 1] < value; i--)
        groups->best[i] = groups->best[i - 1];
    groups->best[i] = value;
}

static void groups_add(top_groups *groups, const float *lanes) {
    for (int32_t lane = 0; lane < ALEA_LANES; lane++) {
        if (lanes[lane] > groups->best[groups->k - 1]) groups_insert(groups, lanes[lane]);
    }
}

/* One block of segments: maxima, and where wanted masses. */
static void block_scan(const alea_row_scan *scan, int32_t s, int32_t n, float scale, float *lanes,
                       float *segments, uint64_t *masses) {
    const float *x = scan->logits + s * ALEA_SEGMENT;
    if (masses) {
        scan->kernels->lane_max_mass(x, n, scale, lanes, segments, masses + s);
    } else {
        scan->kernels->lane_max(x, n, lanes, segments);
    }
}

void alea__row_scan_masses(const alea_kernel_table *kernels, const float *logits, int32_t vocab,
                           int32_t k, float *group, float scale, alea_row_scan *scan,
                           uint64_t *masses) {
    scan->kernels = kernels;
    scan->logits = logits;
    scan->vocab = vocab;
    scan->n_segments = (vocab + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    top_groups groups = {.k = k};
    for (int32_t i = 0; i < k; i++)
        groups.best[i] = -INFINITY;

    float most = -INFINITY;
    for (int32_t s = 0; s < scan->n_segments; s += BLOCK) {
        float lanes[BLOCK * ALEA_LANES];
        const int32_t left = vocab - s * ALEA_SEGMENT;
        const int32_t n = left < BLOCK * ALEA_SEGMENT ? left : BLOCK * ALEA_SEGMENT;
        float *segments = scan->segment_max + s;
        block_scan(scan, s, n, scale, lanes, segments, masses);
        const int32_t n_segments = (n + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
        for (int32_t i = 0; i < n_segments; i++) {
            if (!(segments[i] <= most)) most = most != most ? most : segments[i];
            if (k && segments[i] > groups.best[k - 1]) groups_add(&groups, lanes + i * ALEA_LANES);
        }
    }
    scan->max = most;
    if (k) *group = groups.best[k - 1];
}

void alea__row_scan(const alea_kernel_table *kernels, const float *logits, int32_t vocab, int32_t k,
                    float *group, alea_row_scan *scan) {
    alea__row_scan_masses(kernels, logits, vocab, k, group, 0.0f, scan, NULL);
}

int32_t alea__row_count_ge(const alea_row_scan *scan, float cut) {
    int32_t count = 0;
    for (int32_t s = 0; s < scan->n_segments; s++) {
        if (!(scan->segment_max[s] >= cut)) continue;
        count += scan->kernels->count_ge(scan->logits + s * ALEA_SEGMENT,
                                         alea__segment_length(scan, s), cut);
    }
    return count;
}

int32_t alea__row_greedy(const alea_row_scan *scan) {
    int32_t s = 0;
    while (s < scan->n_segments - 1 && scan->segment_max[s] != scan->max)
        s++;
    int32_t token = 0;
    const int32_t first = s * ALEA_SEGMENT;
    (void)scan->kernels->collect_ge(scan->logits + first, alea__segment_length(scan, s), scan->max,
                                    first, &token, 1);
    return token;
}
