/*
 * `alea bench ops`. Median and minimum over repeated runs; every case is timed in turn, round after
 * round, because machines drift. The floor is one plain pass over the same rows, on the same
 * threads; the peer is the softmax that inference servers usually run, in float32 with libm.
 */
#include "cli/bench_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/pool.h"
#include "kernel/rows.h"
#include "json/json_write.h"

enum { ROWS = 64, ROUNDS = 9, CASES = 4 };

static const int32_t vocabs[] = {49152, 128256};

typedef struct bench {
    alea_pool *pool;
    int32_t vocab;
    float *logits; /* [ROWS, vocab] */
    const float *rows[ROWS];
    int32_t tokens[ROWS];
    alea_row_report reports[ROWS];
    float results[ROWS]; /* kept, so that no case can be optimized away */
    bool failed;
} bench;

static void read_row(void *user, int32_t row) {
    bench *b = user;
    const uint8_t *bytes = (const uint8_t *)b->rows[row];
    uint64_t sum = 0;
    for (size_t at = 0; at + sizeof sum <= (size_t)b->vocab * sizeof(float); at += sizeof sum) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        sum += word;
    }
    b->results[row] = (float)sum;
}

static void run_floor(bench *b) {
    alea__pool_run(b->pool, read_row, b, ROWS);
}

static void report(bench *b, int32_t k) {
    const alea_rows_query query = {b->rows, b->tokens, ROWS, b->vocab, k, false};
    if (alea__rows_report(alea__kernels(), b->pool, &query, b->reports, NULL) < 0) b->failed = true;
}

static void run_report_0(bench *b) {
    report(b, 0);
}

static void run_report_20(bench *b) {
    report(b, 20);
}

static void choose_row(void *user, int32_t row) {
    bench *b = user;
    const alea_sampling sampling = {0.8f, 50, 0.95f, 0.0f};
    const alea_draw_at at = {1, 0, (uint32_t)row, 0};
    alea_choice choice;
    if (alea__row_choose(alea__kernels(), b->rows[row], b->vocab, &sampling, &at, &choice) >= 0)
        b->results[row] = choice.logprob;
}

static void run_choose(bench *b) {
    alea__pool_run(b->pool, choose_row, b, ROWS);
}

static void softmax_row(void *user, int32_t row) {
    bench *b = user;
    const float *x = b->rows[row];
    float most = x[0];
    for (int32_t i = 1; i < b->vocab; i++)
        most = x[i] > most ? x[i] : most;
    float sum = expf(x[0] - most);
    for (int32_t i = 1; i < b->vocab; i++)
        sum += expf(x[i] - most);
    b->results[row] = x[b->tokens[row]] - most - logf(sum);
}

static void run_softmax(bench *b) {
    alea__pool_run(b->pool, softmax_row, b, ROWS);
}

typedef struct timing {
    double us[ROUNDS];
    double median_us, min_us;
} timing;

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(bench *b, timing *timings, void (*const *runs)(bench *), int n) {
    for (int round = -1; round < ROUNDS; round++) /* the first warms caches and clocks */
        for (int i = 0; i < n; i++) {
            const uint64_t start = alea__clock_ns();
            runs[i](b);
            if (round >= 0) timings[i].us[round] = (double)(alea__clock_ns() - start) * 1e-3;
        }
    for (int i = 0; i < n; i++) {
        qsort(timings[i].us, ROUNDS, sizeof(double), by_value);
        timings[i].median_us = timings[i].us[ROUNDS / 2];
        timings[i].min_us = timings[i].us[0];
    }
}

typedef struct case_line {
    char name[64];
    const timing *timing;
    const timing *floor;
    const timing *peer; /* NULL: none */
    uint64_t bytes;
} case_line;

