/*
 * `alea bench core`. All cases run in one process, in turn, round after round, and the median of
 * each counts: machines drift, and a ratio of two runs minutes apart says nothing.
 *
 * The yardstick is libllama as it comes, asked for the last row of a prompt only. Scoring asks for
 * every row, which adds the model's head for each position, and reports on each.
 */
#include "cli/bench_core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "alea/core.h"
#include "base/clock.h"
#include "base/pool.h"
#include "core/llama/core_llama.h"
#include "kernel/rows.h"

enum {
    ROUNDS = 5, /* runs of each case, interleaved; odd, for the median */
    PROMPT = 512,
    BLOCK_ROWS = 64, /* rows in a scoring round */
    DECODE_STEPS = 64,
    DECODE_PROMPT = 32,
    SEQUENCES = 4,
    TOP = 20
};

_Static_assert(DECODE_PROMPT + DECODE_STEPS + SEQUENCES <= PROMPT, "decoding reads the prompt");

typedef struct bench {
    const alea_bench_core_options *options;
    alea_core *stock;
    alea_core *invariant;
    alea_pool *pool;
    int32_t vocab;
    int32_t tokens[PROMPT + 1];
    const float *rows[BLOCK_ROWS];
    alea_row_report reports[BLOCK_ROWS];
    alea_error error;
} bench;

typedef alea_status (*bench_run)(bench *b, int32_t *tokens);

typedef struct bench_case {
    const char *name;
    bench_run run; /* NULL: decoding in so many sequences at once */
    int32_t sequences;
    int32_t against; /* index of the case that the ratio is to; -1: none */
} bench_case;

/* ---- the cases ---- */

static alea_status run_item(bench *b, alea_core *core, int32_t at, int32_t n, int32_t first_row,
                            int32_t *n_rows) {
    const alea_round_item item = {
        0, at, first_row, {ALEA_SPAN_TOKENS, n, b->tokens + at, {NULL, 0}}};
    return alea_core_run(core, &(alea_round){&item, 1}, n_rows, &b->error);
}

static alea_status prefill(bench *b, alea_core *core, int32_t chunk) {
    int32_t n_rows = 0;
    alea_status status = alea_core_sequence_trim(core, 0, 0, &b->error);
    for (int32_t at = 0; status == ALEA_OK && at < PROMPT; at += chunk) {
        const int32_t n = chunk < PROMPT - at ? chunk : PROMPT - at;
        const bool last = at + n == PROMPT;
        status = run_item(b, core, at, n, last ? n - 1 : n, &n_rows);
    }
    return status;
}

static alea_status prefill_stock(bench *b, int32_t *tokens) {
    *tokens = PROMPT;
    return prefill(b, b->stock, 512);
}

static alea_status prefill_invariant(bench *b, int32_t *tokens) {
    *tokens = PROMPT;
    return prefill(b, b->invariant, 512);
}

static alea_status score_rows(bench *b, bool report) {
    alea_core *core = b->invariant;
    alea_status status = alea_core_sequence_trim(core, 0, 0, &b->error);
    for (int32_t at = 0; status == ALEA_OK && at < PROMPT; at += BLOCK_ROWS) {
        int32_t n = BLOCK_ROWS;
        if (n > PROMPT - at) n = PROMPT - at;
        status = run_item(b, core, at, n, 0, &n);
        if (status < 0 || !report) continue;
        for (int32_t i = 0; i < n; i++)
            b->rows[i] = alea_core_row(core, i);
        const alea_rows_query query = {.rows = b->rows,
                                       .tokens = b->tokens + at + 1,
                                       .n_rows = n,
                                       .vocab = b->vocab,
                                       .k = TOP};
        status = alea__rows_report(alea__kernels(), b->pool, &query, b->reports, NULL);
        if (status < 0)
            return alea_error_set(&b->error, status, "a row of the model: %s",
                                  alea_status_text(status));
    }
    return status;
}

static alea_status rows_only(bench *b, int32_t *tokens) {
    *tokens = PROMPT;
    return score_rows(b, false);
}

static alea_status score(bench *b, int32_t *tokens) {
    *tokens = PROMPT;
    return score_rows(b, true);
}

/* Not timed as a whole: the prompt comes first, then `tokens` counts the steps. */
static alea_status decode(bench *b, alea_core *core, int32_t sequences, int32_t *tokens,
                          uint64_t *started) {
    alea_round_item items[SEQUENCES];
    alea_status status = ALEA_OK;
    int32_t n_rows = 0;
    for (int32_t i = 0; status == ALEA_OK && i < SEQUENCES; i++)
        status = alea_core_sequence_trim(core, i, 0, &b->error);
    for (int32_t step = 0; status == ALEA_OK && step <= DECODE_STEPS; step++) {
        const int32_t at = step == 0 ? 0 : DECODE_PROMPT + step - 1;
        const int32_t n = step == 0 ? DECODE_PROMPT : 1;
        for (int32_t i = 0; i < sequences; i++) {
            items[i] = (alea_round_item){
                i, at, n - 1, {ALEA_SPAN_TOKENS, n, b->tokens + i + at, {NULL, 0}}};
        }
        if (step == 1) *started = alea__clock_ns();
        status = alea_core_run(core, &(alea_round){items, sequences}, &n_rows, &b->error);
    }
    *tokens = DECODE_STEPS * sequences;
    return status;
}

