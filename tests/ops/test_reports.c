/*
 * Operators on raw logits against the oracle: log-probabilities within the bound of
 * docs/numerics.md, order and rank by reported value, choices inside the kept set and by their
 * frequencies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/oracle.h"
#include "ops/rig.h"
#include "support/fill.h"

static const rig_how one_thread = {.threads = 1};

/* Reports of one batch, with everything asked for. */
typedef struct reports {
    double *lse;
    float *logprobs, *id_logprobs, *entropy;
    int32_t *ranks, *ids, *verdicts;
} reports;

static reports reports_make(int64_t rows, int32_t k) {
    const size_t n = (size_t)rows, nk = n * (size_t)(k > 0 ? k : 1);
    return (reports){rig_alloc(n * 8), rig_alloc(n * 4),  rig_alloc(nk * 4), rig_alloc(n * 4),
                     rig_alloc(n * 4), rig_alloc(nk * 4), rig_alloc(n * 4)};
}

static void reports_free(reports *r) {
    free(r->lse);
    free(r->logprobs);
    free(r->id_logprobs);
    free(r->entropy);
    free(r->ranks);
    free(r->ids);
    free(r->verdicts);
}

static rig_report asked(const reports *r) {
    return (rig_report){r->lse,         r->logprobs, r->ranks,   r->ids,
                        r->id_logprobs, r->entropy,  r->verdicts};
}

static void check_logprob(float reported, float x, long double lse, long double slack) {
    const long double right = (long double)x - lse;
    const long double bound = 0x1p-23L * fabsl(right) + slack;
    if (x == -INFINITY) {
        assert_true(reported == -INFINITY);
        return;
    }
    assert_true(reported < 0 || (reported == 0 && !signbit(reported))); /* never -0 */
    if (fabsl(reported - right) > bound && !(right > 0 && reported == 0)) {
        fail_msg("%.9g reported, %.12Lg is right", (double)reported, right);
    }
}

/* Everything that one sound row's report says. */
static void check_report(const reports *r, int64_t row, const float *x, int32_t n, int32_t token,
                         int32_t k, long double slack) {
    const long double lse = oracle_lse(x, n);
    assert_int_equal(r->verdicts[row], ALEA_OK);
    if (fabsl(r->lse[row] - lse) > slack + 0x1p-50L * fabsl(lse)) {
        fail_msg("n %d: lse %.15g, %.15Lg is right", n, r->lse[row], lse);
    }
    check_logprob(r->logprobs[row], x[token], lse, slack);
    int32_t better = 0, surely_better = 0; /* reported values of near neighbours may tie */
    const long double near = 0x1p-22L * fabsl((long double)x[token] - lse) + 2 * slack;
    for (int32_t i = 0; i < n; i++) {
        better += x[i] > x[token];
        surely_better += (long double)x[i] - x[token] > near;
    }
    assert_in_range(r->ranks[row], surely_better + 1, better + 1);
    const int32_t n_top = k < n ? k : n;
    const int32_t *ids = r->ids + row * k;
    const float *logprobs = r->id_logprobs + row * k;
    int32_t *order = rig_alloc((size_t)n * 4);
    oracle_order(order, x, n);
    for (int32_t i = 0; i < n_top; i++) {
        check_logprob(logprobs[i], x[ids[i]], lse, slack);
        assert_true(i == 0 || logprobs[i - 1] > logprobs[i] ||
                    (logprobs[i - 1] == logprobs[i] && ids[i - 1] < ids[i]));
        /* Where neighbours in the full order report differently, place and id are fixed. */
        check_logprob(logprobs[i], x[order[i]], lse, slack);
        if (n_top < n && i == n_top - 1) continue;
        if (x[order[i]] != x[ids[i]]) {
            const long double gap = fabsl((long double)x[order[i]] - x[ids[i]]);
            assert_true(gap <= 0x1p-22L * fabsl(x[ids[i]] - lse) + 2 * slack);
        }
    }
    for (int32_t i = n_top; i < k; i++) {
        assert_int_equal(ids[i], -1);
        assert_true(isnan(logprobs[i]));
    }
    free(order);
}