static alea_exit print_json(FILE *out, const case_line *line) {
    char target[32];
    snprintf(target, sizeof target, "cpu:%s", alea__caps_name(alea__cpu_caps()));
    alea_json_writer writer;
    alea__json_write_to_buffer(&writer, 4096);
    alea__json_begin_object(&writer);
    alea__json_key(&writer, "bench");
    alea__json_cstring(&writer, "ops");
    alea__json_key(&writer, "case");
    alea__json_cstring(&writer, line->name);
    alea__json_key(&writer, "target");
    alea__json_cstring(&writer, target);
    alea__json_key(&writer, "median_us");
    alea__json_double(&writer, line->timing->median_us);
    alea__json_key(&writer, "min_us");
    alea__json_double(&writer, line->timing->min_us);
    alea__json_key(&writer, "bytes");
    alea__json_uint(&writer, line->bytes);
    alea__json_key(&writer, "floor_us");
    alea__json_double(&writer, line->floor->min_us);
    alea__json_key(&writer, "peers");
    alea__json_begin_object(&writer);
    if (line->peer) {
        alea__json_key(&writer, "softmax libm f32");
        alea__json_double(&writer, line->peer->median_us);
    }
    alea__json_end_object(&writer);
    alea__json_end_object(&writer);
    alea__json_newline(&writer);
    const bool good = alea__json_finish(&writer) >= 0;
    if (good) fwrite(writer.data, 1, writer.length, out);
    alea__json_write_free(&writer);
    return good ? ALEA_EXIT_OK : ALEA_EXIT_FAILURE;
}

static void print_row(FILE *out, const case_line *line) {
    fprintf(out, "%-34s %10.0f us  min %8.0f  floor %8.0f", line->name, line->timing->median_us,
            line->timing->min_us, line->floor->min_us);
    if (line->peer) fprintf(out, "  softmax libm f32 %8.0f", line->peer->median_us);
    fputc('\n', out);
}

static alea_exit bench_vocab(bench *b, bool json, FILE *out) {
    static void (*const runs[])(bench *) = {run_floor, run_report_0, run_report_20, run_choose,
                                            run_softmax};
    static const char *const names[] = {"logprob", "logprob top 20", "draw k=50 p=0.95"};
    timing timings[CASES + 1];
    measure(b, timings, runs, CASES + 1);
    if (b->failed) {
        alea__complain("bench: a row was refused");
        return ALEA_EXIT_FAILURE;
    }
    for (int i = 0; i < CASES - 1; i++) {
        case_line line = {.timing = &timings[i + 1],
                          .floor = &timings[0],
                          .peer = i < 2 ? &timings[CASES] : NULL,
                          .bytes = (uint64_t)ROWS * (uint64_t)b->vocab * sizeof(float)};
        snprintf(line.name, sizeof line.name, "%s %dx%d f32", names[i], ROWS, b->vocab);
        if (!json)
            print_row(out, &line);
        else if (print_json(out, &line) != ALEA_EXIT_OK)
            return ALEA_EXIT_FAILURE;
    }
    return ALEA_EXIT_OK;
}

/* Logits like a model's: most within a few nats of each other, some far above. */
static void fill(bench *b) {
    uint64_t state = 1;
    for (int32_t row = 0; row < ROWS; row++) {
        float *x = b->logits + (size_t)row * (size_t)b->vocab;
        b->rows[row] = x;
        b->tokens[row] = row * 97 % b->vocab;
        for (int32_t i = 0; i < b->vocab; i++) {
            float sum = 0;
            for (int j = 0; j < 4; j++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                sum += (float)(state >> 40) * 0x1p-24f;
            }
            x[i] = (sum - 2.0f) * 5.0f;
        }
    }
}

alea_exit alea__bench_ops(const alea_settings *settings, FILE *out) {
    bench *b = calloc(1, sizeof *b);
    alea_exit code = ALEA_EXIT_OK;
    if (!b || alea__pool_create((int32_t)settings->threads, &b->pool) < 0) code = ALEA_EXIT_FAILURE;
    for (size_t i = 0; code == ALEA_EXIT_OK && i < sizeof vocabs / sizeof *vocabs; i++) {
        b->vocab = vocabs[i];
        b->logits = malloc((size_t)ROWS * (size_t)b->vocab * sizeof(float));
        if (!b->logits) {
            code = ALEA_EXIT_FAILURE;
            break;
        }
        fill(b);
        code = bench_vocab(b, settings->json, out);
        free(b->logits);
        b->logits = NULL;
    }
    if (code != ALEA_EXIT_OK && (!b || !b->failed)) alea__complain("bench: out of memory");
    if (b) alea__pool_destroy(b->pool);
    free(b);
    return code;
}
