/*
 * A core that fails again and again, in every way that it can: rounds refused, rounds that break
 * off, rows withheld, rows with NaN, sequences that cannot be copied. Whatever happens around it, a
 * request that ends well gave what it gives on a sound core, and one that ends with an error gave
 * the beginning of that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine_rig.h"

enum { REQUESTS = 12, CHOICES = 2, SLOTS = 4, VOCAB = 320, ROWS = 64 };

static const char toy[] = "vocab=320,text=1,context=128";

static uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* ---- the core: the toy's, with faults ---- */

static uint64_t faults; /* random; 0: none */
static int32_t n_faults;
static float rows[2][ROWS][VOCAB]; /* of this round and the last: a stale pointer shows */
static int32_t n_rounds;

static bool strikes(uint32_t one_in) {
    if (faults == 0 || next_random(&faults) % one_in != 0) return false;
    n_faults++;
    return true;
}

static alea_round_item in_flight[SLOTS];
static int32_t n_in_flight;

/* What a failed round leaves in its sequences is anything: other tokens, as many as there were. */
static void spoil(alea_core *core) {
    static const int32_t other[128];
    for (int32_t i = 0; i < n_in_flight; i++) {
        alea_round_item item = in_flight[i];
        item.first_row = item.span.length = item.position + item.span.length;
        item.position = 0;
        item.span.tokens = other;
        (void)alea_core_toy()->sequence_trim(core, item.sequence, 0);
        (void)alea_core_toy()->submit(core, &(alea_round){&item, 1}, NULL);
    }
}

static alea_status bad_submit(alea_core *core, const alea_round *round, alea_error *error) {
    n_rounds++;
    n_in_flight = round->n_items;
    memcpy(in_flight, round->items, (size_t)round->n_items * sizeof *in_flight);
    if (strikes(40)) return ALEA_ECORE; /* without a word */
    return alea_core_toy()->submit(core, round, error);
}

static alea_status bad_wait(alea_core *core, alea_error *error) {
    const alea_status status = alea_core_toy()->wait(core, error);
    if (!strikes(40)) return status;
    spoil(core);
    return alea_error_set(error, ALEA_ECORE, "out of order");
}

static const float *bad_row(alea_core *core, int32_t index) {
    float *row = rows[n_rounds % 2][index];
    memcpy(row, alea_core_toy()->row(core, index), sizeof rows[0][0]);
    if (strikes(200)) return NULL;
    if (strikes(100)) row[next_random(&faults) % VOCAB] = next_random(&faults) % 2 ? NAN : INFINITY;
    return row;
}

static alea_status bad_copy(alea_core *core, int32_t from, int32_t to) {
    if (strikes(4)) return ALEA_ECORE;
    return alea_core_toy()->sequence_copy(core, from, to);
}

static rig open_bad(alea_engine_options options) {
    static alea_core_api api;
    api = *alea_core_toy();
    api.submit = bad_submit;
    api.wait = bad_wait;
    api.row = bad_row;
    api.sequence_copy = bad_copy;
    const alea_core_options core = {.struct_bytes = sizeof core,
                                    .model = toy,
                                    .sequences = SLOTS,
                                    .round_tokens = 48,
                                    .round_rows = ROWS};
    rig r = {NULL, NULL};
    assert_int_equal(alea_core_open(&api, &core, &r.core, NULL), ALEA_OK);
    assert_int_equal(alea__engine_create(r.core, &options, &r.engine, NULL), ALEA_OK);
    return r;
}

/* ---- requests ---- */

typedef struct asked {
    int32_t prompt[40], n_prompt;
    alea_request_params params;
    alea_bytes stop;
    int32_t allowed[VOCAB - 40];
} asked;

static asked questions[REQUESTS];
static rig_choice sound[REQUESTS][CHOICES], got[REQUESTS][CHOICES];

