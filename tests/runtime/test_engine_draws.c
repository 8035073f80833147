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

/* ---- processed rows, from the list of tokens alone ---- */

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Everything that a processor reads; few ids, so that they meet. */
typedef struct processed {
    alea_request_params params;
    alea_token_bias biases[3];
    int32_t allowed[200], words[3][3], stops[2], close[2];
    alea_token_list bad_words[3];
} processed;

static void draw_processed(uint64_t *random, processed *q) {
    alea_request_params *p = &q->params;
    *p = base_params();
    p->seed = next_random(random);
    p->sampling = (alea_sampling){0.7f, 30, 0.95f, 0};
    p->ignore_end = next_random(random) % 2;
    p->n_biases = (int32_t)(next_random(random) % 4);
    p->biases = q->biases;
    for (int32_t i = 0; i < 3; i++)
        q->biases[i] = (alea_token_bias){(int32_t)(next_random(random) % 320),
                                         i == 0 ? -INFINITY : 4.0f * (float)i};
    p->allowed = (alea_token_list){q->allowed, next_random(random) % 2 ? 200 : 0};
    for (int32_t i = 0; i < 200; i++)
        q->allowed[i] = (int32_t)(next_random(random) % 40) * 8 % 320;
    p->n_bad_words = (int32_t)(next_random(random) % 4);
    p->bad_words = q->bad_words;
    for (int32_t i = 0; i < 3; i++) {
        q->bad_words[i] = (alea_token_list){q->words[i], 1 + i};
        for (int32_t w = 0; w < 3; w++)
            q->words[i][w] = q->allowed[next_random(random) % 200];
    }
    p->stop_tokens = (alea_token_list){q->stops, next_random(random) % 2 ? 2 : 0};
    p->min_tokens = (int32_t)(next_random(random) % 30);
    q->stops[0] = q->allowed[0];
    q->stops[1] = q->allowed[1];
    p->repetition_penalty = next_random(random) % 2 ? 1.3f : 1.0f;
    p->frequency_penalty = next_random(random) % 2 ? 0.4f : 0.0f;
    p->presence_penalty = next_random(random) % 2 ? -0.6f : 0.0f;
    q->close[0] = q->allowed[2];
    q->close[1] = q->allowed[3];
    p->thinking_close = (alea_token_list){q->close, 2};
    p->thinking_budget = next_random(random) % 3 ? -1 : (int32_t)(next_random(random) % 20);
}

static bool ends_in(const int32_t *tokens, int32_t n, const int32_t *tail, int32_t n_tail) {
    if (n < n_tail) return false;
    for (int32_t i = 0; i < n_tail; i++)
        if (tokens[n - n_tail + i] != tail[i]) return false;
    return true;
}

static int32_t count_of(const int32_t *tokens, int32_t n, int32_t token) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += tokens[i] == token;
    return count;
}

static bool is_end(int32_t token) {
    return token == 257 || token == 259;
}

/* The row that is drawn from behind `n` tokens of the answer. */
static void process(const alea_request_params *p, const int32_t *output, int32_t n, float *row) {
    for (int32_t i = 0; i < p->n_biases; i++)
        row[p->biases[i].token] += p->biases[i].bias;
    for (int32_t t = 0; t < VOCAB; t++) {
        if (p->allowed.count > 0 && count_of(p->allowed.tokens, p->allowed.count, t) == 0)
            row[t] = -INFINITY;
        for (int32_t w = 0; w < p->n_bad_words; w++) {
            const alea_token_list word = p->bad_words[w];
            const bool last = word.tokens[word.count - 1] == t;
            if (last && ends_in(output, n, word.tokens, word.count - 1)) row[t] = -INFINITY;
        }
        const bool stops = count_of(p->stop_tokens.tokens, p->stop_tokens.count, t) > 0;
        if (n < p->min_tokens && (is_end(t) || stops)) row[t] = -INFINITY;
        const int32_t count = count_of(output, n, t);
        if (count + count_of(prompt, N_PROMPT, t) == 0) continue;
        if (p->repetition_penalty != 1.0f)
            row[t] = row[t] > 0 ? row[t] / p->repetition_penalty : row[t] * p->repetition_penalty;
        if (count > 0) row[t] -= p->frequency_penalty * (float)count;
        if (count > 0) row[t] -= p->presence_penalty;
    }
}

/* The whole answer anew: tokens, forced or drawn, and what ends it. */
static void check_processed(alea_core *judge, const alea_request_params *p, const rig_choice *got) {
    assert_int_equal(alea_core_sequence_trim(judge, 0, 0, NULL), ALEA_OK);
    const float *raw = NULL;
    for (int32_t i = 0; i < N_PROMPT; i++)
        raw = row_after(judge, i, prompt[i]);
    int32_t output[MOST];
    bool thinking = p->thinking_budget >= 0;
    int32_t n_forced = 0;
    for (int32_t n = 0; n < got->n; n++) {
        const bool forced = thinking && (n_forced > 0 || n >= p->thinking_budget);
        if (forced) {
            output[n] = p->thinking_close.tokens[n_forced++];
            thinking = n_forced < p->thinking_close.count;
        } else {
            float row[VOCAB];
            memcpy(row, raw, sizeof row);
            process(p, output, n, row);
            const alea_draw_at at = {p->seed, 0, 0, (uint64_t)n};
            alea_choice drawn;
            assert_int_equal(
                alea__row_choose(alea__kernels_ref(), row, VOCAB, &p->sampling, &at, &drawn),
                ALEA_OK);
            output[n] = drawn.token;
            const bool closes = ends_in(output, n + 1, p->thinking_close.tokens, 2);
            thinking = thinking && !closes;
        }
        assert_int_equal(got->tokens[n], output[n]);
        assert_int_equal(got->entries[n], !forced);
        const bool stops =
            !forced && (count_of(p->stop_tokens.tokens, p->stop_tokens.count, output[n]) > 0 ||
                        (is_end(output[n]) && !p->ignore_end));
        assert_int_equal(got->ends[n], stops);
        assert_int_equal(n == got->n - 1, stops || n == MOST - 1);
        raw = row_after(judge, N_PROMPT + n, output[n]);
    }
}

static void test_processed_rows_follow_from_the_tokens_alone(void **state) {
    (void)state;
    alea_core *judge = open_judge("text=1");
    int32_t n_tokens = 0, n_ended = 0;
    for (uint64_t trial = 1; trial <= 80; trial++) {
        uint64_t random = trial;
        forget();
        static processed q;
        draw_processed(&random, &q);
        rig r = rig_open("context=128,text=1", 1, 5, plain);
        alea_request *request = rig_submit(&r, prompt, N_PROMPT, &q.params);
        /* It loses its slot to others now and then, and goes on where it was. */
        alea_request_params urgent = base_params();
        urgent.priority = -1;
        urgent.max_tokens = 3;
        for (int32_t step = 0; !rig_read(request, one); step++) {
            if (step % 11 == 7) alea__request_release(rig_submit(&r, prompt, 3, &urgent));
            assert_true(alea__engine_step(r.engine, 1) >= 0);
        }
        assert_int_not_equal(one[0].finish, ALEA_FINISH_ERROR);
        check_processed(judge, &q.params, &one[0]);
        n_tokens += one[0].n;
        n_ended += one[0].n < MOST;
        alea__request_release(request);
        rig_close(&r);
    }
    alea_core_close(judge);
    assert_true(n_tokens > 1000);
    assert_in_range(n_ended, 10, 70);
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
        cmocka_unit_test(test_processed_rows_follow_from_the_tokens_alone),
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
