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

enum { ROUNDS_MAX = 99, DECODE_STEPS = 64, DECODE_PROMPT = 32, SEQUENCES = 4, TOP = 20 };

typedef struct bench {
    const alea_bench_core_options *options;
    alea_core *stock;
    alea_core *invariant;
    alea_pool *pool;
    int32_t vocab;
    int32_t prompt_tokens;
    int32_t block_rows;
    int32_t *tokens; /* [prompt_tokens + 1] */
    const float **rows;
    alea_row_report *reports; /* [block_rows] */
    alea_error error;
} bench;

typedef alea_status (*bench_run)(bench *b, int32_t *tokens);

typedef struct bench_case {
    const char *name;
    bench_run run;
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
    for (int32_t at = 0; status == ALEA_OK && at < b->prompt_tokens; at += chunk) {
        const int32_t n = chunk < b->prompt_tokens - at ? chunk : b->prompt_tokens - at;
        const bool last = at + n == b->prompt_tokens;
        status = run_item(b, core, at, n, last ? n - 1 : n, &n_rows);
    }
    return status;
}

static alea_status prefill_stock(bench *b, int32_t *tokens) {
    *tokens = b->prompt_tokens;
    return prefill(b, b->stock, 512);
}

static alea_status prefill_invariant(bench *b, int32_t *tokens) {
    *tokens = b->prompt_tokens;
    return prefill(b, b->invariant, 512);
}

static alea_status score_rows(bench *b, bool report) {
    alea_core *core = b->invariant;
    alea_status status = alea_core_sequence_trim(core, 0, 0, &b->error);
    for (int32_t at = 0; status == ALEA_OK && at < b->prompt_tokens; at += b->block_rows) {
        int32_t n = b->block_rows;
        if (n > b->prompt_tokens - at) n = b->prompt_tokens - at;
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
    *tokens = b->prompt_tokens;
    return score_rows(b, false);
}

static alea_status score(bench *b, int32_t *tokens) {
    *tokens = b->prompt_tokens;
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
    {"prefill stock, last row only", prefill_stock, -1},
    {"prefill invariant, last row only", prefill_invariant, 0},
    {"all rows invariant, no report", rows_only, 0},
    {"score: all rows, top 20 reported", score, 0},
    {"decode stock, 1 sequence", NULL, -1},
    {"decode invariant, 1 sequence", NULL, 4},
    {"decode stock, 4 sequences", NULL, -1},
    {"decode invariant, 4 sequences", NULL, 6},
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
        status = decode(b, core, which < 6 ? 1 : SEQUENCES, &tokens, &started);
    }
    const uint64_t ns = alea__clock_ns() - started;
    *tokens_per_s = tokens * 1e9 / (double)(ns > 0 ? ns : 1);
    return status;
}

/* ---- setting up ---- */

static alea_status open_core(bench *b, uint32_t flags, alea_core **core) {
    const int32_t needed = b->prompt_tokens > DECODE_PROMPT + DECODE_STEPS + SEQUENCES
                               ? b->prompt_tokens
                               : DECODE_PROMPT + DECODE_STEPS + SEQUENCES;
    const alea_core_options options = {.struct_bytes = sizeof(options),
                                       .flags = flags,
                                       .model = b->options->model,
                                       .context_tokens = needed,
                                       .sequences = SEQUENCES,
                                       .round_tokens = 512,
                                       .round_rows = b->block_rows,
                                       .threads = b->options->threads};
    return alea_core_open(alea__core_llama(), &options, core, &b->error);
}

static alea_status set_up(bench *b) {
    alea_core_info info;
    alea_status status = open_core(b, ALEA_CORE_FAST, &b->stock);
    if (status == ALEA_OK) status = open_core(b, 0, &b->invariant);
    if (status == ALEA_OK) status = alea__pool_create(b->options->threads, &b->pool);
    if (status < 0) return status;
    alea_core_describe(b->invariant, &info);
    b->vocab = info.vocab;
    b->tokens = malloc(((size_t)b->prompt_tokens + 1) * sizeof(*b->tokens));
    b->rows = malloc((size_t)b->block_rows * sizeof(*b->rows));
    b->reports = malloc((size_t)b->block_rows * sizeof(*b->reports));
    if (b->tokens == NULL || b->rows == NULL || b->reports == NULL)
        return alea_error_set(&b->error, ALEA_ENOMEM, "out of memory");
    /* Ids spread over the vocabulary: what they say does not change what they cost. */
    for (int32_t i = 0; i <= b->prompt_tokens; i++)
        b->tokens[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)info.vocab);
    if (!b->options->json)
        fprintf(b->options->out, "%s, %s, %d threads; %d tokens, blocks of %d rows\n", info.model,
                info.build, info.threads, b->prompt_tokens, b->block_rows);
    return ALEA_OK;
}

static void tear_down(bench *b) {
    alea_core_close(b->stock);
    alea_core_close(b->invariant);
    alea__pool_destroy(b->pool);
    free(b->tokens);
    free(b->rows);
    free(b->reports);
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

static alea_status measure(bench *b, int32_t rounds) {
    double samples[CASES][ROUNDS_MAX];
    double medians[CASES];
    double ignored = 0;
    for (int32_t i = 0; i < CASES; i++) { /* the first run of each pages things in */
        const alea_status status = run_case(b, i, &ignored);
        if (status < 0) return status;
    }
    for (int32_t round = 0; round < rounds; round++) {
        for (int32_t i = 0; i < CASES; i++) {
            const alea_status status = run_case(b, i, &samples[i][round]);
            if (status < 0) return status;
        }
    }
    for (int32_t i = 0; i < CASES; i++) {
        qsort(samples[i], (size_t)rounds, sizeof(samples[i][0]), by_value);
        medians[i] = rounds % 2 != 0 ? samples[i][rounds / 2]
                                     : (samples[i][rounds / 2 - 1] + samples[i][rounds / 2]) / 2;
    }
    print_results(b, medians);
    return ALEA_OK;
}

int alea__bench_core(const alea_bench_core_options *options) {
    bench b = {.options = options,
               .prompt_tokens = options->prompt_tokens > 0 ? options->prompt_tokens : 512,
               .block_rows = options->block_rows > 0 ? options->block_rows : 64};
    int32_t rounds = options->rounds > 0 ? options->rounds : 5;
    if (rounds > ROUNDS_MAX) rounds = ROUNDS_MAX;
    alea_status status = set_up(&b);
    if (status == ALEA_OK) status = measure(&b, rounds);
    tear_down(&b);
    if (status == ALEA_OK) return 0;
    fprintf(stderr, "alea: bench core: %s\n", b.error.message);
    return 1;
}
