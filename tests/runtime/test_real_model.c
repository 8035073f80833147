/*
 * The main job on the real model: 2,000 tokens of English and 500 of mixed scripts, each reported
 * value against a long-double oracle by definition over the same raw rows, ranks and alternatives
 * against a full sort, token bytes against the text. Skipped, and counted, without the model.
 *
 * The oracle's rows come from a second core that was asked one block at a time; that those are the
 * rows which the scoring saw is batch invariance, which test_invariance hunts on its own, and which
 * a difference here would show as well.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/llama/core_llama.h"
#include "runtime/score_text.h"

enum { BLOCK = 32, CONTEXT = 4096 };

static alea_core *core;
static alea_core *judge;
static alea_pool *pool;
static const char *missing; /* what has to be there and is not */

typedef struct oracle_entry {
    int32_t token;
    float logit;
} oracle_entry;

typedef struct comparison {
    size_t n;
    size_t shared_ranks; /* where a rounding made a tie */
    size_t swapped;
    long double worst;
} comparison;

static alea_core *open_model(const char *path, int32_t threads) {
    const alea_core_options options = {.struct_bytes = sizeof options,
                                       .model = path,
                                       .context_tokens = CONTEXT,
                                       .threads = threads};
    alea_core *opened = NULL;
    alea_error error = {0};
    if (alea_core_open(alea__core_llama(), &options, &opened, &error) < 0)
        print_message("%s\n", error.message);
    return opened;
}

static int open_all(void **state) {
    (void)state;
    const char *named = getenv("ALEA_TEST_MODEL");
    const char *path = named && *named ? named : ALEA_MODEL_DEFAULT;
    if (access(path, R_OK) != 0) {
        missing = "the default model; run tools/setup";
        return 0;
    }
    core = open_model(path, 0);
    judge = open_model(path, 1);
    return core && judge && alea__pool_create(0, &pool) == ALEA_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    alea__pool_destroy(pool);
    alea_core_close(core);
    alea_core_close(judge);
    return 0;
}

static void need_model(void) {
    if (missing) {
        print_message("skipped: needs %s\n", missing);
        skip();
    }
}

/* Reads a text of share/ whole. */
static alea_bytes read_share(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", ALEA_SHARE, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    static uint8_t texts[2][1 << 16];
    static int turn;
    uint8_t *text = texts[turn ^= 1];
    const size_t length = fread(text, 1, sizeof texts[0], file);
    assert_true(length > 0 && length < sizeof texts[0]);
    fclose(file);
    return (alea_bytes){text, length};
}

static void assert_spells(const alea_token_ids *ids, alea_bytes text) {
    size_t at = 0;
    for (size_t i = 0; i < ids->n_tokens; i++) {
        alea_token_info info;
        assert_int_equal(alea_core_token(core, ids->tokens[i], &info), ALEA_OK);
        assert_true(at + info.bytes.length <= text.length);
        assert_memory_equal(info.bytes.data, text.data + at, info.bytes.length);
        at += info.bytes.length;
    }
    assert_int_equal(at, text.length);
}

typedef struct collected {
    alea_row_report *reports;
    size_t n;
} collected;

static alea_status collect(void *user, const alea_scored *scored) {
    collected *into = user;
    into->reports[scored->index] = *scored->report;
    into->n++;
    return ALEA_OK;
}

/* ln sum exp in long double, by definition. */
static long double oracle_lse(const float *row, int32_t vocab) {
    float most = -INFINITY;
    for (int32_t i = 0; i < vocab; i++)
        most = row[i] > most ? row[i] : most;
    long double sum = 0;
    for (int32_t i = 0; i < vocab; i++)
        sum += expl((long double)row[i] - (long double)most);
    return (long double)most + logl(sum);
}