static void test_logprobs_of_plain_rows(void **state) {
    (void)state;
    const int32_t sizes[] = {1, 2, 19, 20, 21, 1000, 1024, 1025, 32000, 128256};
    for (rig_dtype dtype = RIG_F16; dtype <= RIG_F32; dtype++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const int32_t n = sizes[s];
            enum { ROWS = 3 };
            float *x = rig_alloc(ROWS * (size_t)n * 4);
            void *in = rig_alloc(ROWS * (size_t)n * rig_bytes(dtype));
            int32_t tokens[ROWS] = {0, n / 2, n - 1};
            reports r = reports_make(ROWS, 20);
            for (int64_t i = 0; i < ROWS; i++)
                test_fill_row(x + i * n, n, i == 1 ? TEST_FILL_TIED : TEST_FILL_NORMAL, 7 + s);
            rig_narrow(in, x, ROWS * n, dtype);
            rig_logprobs(one_thread, asked(&r), in, dtype, ROWS, n, 20, tokens, NULL, 0);
            for (int64_t row = 0; row < ROWS; row++) {
                check_report(&r, row, x + row * n, n, tokens[row], 20, 3e-7L);
                assert_true(fabsl(r.entropy[row] - oracle_entropy(x + row * n, n)) <= 2e-5L);
            }
            reports_free(&r);
            free(x);
            free(in);
        }
    }
}

static void test_logprobs_of_every_sound_fill(void **state) {
    (void)state;
    for (test_fill fill = 0; fill < TEST_FILL_SOUND_COUNT; fill++) {
        for (int32_t n = 1; n <= 5000; n = n < 70 ? n + 1 : n * 3 + 1) {
            float *x = rig_alloc((size_t)n * 4);
            int32_t token = n / 3;
            reports r = reports_make(1, 20);
            test_fill_row(x, n, fill, 77);
            rig_logprobs(one_thread, asked(&r), x, RIG_F32, 1, n, 20, &token, NULL, 0);
            check_report(&r, 0, x, n, token, 20, 1.8e-6L);
            reports_free(&r);
            free(x);
        }
    }
}

static void test_logprobs_do_not_overflow(void **state) {
    (void)state;
    float x[] = {1000, 999, 0, -1000, -1001, -2000};
    const float expected[] = {-0.3132617f, -1.3132617f, -1000.3132617f};
    int32_t given[] = {0, 1, 2, 0, 1, 2};
    float logprobs[6];
    double lse[2];
    feclearexcept(FE_ALL_EXCEPT);
    rig_logprobs(one_thread, (rig_report){.lse = lse, .id_logprobs = logprobs}, x, RIG_F32, 2, 3, 0,
                 NULL, given, 3);
    assert_true(fabs(lse[0] - 1000.3132616875) < 1e-6 && fabs(lse[1] + 999.6867383125) < 1e-6);
    assert_int_equal(fetestexcept(FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO), 0);
    for (int i = 0; i < 6; i++)
        assert_true(fabsf(logprobs[i] - expected[i % 3]) <= 2e-6f + 1e-7f * fabsf(expected[i % 3]));
}

static void test_logprob_of_a_uniform_row(void **state) {
    (void)state;
    enum { VOCAB = 131072 };
    uint16_t *x = rig_alloc(VOCAB * 2);
    int32_t token = 77;
    float logprob;
    int32_t rank;
    for (int i = 0; i < VOCAB; i++)
        x[i] = 0x3f80;
    rig_logprobs(one_thread, (rig_report){.logprobs = &logprob, .ranks = &rank}, x, RIG_BF16, 1,
                 VOCAB, 0, &token, NULL, 0);
    assert_true(fabsf(logprob + 11.7835021f) < 2e-6f);
    assert_int_equal(rank, 1);
    free(x);
}

