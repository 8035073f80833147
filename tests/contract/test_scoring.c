/* Scored prefill: targets, rows, ranks, and rows without a target. */
#include "contract/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_capacities_grow_by_four_and_end_at_the_limit(void **state) {
    (void)state;
    static const struct {
        int32_t limit, n, want[6];
    } cases[] = {
        {1, 1, {1}},
        {127, 1, {127}},
        {128, 1, {128}},
        {129, 2, {128, 129}},
        {512, 2, {128, 512}},
        {2048, 3, {128, 512, 2048}},
        {3000, 4, {128, 512, 2048, 3000}},
        {0, 0, {0}},
        {-4, 0, {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t got[16];
        assert_int_equal(alea__scoring_capacities(cases[i].limit, got), cases[i].n);
        assert_memory_equal(got, cases[i].want, (size_t)cases[i].n * sizeof *got);
    }
    int32_t got[16];
    assert_in_range(alea__scoring_capacities(INT32_MAX, got), 1, 16);
}

static void test_targets_are_the_next_tokens_and_minus_one_without_one(void **state) {
    rig *r = *state;
    /* -1 marks an image. */
    static const int32_t prompt[] = {10, 11, -1, -1, 14, 15};
    static const struct {
        int32_t start, rows, graph, want[8];
    } cases[] = {
        {0, 6, 8, {11, -1, -1, 14, 15, -1, -1, -1}},
        {0, 3, 4, {11, -1, -1, -1}},
        {3, 2, 4, {14, 15, -1, -1}},
        {5, 1, 2, {-1, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(alea__scoring_begin(&r->out, 0, 0, prompt, 6, cases[i].start,
                                             cases[i].rows, cases[i].graph, &r->error),
                         ALEA_OK);
        for (int32_t j = 0; j < cases[i].graph; j++) {
            /* Row 2 of the second case: the next position is opaque too. */
            assert_int_equal(r->out.prompt_targets[j], cases[i].want[j]);
        }
    }
    assert_int_equal(alea__scoring_begin(&r->out, 0, 0, prompt, 6, 4, 3, 8, &r->error),
                     ALEA_EINVAL);
    assert_int_equal(alea__scoring_begin(&r->out, 0, 0, prompt, 6, 0, 5, 4, &r->error),
                     ALEA_EINVAL);
    assert_int_equal(alea__scoring_begin(&r->out, 0, 0, prompt, 6, 0, 5, RIG_SCORED + 1, &r->error),
                     ALEA_EINVAL);
}

/* Score a prompt whose rows put row j's mass where `favour` says; rows are random else. */
static void score(rig *r, const int32_t *prompt, int32_t n, const float *const *rows) {
    assert_int_equal(alea__scoring_begin(&r->out, 1, 0, prompt, n, 0, n, n, &r->error), ALEA_OK);
    assert_int_equal(alea__scoring_reduce(alea__kernels(), NULL, &r->out, 1, 0, n, rows, RIG_VOCAB,
                                          NULL, &r->error),
                     ALEA_OK);
}

static void test_rows_carry_value_rank_and_twenty_alternatives(void **state) {
    rig *r = *state;
    enum { N = 40 };
    int32_t prompt[N];
    const float *rows[N];
    for (int32_t i = 0; i < N; i++) {
        prompt[i] = i * 27 % RIG_VOCAB;
        rows[i] = rig_row(r, (uint64_t)i + 1, RIG_VOCAB);
    }
    score(r, prompt, N, rows);
    for (int32_t i = 0; i + 1 < N; i++) {
        alea_score got;
        const int32_t target = prompt[i + 1];
        assert_int_equal(alea__scoring_read(&r->out, 1, i, target, i + 1, &got, &r->error),
                         ALEA_OK);
        float reported[RIG_VOCAB];
        int32_t ids[RIG_VOCAB];
        rig_order(rows[i], RIG_VOCAB, reported, ids);
        int32_t rank = 1;
        for (int32_t j = 0; j < RIG_VOCAB; j++)
            rank += reported[j] > reported[target];
        assert_int_equal(got.rank, rank);
        assert_memory_equal(&got.logprob, &reported[target], sizeof(float));
        assert_int_equal(got.n_alternatives, 20);
        for (int32_t j = 0; j < 20; j++)
            assert_int_equal(got.alternatives[j].token, ids[j]);
    }
}

static void test_a_token_is_scored_by_the_row_before_it(void **state) {
    rig *r = *state;
    static const int32_t prompt[] = {10, 11, 12, 13, 14, 15};
    const float *rows[6];
    for (int32_t i = 0; i < 6; i++) {
        float *row = rig_row(r, 1, RIG_VOCAB);
        row[prompt[i] + 1] = 40;
        rows[i] = row;
    }
    score(r, prompt, 6, rows);
    alea_score got;
    for (int32_t i = 0; i < 5; i++) {
        assert_int_equal(alea__scoring_read(&r->out, 1, i, prompt[i + 1], i, &got, NULL), ALEA_OK);
        assert_true(got.logprob > -1e-3f);
        assert_int_equal(got.rank, 1);
    }
    assert_int_equal(alea__scoring_read(&r->out, 1, 5, -1, 5, &got, NULL), ALEA_OK);
    assert_int_equal(got.token, -1);
}

/* Distinct logits that meet in one reported value share a rank; only the largest logit is greedy.
 */
static void test_greedy_is_the_largest_logit_where_ranks_are_shared(void **state) {
    rig *r = *state;
    static const int32_t prompt[] = {0, 30, 20, 5};
    float *row = rig_row(r, 1, RIG_VOCAB);
    for (int32_t i = 0; i < RIG_VOCAB; i++)
        row[i] = -1;
    row[30] = 1e-9f;
    row[20] = 0; /* both report the float32 next to -lse, some -6 */
    const float *rows[] = {row, row, rig_unreadable(), rig_unreadable()};
    int32_t greedy[4] = {7, 7, 7, 7};
    assert_int_equal(alea__scoring_begin(&r->out, 1, 0, prompt, 3, 0, 3, 4, &r->error), ALEA_OK);
    assert_int_equal(alea__scoring_reduce(alea__kernels(), NULL, &r->out, 1, 0, 4, rows, RIG_VOCAB,
                                          greedy, &r->error),
                     ALEA_OK);
    alea_score got[2];
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(
            alea__scoring_read(&r->out, 1, i, prompt[i + 1], i + 1, &got[i], &r->error), ALEA_OK);
        assert_int_equal(greedy[i], 30); /* although 20 leads the alternatives */
        assert_int_equal(got[i].alternatives[0].token, 20);
        assert_int_equal(greedy[2 + i], -1);
    }
    assert_true(got[0].logprob == got[1].logprob);
    assert_int_equal(got[0].rank, 1);
    assert_int_equal(got[1].rank, 1);
}

static void test_chunks_of_several_prompts_have_rows_of_their_own(void **state) {
    rig *r = *state;
    static const int32_t a[] = {10, 11, 12, 13, 14}, b[] = {20, 21, 22};
    const float *rows[6];
    for (int32_t i = 0; i < 6; i++)
        rows[i] = rig_row(r, (uint64_t)i + 1, RIG_VOCAB);
    memset(r->out.prompt_targets, 0x3c, (size_t)RIG_SCORED * sizeof(int32_t));
    assert_int_equal(alea__scoring_begin(&r->out, 1, 0, a, 5, 2, 3, 3, &r->error), ALEA_OK);
    assert_int_equal(alea__scoring_begin(&r->out, 1, 3, b, 3, 0, 3, 3, &r->error), ALEA_OK);
    static const int32_t targets[] = {13, 14, -1, 21, 22, -1};
    assert_memory_equal(r->out.prompt_targets, targets, sizeof targets);
    assert_int_not_equal(r->out.prompt_targets[6], -1);
    assert_int_equal(alea__scoring_reduce(alea__kernels(), NULL, &r->out, 1, 0, 6, rows, RIG_VOCAB,
                                          NULL, &r->error),
                     ALEA_OK);
    for (int32_t i = 0; i < 6; i++) {
        alea_score got;
        assert_int_equal(alea__scoring_read(&r->out, 1, i, targets[i], i, &got, NULL), ALEA_OK);
        if (targets[i] < 0) continue;
        float want;
        assert_int_equal(
            alea__row_selected(alea__kernels(), rows[i], RIG_VOCAB, &targets[i], 1, &want),
            ALEA_OK);
        assert_memory_equal(&got.logprob, &want, sizeof want);
    }
    assert_int_equal(alea__scoring_begin(&r->out, 1, RIG_SCORED - 2, b, 3, 0, 3, 3, &r->error),
                     ALEA_EINVAL);
}

static void test_rows_without_a_target_are_invalid_and_unread(void **state) {
    rig *r = *state;
    static const int32_t prompt[] = {5, -1, 7};
    const float *rows[] = {rig_unreadable(), rig_row(r, 1, RIG_VOCAB), rig_unreadable()};
    memset(r->out.prompt_logprobs, 0x3c, (size_t)2 * RIG_SCORED * 43 * sizeof(int32_t));
    score(r, prompt, 3, rows);
    for (int32_t row = 0; row < 3; row += 2) {
        const int32_t *words = r->out.prompt_logprobs + (RIG_SCORED + row) * 43;
        float value;
        memcpy(&value, words + 1, sizeof value);
        assert_int_equal(words[0], -1);
        assert_true(isnan(value));
        assert_int_equal(words[2], 0);
        for (int32_t i = 0; i < 20; i++)
            assert_int_equal(words[3 + 2 * i], -1);
    }
}

static void test_only_the_producing_frame_and_capacity_are_written(void **state) {
    rig *r = *state;
    static const int32_t prompt[] = {5, 6, 7};
    const size_t words = (size_t)2 * RIG_SCORED * 43;
    memset(r->out.prompt_logprobs, 0x3c, words * sizeof(int32_t));
    assert_int_equal(alea__scoring_begin(&r->out, 1, 0, prompt, 3, 0, 3, 9, &r->error), ALEA_OK);
    const float *rows[3];
    for (int32_t i = 0; i < 3; i++)
        rows[i] = rig_row(r, 4, RIG_VOCAB);
    assert_int_equal(alea__scoring_reduce(alea__kernels(), NULL, &r->out, 1, 0, 3, rows, RIG_VOCAB,
                                          NULL, &r->error),
                     ALEA_OK);
    for (size_t i = 0; i < words; i++) {
        const size_t row = i / 43;
        const bool inside = row >= RIG_SCORED && row < RIG_SCORED + 9;
        assert_int_equal(r->out.prompt_logprobs[i] != 0x3c3c3c3c, inside);
    }
}

static void test_blocks_of_at_most_64_rows_give_the_same_bits(void **state) {
    rig *r = *state;
    enum { N = 24 };
    int32_t prompt[N];
    const float *rows[N];
    for (int32_t i = 0; i < N; i++) {
        prompt[i] = i;
        rows[i] = rig_row(r, (uint64_t)i, RIG_VOCAB);
    }
    score(r, prompt, N, rows);
    int32_t *whole = malloc(N * 43 * sizeof *whole);
    memcpy(whole, r->out.prompt_logprobs + RIG_SCORED * 43, N * 43 * sizeof *whole);
    assert_int_equal(alea__scoring_begin(&r->out, 1, 0, prompt, N, 0, N, N, NULL), ALEA_OK);
    alea_pool *pool = NULL;
    assert_int_equal(alea__pool_create(2, &pool), ALEA_OK);
    for (int32_t first = 0; first < N; first += 5) {
        const int32_t n = N - first < 5 ? N - first : 5;
        assert_int_equal(alea__scoring_reduce(alea__kernels(), pool, &r->out, 1, first, n,
                                              rows + first, RIG_VOCAB, NULL, NULL),
                         ALEA_OK);
    }
    alea__pool_destroy(pool);
    assert_memory_equal(whole, r->out.prompt_logprobs + RIG_SCORED * 43, N * 43 * sizeof *whole);
    free(whole);
    assert_int_equal(alea__scoring_reduce(alea__kernels(), NULL, &r->out, 1, 0, 65, rows, RIG_VOCAB,
                                          NULL, &r->error),
                     ALEA_EINVAL);
    r->out.prompt_targets[3] = RIG_VOCAB;
    assert_int_equal(alea__scoring_reduce(alea__kernels(), NULL, &r->out, 1, 0, 5, rows, RIG_VOCAB,
                                          NULL, &r->error),
                     ALEA_EINVAL);
    assert_non_null(strstr(r->error.message, "prompt_target_tokens[3]"));
}

static void test_bad_rows_and_missing_scores_are_errors(void **state) {
    rig *r = *state;
    static const int32_t prompt[] = {5, 6, 7, 8};
    float *bad = rig_row(r, 1, RIG_VOCAB);
    bad[3] = NAN;
    const float *rows[] = {rig_row(r, 1, RIG_VOCAB), bad, NULL, rig_row(r, 1, RIG_VOCAB)};
    score(r, prompt, 4, rows);
    alea_score got = {.rank = 99};
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 6, 41, &got, &r->error), ALEA_OK);
    got.rank = 99;
    assert_int_equal(alea__scoring_read(&r->out, 1, 1, 7, 42, &got, &r->error), ALEA_EROW);
    assert_non_null(strstr(r->error.message, "prompt position 42"));
    assert_int_equal(alea__scoring_read(&r->out, 1, 2, 8, 43, &got, &r->error), ALEA_EROW);
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 7, 41, &got, &r->error), ALEA_EFORMAT);
    int32_t *words = r->out.prompt_logprobs + RIG_SCORED * 43;
    const int32_t rank = words[2];
    words[2] = 0;
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 6, 41, &got, &r->error), ALEA_EFORMAT);
    words[2] = rank;
    const int32_t third = words[7]; /* equal values out of order, then a falling list broken */
    words[8] = words[10];
    words[7] = words[9] + 1;
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 6, 41, &got, &r->error), ALEA_EFORMAT);
    words[7] = third;
    words[8] = 0;
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 6, 41, &got, &r->error), ALEA_EFORMAT);
    words[4] = 0x3f800000;
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 6, 41, &got, &r->error), ALEA_EFORMAT);
    words[3] = -1;
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 6, 41, &got, &r->error), ALEA_EFORMAT);
    assert_int_equal(got.rank, 99);
    /* A chunk that was begun and never scored cannot show the chunk before it. */
    assert_int_equal(alea__scoring_begin(&r->out, 1, 0, prompt, 4, 0, 4, 4, NULL), ALEA_OK);
    assert_int_equal(alea__scoring_read(&r->out, 1, 0, 6, 41, &got, &r->error), ALEA_EFORMAT);
}