static int by_logit(const void *a, const void *b) {
    const oracle_entry *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

static void compare_value(comparison *sum, float reported, long double exact) {
    const long double error = fabsl((long double)reported - exact);
    const long double relative = fabsl(exact) * 0x1p-23L;
    assert_true(error <= relative + 3e-7L);
    if (error - relative > sum->worst) sum->worst = error - relative;
    sum->n++;
}

/* Logits closer than this may have one reported float32. */
static double one_report(float logprob) {
    return 2 * (double)(nextafterf(fabsf(logprob), INFINITY) - fabsf(logprob));
}

/*
 * Rank and alternatives against the sorted row. Two logits that are a rounding of the report apart
 * may be reported as equal: then they share a rank and stand in id order. Everywhere else, which
 * is counted, rank and order must be the sort's.
 */
static void compare_order(comparison *sum, const alea_row_report *report,
                          const oracle_entry *sorted, const float *row) {
    const double own = (double)row[report->token];
    int32_t above = 0, surely_above = 0;
    while ((double)sorted[above].logit > own) {
        if ((double)sorted[above].logit - own > one_report(report->logprob)) surely_above++;
        above++;
    }
    assert_in_range(report->rank, 1 + surely_above, 1 + above);
    if (report->rank != 1 + above) sum->shared_ranks++;
    for (int32_t i = 0; i < report->n_top; i++) {
        const alea_alternative *at = &report->top[i];
        if (i > 0) {
            assert_true(at[-1].logprob >= at->logprob);
            if (at[-1].logprob == at->logprob) assert_true(at[-1].token < at->token);
        }
        if (at->token == sorted[i].token) continue;
        assert_true(fabs((double)sorted[i].logit - (double)row[at->token]) <=
                    one_report(at->logprob));
        sum->swapped++;
    }
    assert_int_equal(report->greedy, sorted[0].token);
}

static void compare_row(comparison *sum, const alea_row_report *report, const float *row,
                        int32_t vocab, oracle_entry *sorted) {
    const long double lse = oracle_lse(row, vocab);
    compare_value(sum, report->logprob, (long double)row[report->token] - lse);
    for (int32_t i = 0; i < vocab; i++)
        sorted[i] = (oracle_entry){i, row[i]};
    qsort(sorted, (size_t)vocab, sizeof *sorted, by_logit);
    compare_order(sum, report, sorted, row);
    for (int32_t i = 0; i < report->n_top; i++) {
        const alea_alternative *at = &report->top[i];
        const long double error =
            fabsl((long double)at->logprob - ((long double)row[at->token] - lse));
        assert_true(error <= fabsl((long double)at->logprob) * 0x1p-23L + 3e-7L);
    }
}

static void compare_text(const int32_t *tokens, const collected *reports, comparison *sum) {
    alea_core_info info;
    alea_core_describe(judge, &info);
    oracle_entry *sorted = malloc((size_t)info.vocab * sizeof *sorted);
    assert_non_null(sorted);
    alea_error error;
    assert_int_equal(alea_core_sequence_trim(judge, 0, 0, &error), ALEA_OK);
    for (size_t at = 0; at + 1 < reports->n; at += BLOCK) {
        const size_t left = reports->n - 1 - at;
        const int32_t length = left < BLOCK ? (int32_t)left : BLOCK;
        const alea_round_item item = {.position = (int32_t)at,
                                      .span = {.length = length, .tokens = tokens + at}};
        int32_t n_rows;
        assert_int_equal(alea_core_run(judge, &(alea_round){&item, 1}, &n_rows, &error), ALEA_OK);
        for (int32_t i = 0; i < length; i++)
            compare_row(sum, &reports->reports[at + (size_t)i + 1], alea_core_row(judge, i),
                        info.vocab, sorted);
    }
    free(sorted);
}

static void check_text(const char *name, size_t n_tokens) {
    need_model();
    const alea_bytes text = read_share(name);
    alea_token_ids ids;
    alea_error error = {0};
    assert_int_equal(alea__text_encode(core, text, ALEA_TOKENIZE_SPECIAL, &ids, &error), ALEA_OK);
    assert_spells(&ids, text);
    assert_true(ids.n_tokens >= n_tokens);
    collected reports = {calloc(n_tokens, sizeof(alea_row_report)), 0};
    assert_non_null(reports.reports);
    const alea_score_options options = {.kernels = alea__kernels(), .pool = pool, .top = 20};
    const alea_status status =
        alea__score_tokens(core, &options, ids.tokens, n_tokens, collect, &reports, &error);
    if (status < 0) print_message("%s\n", error.message);
    assert_int_equal(status, ALEA_OK);
    assert_int_equal(reports.n, n_tokens);
    comparison sum = {0};
    compare_text(ids.tokens, &reports, &sum);
    assert_int_equal(sum.n, n_tokens - 1);
    print_message("%s: %zu values, worst error beyond 2^-23*|logprob| %.3Lg; ties by "
                  "rounding: %zu ranks, %zu alternatives\n",
                  name, sum.n, sum.worst, sum.shared_ranks, sum.swapped);
    free(reports.reports);
    alea__token_ids_free(&ids);
}

static void test_english_agrees_with_the_oracle(void **state) {
    (void)state;
    check_text("tom-sawyer.txt", 2000);
}

static void test_mixed_scripts_agree_with_the_oracle(void **state) {
    (void)state;
    check_text("mixed.txt", 500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_english_agrees_with_the_oracle),
        cmocka_unit_test(test_mixed_scripts_agree_with_the_oracle),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