static void test_alternatives_among_equals_are_the_smaller_ids(void **state) {
    (void)state;
    float five[] = {1, 3, 9, 6, 9};
    int32_t ids[3];
    rig_logprobs(one_thread, (rig_report){.ids = ids}, five, RIG_F32, 1, 5, 3, NULL, NULL, 0);
    assert_memory_equal(ids, ((int32_t[]){2, 4, 3}), sizeof ids);
    const int64_t sizes[] = {1, 8, 33};
    for (int s = 0; s < 3; s++) {
        for (int32_t threads = 1; threads <= 16; threads *= 4) {
            float eight[33 * 8];
            int32_t many[33 * 3];
            for (int i = 0; i < 33 * 8; i++)
                eight[i] = -4.5f;
            rig_logprobs((rig_how){.threads = threads}, (rig_report){.ids = many}, eight, RIG_F32,
                         sizes[s], 8, 3, NULL, NULL, 0);
            for (int64_t row = 0; row < sizes[s]; row++)
                assert_memory_equal(many + row * 3, ((int32_t[]){0, 1, 2}), 12);
        }
    }
}

static void test_given_ids_keep_the_callers_order(void **state) {
    (void)state;
    enum { VOCAB = 5000, GIVEN = 128, ROWS = 3 };
    float *x = rig_alloc(ROWS * VOCAB * 4), logprobs[ROWS * GIVEN];
    int32_t given[ROWS * GIVEN], ids[ROWS * GIVEN];
    uint64_t random = 6;
    rig_normal(x, ROWS * VOCAB, 3);
    for (int i = 0; i < ROWS * GIVEN; i++)
        given[i] = i % 10 == 9 ? -1 : (int32_t)(test_random(&random) % VOCAB);
    rig_logprobs(one_thread, (rig_report){.ids = ids, .id_logprobs = logprobs}, x, RIG_F32, ROWS,
                 VOCAB, 0, NULL, given, GIVEN);
    assert_memory_equal(ids, given, sizeof ids);
    for (int i = 0; i < ROWS * GIVEN; i++) {
        const float *row = x + i / GIVEN * VOCAB;
        if (given[i] < 0) {
            assert_true(isnan(logprobs[i]));
        } else {
            check_logprob(logprobs[i], row[given[i]], oracle_lse(row, VOCAB), 3e-7L);
        }
    }
    /* The same bits that the id has as the chosen token. */
    for (int i = 0; i < 20; i++) {
        float chosen;
        if (given[i] < 0) continue;
        rig_logprobs(one_thread, (rig_report){.logprobs = &chosen}, x, RIG_F32, 1, VOCAB, 20,
                     &given[i], NULL, 0);
        assert_memory_equal(&chosen, &logprobs[i], 4);
    }
    free(x);
}

static void test_failed_rows_say_so_and_leave_the_others_alone(void **state) {
    (void)state;
    enum { ROWS = 64, VOCAB = 300, K = 5 };
    float x[ROWS * VOCAB];
    int32_t tokens[ROWS];
    reports sound = reports_make(ROWS, K), r = reports_make(ROWS, K);
    rig_normal(x, ROWS * VOCAB, 9);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = i;
    rig_logprobs(one_thread, asked(&sound), x, RIG_F32, ROWS, VOCAB, K, tokens, NULL, 0);
    x[17 * VOCAB + 200] = NAN;
    x[18 * VOCAB + 3] = INFINITY;
    for (int i = 0; i < VOCAB; i++)
        x[40 * VOCAB + i] = -INFINITY;
    rig_logprobs((rig_how){.threads = 3}, asked(&r), x, RIG_F32, ROWS, VOCAB, K, tokens, NULL, 0);
    for (int row = 0; row < ROWS; row++) {
        if (row == 17 || row == 18 || row == 40) {
            assert_int_equal(r.verdicts[row], ALEA_EROW);
            assert_true(isnan(r.logprobs[row]) && isnan(r.lse[row]) && isnan(r.entropy[row]));
            assert_int_equal(r.ranks[row], 0);
            for (int i = 0; i < K; i++)
                assert_true(r.ids[row * K + i] == -1 && isnan(r.id_logprobs[row * K + i]));
            continue;
        }
        assert_int_equal(r.verdicts[row], ALEA_OK);
        assert_memory_equal(&r.lse[row], &sound.lse[row], 8);
        assert_memory_equal(&r.logprobs[row], &sound.logprobs[row], 4);
        assert_memory_equal(&r.entropy[row], &sound.entropy[row], 4);
        assert_memory_equal(&r.ids[row * K], &sound.ids[row * K], 4 * K);
    }
    reports_free(&sound);
    reports_free(&r);
}

