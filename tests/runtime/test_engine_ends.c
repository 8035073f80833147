/*
 * How an answer ends and what of its last tokens is text: stop ids, stop strings, forced tokens,
 * min_tokens. The toy core with a peak counts up (each id is the last plus one), so that every
 * answer is known beforehand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "runtime/row_core.h"

enum { EOS = 257, IM_END = 259, THINK = 261, THE = 263, AND = 266 };

static rig_choice choice;

static alea_request_params counting(int32_t max_tokens) {
    alea_request_params p = alea__params_default();
    p.sampling.temperature = 0;
    p.max_tokens = max_tokens;
    p.ignore_end = true;
    p.top = 0;
    return p;
}

static void set_stop(alea_request_params *p, alea_bytes *stop, const char *text) {
    *stop = (alea_bytes){(const uint8_t *)text, strlen(text)};
    p->stops = stop;
    p->n_stops = 1;
}

/* The answer to a prompt of one token. */
static void count_from(int32_t first, const alea_request_params *params) {
    rig r = rig_open("vocab=320,peak=30", 1, 64, (alea_engine_options){.threads = 1});
    memset(&choice, 0, sizeof choice);
    rig_run(&r, &first, 1, params, &choice);
    rig_close(&r);
}

static void assert_tokens(const int32_t *tokens, int32_t n) {
    assert_int_equal(choice.n, n);
    assert_memory_equal(choice.tokens, tokens, (size_t)n * sizeof *tokens);
}

static void assert_visible(const int32_t *bytes) {
    assert_memory_equal(choice.visible, bytes, (size_t)choice.n * sizeof *bytes);
}

/* ---- ids ---- */

static void test_a_stop_id_ends_and_is_text_only_where_it_is_included(void **state) {
    (void)state;
    static const int32_t tokens[] = {'b', 'c', 'd', 'e'}, ids[] = {'z', 'e'};
    for (int32_t way = 0; way < 4; way++) {
        alea_request_params p = counting(20);
        p.stop_tokens = (alea_token_list){ids, 2};
        p.ignore_end = way % 2; /* has no say in it */
        p.include_stop = way / 2;
        alea_bytes stop;
        if (!p.include_stop) set_stop(&p, &stop, "e"); /* what is no text can complete no string */
        count_from('a', &p);
        assert_int_equal(choice.finish, ALEA_FINISH_STOP_TOKEN);
        assert_int_equal(choice.stop, 'e');
        assert_int_equal(choice.output_tokens, 4);
        assert_tokens(tokens, 4);
        assert_visible((const int32_t[]){1, 1, 1, p.include_stop});
        for (int32_t i = 0; i < 4; i++)
            assert_int_equal(choice.ends[i], i == 3);
    }
}

static void test_what_may_not_be_drawn_may_not_end_either(void **state) {
    (void)state;
    static const int32_t ids[] = {'c'}, word[] = {'d'};
    const alea_token_list words[] = {{word, 1}};
    alea_request_params p = counting(6);
    p.stop_tokens = (alea_token_list){ids, 1};
    p.min_tokens = 2; /* alone, it makes the row a processed one */
    count_from('a', &p);
    assert_int_not_equal(choice.tokens[1], 'c');
    p.stop_tokens.count = p.min_tokens = 0;
    p.bad_words = words;
    p.n_bad_words = 1;
    count_from('a', &p);
    for (int32_t i = 0; i < choice.n; i++)
        assert_int_not_equal(choice.tokens[i], 'd');
}

/* ---- forced tokens ---- */

static void test_forced_tokens_end_nothing(void **state) {
    (void)state;
    static const int32_t close[] = {'x', EOS}, tokens[] = {'b', 'c', 'x', EOS, EOS + 1, IM_END};
    alea_request_params p = counting(10);
    p.ignore_end = false;
    p.thinking_budget = 2;
    p.thinking_close = (alea_token_list){close, 2};
    p.stop_tokens = (alea_token_list){close, 1};
    count_from('a', &p);
    assert_tokens(tokens, 6);
    assert_int_equal(choice.finish, ALEA_FINISH_END);
    for (int32_t i = 0; i < 6; i++) {
        assert_int_equal(choice.entries[i], i != 2 && i != 3);
        assert_int_equal(choice.ends[i], i == 5);
    }
}

static void test_a_thought_that_closes_itself_is_not_closed_again(void **state) {
    (void)state;
    static const int32_t close[] = {'c', 'd'}, tokens[] = {'b', 'c', 'd', 'e', 'f', 'g'};
    alea_request_params p = counting(6);
    p.thinking_budget = 3;
    p.thinking_close = (alea_token_list){close, 2};
    count_from('a', &p);
    assert_tokens(tokens, 6);
    for (int32_t i = 0; i < 6; i++)
        assert_true(choice.entries[i]);
}