static void draw_question(uint64_t *random, asked *q) {
    q->n_prompt = 1 + (int32_t)(next_random(random) % 40);
    for (int32_t i = 0; i < q->n_prompt; i++) /* many begin alike */
        q->prompt[i] = i < 18 ? i : (int32_t)(next_random(random) % 256);
    q->params = alea__params_default();
    q->params.seeded = true;
    q->params.seed = next_random(random);
    q->params.max_tokens = (int32_t)(next_random(random) % 20);
    q->params.choices = 1 + (int32_t)(next_random(random) % CHOICES);
    q->params.priority = (int32_t)(next_random(random) % 3);
    q->params.top = 3; /* so that a bad row cannot pass unseen */
    q->params.want_entropy = next_random(random) % 2;
    q->params.repetition_penalty = next_random(random) % 2 ? 1.2f : 1.0f;
    q->params.prompt_top = next_random(random) % 3 ? -1 : 2;
    for (int32_t i = 0; i < VOCAB - 40; i++)
        q->allowed[i] = i;
    if (next_random(random) % 3 == 0) q->params.allowed = (alea_token_list){q->allowed, VOCAB - 40};
    q->stop = (alea_bytes){(const uint8_t *)"the", 3};
    q->params.stops = &q->stop;
    q->params.n_stops = next_random(random) % 2;
}

static void run_sound(void) {
    faults = 0;
    memset(sound, 0, sizeof sound);
    for (int32_t i = 0; i < REQUESTS; i++) {
        rig r = open_bad((alea_engine_options){.threads = 1,
                                               .no_overlap = true,
                                               .no_prefix_cache = true,
                                               .prompt_logprobs = true,
                                               .scored_cache = ALEA_SCORED_CACHE_OFF});
        rig_run(&r, questions[i].prompt, questions[i].n_prompt, &questions[i].params, sound[i]);
        rig_close(&r);
    }
}

static void run_faulty(uint64_t seed) {
    uint64_t random = seed;
    memset(got, 0, sizeof got);
    rig r = open_bad((alea_engine_options){.threads = 1 + (int32_t)(seed % 2),
                                           .no_overlap = seed / 2 % 2,
                                           .queue_tokens = 1 + (int32_t)(seed % 5),
                                           .brief_rows = (int32_t)(seed / 4 % 4) - 1,
                                           .prompt_logprobs = true});
    faults = seed * 77 + 1;
    alea_request *requests[REQUESTS];
    bool over[REQUESTS] = {false};
    int32_t n_asked = 0, n_over = 0;
    for (int32_t step = 0; n_over < REQUESTS; step++) {
        assert_true(step < 20000);
        if (n_asked < REQUESTS && next_random(&random) % 2) {
            const asked *q = &questions[n_asked];
            requests[n_asked++] = rig_submit(&r, q->prompt, q->n_prompt, &q->params);
        }
        assert_true(alea__engine_step(r.engine, 1) >= 0);
        for (int32_t i = 0; i < n_asked; i++) {
            if (over[i] || next_random(&random) % 3 == 0) continue;
            over[i] = rig_read(requests[i], got[i]);
            n_over += over[i];
        }
    }
    for (int32_t i = 0; i < REQUESTS; i++)
        alea__request_release(requests[i]);
    faults = 0;
    rig_close(&r);
}

static void assert_begins(const rig_choice *a, const rig_choice *b) {
    const size_t n = (size_t)a->n;
    assert_true(a->n <= b->n && a->n_scores <= b->n_scores);
    assert_memory_equal(a->tokens, b->tokens, n * sizeof a->tokens[0]);
    assert_memory_equal(a->logprobs, b->logprobs, n * sizeof a->logprobs[0]);
    assert_memory_equal(a->scores, b->scores, (size_t)a->n_scores * sizeof a->scores[0]);
}

/* Of the faults that were planted: an error of the engine's own making is none of them. */
static void assert_planted(const char *message) {
    static const char *const words[] = {"core toy: ", "out of order", "gave no row",
                                        "row of logits holds", "the model's row holds"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(message, words[i])) return;
    fail_msg("nobody planted: %s", message);
}

static void test_what_a_failing_core_leaves_whole_is_right(void **state) {
    (void)state;
    int32_t n_failed = 0, n_well = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t random = seed * 13;
        for (int32_t i = 0; i < REQUESTS; i++)
            draw_question(&random, &questions[i]);
        run_sound();
        run_faulty(seed);
        for (int32_t i = 0; i < REQUESTS; i++) {
            for (int32_t c = 0; c < questions[i].params.choices; c++) {
                const bool failed = got[i][c].finish == ALEA_FINISH_ERROR;
                n_failed += failed;
                n_well += !failed;
                if (failed) {
                    assert_planted(got[i][c].message);
                    assert_begins(&got[i][c], &sound[i][c]);
                } else {
                    rig_assert_equal(&got[i][c], &sound[i][c]);
                }
            }
        }
    }
    print_message("%d faults: %d choices failed, %d ended well\n", n_faults, n_failed, n_well);
    assert_true(n_failed > 200 && n_well > 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_failing_core_leaves_whole_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