static void test_bundles_without_scoring_say_so(void **state) {
    rig *r = *state;
    static const int32_t prompt[] = {5, 6};
    alea_score got;
    assert_int_equal(alea__scoring_begin(&r->prompt, 0, 0, prompt, 2, 0, 2, 2, &r->error),
                     ALEA_EUNSUPPORTED);
    assert_int_equal(alea__scoring_read(&r->decode, 0, 0, 6, 0, &got, &r->error),
                     ALEA_EUNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RULE("S1", test_targets_are_the_next_tokens_and_minus_one_without_one),
        RULE("S1", test_a_token_is_scored_by_the_row_before_it),
        RULE("S2", test_capacities_grow_by_four_and_end_at_the_limit),
        RULE("S3", test_rows_carry_value_rank_and_twenty_alternatives),
        RULE("S3", test_greedy_is_the_largest_logit_where_ranks_are_shared),
        RULE("S1", test_chunks_of_several_prompts_have_rows_of_their_own),
        RULE("S4", test_rows_without_a_target_are_invalid_and_unread),
        RULE("S5", test_only_the_producing_frame_and_capacity_are_written),
        RULE("S6", test_blocks_of_at_most_64_rows_give_the_same_bits),
        RULE("S7", test_bad_rows_and_missing_scores_are_errors),
        RULE("S8", test_bundles_without_scoring_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