/* What the prompt ends with is no part of the answer's close. */
static void test_a_close_does_not_begin_in_the_prompt(void **state) {
    (void)state;
    static const int32_t close[] = {'b', 'c'}, tokens[] = {'c', 'd', 'e', 'b', 'c', 'd'};
    alea_request_params p = counting(6);
    p.thinking_budget = 3;
    p.thinking_close = (alea_token_list){close, 2};
    count_from('b', &p);
    assert_tokens(tokens, 6);
    for (int32_t i = 0; i < 6; i++)
        assert_int_equal(choice.entries[i], i != 3 && i != 4);
}

static const float *row_falling(int32_t first, int32_t position) {
    (void)first, (void)position;
    static const float row[] = {1.0f, 0.9f, 0.8f, 0.7f};
    return row;
}

static void run_rows(const row_core_ways *ways, const alea_request_params *params) {
    rig r = row_core_open(ways, (alea_engine_options){.threads = 1});
    const int32_t prompt = 3;
    memset(&choice, 0, sizeof choice);
    rig_run(&r, &prompt, 1, params, &choice);
    rig_close(&r);
}

static void test_penalties_count_forced_tokens(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 4, .end_token = -1, .row = row_falling};
    static const int32_t close[] = {0}, tokens[] = {0, 1, 0};
    alea_request_params p = counting(3);
    p.presence_penalty = 0.15f;
    p.thinking_budget = 0;
    p.thinking_close = (alea_token_list){close, 1};
    run_rows(&ways, &p);
    assert_tokens(tokens, 3);
}

/* ---- strings ---- */

static void test_a_stop_string_is_cut_at_its_byte(void **state) {
    (void)state;
    static const int32_t tokens[] = {THE, THE + 1, THE + 2, AND}; /* the, _the, _the, _and */
    alea_bytes stop;
    alea_request_params p = counting(20);
    set_stop(&p, &stop, "nd");
    count_from(THE - 1, &p);
    assert_int_equal(choice.finish, ALEA_FINISH_STOP);
    assert_tokens(tokens, 4);
    assert_visible((const int32_t[]){3, 4, 4, 2});

    set_stop(&p, &stop, " t"); /* it ends inside a token that is cut behind its text */
    p.include_stop = true;
    count_from(THE - 1, &p);
    assert_tokens(tokens, 2);
    assert_visible((const int32_t[]){3, 2});

    set_stop(&p, &stop, "e the"); /* it begins inside one token and ends with the next */
    p.include_stop = false;
    count_from(THE - 1, &p);
    assert_tokens(tokens, 1);
    assert_visible((const int32_t[]){2});

    p.keep_stopped = true;
    count_from(THE - 1, &p);
    assert_tokens(tokens, 2);
    assert_visible((const int32_t[]){2, 0});
    assert_int_equal(choice.output_tokens, 2);
}

static void test_tokens_without_bytes_before_the_cut_stay(void **state) {
    (void)state;
    static const int32_t tokens[] = {255, 256, 257, 258, 259, 260};
    const alea_bytes stops[] = {{(const uint8_t *)"\xffQ", 2}, {(const uint8_t *)"<th", 3}};
    alea_request_params p = counting(20);
    p.stops = stops;
    p.n_stops = 2;
    count_from(254, &p); /* the first holds them back until the second is complete */
    assert_int_equal(choice.finish, ALEA_FINISH_STOP);
    assert_int_equal(choice.stop, 1);
    assert_tokens(tokens, 6);
    assert_visible((const int32_t[]){1, 0, 0, 0, 0, 0});
    assert_int_equal(choice.output_tokens, 7);
}

static void test_no_string_stops_a_shorter_answer_than_was_asked(void **state) {
    (void)state;
    for (int32_t least = 0; least <= 6; least++) {
        alea_bytes stop;
        alea_request_params p = counting(8);
        p.min_tokens = least;
        set_stop(&p, &stop, "f"); /* the fifth token: four come before it */
        count_from('a', &p);
        const bool stops = least <= 4;
        assert_int_equal(choice.finish, stops ? ALEA_FINISH_STOP : ALEA_FINISH_LENGTH);
        assert_int_equal(choice.n, stops ? 4 : 8);
    }
}

static void test_control_tokens_are_text_where_they_are_shown(void **state) {
    (void)state;
    static const int32_t tokens[] = {255, 256, 257, 258};
    alea_bytes stop;
    alea_request_params p = counting(20);
    p.show_control = true;
    set_stop(&p, &stop, "m_start");
    count_from(254, &p);
    assert_int_equal(choice.finish, ALEA_FINISH_STOP);
    assert_tokens(tokens, 4);
    assert_visible((const int32_t[]){1, 7, 7, 3}); /* <|bos|>, <|eos|>, <|i */
    p.show_control = false;
    p.max_tokens = 5;
    count_from(254, &p);
    assert_int_equal(choice.finish, ALEA_FINISH_LENGTH);
    assert_visible((const int32_t[]){1, 0, 0, 0, 0});
}