static void test_rows_without_a_token_have_rank_zero(void **state) {
    (void)state;
    float x[] = {1, 2, 3, 1, 2, 3}, logprobs[2];
    int32_t tokens[] = {-1, 2}, ranks[2];
    rig_logprobs(one_thread, (rig_report){.logprobs = logprobs, .ranks = ranks}, x, RIG_F32, 2, 3,
                 0, tokens, NULL, 0);
    assert_true(isnan(logprobs[0]) && ranks[0] == 0 && ranks[1] == 1);
}

/* --- choices ------------------------------------------------------------------------------ */

static void test_greedy_rows_do_not_disturb_the_others(void **state) {
    (void)state;
    float x[] = {1, 3, 2, 1, 3, 2}, hot[] = {1, 1}, mixed[] = {0, 1};
    int64_t seed[] = {4, 5}, offset[] = {1, 1};
    int32_t before[2], tokens[2];
    float logprobs[2], sampled[2], kept[2];
    rig_params params = {.temperature = hot, .seed = seed, .offset = offset, .n_seeds = 2};
    rig_sample_logits(one_thread, (rig_choice){.tokens = before}, x, RIG_F32, 2, 3, params);
    params.temperature = mixed;
    rig_sample_logits(
        one_thread,
        (rig_choice){.tokens = tokens, .logprobs = logprobs, .sampled = sampled, .kept = kept}, x,
        RIG_F32, 2, 3, params);
    assert_int_equal(tokens[0], 1);
    assert_int_equal(tokens[1], before[1]);
    for (int i = 0; i < 2; i++)
        assert_false(isnan(logprobs[i]) || isnan(sampled[i]) || isnan(kept[i]));
}

static void test_temperature_comes_before_the_filters(void **state) {
    (void)state;
    float x[] = {2, 1, 0}, half[] = {0.5f}, p[] = {0.8f}, kept, logprob;
    for (int64_t seed = 0; seed < 100; seed++) {
        int64_t offset = 0;
        int32_t token;
        rig_sample_logits(
            one_thread, (rig_choice){.tokens = &token, .logprobs = &logprob, .kept = &kept}, x,
            RIG_F32, 1, 3,
            (rig_params){
                .temperature = half, .top_p = p, .seed = &seed, .offset = &offset, .n_seeds = 1});
        assert_int_equal(token, 0);
        assert_true(fabsf(kept - 0.8668133f) < 1e-6f);
    }
}

static void test_logprob_does_not_know_the_temperature(void **state) {
    (void)state;
    const float temperatures[] = {0, 0.5f, 1, 3};
    for (int i = 0; i < 4; i++) {
        float x[] = {2, 0}, t = temperatures[i], logprob, sampled;
        int64_t seed = 0, offset = 0;
        int32_t token, k = 1;
        rig_sample_logits(
            one_thread, (rig_choice){.tokens = &token, .logprobs = &logprob, .sampled = &sampled},
            x, RIG_F32, 1, 2,
            (rig_params){
                .temperature = &t, .top_k = &k, .seed = &seed, .offset = &offset, .n_seeds = 1});
        assert_int_equal(token, 0);
        assert_true(fabsf(logprob + 0.1269280f) < 1e-6f);
        assert_true(sampled <= 0 && sampled >= -3e-7f);
    }
}