static const bench_case cases[] = {
    {"prefill stock, last row only", prefill_stock, 0, -1},
    {"prefill invariant, last row only", prefill_invariant, 0, 0},
    {"all rows invariant, no report", rows_only, 0, 0},
    {"score: all rows, top 20 reported", score, 0, 0},
    {"decode stock, 1 sequence", NULL, 1, -1},
    {"decode invariant, 1 sequence", NULL, 1, 4},
    {"decode stock, 4 sequences", NULL, SEQUENCES, -1},
    {"decode invariant, 4 sequences", NULL, SEQUENCES, 6},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static alea_status run_case(bench *b, int32_t which, double *tokens_per_s) {
    int32_t tokens = 0;
    uint64_t started = alea__clock_ns();
    alea_status status;
    if (cases[which].run != NULL) {
        status = cases[which].run(b, &tokens);
    } else {
        alea_core *core = cases[which].against < 0 ? b->stock : b->invariant;
        status = decode(b, core, cases[which].sequences, &tokens, &started);
    }
    const uint64_t ns = alea__clock_ns() - started;
    *tokens_per_s = tokens * 1e9 / (double)(ns > 0 ? ns : 1);
    return status;
}

/* ---- setting up ---- */

static alea_status open_core(bench *b, uint32_t flags, alea_core **core) {
    const alea_core_options options = {.struct_bytes = sizeof(options),
                                       .flags = flags,
                                       .model = b->options->model,
                                       .context_tokens = PROMPT,
                                       .sequences = SEQUENCES,
                                       .round_tokens = 512,
                                       .round_rows = BLOCK_ROWS,
                                       .threads = b->options->threads};
    return alea_core_open(alea__core_llama(), &options, core, &b->error);
}

static alea_status set_up(bench *b) {
    alea_core_info info;
    alea_status status = open_core(b, ALEA_CORE_FAST, &b->stock);
    if (status == ALEA_OK) status = open_core(b, 0, &b->invariant);
    if (status < 0) return status;
    status = alea__pool_create(b->options->threads, &b->pool);
    if (status < 0)
        return alea_error_set(&b->error, status, "no threads: %s", alea_status_text(status));
    alea_core_describe(b->invariant, &info);
    b->vocab = info.vocab;
    /* Ids spread over the vocabulary: what they say does not change what they cost. */
    for (int32_t i = 0; i <= PROMPT; i++)
        b->tokens[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)info.vocab);
    if (!b->options->json)
        fprintf(b->options->out, "%s, %s, %d threads; %d tokens, blocks of %d rows\n", info.model,
                info.build, info.threads, PROMPT, BLOCK_ROWS);
    return ALEA_OK;
}

static void tear_down(bench *b) {
    alea_core_close(b->stock);
    alea_core_close(b->invariant);
    alea__pool_destroy(b->pool);
}

/* ---- results ---- */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_results(const bench *b, const double *medians) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const double peak_mib = (double)usage.ru_maxrss / 1024;
    for (int32_t i = 0; i < CASES; i++) {
        const double ratio = cases[i].against < 0 ? 1.0 : medians[i] / medians[cases[i].against];
        if (b->options->json)
            fprintf(b->options->out,
                    "{\"bench\":\"core\",\"case\":\"%s\",\"tokens_per_s\":%.1f,\"ratio\":%.3f}\n",
                    cases[i].name, medians[i], ratio);
        else
            fprintf(b->options->out, "  %-34s %9.1f tokens/s  %5.2fx\n", cases[i].name, medians[i],
                    ratio);
    }
    if (b->options->json)
        fprintf(b->options->out, "{\"bench\":\"core\",\"case\":\"peak memory\",\"mib\":%.0f}\n",
                peak_mib);
    else
        fprintf(b->options->out, "  %-34s %9.0f MiB, both cores\n", "peak memory", peak_mib);
}

static alea_status measure(bench *b) {
    double samples[CASES][ROUNDS];
    double medians[CASES];
    double ignored = 0;
    for (int32_t i = 0; i < CASES; i++) { /* the first run of each pages things in */
        const alea_status status = run_case(b, i, &ignored);
        if (status < 0) return status;
    }
    for (int32_t round = 0; round < ROUNDS; round++) {
        for (int32_t i = 0; i < CASES; i++) {
            const alea_status status = run_case(b, i, &samples[i][round]);
            if (status < 0) return status;
        }
    }
    for (int32_t i = 0; i < CASES; i++) {
        qsort(samples[i], ROUNDS, sizeof(samples[i][0]), by_value);
        medians[i] = samples[i][ROUNDS / 2];
    }
    print_results(b, medians);
    return ALEA_OK;
}

alea_exit alea__bench_core(const alea_bench_core_options *options) {
    bench b = {.options = options};
    alea_status status = set_up(&b);
    if (status == ALEA_OK) status = measure(&b);
    tear_down(&b);
    if (status == ALEA_OK) return ALEA_EXIT_OK;
    alea__complain("bench core: %s", b.error.message);
    return ALEA_EXIT_FAILURE;
}
