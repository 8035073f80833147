/* What the engine draws: every token against its row asked for apart, ends, limits, ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine_rig.h"

enum { N_PROMPT = 7, VOCAB = 320, MOST = 40 };

static const int32_t prompt[N_PROMPT] = {256, 'H', 'e', 'l', 'l', 'o', ' '};
static rig_choice one[4], other[4];

static void forget(void) {
    memset(one, 0, sizeof one);
    memset(other, 0, sizeof other);
}

static alea_request_params base_params(void) {
    alea_request_params p = alea__params_default();
    p.seed = 7;
    p.seeded = true;
    p.max_tokens = MOST;
    p.top = 5;
    p.ignore_end = true;
    return p;
}

static const alea_engine_options plain = {.threads = 2};

static alea_core *open_judge(const char *toy) {
    const alea_core_options options = {
        .struct_bytes = sizeof options, .model = toy, .context_tokens = 128};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    return core;
}

/* The row after the sequence's tokens and this one more. */
static const float *row_after(alea_core *judge, int32_t position, int32_t token) {
    const alea_round_item item = {.position = position, .span = {.length = 1, .tokens = &token}};
    const alea_round round = {.items = &item, .n_items = 1};
    int32_t n_rows = 0;
    assert_int_equal(alea_core_run(judge, &round, &n_rows, NULL), ALEA_OK);
    return alea_core_row(judge, 0);
}

static void check_choice(alea_core *judge, const alea_request_params *p, const rig_choice *choice,
                         int32_t index) {
    assert_int_equal(alea_core_sequence_trim(judge, 0, 0, NULL), ALEA_OK);
    const float *row = NULL;
    for (int32_t i = 0; i < N_PROMPT; i++)
        row = row_after(judge, i, prompt[i]);
    for (int32_t i = 0; i < choice->n; i++) {
        const alea_draw_at at = {p->seed, 0, (uint32_t)(p->first_choice + index), (uint64_t)i};
        alea_choice drawn;
        alea_row_report report;
        assert_int_equal(
            alea__row_choose(alea__kernels_ref(), row, VOCAB, &p->sampling, &at, &drawn), ALEA_OK);
        assert_int_equal(
            alea__row_report(alea__kernels_ref(), row, VOCAB, drawn.token, 5, true, &report),
            ALEA_OK);
        assert_int_equal(choice->tokens[i], drawn.token);
        assert_memory_equal(&choice->logprobs[i], &report.logprob, sizeof(float));
        assert_memory_equal(&choice->sampled[i], &drawn.sampled_logprob, sizeof(float));
        assert_memory_equal(&choice->masses[i], &drawn.kept_mass, sizeof(float));
        assert_memory_equal(&choice->entropies[i], &report.entropy, sizeof(float));
        assert_int_equal(choice->ranks[i], report.rank);
        assert_int_equal(choice->n_alternatives[i], 5);
        assert_memory_equal(choice->alternatives[i], report.top, 5 * sizeof report.top[0]);
        row = row_after(judge, N_PROMPT + i, drawn.token);
    }
}

static void test_every_token_is_the_draw_of_its_row(void **state) {
    (void)state;
    forget();
    alea_request_params p = base_params();
    p.sampling = (alea_sampling){0.8f, 50, 0.9f, 0.01f};
    p.choices = 3;
    p.want_sampled = p.want_entropy = p.want_rank = true;
    alea_core *judge = open_judge("");
    for (p.first_choice = 0; p.first_choice < 200; p.first_choice += 131) {
        forget();
        rig r = rig_open("context=128", 2, 5, plain);
        rig_run(&r, prompt, N_PROMPT, &p, one);
        for (int32_t i = 0; i < 3; i++) {
            assert_int_equal(one[i].n, MOST);
            check_choice(judge, &p, &one[i], i);
        }
        assert_memory_not_equal(one[0].tokens, one[1].tokens, MOST * sizeof(int32_t));
        rig_close(&r);
    }
    alea_core_close(judge);
}