static void test_small_temperatures_are_greedy(void **state) {
    (void)state;
    enum { VOCAB = 3000 };
    float x[VOCAB];
    rig_normal(x, VOCAB, 12);
    int32_t greedy = 0;
    for (int32_t i = 0; i < VOCAB; i++)
        if (x[i] > x[greedy]) greedy = i;
    x[greedy] += 1;
    const float temperatures[] = {1e-2f, 1e-3f, 1e-4f, 1e-5f, 1e-6f, 1e-7f, 1e-8f, 1e-30f, 0};
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        for (int64_t seed = 0; seed < 20; seed++) {
            float t = temperatures[i], sampled, kept;
            int64_t offset = 3;
            int32_t token;
            rig_sample_logits(
                one_thread, (rig_choice){.tokens = &token, .sampled = &sampled, .kept = &kept}, x,
                RIG_F32, 1, VOCAB,
                (rig_params){.temperature = &t, .seed = &seed, .offset = &offset, .n_seeds = 1});
            assert_int_equal(token, greedy);
            assert_true(t == 1e-2f || t == 0 || (sampled <= 0 && sampled >= -3e-7f));
            assert_false(isnan(sampled) || isnan(kept));
        }
    }
}

/* 10^5 draws over a tie at the cut, fused and by mask-then-draw, one row and many. */
static void test_draws_across_a_tie_are_even(void **state) {
    (void)state;
    enum { DRAWS = 100000 };
    const float tie[] = {logf(0.5f), logf(0.25f), logf(0.25f), -INFINITY};
    float *x = rig_alloc(DRAWS * 16), *masked = rig_alloc(DRAWS * 16),
          *probs = rig_alloc(DRAWS * 16);
    int32_t *k = rig_alloc(DRAWS * 4), *fused = rig_alloc(DRAWS * 4), *two = rig_alloc(DRAWS * 4);
    int64_t seed = 8, offset = 0, counts[2][4] = {{0}};
    for (int i = 0; i < DRAWS; i++) {
        memcpy(x + i * 4, tie, 16);
        k[i] = 2;
    }
    rig_sample_logits((rig_how){.threads = 2}, (rig_choice){.tokens = fused}, x, RIG_F32, DRAWS, 4,
                      (rig_params){.top_k = k, .seed = &seed, .offset = &offset, .n_seeds = 1});
    rig_mask(ALEA_OP_TOPK_MASK, one_thread, masked, x, RIG_F32, DRAWS, 4, k, NULL);
    for (int i = 0; i < DRAWS * 4; i++)
        probs[i] = expf(masked[i]);
    rig_sample_probs(one_thread, two, probs, DRAWS, 4, &seed, &offset, 1);
    for (int i = 0; i < DRAWS; i++) {
        counts[0][fused[i]]++;
        counts[1][two[i]]++;
    }
    for (int path = 0; path < 2; path++) {
        for (int id = 0; id < 3; id++) {
            const double p = id ? 0.25 : 0.5, n = DRAWS;
            assert_true(fabs((double)counts[path][id] - n * p) <= 6 * sqrt(n * p * (1 - p)) + 5);
        }
        assert_int_equal(counts[path][3], 0);
    }
    free(x);
    free(masked);
    free(probs);
    free(k);
    free(fused);
    free(two);
}

/* 100 batches of 16 rows: the drawn id is in the vocabulary and in its own row's kept set. */
static void test_draws_stay_inside_the_kept_set(void **state) {
    (void)state;
    enum { ROWS = 16, VOCAB = 50257 };
    float *x = rig_alloc(ROWS * VOCAB * 4), *masked = rig_alloc(ROWS * VOCAB * 4), p[ROWS];
    int32_t tokens[ROWS];
    for (int i = 0; i < ROWS; i++)
        p[i] = 0.5f;
    rig_normal(x, ROWS * VOCAB, 1);
    rig_mask(ALEA_OP_TOPP_MASK, one_thread, masked, x, RIG_F32, ROWS, VOCAB, NULL, p);
    for (int64_t batch = 0; batch < 100; batch++) {
        int64_t seed = batch, offset = 0;
        rig_sample_logits(one_thread, (rig_choice){.tokens = tokens}, x, RIG_F32, ROWS, VOCAB,
                          (rig_params){.top_p = p, .seed = &seed, .offset = &offset, .n_seeds = 1});
        for (int row = 0; row < ROWS; row++) {
            assert_in_range(tokens[row], 0, VOCAB - 1);
            assert_true(masked[row * VOCAB + tokens[row]] > -INFINITY);
        }
    }
    free(x);
    free(masked);
}

