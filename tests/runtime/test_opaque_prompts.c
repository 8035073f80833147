/*
 * Prompts with opaque spans: their positions have no token, so no score, and what they hold is part
 * of what comes after. The toy core hashes the spans' bytes, so one that is lost, cut, repeated or
 * taken for another changes every later row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "runtime/score_rig.h"

enum { LONGEST = 64, SPANS = 3 };

/* A prompt of spans by chance: tokens and opaque ones, which may begin, follow each other, end. */
typedef struct mixture {
    int32_t tokens[LONGEST];
    int32_t n;
    alea_opaque opaques[SPANS];
    int32_t n_opaques;
    uint8_t data[SPANS][4];
} mixture;

static rig_choice expected, got[2];

static void mix(mixture *m, uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->n_opaques = 1 + score_draw(&seed, SPANS);
    for (int32_t i = 0; i < m->n_opaques; i++) {
        const int32_t before = score_draw(&seed, 3) * score_draw(&seed, 7);
        score_fill(m->tokens + m->n, before, seed + 1);
        m->n += before;
        const int32_t length = 1 + score_draw(&seed, 9);
        for (int32_t b = 0; b < 4; b++)
            m->data[i][b] = (uint8_t)score_draw(&seed, 256);
        m->opaques[i] = (alea_opaque){m->n, length, {m->data[i], 4}};
        for (int32_t t = 0; t < length; t++)
            m->tokens[m->n++] = -1;
    }
    const int32_t behind = score_draw(&seed, 2) * score_draw(&seed, 10);
    score_fill(m->tokens + m->n, behind, seed + 2);
    m->n += behind;
}

static alea_request_params params_of(const mixture *m, int32_t top, int32_t max_tokens) {
    alea_request_params p = score_params(top, max_tokens);
    p.top = 2;
    p.opaques = m->opaques;
    p.n_opaques = m->n_opaques;
    return p;
}

/* One span at a time on a core of its own, every row, every token behind one. */
static void reference(const mixture *m, int32_t top) {
    const alea_core_options options = {.struct_bytes = sizeof options, .model = score_toy};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    memset(&expected, 0, sizeof expected);
    expected.n_scores = m->n;
    expected.scores[0].token = m->tokens[0];
    for (int32_t at = 0, next = 0, length; at < m->n; at += length) {
        const bool opaque = next < m->n_opaques && m->opaques[next].position == at;
        alea_round_item item = {.position = at};
        if (opaque) {
            length = m->opaques[next].length;
            item.span = (alea_span){ALEA_SPAN_OPAQUE, length, NULL, m->opaques[next++].data};
        } else {
            length = 1;
            item.span = (alea_span){ALEA_SPAN_TOKENS, 1, m->tokens + at, {NULL, 0}};
        }
        int32_t n_rows;
        assert_int_equal(alea_core_run(core, &(alea_round){&item, 1}, &n_rows, NULL), ALEA_OK);
        for (int32_t i = 0; i < length && at + i + 1 < m->n; i++) {
            rig_score *score = &expected.scores[at + i + 1];
            score->token = m->tokens[at + i + 1];
            if (score->token < 0) continue;
            alea_row_report report;
            assert_int_equal(alea__row_report(alea__kernels(), alea_core_row(core, i), 320,
                                              score->token, top, false, &report),
                             ALEA_OK);
            score->has_entry = true;
            score->is_greedy = report.greedy == score->token;
            score->logprob = report.logprob;
            score->rank = report.rank;
            score->n_alternatives = report.n_top;
            memcpy(score->alternatives, report.top, (size_t)top * sizeof *report.top);
        }
    }
    alea_core_close(core);
}

static void test_opaque_positions_are_null_and_change_what_follows(void **state) {
    (void)state;
    static rig_choice plain;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        mixture m;
        mix(&m, seed);
        reference(&m, 4);
        uint64_t random = seed;
        for (int32_t max_tokens = 0; max_tokens < 4; max_tokens += 3) {
            alea_engine_options options =
                score_options(1 + score_draw(&random, 20), (alea_scored_cache)(seed % 3));
            options.no_overlap = score_draw(&random, 3) == 0;
            rig r = rig_open(score_toy, 3, 12 + score_draw(&random, 30), options);
            alea_request_params p = params_of(&m, 4, max_tokens);
            p.choices = 1 + score_draw(&random, 2);
            /* An answer and an older prompt take their part of the rounds. */
            int32_t other[100];
            score_fill(other, 100, seed);
            const alea_request_params theirs = score_params(-1, 60);
            alea_request *company[2] = {rig_submit(&r, other, 3, &theirs), NULL};
            assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK);
            if (seed % 2) company[1] = rig_submit(&r, other, 100, &theirs);
            score_run(&r, got, m.tokens, m.n, &p);
            score_assert_equal(&got[0], &expected);
            assert_int_equal(got[0].finish, ALEA_FINISH_LENGTH);
            assert_int_equal(got[0].n, max_tokens);
            plain = got[0];
            plain.n_scores = 0;
            p.prompt_top = -1; /* unscored, and out of whatever the slots hold: the same answer */
            score_run(&r, got, m.tokens, m.n, &p);
            rig_assert_equal(&got[0], &plain);
            for (int32_t i = 0; i < 2; i++)
                alea__request_release(company[i]);
            rig_close(&r);
        }
    }
}

