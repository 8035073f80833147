/*
 * `alea bench ops`. Operators, their peers and the bare scan of their data are timed in turn, round
 * after round, in one process: machines drift, and only what ran side by side may be compared. The
 * data is warm where it fits a cache; each time is that of a run of calls, divided.
 */
#include "cli/bench_ops.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/pool.h"
#include "cli/bench_ops_cases.h"
#include "json/json_write.h"

enum { ROUNDS = 15, CALLS_MAX = 64, SAMPLE_NS = 300000 };

typedef struct timing {
    int32_t calls;     /* in one sample */
    double us[ROUNDS]; /* a sample of each round, per call */
    double median_us, min_us;
} timing;

/* What is timed of one case: itself, its floor, its peers. */
enum { SELF, FLOOR, PEER, RUNS = PEER + ALEA_BENCH_PEERS };

typedef struct bench {
    alea_bench_data *data;
    int32_t threads; /* of the wide cases */
    timing (*timings)[RUNS];
} bench;

static alea_bench_fn run_of(const alea_bench_case *c, int which) {
    if (which == SELF) return c->run;
    return which == FLOOR ? c->floor : c->peers[which - PEER].run;
}

/* Times of work that found something else would say nothing. */
static bool check_peers(bench *b, alea_error *error) {
    for (int32_t i = 0; i < alea__n_bench_cases; i++) {
        const alea_bench_case *c = &alea__bench_cases[i];
        for (int peer = 0; peer < ALEA_BENCH_PEERS; peer++) {
            const alea_bench_peer *p = &c->peers[peer];
            if (!p->agrees) continue;
            if (!c->run(b->data) || !p->run(b->data)) return false;
            if (p->agrees(b->data)) continue;
            (void)alea_error_set(error, ALEA_ECORE, "%s does not find what %s does", p->name,
                                 c->name);
            return false;
        }
    }
    return true;
}

static bool time_calls(bench *b, alea_bench_fn run, int32_t calls, double *us) {
    const uint64_t start = alea__clock_ns();
    for (int32_t i = 0; i < calls; i++)
        if (!run(b->data)) return false;
    *us = (double)(alea__clock_ns() - start) * 1e-3 / calls;
    return true;
}

/* As many calls as make a sample long enough for the clock. */
static bool calibrate(bench *b, alea_bench_fn run, timing *t) {
    double us;
    if (!time_calls(b, run, 1, &us) || !time_calls(b, run, 1, &us)) return false;
    const double calls = SAMPLE_NS * 1e-3 / (us + 0.01);
    t->calls = calls < 1 ? 1 : calls > CALLS_MAX ? CALLS_MAX : (int32_t)calls;
    return true;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool measure_round(bench *b, int round) {
    for (int32_t i = 0; i < alea__n_bench_cases; i++) {
        for (int which = 0; which < RUNS; which++) {
            const alea_bench_fn run = run_of(&alea__bench_cases[i], which);
            timing *t = &b->timings[i][which];
            double us; /* one call for the caches, which the case before has used */
            if (!run) continue;
            if (round < 0 && !calibrate(b, run, t)) return false;
            if (!time_calls(b, run, 1, &us) || !time_calls(b, run, t->calls, &us)) return false;
            if (round >= 0) t->us[round] = us;
        }
    }
    return true;
}

static bool measure(bench *b) {
    for (int round = -1; round < ROUNDS; round++)
        if (!measure_round(b, round)) return false;
    for (int32_t i = 0; i < alea__n_bench_cases; i++) {
        for (int which = 0; which < RUNS; which++) {
            timing *t = &b->timings[i][which];
            qsort(t->us, ROUNDS, sizeof *t->us, by_value);
            t->median_us = t->us[ROUNDS / 2];
            t->min_us = t->us[0];
        }
    }
    return true;
}

static void json_number(alea_json_writer *writer, const char *name, double value) {
    alea__json_key(writer, name);
    alea__json_double(writer, value);
}

static bool print_json(const bench *b, int32_t i, FILE *out) {
    const alea_bench_case *c = &alea__bench_cases[i];
    const timing *t = b->timings[i];
    char target[32];
    snprintf(target, sizeof target, "cpu:%s", alea__caps_name(alea__cpu_caps()));
    alea_json_writer writer;
    alea__json_write_to_buffer(&writer, 4096);
    alea__json_begin_object(&writer);
    alea__json_key(&writer, "bench");
    alea__json_cstring(&writer, "ops");
    alea__json_key(&writer, "case");
    alea__json_cstring(&writer, c->name);
    alea__json_key(&writer, "target");
    alea__json_cstring(&writer, target);
    alea__json_key(&writer, "threads");
    alea__json_int(&writer, c->wide ? b->threads : 1);
    json_number(&writer, "median_us", t[SELF].median_us);
    json_number(&writer, "min_us", t[SELF].min_us);
    alea__json_key(&writer, "bytes");
    alea__json_int(&writer, c->bytes);
    json_number(&writer, "floor_us", t[FLOOR].median_us);
    alea__json_key(&writer, "peers");
    alea__json_begin_object(&writer);
    for (int peer = 0; peer < ALEA_BENCH_PEERS; peer++)
        if (c->peers[peer].run) json_number(&writer, c->peers[peer].name, t[PEER + peer].median_us);
    alea__json_end_object(&writer);
    alea__json_end_object(&writer);
    alea__json_newline(&writer);
    const bool good = alea__json_finish(&writer) >= 0;
    if (good) fwrite(writer.data, 1, writer.length, out);
    alea__json_write_free(&writer);
    return good;
}

static void print_row(const bench *b, int32_t i, FILE *out) {
    const alea_bench_case *c = &alea__bench_cases[i];
    const timing *t = b->timings[i];
    const double us = t[SELF].median_us;
    fprintf(out, "%-38s %9.1f %7.1f %6.2f", c->name, us, (double)c->bytes * 1e-3 / us,
            us / t[FLOOR].median_us);
    for (int peer = 0; peer < ALEA_BENCH_PEERS; peer++) {
        if (!c->peers[peer].run) continue;
        const double theirs = t[PEER + peer].median_us;
        fprintf(out, "  %s %.0f us (%.1fx)", c->peers[peer].name, theirs, theirs / us);
    }
    fputc('\n', out);
}

static bool print_all(const bench *b, bool json, FILE *out) {
    if (!json) {
        fprintf(out, "cpu:%s; wide: %d threads, all else 1\n", alea__caps_name(alea__cpu_caps()),
                (int)b->threads);
        fprintf(out, "%-38s %9s %7s %6s  %s\n", "operator", "us", "GB/s", "x scan", "peers");
    }
    for (int32_t i = 0; i < alea__n_bench_cases; i++) {
        if (!json)
            print_row(b, i, out);
        else if (!print_json(b, i, out))
            return false;
    }
    return true;
}

alea_exit alea__bench_ops(const alea_settings *settings, FILE *out) {
    const int32_t threads = settings->threads ? (int32_t)settings->threads : alea__cpu_count();
    alea_error error = {.message = "out of memory"};
    bench b = {.threads = threads};
    b.timings = calloc((size_t)alea__n_bench_cases, sizeof *b.timings);
    if (b.timings) b.data = alea__bench_data_create(threads, &error);
    const bool good =
        b.data && check_peers(&b, &error) && measure(&b) && print_all(&b, settings->json, out);
    alea__bench_data_destroy(b.data);
    free(b.timings);
    if (!good) alea__complain("bench: %s", error.message);
    return good ? ALEA_EXIT_OK : ALEA_EXIT_FAILURE;
}