static void test_choices_follow_their_distribution(void **state) {
    (void)state;
    enum { ROWS = 65536, VOCAB = 40 };
    float *x = rig_alloc(ROWS * VOCAB * 4), *t = rig_alloc(ROWS * 4), *p = rig_alloc(ROWS * 4);
    int32_t *k = rig_alloc(ROWS * 4), *tokens = rig_alloc(ROWS * 4);
    float row[VOCAB], scaled[VOCAB];
    uint8_t fate[VOCAB];
    long double probs[VOCAB];
    int64_t counts[VOCAB] = {0}, seed = 1235, offset = 7;
    rig_normal(row, VOCAB, 5);
    for (int i = 0; i < ROWS; i++) {
        memcpy(x + i * VOCAB, row, sizeof row);
        t[i] = 1.7f;
        k[i] = 25;
        p[i] = 0.9f;
    }
    rig_sample_logits((rig_how){.threads = 2}, (rig_choice){.tokens = tokens}, x, RIG_F32, ROWS,
                      VOCAB,
                      (rig_params){.temperature = t,
                                   .top_k = k,
                                   .top_p = p,
                                   .seed = &seed,
                                   .offset = &offset,
                                   .n_seeds = 1});
    for (int i = 0; i < VOCAB; i++)
        scaled[i] = row[i] / 1.7f;
    oracle_topk_topp(fate, scaled, VOCAB, 25, 0.9f);
    oracle_softmax(probs, row, fate, VOCAB, 1.7f);
    for (int i = 0; i < ROWS; i++)
        counts[tokens[i]]++;
    for (int i = 0; i < VOCAB; i++) {
        const long double expected = ROWS * probs[i];
        assert_true(fabsl((long double)counts[i] - expected) <=
                    6 * sqrtl(expected * (1 - probs[i])) + 5 * (probs[i] > 0));
    }
    free(x);
    free(t);
    free(p);
    free(k);
    free(tokens);
}

/* A choice with its report is the choice alone, and alea_logprobs of the token it drew. */
static void test_a_report_of_a_choice_is_that_of_its_token(void **state) {
    (void)state;
    enum { ROWS = 2 * TEST_FILL_COUNT, K = 7 };
    const int32_t vocabs[] = {1, 3, 7, 40, 1024, 2500, 20000};
    static const float ts[] = {1, 0, 0.6f, 1e-7f, 1.7f}, ps[] = {1, 0.9f, 0.4f};
    float t[ROWS], p[ROWS];
    int32_t ks[ROWS];
    int64_t seed[ROWS], offset[ROWS];
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        const int32_t n = vocabs[v];
        float *x = rig_alloc(ROWS * (size_t)n * 4);
        for (int i = 0; i < ROWS; i++) {
            test_fill_row(x + (int64_t)i * n, n, (test_fill)(i % TEST_FILL_COUNT), v * 100 + 1);
            t[i] = ts[i % 5];
            p[i] = ps[i % 3];
            ks[i] = i % 4 == 0 ? 0 : 1 + i;
            seed[i] = i;
            offset[i] = 3;
        }
        rig_params params = {t, ks, p, NULL, seed, offset, ROWS};
        int32_t alone[ROWS], tokens[ROWS], verdicts[ROWS], ranks[ROWS], right_ranks[ROWS];
        int32_t ids[ROWS * K], right_ids[ROWS * K];
        float logprobs[ROWS], right[ROWS], id_logprobs[ROWS * K], right_id_logprobs[ROWS * K];
        float sampled[ROWS], sampled_alone[ROWS];
        double lse[ROWS], right_lse[ROWS];
        rig_sample_logits(one_thread, (rig_choice){.tokens = alone, .sampled = sampled_alone}, x,
                          RIG_F32, ROWS, n, params);
        rig_sample_logits(one_thread,
                          (rig_choice){.tokens = tokens,
                                       .logprobs = logprobs,
                                       .sampled = sampled,
                                       .verdicts = verdicts,
                                       .lse = lse,
                                       .ranks = ranks,
                                       .ids = ids,
                                       .id_logprobs = id_logprobs,
                                       .k = K},
                          x, RIG_F32, ROWS, n, params);
        rig_logprobs(one_thread,
                     (rig_report){.lse = right_lse,
                                  .logprobs = right,
                                  .ranks = right_ranks,
                                  .ids = right_ids,
                                  .id_logprobs = right_id_logprobs},
                     x, RIG_F32, ROWS, n, K, tokens, NULL, 0);
        assert_memory_equal(tokens, alone, sizeof tokens);
        assert_memory_equal(sampled, sampled_alone, sizeof sampled);
        assert_memory_equal(ranks, right_ranks, sizeof ranks);
        assert_memory_equal(ids, right_ids, sizeof ids);
        for (int i = 0; i < ROWS; i++) {
            assert_int_equal(verdicts[i], tokens[i] < 0 ? ALEA_EROW : ALEA_OK);
            if (tokens[i] < 0) { /* NaN, as a failed row reports */
                assert_true(isnan(lse[i]) && isnan(logprobs[i]) && ranks[i] == 0);
                continue;
            }
            assert_memory_equal(&lse[i], &right_lse[i], 8);
            assert_memory_equal(&logprobs[i], &right[i], 4);
            for (int j = 0; j < K && j < n; j++)
                assert_memory_equal(&id_logprobs[i * K + j], &right_id_logprobs[i * K + j], 4);
        }
        free(x);
    }
}