/* Ids that are asked for, in the order of asking, however probable they are. */
static void test_selected_ids_are_those_of_each_row(void **state) {
    (void)state;
    forget();
    static const int32_t ids[] = {300, 5, 319, 0, 7, 6, 8, 9, 10, 11, 12};
    enum { N = sizeof ids / sizeof ids[0] };
    alea_request_params p = base_params();
    p.top = 1;
    p.selected = (alea_token_list){ids, N};
    rig r = rig_open("context=128", 1, 5, plain);
    rig_run(&r, prompt, N_PROMPT, &p, one);
    rig_close(&r);
    alea_core *judge = open_judge("");
    const float *row = NULL;
    for (int32_t i = 0; i < N_PROMPT; i++)
        row = row_after(judge, i, prompt[i]);
    assert_int_equal(one[0].n, MOST);
    for (int32_t i = 0; i < MOST; i++) {
        float want[N];
        assert_int_equal(alea__row_selected(alea__kernels_ref(), row, VOCAB, ids, N, want),
                         ALEA_OK);
        assert_int_equal(one[0].n_alternatives[i], N);
        for (int32_t a = 0; a < N; a++) {
            assert_int_equal(one[0].alternatives[i][a].token, ids[a]);
            assert_memory_equal(&one[0].alternatives[i][a].logprob, &want[a], sizeof want[a]);
        }
        row = row_after(judge, N_PROMPT + i, one[0].tokens[i]);
    }
    alea_core_close(judge);
}

static void test_a_core_that_cannot_trim_gives_the_same(void **state) {
    (void)state;
    forget();
    alea_request_params p = base_params();
    p.choices = 4;
    rig a = rig_open("context=128", 3, 5, plain);
    rig b = rig_open("context=128,trim=0", 3, 5, plain);
    for (int32_t again = 0; again < 2; again++) {
        forget();
        rig_run(&a, prompt, N_PROMPT, &p, one);
        rig_run(&b, prompt, N_PROMPT, &p, other);
        for (int32_t i = 0; i < 4; i++)
            rig_assert_equal(&one[i], &other[i]);
    }
    rig_close(&a);
    rig_close(&b);
}

static void test_another_seed_gives_another_text(void **state) {
    (void)state;
    forget();
    alea_request_params p = base_params();
    rig r = rig_open("context=128", 2, 5, plain);
    rig_run(&r, prompt, N_PROMPT, &p, &one[0]);
    rig_run(&r, prompt, N_PROMPT, &p, &one[1]);
    rig_assert_equal(&one[0], &one[1]);
    p.seed = 8;
    rig_run(&r, prompt, N_PROMPT, &p, &one[2]);
    assert_memory_not_equal(one[0].tokens, one[2].tokens, MOST * sizeof(int32_t));
    rig_close(&r);
}

static void test_temperature_zero_is_greedy(void **state) {
    (void)state;
    forget();
    alea_request_params p = base_params();
    p.sampling.temperature = 0;
    p.want_rank = true;
    rig r = rig_open("peak=3,context=128", 1, 5, plain);
    rig_run(&r, prompt, N_PROMPT, &p, one);
    for (int32_t i = 0; i < MOST; i++) {
        assert_int_equal(one[0].ranks[i], 1);
        assert_int_equal(one[0].tokens[i], one[0].alternatives[i][0].token);
    }
    assert_int_equal(one[0].tokens[0], ' ' + 1);
    rig_close(&r);
}