static void test_a_lost_slot_computes_an_opaque_span_again(void **state) {
    (void)state;
    alea_request_params urgent = score_params(-1, 2);
    urgent.priority = -1;
    const int32_t other[] = {1, 2, 3};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        mixture m;
        mix(&m, seed);
        reference(&m, 2);
        for (int32_t steps = 0; steps < 24; steps++) {
            rig r = rig_open(score_toy, 1, 12, score_options(seed % 2 ? 5 : 0, 0));
            const alea_request_params p = params_of(&m, 2, 4);
            memset(got, 0, sizeof got);
            alea_request *request = rig_submit(&r, m.tokens, m.n, &p);
            for (int32_t i = 0; i < steps; i++) {
                assert_true(alea__engine_step(r.engine, 1) >= 0);
                if (i % 2) (void)rig_read(request, got);
            }
            rig_run(&r, other, 3, &urgent, got + 1);
            rig_finish(&r, request, got);
            score_assert_equal(&got[0], &expected);
            assert_int_equal(got[0].n, 4);
            rig_close(&r);
        }
    }
}

/* Two prompts with equal tokens around different things share what is before the thing alone. */
static void test_no_cache_takes_one_opaque_span_for_another(void **state) {
    (void)state;
    for (int32_t top = -1; top < 3; top += 3) {
        for (int32_t at = 0; at <= 20; at += 20) {
            const int32_t length = at == 0 ? 1 : 5;
            rig r = rig_open(score_toy, 2, 64, score_options(0, ALEA_SCORED_CACHE_ON));
            mixture m = {.n = 40, .n_opaques = 1};
            score_fill(m.tokens, 40, 3);
            for (int32_t i = at; i < at + length; i++)
                m.tokens[i] = -1;
            m.opaques[0] = (alea_opaque){at, length, {m.data[0], 4}};
            alea_request_params p = params_of(&m, top, 3);
            for (int32_t i = 0; i < 3; i++) {
                m.data[0][0] = (uint8_t)i;
                const alea_request_usage usage = score_run(&r, got, m.tokens, m.n, &p);
                /* The score behind the last common token is of a row that has to be computed. */
                const int32_t common = top < 0 || at == 0 ? at : at - 1;
                assert_int_equal(usage.cached_tokens, i == 0 ? 0 : common);
                reference(&m, 2);
                if (top >= 0) score_assert_equal(&got[0], &expected);
            }
            rig_close(&r);
        }
    }
}

static void test_spans_that_do_not_fit_the_prompt_are_refused(void **state) {
    (void)state;
    rig r = rig_open(score_toy, 2, 16, score_options(0, ALEA_SCORED_CACHE_ON));
    static const struct {
        int32_t position, length;
        int32_t hole, hole_length;
        const char *words;
    } cases[] = {{5, 3, 5, 2, "prompt token 7 is"},    {5, 3, 5, 4, "prompt token 8 is -1"},
                 {-1, 3, 0, 2, "opaque span 0"},       {5, 0, 0, 0, "opaque span 0"},
                 {28, 3, 28, 2, "opaque span 0"},      {5, 16, 5, 16, "at most 15 fit a round"},
                 {0, 0, 3, 1, "prompt token 3 is -1"}, {INT32_MAX, 5, 0, 0, "opaque span 0"},
                 {5, INT32_MAX, 0, 0, "opaque span 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mixture m = {.n = 30,
                     .n_opaques = cases[i].words[0] == 'p' && cases[i].length == 0 ? 0 : 1};
        score_fill(m.tokens, 30, 3);
        for (int32_t t = 0; t < cases[i].hole_length; t++)
            m.tokens[cases[i].hole + t] = -1;
        m.opaques[0] = (alea_opaque){cases[i].position, cases[i].length, {m.data[0], 4}};
        const alea_request_params p = params_of(&m, 2, 3);
        alea_request *request = NULL;
        alea_error error = {0};
        assert_int_equal(alea__engine_submit(r.engine, m.tokens, m.n, &p, &request, &error),
                         ALEA_EINVAL);
        if (!strstr(error.message, cases[i].words)) fail_msg("%zu: %s", i, error.message);
    }
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opaque_positions_are_null_and_change_what_follows),
        cmocka_unit_test(test_a_lost_slot_computes_an_opaque_span_again),
        cmocka_unit_test(test_no_cache_takes_one_opaque_span_for_another),
        cmocka_unit_test(test_spans_that_do_not_fit_the_prompt_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