static void test_a_failed_row_draws_nothing(void **state) {
    (void)state;
    float x[] = {4, NAN, 1, 4, INFINITY, 1, 4, -INFINITY, 1, -INFINITY, -INFINITY, -INFINITY};
    int32_t tokens[4], verdicts[4];
    float logprobs[4], sampled[4], kept[4];
    for (int64_t seed = 0; seed < 50; seed++) {
        int64_t offset = 0;
        rig_sample_logits(one_thread,
                          (rig_choice){.tokens = tokens,
                                       .logprobs = logprobs,
                                       .sampled = sampled,
                                       .kept = kept,
                                       .verdicts = verdicts},
                          x, RIG_F32, 4, 3,
                          (rig_params){.seed = &seed, .offset = &offset, .n_seeds = 1});
        for (int row = 0; row < 4; row++) {
            if (row == 2) continue;
            assert_int_equal(tokens[row], -1);
            assert_int_equal(verdicts[row], ALEA_EROW);
            assert_true(isnan(logprobs[row]) && isnan(sampled[row]) && isnan(kept[row]));
        }
        assert_true((tokens[2] == 0 || tokens[2] == 2) && verdicts[2] == ALEA_OK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logprobs_of_plain_rows),
        cmocka_unit_test(test_logprobs_of_every_sound_fill),
        cmocka_unit_test(test_logprobs_do_not_overflow),
        cmocka_unit_test(test_logprob_of_a_uniform_row),
        cmocka_unit_test(test_alternatives_among_equals_are_the_smaller_ids),
        cmocka_unit_test(test_given_ids_keep_the_callers_order),
        cmocka_unit_test(test_failed_rows_say_so_and_leave_the_others_alone),
        cmocka_unit_test(test_rows_without_a_token_have_rank_zero),
        cmocka_unit_test(test_greedy_rows_do_not_disturb_the_others),
        cmocka_unit_test(test_temperature_comes_before_the_filters),
        cmocka_unit_test(test_logprob_does_not_know_the_temperature),
        cmocka_unit_test(test_small_temperatures_are_greedy),
        cmocka_unit_test(test_draws_across_a_tie_are_even),
        cmocka_unit_test(test_draws_stay_inside_the_kept_set),
        cmocka_unit_test(test_choices_follow_their_distribution),
        cmocka_unit_test(test_a_report_of_a_choice_is_that_of_its_token),
        cmocka_unit_test(test_a_failed_row_draws_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