static void test_an_end_token_ends_and_has_no_entry(void **state) {
    (void)state;
    forget();
    alea_request_params p = base_params();
    p.sampling.temperature = 0;
    p.ignore_end = false;
    rig r = rig_open("peak=50,context=300", 1, 5, plain); /* counts up: 255, 256 (bos), 257 (eos) */
    const int32_t start = 250;
    rig_run(&r, &start, 1, &p, one);
    assert_int_equal(one[0].finish, ALEA_FINISH_END);
    assert_int_equal(one[0].output_tokens, 7);
    assert_int_equal(one[0].tokens[5], 256);
    for (int32_t i = 0; i < one[0].n; i++) {
        assert_int_equal(one[0].ends[i], i == 6);
        assert_int_equal(one[0].visible[i] > 0, i < 5); /* ids from 256 on are control tokens */
    }
    p.ignore_end = true; /* CON-13: then it is a token like any other */
    rig_run(&r, &start, 1, &p, other);
    assert_int_equal(other[0].tokens[6], 257);
    assert_true(other[0].entries[6] && !other[0].ends[6]);
    assert_int_equal(other[0].finish, ALEA_FINISH_LENGTH);
    rig_close(&r);
}

static void test_the_end_of_the_context_is_a_length_end(void **state) {
    (void)state;
    forget();
    const alea_request_params p = base_params();
    rig r = rig_open("context=20", 1, 5, plain);
    rig_run(&r, prompt, N_PROMPT, &p, one);
    assert_int_equal(one[0].n, 20 - N_PROMPT);
    assert_int_equal(one[0].finish, ALEA_FINISH_LENGTH);
    rig_close(&r);
}

static void test_choices_may_be_read_one_after_the_other(void **state) {
    (void)state;
    forget();
    alea_request_params p = base_params();
    p.choices = 3;
    rig r = rig_open("context=128", 2, 5, (alea_engine_options){.queue_tokens = MOST + 2});
    rig_run(&r, prompt, N_PROMPT, &p, one);
    alea_request *request = rig_submit(&r, prompt, N_PROMPT, &p);
    while (alea__engine_step(r.engine, 1) == ALEA_OK) {
    }
    for (int32_t c = 2; c >= 0; c--) {
        alea_event event;
        for (int32_t i = 0; i < MOST; i++) {
            assert_int_equal(alea__request_next_of(request, c, 0, &event), ALEA_OK);
            assert_int_equal(event.choice, c);
            assert_int_equal(event.token, one[c].tokens[i]);
        }
        assert_int_equal(alea__request_next_of(request, c, 0, &event), ALEA_OK);
        assert_int_equal(event.kind, ALEA_EVENT_FINISH);
        assert_int_equal(alea__request_next_of(request, c, 0, &event), ALEA_DONE);
    }
    alea_event event;
    assert_int_equal(alea__request_next(request, 0, &event), ALEA_DONE);
    alea__request_release(request);
    rig_close(&r);
}

/* Whoever reads any choice gets all of them at the same pace. */
static void test_choices_are_read_in_turn(void **state) {
    (void)state;
    alea_request_params p = base_params();
    p.choices = 3;
    rig r = rig_open("context=128", 3, 5, (alea_engine_options){.queue_tokens = MOST + 2});
    alea_request *request = rig_submit(&r, prompt, N_PROMPT, &p);
    while (alea__engine_step(r.engine, 1) == ALEA_OK) {
    }
    alea_event event;
    for (int32_t i = 0; i < 3 * (MOST + 1); i++) {
        assert_int_equal(alea__request_next(request, 0, &event), ALEA_OK);
        assert_int_equal(event.choice, i % 3);
    }
    assert_int_equal(alea__request_next(request, 0, &event), ALEA_DONE);
    alea__request_release(request);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_token_is_the_draw_of_its_row),
        cmocka_unit_test(test_selected_ids_are_those_of_each_row),
        cmocka_unit_test(test_a_core_that_cannot_trim_gives_the_same),
        cmocka_unit_test(test_another_seed_gives_another_text),
        cmocka_unit_test(test_temperature_zero_is_greedy),
        cmocka_unit_test(test_an_end_token_ends_and_has_no_entry),
        cmocka_unit_test(test_the_end_of_the_context_is_a_length_end),
        cmocka_unit_test(test_choices_may_be_read_one_after_the_other),
        cmocka_unit_test(test_choices_are_read_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