/* Held back, released once the string has failed, and all of it where the answer ends before. */
static void test_what_a_string_holds_back_comes_when_it_cannot_complete(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,peak=30", 1, 64, (alea_engine_options){.no_overlap = true});
    static const int32_t due[] = {1, 1, 1, 1, 5, 6, 6, 8}; /* c, d, e and h, i are held back */
    alea_bytes stops[] = {{(const uint8_t *)"cdeX", 4}, {(const uint8_t *)"hiX", 3}};
    alea_request_params p = counting(8);
    p.stops = stops;
    p.n_stops = 2;
    const int32_t first = 'a';
    memset(&choice, 0, sizeof choice);
    alea_request *request = rig_submit(&r, &first, 1, &p);
    for (int32_t i = 0; i < 8; i++) {
        assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK);
        if (i == 7) assert_true(alea__engine_step(r.engine, 1) >= 0); /* the end is told */
        assert_int_equal(rig_read(request, &choice), i == 7);
        assert_int_equal(choice.n, due[i]);
    }
    alea__request_release(request);
    rig_close(&r);
}

static void test_nothing_is_shown_behind_a_cancel(void **state) {
    (void)state;
    rig r = rig_open("vocab=320,peak=30", 1, 64, (alea_engine_options){.threads = 1});
    const alea_request_params p = counting(50);
    const int32_t first = 1;
    memset(&choice, 0, sizeof choice);
    alea_request *request = rig_submit(&r, &first, 1, &p);
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(alea__engine_step(r.engine, 1), ALEA_OK);
    alea__request_cancel(request); /* the third token is drawn and not yet presented */
    rig_finish(&r, request, &choice);
    assert_int_equal(choice.finish, ALEA_FINISH_CANCELLED);
    assert_int_equal(choice.n, 2);
    assert_int_equal(choice.output_tokens, 3);
    rig_close(&r);
}

/* ---- strings, by definition ---- */

enum { MOST = 60, TEXT_MAX = 2048 };

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* The bytes of an answer and where each of its tokens ends in them. */
typedef struct answer_text {
    uint8_t bytes[TEXT_MAX];
    int32_t n, ends[MOST];
} answer_text;

static void write_out(const alea_core *core, bool show_control, const rig_choice *all,
                      answer_text *text) {
    text->n = 0;
    for (int32_t i = 0; i < all->n; i++) {
        alea_token_info info;
        assert_int_equal(alea_core_token(core, all->tokens[i], &info), ALEA_OK);
        const bool named = show_control && (info.flags & ALEA_TOKEN_CONTROL);
        const alea_bytes bytes = named ? info.name : info.bytes;
        assert_true((size_t)text->n + bytes.length <= TEXT_MAX);
        if (bytes.length > 0) memcpy(text->bytes + text->n, bytes.data, bytes.length);
        text->n += (int32_t)bytes.length;
        text->ends[i] = text->n;
    }
}

/* Of the strings in which the first `n` bytes end, the longest; -1: none. */
static int32_t string_at(const alea_request_params *p, const answer_text *text, int32_t n) {
    int32_t best = -1;
    for (int32_t s = 0; s < p->n_stops; s++) {
        const int32_t length = (int32_t)p->stops[s].length;
        if (length > n || memcmp(text->bytes + n - length, p->stops[s].data, (size_t)length) != 0)
            continue;
        if (best < 0 || length > (int32_t)p->stops[best].length) best = s;
    }
    return best;
}

/* What is due of an answer that would be `all` without its stop strings. */
static void cut_by_definition(const alea_request_params *p, const answer_text *text,
                              const rig_choice *all, rig_choice *due) {
    *due = *all;
    for (int32_t i = p->min_tokens; i < all->n; i++) {
        for (int32_t at = (i > 0 ? text->ends[i - 1] : 0) + 1; at <= text->ends[i]; at++) {
            const int32_t stop = string_at(p, text, at);
            if (stop < 0) continue;
            const int32_t cut = p->include_stop ? at : at - (int32_t)p->stops[stop].length;
            due->finish = ALEA_FINISH_STOP;
            due->stop = stop;
            due->output_tokens = i + 1;
            due->n = p->keep_stopped ? i + 1 : 0;
            for (int32_t t = 0; t <= i; t++) {
                const int32_t start = t > 0 ? text->ends[t - 1] : 0;
                const int32_t end = text->ends[t] < cut ? text->ends[t] : cut;
                due->visible[t] = end > start ? end - start : 0;
                if (start < cut || text->ends[t] <= cut) due->n = due->n > t ? due->n : t + 1;
            }
            return;
        }
    }
}

