/* The first pass over a row, and what is answered by its maxima and comparisons alone. */
#include <math.h>

#include "kernel/mass.h"

enum { TASKS_MAX = ALEA_SEGMENTS_MAX / ALEA_ROW_TASK_SEGMENTS };

/* The k largest lane maxima so far, downward, and the largest segment's; NaN stays. */
typedef struct row_tops {
    float most;
    float groups[ALEA_TOP_MAX];
} row_tops;

typedef struct scan_job {
    alea_row_scan *scan;
    int32_t k;
    float scale;
    uint64_t *masses; /* NULL: maxima alone */
    row_tops *tops;   /* one a task */
} scan_job;

static void tops_clear(row_tops *tops) {
    tops->most = -INFINITY;
    for (int32_t i = 0; i < ALEA_TOP_MAX; i++)
        tops->groups[i] = -INFINITY;
}

static void tops_add(row_tops *tops, int32_t k, float most, const float *lanes, int32_t n_lanes) {
    if (!(most <= tops->most)) tops->most = tops->most != tops->most ? tops->most : most;
    if (k == 0 || !(most > tops->groups[k - 1])) return;
    for (int32_t lane = 0; lane < n_lanes; lane++) {
        const float x = lanes[lane];
        if (!(x > tops->groups[k - 1])) continue;
        float above = INFINITY;
        for (int32_t i = 0; i < k; i++) {
            const float here = tops->groups[i], moved = x < above ? x : above;
            tops->groups[i] = here > moved ? here : moved;
            above = here;
        }
    }
}

/* Maxima of one task's segments, and where wanted masses. */
static void part_scan(const scan_job *job, int32_t index, row_tops *tops) {
    alea_row_scan *scan = job->scan;
    float lanes[ALEA_ROW_TASK_SEGMENTS * ALEA_LANES];
    const int32_t first = index * ALEA_ROW_TASK_SEGMENTS;
    const int32_t left = scan->vocab - first * ALEA_SEGMENT;
    const int32_t most = ALEA_ROW_TASK_SEGMENTS * ALEA_SEGMENT;
    const int32_t n = left < most ? left : most;
    const float *x = scan->logits + first * ALEA_SEGMENT;
    float *segments = scan->segment_max + first;
    if (job->masses) {
        scan->kernels->lane_max_mass(x, n, job->scale, lanes, segments, job->masses + first);
    } else {
        scan->kernels->lane_max(x, n, lanes, segments);
    }
    for (int32_t s = 0; s < (n + ALEA_SEGMENT - 1) / ALEA_SEGMENT; s++)
        tops_add(tops, job->k, segments[s], lanes + s * ALEA_LANES, ALEA_LANES);
}

static void scan_task(void *user, int32_t index) {
    const scan_job *job = user;
    tops_clear(&job->tops[index]);
    part_scan(job, index, &job->tops[index]);
}

/* Each task has tops of its own, for threads; what they leave are the whole row's. */
static void scan_shared(scan_job *job, row_tops *tops) {
    row_tops parts[TASKS_MAX];
    job->tops = parts;
    alea__pool_run(job->scan->pool, scan_task, job, alea__row_tasks(job->scan));
    for (int32_t i = 0; i < alea__row_tasks(job->scan); i++)
        tops_add(tops, job->k, parts[i].most, parts[i].groups, job->k);
}

/* One segment has fewer lanes than the largest k: then one of the least maxima, if k elements reach
 * it. Larger ones are not tried: few do. */
static float scan_group(const alea_row_scan *scan, const row_tops *tops, int32_t k) {
    if (k <= ALEA_LANES || scan->n_segments > 1) return tops->groups[k - 1];
    for (int32_t i = ALEA_LANES * 3 / 4; i < ALEA_LANES; i++) {
        const float group = tops->groups[i];
        if (scan->kernels->count_ge(scan->logits, scan->vocab, group) >= k) return group;
    }
    return -INFINITY;
}

void alea__row_scan_masses(const alea_kernel_table *kernels, alea_pool *pool, const float *logits,
                           int32_t vocab, int32_t k, float *group, float scale, alea_row_scan *scan,
                           uint64_t *masses) {
    scan->kernels = kernels;
    scan->logits = logits;
    scan->vocab = vocab;
    scan->n_segments = (vocab + ALEA_SEGMENT - 1) / ALEA_SEGMENT;
    scan->pool = alea__row_tasks(scan) > 1 ? pool : NULL;
    scan_job job = {.scan = scan, .k = k, .scale = scale, .masses = masses};
    row_tops tops;
    tops_clear(&tops);
    if (scan->pool) {
        scan_shared(&job, &tops);
    } else {
        for (int32_t i = 0; i < alea__row_tasks(scan); i++)
            part_scan(&job, i, &tops);
    }
    scan->max = tops.most;
    if (k) *group = scan_group(scan, &tops, k);
}

void alea__row_scan(const alea_kernel_table *kernels, alea_pool *pool, const float *logits,
                    int32_t vocab, int32_t k, float *group, alea_row_scan *scan) {
    alea__row_scan_masses(kernels, pool, logits, vocab, k, group, 0.0f, scan, NULL);
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
