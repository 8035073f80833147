/*
 * `alea bench engine`. The yardstick is a loop that feeds the same core the same batches and takes
 * the largest logit: no records, no queues, no sampling parameters. All cases run in one process,
 * in turn, round after round; a ratio is the median of the ratios within a round, since machines
 * drift from one round to the next.
 */
#include "cli/bench_engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/session.h"
#include "runtime/engine.h"

enum {
    REQUESTS_MAX = 16,
    PROMPT_TOKENS = 16,
    OUTPUT_TOKENS = 48,
    CONTEXT_TOKENS = PROMPT_TOKENS + OUTPUT_TOKENS + 8,
    ROUNDS_STANDARD = 9,
    ROUNDS_MAX = ALEA_BENCH_ROUNDS_MAX,
    LOGPROBS = 20
};

typedef struct bench {
    alea_session session;
    alea_engine *engine;
    int32_t prompts[REQUESTS_MAX][PROMPT_TOKENS];
    alea_error error;
} bench;

typedef struct bench_case {
    const char *name;
    int32_t requests;
    bool bare;
    int32_t top;     /* logprobs of every token; -1: none */
    int32_t against; /* index of the case that the ratio is to */
} bench_case;

static const bench_case cases[] = {
    {"bare loop, 1 request", 1, true, -1, 0},
    {"engine, 1 request", 1, false, -1, 0},
    {"engine, 1 request, logprobs 20", 1, false, LOGPROBS, 1},
    {"bare loop, 4 requests", 4, true, -1, 3},
    {"engine, 4 requests", 4, false, -1, 3},
    {"engine, 4 requests, logprobs 20", 4, false, LOGPROBS, 4},
    {"bare loop, 16 requests", 16, true, -1, 6},
    {"engine, 16 requests", 16, false, -1, 6},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- the two ways ---- */

static int32_t largest(const float *row, int32_t vocab) {
    int32_t best = 0;
    for (int32_t i = 1; i < vocab; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static alea_status run_bare(bench *b, int32_t n) {
    alea_core *core = b->session.core;
    alea_round_item items[REQUESTS_MAX];
    int32_t tokens[REQUESTS_MAX];
    alea_status status = ALEA_OK;
    for (int32_t i = 0; i < n && status >= 0; i++) {
        status = alea_core_sequence_trim(core, i, 0, &b->error);
        items[i] = (alea_round_item){
            .sequence = i,
            .first_row = PROMPT_TOKENS - 1,
            .span = {.length = PROMPT_TOKENS, .tokens = b->prompts[i]},
        };
    }
    for (int32_t step = 0; step < OUTPUT_TOKENS && status >= 0; step++) {
        int32_t n_rows = 0;
        status = alea_core_run(core, &(alea_round){items, n}, &n_rows, &b->error);
        for (int32_t i = 0; i < n && status >= 0; i++) {
            tokens[i] = largest(alea_core_row(core, i), b->session.info.vocab);
            items[i] = (alea_round_item){
                .sequence = i,
                .position = PROMPT_TOKENS + step,
                .span = {.length = 1, .tokens = &tokens[i]},
            };
        }
    }
    return status;
}

/* Reads what there is; true: the request is over. */
static alea_status read_events(bench *b, alea_request *request, bool *over) {
    alea_event event;
    alea_status status;
    while ((status = alea__request_next(request, 0, &event)) == ALEA_OK) {
        if (event.kind == ALEA_EVENT_FINISH && event.finish == ALEA_FINISH_ERROR)
            return alea_error_set(&b->error, event.status, "%s", event.message);
    }
    *over = status == ALEA_DONE;
    return ALEA_OK;
}

static alea_status run_engine(bench *b, int32_t n, int32_t top) {
    alea_request *requests[REQUESTS_MAX] = {NULL};
    alea_request_params params = alea__params_default();
    params.sampling.temperature = 0;
    params.seeded = true;
    params.ignore_end = true;
    params.max_tokens = OUTPUT_TOKENS;
    params.top = top;
    alea_status status = ALEA_OK;
    for (int32_t i = 0; i < n && status >= 0; i++)
        status = alea__engine_submit(b->engine, b->prompts[i], PROMPT_TOKENS, &params, &requests[i],
                                     &b->error);
    for (int32_t n_over = 0; n_over < n && status >= 0;) {
        status = alea__engine_step(b->engine, alea__clock_ns());
        n_over = 0;
        for (int32_t i = 0; i < n && status >= 0; i++) {
            bool over = false;
            status = read_events(b, requests[i], &over);
            n_over += over;
        }
    }
    for (int32_t i = 0; i < n; i++)
        alea__request_release(requests[i]);
    return status;
}

static alea_status run_case(bench *b, const bench_case *which, double *tokens_per_s) {
    const uint64_t start = alea__clock_ns();
    const alea_status status =
        which->bare ? run_bare(b, which->requests) : run_engine(b, which->requests, which->top);
    const uint64_t ns = alea__clock_ns() - start;
    *tokens_per_s = which->requests * OUTPUT_TOKENS * 1e9 / (double)(ns > 0 ? ns : 1);
    return status;
}

/* ---- results ---- */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int32_t n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static void print_case(const alea_settings *settings, FILE *out, int32_t which, double tokens_per_s,
                       double ratio) {
    if (settings->json) {
        fprintf(out,
                "{\"bench\":\"engine\",\"case\":\"%s\",\"tokens_per_s\":%.1f,\"ratio\":%.3f}\n",
                cases[which].name, tokens_per_s, ratio);
    } else {
        fprintf(out, "  %-34s %9.1f tokens/s", cases[which].name, tokens_per_s);
        if (cases[which].against != which)
            fprintf(out, "  %6.3fx of %s", ratio, cases[cases[which].against].name);
        fputc('\n', out);
    }
}

static int32_t rounds_of(const alea_settings *settings) {
    return settings->rounds ? (int32_t)settings->rounds : ROUNDS_STANDARD;
}

static bool is_asked(const alea_settings *settings, int32_t which) {
    return !settings->requests || strtol(settings->requests, NULL, 10) == cases[which].requests;
}

static alea_status measure(bench *b, const alea_settings *settings, FILE *out) {
    double samples[CASES][ROUNDS_MAX];
    const int32_t rounds = rounds_of(settings);
    for (int32_t round = -1; round < rounds; round++) { /* the first pages things in */
        for (int32_t i = 0; i < CASES; i++) {
            double ignored;
            if (!is_asked(settings, i)) continue;
            const alea_status status =
                run_case(b, &cases[i], round < 0 ? &ignored : &samples[i][round]);
            if (status < 0) return status;
        }
    }
    double ratios[CASES];
    for (int32_t i = 0; i < CASES; i++) {
        double within[ROUNDS_MAX];
        if (!is_asked(settings, i)) continue;
        for (int32_t round = 0; round < rounds; round++)
            within[round] = samples[i][round] / samples[cases[i].against][round];
        ratios[i] = median(within, rounds);
    }
    for (int32_t i = 0; i < CASES; i++)
        if (is_asked(settings, i))
            print_case(settings, out, i, median(samples[i], rounds), ratios[i]);
    return ALEA_OK;
}

alea_exit alea__bench_engine(const alea_settings *settings, FILE *out) {
    bench *b = calloc(1, sizeof *b);
    if (!b) {
        alea__complain("out of memory");
        return ALEA_EXIT_FAILURE;
    }
    alea_settings sized = *settings;
    if (sized.context_tokens == 0) sized.context_tokens = CONTEXT_TOKENS;
    alea_exit code = alea__session_open(&sized, settings->model, 0, REQUESTS_MAX, &b->session);
    if (code != ALEA_EXIT_OK) {
        free(b);
        return code;
    }
    /* Ids spread over the vocabulary: what they say does not change what they cost. */
    for (int32_t i = 0; i < REQUESTS_MAX * PROMPT_TOKENS; i++)
        b->prompts[i / PROMPT_TOKENS][i % PROMPT_TOKENS] =
            (int32_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)b->session.info.vocab);
    if (!settings->json)
        fprintf(out, "%s, %s, %d threads; %d tokens after a prompt of %d, %d rounds\n",
                b->session.info.model, b->session.info.build, b->session.info.threads,
                OUTPUT_TOKENS, PROMPT_TOKENS, rounds_of(settings));
    /* Each run computes its prompts, as the bare loop does. */
    const alea_engine_options options = {.queue_tokens = OUTPUT_TOKENS + 2,
                                         .threads = (int32_t)settings->threads,
                                         .no_prefix_cache = true};
    alea_status status = alea__engine_create(b->session.core, &options, &b->engine, &b->error);
    if (status >= 0) status = measure(b, settings, out);
    if (status < 0) alea__complain("bench engine: %s", b->error.message);
    alea__engine_destroy(b->engine);
    alea__session_close(&b->session);
    free(b);
    return alea__exit_of(status);
}
