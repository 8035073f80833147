/* Every domain of a request's parameters: its edges pass, and what lies beyond is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "runtime/params.h"

enum { VOCAB = 50 };

static const int32_t ids[] = {1, 2, 49};
static const int32_t twice[] = {1, 2, 1};
static const int32_t beyond[] = {1, VOCAB};
static const int32_t negative[] = {-1};
static const alea_token_bias biases[] = {{3, -INFINITY}, {4, 100}};
static const alea_token_bias infinite[] = {{3, INFINITY}};
static const alea_token_bias nameless[] = {{VOCAB, 1}};
static const alea_token_bias no_number[] = {{3, NAN}};
static const alea_token_list words[] = {{ids, 3}, {ids, 1}};
static const alea_token_list hollow[] = {{ids, 0}};
static const alea_token_list broken[] = {{NULL, 2}};
static const alea_bytes strings[] = {{(const uint8_t *)"ab", 2}};
static const alea_bytes nothing[] = {{(const uint8_t *)"", 0}};
static const alea_bytes no_bytes[] = {{NULL, 2}};
static const alea_bytes endless[] = {{(const uint8_t *)"x", ALEA_STOP_BYTES_MAX + 1}};

/* Set `field` to `value` in otherwise ordinary parameters: accepted, or refused with `word`. */
#define TRY(word, ...)                                                                             \
    do {                                                                                           \
        alea_request_params p = alea__params_default();                                            \
        __VA_ARGS__;                                                                               \
        check(&p, word, #__VA_ARGS__);                                                             \
    } while (0)

static void check(const alea_request_params *p, const char *word, const char *what) {
    alea_error error = {0};
    const alea_status status = alea__params_check(p, VOCAB, &error);
    if (status != (word ? ALEA_EINVAL : ALEA_OK))
        fail_msg("%s: %d %s", what, status, error.message);
    if (word && !strstr(error.message, word)) fail_msg("%s: '%s'", what, error.message);
}

static void test_the_defaults_are_inside_every_domain(void **state) {
    (void)state;
    TRY(NULL, (void)p);
}

static void test_sampling_is_checked(void **state) {
    (void)state;
    TRY(NULL, p.sampling.temperature = 0);
    TRY("temperature", p.sampling.temperature = NAN);
    TRY("temperature", p.sampling.temperature = -1);
    TRY("top_p", p.sampling.top_p = 0);
    TRY("top_k", p.sampling.top_k = -1);
    TRY("min_p", p.sampling.min_p = 1.5f);
}

static void test_choices_and_penalties_are_checked(void **state) {
    (void)state;
    TRY(NULL, p.choices = ALEA_CHOICES_MAX);
    TRY("n is 0", p.choices = 0);
    TRY("n is 129", p.choices = ALEA_CHOICES_MAX + 1);
    TRY("first choice", p.first_choice = -1);
    TRY(NULL, p.repetition_penalty = 1e-3f);
    TRY("repetition_penalty", p.repetition_penalty = 0);
    TRY("repetition_penalty", p.repetition_penalty = -1);
    TRY("repetition_penalty", p.repetition_penalty = INFINITY);
    TRY("repetition_penalty", p.repetition_penalty = NAN);
    TRY(NULL, p.frequency_penalty = -2);
    TRY("frequency_penalty", p.frequency_penalty = 2.5f);
    TRY(NULL, p.presence_penalty = 2);
    TRY("presence_penalty", p.presence_penalty = NAN);
}

static void test_constraints_are_checked(void **state) {
    (void)state;
    TRY(NULL, p.biases = biases, p.n_biases = 2);
    TRY("logit_bias", p.biases = infinite, p.n_biases = 1);
    TRY("logit_bias", p.biases = nameless, p.n_biases = 1);
    TRY("logit_bias", p.biases = no_number, p.n_biases = 1);
    TRY("logit_bias", p.biases = biases, p.n_biases = -1);
    TRY(NULL, p.allowed = ((alea_token_list){ids, 3}));
    TRY("allowed_token_ids[1]", p.allowed = ((alea_token_list){beyond, 2}));
    TRY("allowed_token_ids[0]", p.allowed = ((alea_token_list){negative, 1}));
    TRY("allowed_token_ids", p.allowed = ((alea_token_list){ids, VOCAB + 1}));
    TRY(NULL, p.bad_words = words, p.n_bad_words = 2);
    TRY("bad_words[0] is empty", p.bad_words = hollow, p.n_bad_words = 1);
    TRY("bad_words", p.bad_words = words, p.n_bad_words = ALEA_BAD_WORDS_MAX + 1);
}

static void test_ends_are_checked(void **state) {
    (void)state;
    TRY(NULL, p.max_tokens = 0);
    TRY("max_tokens", p.max_tokens = -1);
    TRY("max_tokens", p.max_tokens = INT32_MAX);
    TRY(NULL, p.min_tokens = 16);
    TRY("min_tokens", p.min_tokens = 17);
    TRY("min_tokens", p.min_tokens = -1);
    TRY("stop_token_ids[1]", p.stop_tokens = ((alea_token_list){beyond, 2}));
    TRY(NULL, p.stops = strings, p.n_stops = 1);
    TRY("stop[0]", p.stops = nothing, p.n_stops = 1);
    TRY("stop[0]", p.stops = endless, p.n_stops = 1);
    TRY("stop", p.stops = strings, p.n_stops = ALEA_STOPS_MAX + 1);
    TRY("stop", p.stops = strings, p.n_stops = -1);
    TRY("close the thinking", p.thinking_budget = 3);
    TRY(NULL, p.thinking_budget = 0, p.thinking_close = ((alea_token_list){ids, 1}));
    TRY("thinking_token_budget", p.thinking_budget = -2);
    TRY("thinking close", p.thinking_close = ((alea_token_list){ids, 65}));
}

static void test_reports_are_checked(void **state) {
    (void)state;
    TRY(NULL, p.top = ALEA_TOP_MAX, p.prompt_top = ALEA_TOP_MAX);
    TRY("logprobs is 21", p.top = ALEA_TOP_MAX + 1);
    TRY("logprobs is -2", p.top = -2);
    TRY("prompt_logprobs is 21", p.prompt_top = ALEA_TOP_MAX + 1);
    TRY("prompt_logprobs is -2", p.prompt_top = -2);
    TRY(NULL, p.top = 0, p.selected = ((alea_token_list){ids, 3}));
    TRY("needs logprobs", p.selected = ((alea_token_list){ids, 3}));
    TRY("names token 1 twice", p.top = 0, p.selected = ((alea_token_list){twice, 3}));
    TRY("logprob_token_ids", p.top = 0, p.selected = ((alea_token_list){ids, 129}));
    TRY("logprob_token_ids[1]", p.top = 0, p.selected = ((alea_token_list){beyond, 2}));
}

static void test_opaque_spans_rise_and_do_not_overlap(void **state) {
    (void)state;
    static const alea_opaque good[] = {{0, 3, {NULL, 0}}, {3, 1, {NULL, 0}}, {9, 5, {NULL, 0}}};
    static const alea_opaque over[] = {{0, 3, {NULL, 0}}, {2, 1, {NULL, 0}}};
    static const alea_opaque empty[] = {{0, 0, {NULL, 0}}};
    static const alea_opaque before[] = {{-1, 3, {NULL, 0}}};
    static const alea_opaque lost[] = {{0, 3, {NULL, 2}}};
    TRY(NULL, p.opaques = good, p.n_opaques = 3);
    TRY("opaque span 1: 1 positions from 2 on", p.opaques = over, p.n_opaques = 2);
    TRY("opaque span 0", p.opaques = empty, p.n_opaques = 1);
    TRY("opaque span 0", p.opaques = before, p.n_opaques = 1);
    TRY("opaque span 0", p.opaques = lost, p.n_opaques = 1);
}

static void test_a_count_without_its_array_is_refused(void **state) {
    (void)state;
    TRY("logit_bias entries: 2 are announced, but the array is NULL", p.n_biases = 2);
    TRY("allowed_token_ids: 2", p.allowed.count = 2);
    TRY("bad_words: 1", p.n_bad_words = 1);
    TRY("bad_words: 2", p.bad_words = broken, p.n_bad_words = 1);
    TRY("stop_token_ids: 1", p.stop_tokens.count = 1);
    TRY("stop: 1", p.n_stops = 1);
    TRY("stop[0] is NULL", p.stops = no_bytes, p.n_stops = 1);
    TRY("thinking close: 1", p.thinking_close.count = 1);
    TRY("logprob_token_ids: 1", p.top = 0, p.selected.count = 1);
    TRY("opaque spans: 1", p.n_opaques = 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_defaults_are_inside_every_domain),
        cmocka_unit_test(test_sampling_is_checked),
        cmocka_unit_test(test_choices_and_penalties_are_checked),
        cmocka_unit_test(test_constraints_are_checked),
        cmocka_unit_test(test_ends_are_checked),
        cmocka_unit_test(test_reports_are_checked),
        cmocka_unit_test(test_opaque_spans_rise_and_do_not_overlap),
        cmocka_unit_test(test_a_count_without_its_array_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