/* Stop strings out of the answer's own text, so that many of them complete. */
static void draw_stops(uint64_t *random, const answer_text *text, alea_request_params *p,
                       alea_bytes stops[3]) {
    p->stops = stops;
    p->n_stops = 1 + (int32_t)(next_random(random) % 3);
    for (int32_t s = 0; s < p->n_stops; s++) {
        const int32_t from = (int32_t)(next_random(random) % (uint32_t)text->n);
        const int32_t left = text->n - from;
        const int32_t length = 1 + (int32_t)(next_random(random) % 9);
        stops[s] = (alea_bytes){text->bytes + from, (size_t)(length < left ? length : left)};
    }
}

static void test_random_strings_cut_as_by_definition(void **state) {
    (void)state;
    static rig_choice all, due, got;
    static answer_text text;
    int32_t n_stopped = 0;
    for (uint64_t trial = 1; trial <= 400; trial++) {
        uint64_t random = trial;
        alea_request_params p = counting(MOST);
        p.sampling.temperature = 1;
        p.seeded = true;
        p.seed = trial;
        p.min_tokens = trial % 3 ? 0 : (int32_t)(next_random(&random) % MOST);
        p.show_control = trial % 2;
        p.include_stop = trial / 2 % 2;
        p.keep_stopped = trial / 4 % 2;
        alea_engine_options options = {.threads = 1, .no_overlap = trial / 8 % 2};
        options.queue_tokens = MOST + (int32_t)(next_random(&random) % 8);
        /* A small vocabulary, half of it tokens without bytes, fragments and common words. */
        rig r = rig_open(trial % 5 ? "vocab=300,ties=3" : "vocab=300,text=1", 1, 64, options);
        const int32_t first = (int32_t)(next_random(&random) % 256);
        memset(&all, 0, sizeof all);
        memset(&got, 0, sizeof got);
        rig_run(&r, &first, 1, &p, &all);
        assert_int_equal(all.n, MOST);
        write_out(r.core, p.show_control, &all, &text);
        alea_bytes stops[3];
        draw_stops(&random, &text, &p, stops);
        cut_by_definition(&p, &text, &all, &due);
        rig_run(&r, &first, 1, &p, &got);
        rig_assert_equal(&got, &due);
        n_stopped += got.finish == ALEA_FINISH_STOP;
        rig_close(&r);
    }
    assert_in_range(n_stopped, 250, 399);
}

/* ---- ranks ---- */

static const float *row_of_near_equals(int32_t first, int32_t position) {
    (void)first, (void)position;
    static const float row[] = {0.0f, -1e-9f, -20.0f, -20.0f}; /* two logits of one logprob */
    return row;
}

static void test_a_token_of_rank_one_need_not_be_the_greedy_one(void **state) {
    (void)state;
    const row_core_ways ways = {.vocab = 4, .end_token = -1, .row = row_of_near_equals};
    alea_request_params p = counting(40);
    p.sampling.temperature = 1;
    p.seeded = true;
    p.want_rank = true;
    run_rows(&ways, &p);
    int32_t n_second = 0;
    for (int32_t i = 0; i < 40; i++) {
        assert_int_equal(choice.ranks[i], 1);
        assert_int_equal(choice.greedy[i], choice.tokens[i] == 0);
        n_second += choice.tokens[i] == 1;
    }
    assert_in_range(n_second, 8, 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stop_id_ends_and_is_text_only_where_it_is_included),
        cmocka_unit_test(test_what_may_not_be_drawn_may_not_end_either),
        cmocka_unit_test(test_forced_tokens_end_nothing),
        cmocka_unit_test(test_a_thought_that_closes_itself_is_not_closed_again),
        cmocka_unit_test(test_a_close_does_not_begin_in_the_prompt),
        cmocka_unit_test(test_penalties_count_forced_tokens),
        cmocka_unit_test(test_a_stop_string_is_cut_at_its_byte),
        cmocka_unit_test(test_tokens_without_bytes_before_the_cut_stay),
        cmocka_unit_test(test_no_string_stops_a_shorter_answer_than_was_asked),
        cmocka_unit_test(test_control_tokens_are_text_where_they_are_shown),
        cmocka_unit_test(test_what_a_string_holds_back_comes_when_it_cannot_complete),
        cmocka_unit_test(test_nothing_is_shown_behind_a_cancel),
        cmocka_unit_test(test_random_strings_cut_as_by_definition),
        cmocka_unit_test(test_a_token_of_rank_one_need_not_be_the_greedy_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
