/*
 * A request's tokens and numbers, bit for bit, whatever it shares its rounds with: a search over
 * random schedules for a counterexample, on the toy, on tiny models and on the real one. The
 * reference of each request is itself alone, its prompt in one round, nothing reused.
 *
 * ALEA_SEARCH=n runs n schedules for each model instead of a few, and the crowd on the real one too
 * (make search).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/models.h"
#include "runtime/engine_rig.h"
#include "runtime/score.h"

enum {
    SLOTS = 8,
    CROWD_SLOTS = 36,
    SUBJECTS = 4,
    CHOICES_MAX = 3,
    COMPANY_MAX = 31,
    PROMPT_MAX = 60,
    CONTEXT = 128
};

typedef struct plan {
    int32_t prompt[PROMPT_MAX];
    int32_t n_prompt;
    alea_request_params params;
} plan;

typedef struct subject {
    alea_core *core;
    int32_t vocab;
    int32_t prompt_tokens; /* at most */
    int32_t output_tokens;
    uint64_t random;
    bool crowd; /* every slot taken, all company present, rounds that hold them all */
    plan plans[SUBJECTS];
    rig_choice alone[SUBJECTS][CHOICES_MAX];
    uint64_t reused_tokens; /* over all schedules: the search must have searched something */
    int32_t widest;
} subject;

static subject s;

static int32_t draw(int32_t below) {
    s.random = s.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int32_t)((uint32_t)(s.random >> 33) % (uint32_t)below);
}

/* Prompts begin alike, so that what one has computed serves another. */
static void make_plan(plan *p, int32_t number) {
    *p = (plan){.n_prompt = 15 + draw(s.prompt_tokens - 15), .params = alea__params_default()};
    const int32_t shared = number % 4 == 3 ? 0 : 6 + 6 * (number % 3);
    for (int32_t i = 0; i < p->n_prompt; i++)
        p->prompt[i] = i < shared ? 1 + i * 7 % (s.vocab - 1) : draw(s.vocab);
    p->params.seed = (uint64_t)number;
    p->params.seeded = true;
    p->params.ignore_end = true;
    p->params.max_tokens = s.output_tokens;
    p->params.choices = 1 + number % CHOICES_MAX;
    p->params.sampling = (alea_sampling){number % 3 ? 0.9f : 0.0f, number % 2 ? 40 : 0, 0.95f, 0};
    p->params.repetition_penalty = number % 2 ? 1.1f : 1.0f;
    p->params.top = number % 4 ? 5 : 20;
    p->params.want_sampled = p->params.want_entropy = p->params.want_rank = true;
}

static rig open_engine(alea_engine_options options) {
    rig r = {.core = s.core};
    alea_error error;
    if (alea__engine_create(s.core, &options, &r.engine, &error) < 0) fail_msg("%s", error.message);
    return r;
}

static void run_alone(int32_t number) {
    rig r = open_engine((alea_engine_options){
        .slots = 1, .threads = 1, .no_prefix_cache = true, .no_overlap = true});
    const plan *p = &s.plans[number];
    memset(s.alone[number], 0, sizeof s.alone[number]);
    rig_run(&r, p->prompt, p->n_prompt, &p->params, s.alone[number]);
    for (int32_t c = 0; c < p->params.choices; c++)
        assert_int_equal(s.alone[number][c].n, s.output_tokens);
    alea__engine_destroy(r.engine);
}

/* Company of a plan's own kind: it reads nothing and is dropped, at the latest at the end. */
static alea_request *submit_company(rig *r) {
    plan p;
    make_plan(&p, draw(1000));
    p.params.choices = 1;
    p.params.max_tokens = 1 + draw(s.output_tokens);
    return rig_submit(r, p.prompt, p.n_prompt, &p.params);
}

static void compare(int32_t number, const rig_choice *choices, uint64_t seed) {
    for (int32_t c = 0; c < s.plans[number].params.choices; c++) {
        if (choices[c].n != s.output_tokens) {
            fail_msg("schedule %llu, request %d, choice %d: %d tokens: %s",
                     (unsigned long long)seed, number, c, choices[c].n, choices[c].message);
        }
        rig_assert_equal(&choices[c], &s.alone[number][c]);
    }
}

/* Everything about a schedule by chance, a function of its seed. */
static void run_schedule(uint64_t seed, int32_t n_company) {
    s.random = seed;
    static const int32_t round_tokens[] = {1, 3, 7, 16, 40, 128};
    const int32_t slots = 1 + draw(SLOTS), size = round_tokens[draw(6)];
    const alea_engine_options options = {.slots = s.crowd ? CROWD_SLOTS : slots,
                                         .round_tokens = s.crowd ? 64 + size : size,
                                         .queue_tokens = 1 + draw(8),
                                         .threads = 1 + draw(2),
                                         .brief_rows = draw(6) - 1,
                                         .no_prefix_cache = draw(4) == 0,
                                         .no_overlap = draw(3) == 0};
    rig r = open_engine(options);
    static rig_choice choices[SUBJECTS][CHOICES_MAX];
    memset(choices, 0, sizeof choices);
    alea_request *subjects[SUBJECTS] = {NULL};
    alea_request *company[COMPANY_MAX] = {NULL};
    int32_t n_submitted = 0, n_over = 0, n_there = 0;
    bool over[SUBJECTS] = {false};
    for (int32_t step = 0; n_over < SUBJECTS; step++) {
        assert_true(step < 50000);
        if (n_submitted < SUBJECTS && (!s.crowd || n_there > 20) && draw(4) == 0) {
            const plan *p = &s.plans[n_submitted];
            subjects[n_submitted++] = rig_submit(&r, p->prompt, p->n_prompt, &p->params);
        }
        for (int32_t n = s.crowd ? draw(9) : draw(2); n > 0 && n_there < n_company; n--)
            company[n_there++] = submit_company(&r);
        if (n_there > 0 && draw(16) == 0) alea__request_cancel(company[draw(n_there)]);
        assert_true(alea__engine_step(r.engine, 1) >= 0);
        alea_engine_stats stats;
        alea__engine_stats_read(r.engine, &stats);
        if (stats.running > s.widest) s.widest = stats.running;
        s.reused_tokens += stats.cached_tokens;
        for (int32_t i = 0; i < n_submitted; i++) {
            if (over[i] || draw(3) == 0) continue; /* a reader that is sometimes late */
            over[i] = rig_read(subjects[i], choices[i]);
            n_over += over[i];
        }
        alea_event event;
        for (int32_t i = 0; i < n_there; i++) {
            while (alea__request_next(company[i], 0, &event) == ALEA_OK) {
            }
        }
    }
    if (s.crowd) assert_int_equal(n_there, COMPANY_MAX);
    for (int32_t i = 0; i < SUBJECTS; i++)
        compare(i, choices[i], seed);
    for (int32_t i = 0; i < SUBJECTS; i++)
        alea__request_release(subjects[i]);
    for (int32_t i = 0; i < n_there; i++)
        alea__request_release(company[i]);
    alea__engine_destroy(r.engine);
}

static int32_t searches(int32_t otherwise) {
    const char *text = getenv("ALEA_SEARCH");
    return text ? (int32_t)strtol(text, NULL, 10) : otherwise;
}

/* `lone` computes the references, `core` the schedules; one core may be both. */
static void search(alea_core *lone, alea_core *core, int32_t prompt_tokens, int32_t output_tokens,
                   int32_t n_schedules) {
    static const int32_t company[] = {7, 1, COMPANY_MAX, 0};
    alea_core_info info;
    alea_core_describe(core, &info);
    assert_true(info.batch_invariant);
    s.core = lone;
    s.crowd = info.sequences >= CROWD_SLOTS;
    s.vocab = info.vocab;
    s.prompt_tokens = prompt_tokens;
    s.output_tokens = output_tokens;
    s.reused_tokens = 0;
    s.widest = 0;
    s.random = 1;
    for (int32_t i = 0; i < SUBJECTS; i++)
        make_plan(&s.plans[i], i);
    for (int32_t i = 0; i < SUBJECTS; i++)
        run_alone(i);
    s.core = core;
    for (int32_t i = 0; i < n_schedules; i++)
        run_schedule(1000 + (uint64_t)i, s.crowd ? COMPANY_MAX : company[i % 4]);
    assert_true(s.reused_tokens > 0);
    assert_true(s.widest > (s.crowd ? 20 : 1));
    alea_core_close(core);
    if (lone != core) alea_core_close(lone);
}

static void test_toy_requests_do_not_depend_on_company(void **state) {
    (void)state;
    const alea_core_options options = {.struct_bytes = sizeof options,
                                       .model = "vocab=400,text=1",
                                       .context_tokens = CONTEXT,
                                       .sequences = SLOTS};
    alea_core *core = NULL;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, NULL), ALEA_OK);
    search(core, core, PROMPT_MAX, 24, searches(60));
}

/* One thread: several would wait for each other on a busy machine. */
static void try_tiny(const char *options) {
    char path[MODEL_PATH_BYTES];
    tiny_model(options, path);
    alea_core *core = open_llama(path, 0, CONTEXT, SLOTS, 64, 1);
    search(core, core, PROMPT_MAX, 16, searches(6));
}

/* All at once on three threads, against references from one thread and one sequence. */
static void try_crowd(const char *path, int32_t output_tokens, int32_t n_schedules) {
    search(open_llama(path, 0, CONTEXT, 1, 64, 1), open_llama(path, 0, CONTEXT, CROWD_SLOTS, 64, 3),
           PROMPT_MAX, output_tokens, n_schedules);
}

static void test_tiny_requests_do_not_depend_on_a_crowd_or_on_threads(void **state) {
    (void)state;
    static const char *const types[] = {"--type q4_1", "--type f16"};
    for (size_t i = 0; i < 2; i++) {
        char path[MODEL_PATH_BYTES];
        tiny_model(types[i], path);
        try_crowd(path, 16, searches(3));
    }
}

static void test_real_requests_do_not_depend_on_a_crowd_or_on_threads(void **state) {
    (void)state;
    const char *path = real_model();
    if (!path || !getenv("ALEA_SEARCH")) {
        print_message("SKIP: takes minutes; `make search` runs it on the default model\n");
        skip();
    }
    try_crowd(path, 8, searches(1));
}

static void test_tiny_f16_requests_do_not_depend_on_company(void **state) {
    (void)state;
    try_tiny("--type f16");
}

static void test_tiny_q4_1_requests_do_not_depend_on_company(void **state) {
    (void)state;
    try_tiny("--type q4_1");
}

static void test_tiny_q6_k_requests_do_not_depend_on_company(void **state) {
    (void)state;
    try_tiny("--type q6_k");
}

static void test_real_requests_do_not_depend_on_company(void **state) {
    (void)state;
    const char *path = real_model();
    if (!path) {
        print_message("SKIP: no real model; set ALEA_TEST_MODEL or run tools/setup\n");
        skip();
    }
    alea_core *core = open_llama(path, 0, CONTEXT, SLOTS, 64, 1);
    search(core, core, 32, 4, searches(2));
}

/* ---- scored prompts ---- */

typedef struct score_list {
    rig_score scores[CONTEXT];
    int32_t n;
} score_list;

static alea_status collect(void *user, const alea_scored *scored) {
    score_list *into = user;
    rig_score *score = &into->scores[into->n++];
    memset(score, 0, sizeof *score);
    score->token = scored->token;
    if (scored->index == 0) return ALEA_OK;
    score->has_entry = true;
    score->is_greedy = scored->report->greedy == scored->token;
    score->logprob = scored->report->logprob;
    score->rank = scored->report->rank;
    score->n_alternatives = scored->report->n_top;
    memcpy(score->alternatives, scored->report->top,
           (size_t)scored->report->n_top * sizeof *scored->report->top);
    return ALEA_OK;
}

/* Prompts of two beginnings, all at once, in an engine chosen by chance: what each reports is what
 * `alea score` reports on a core of one thread and one sequence, cached or not. Tells how many
 * tokens were cached. */
static int32_t try_scores(alea_core *lone, alea_core *core, uint64_t seed, int32_t longest) {
    enum { PROMPTS = 6 };
    static score_list want[PROMPTS];
    static rig_choice got[PROMPTS];
    int32_t prompts[PROMPTS][CONTEXT], n[PROMPTS];
    alea_core_info info;
    alea_core_describe(core, &info);
    s.random = seed;
    s.core = core;
    memset(got, 0, sizeof got);
    for (int32_t i = 0; i < PROMPTS; i++) {
        n[i] = i < 2 ? i + 1 : longest / 2 + draw(longest / 2);
        for (int32_t t = 0; t < n[i]; t++)
            prompts[i][t] = t < longest / 2 ? (7 * t + i % 2) % info.vocab : draw(info.vocab);
        want[i].n = 0;
        const alea_score_options how = {.kernels = alea__kernels(), .top = 20};
        alea_error error;
        assert_int_equal(
            alea__score_tokens(lone, &how, prompts[i], (size_t)n[i], collect, &want[i], &error),
            ALEA_OK);
    }
    rig r = open_engine((alea_engine_options){.slots = 1 + draw(info.sequences),
                                              .round_tokens = 1 + draw(info.round_tokens),
                                              .queue_tokens = 1 + draw(100),
                                              .threads = 2,
                                              .prompt_logprobs = true});
    alea_request *requests[PROMPTS];
    int32_t cached_tokens = 0;
    for (int32_t i = 0; i < PROMPTS; i++) {
        alea_request_params p = alea__params_default();
        p.prompt_top = 20;
        p.max_tokens = draw(3);
        requests[i] = rig_submit(&r, prompts[i], n[i], &p);
        if (draw(2)) assert_true(alea__engine_step(r.engine, 1) >= 0);
    }
    for (int32_t n_over = 0; n_over < PROMPTS;) {
        n_over = 0;
        assert_true(alea__engine_step(r.engine, 1) >= 0);
        for (int32_t i = 0; i < PROMPTS; i++)
            n_over += rig_read(requests[i], &got[i]);
    }
    for (int32_t i = 0; i < PROMPTS; i++) {
        assert_int_equal(got[i].n_scores, n[i]);
        assert_memory_equal(got[i].scores, want[i].scores, (size_t)n[i] * sizeof(rig_score));
        alea_request_usage usage;
        alea__request_usage_read(requests[i], &usage);
        cached_tokens += usage.cached_tokens;
        alea__request_release(requests[i]);
    }
    alea__engine_destroy(r.engine);
    return cached_tokens;
}

static void test_tiny_prompts_score_as_alea_score_does(void **state) {
    (void)state;
    static const char *const types[] = {"--type q4_1", "--type q6_k", "--type f16"};
    for (size_t i = 0; i < 3; i++) {
        char path[MODEL_PATH_BYTES];
        tiny_model(types[i], path);
        alea_core *lone = open_llama(path, 0, CONTEXT, 1, 64, 1);
        alea_core *core = open_llama(path, 0, CONTEXT, 4, 64, 2);
        int32_t cached_tokens = 0;
        for (uint64_t seed = 1; seed <= 5; seed++)
            cached_tokens += try_scores(lone, core, seed, CONTEXT - 8);
        assert_true(cached_tokens > 100);
        alea_core_close(core);
        alea_core_close(lone);
    }
}

static void test_real_prompts_score_as_alea_score_does(void **state) {
    (void)state;
    const char *path = real_model();
    if (!path) {
        print_message("SKIP: no real model; set ALEA_TEST_MODEL or run tools/setup\n");
        skip();
    }
    alea_core *core = open_llama(path, 0, CONTEXT, 3, 64, 1);
    (void)try_scores(core, core, 1, 40);
    alea_core_close(core);
}

static int group_teardown(void **state) {
    (void)state;
    remove_models();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_toy_requests_do_not_depend_on_company),
        cmocka_unit_test(test_tiny_f16_requests_do_not_depend_on_company),
        cmocka_unit_test(test_tiny_q4_1_requests_do_not_depend_on_company),
        cmocka_unit_test(test_tiny_q6_k_requests_do_not_depend_on_company),
        cmocka_unit_test(test_tiny_requests_do_not_depend_on_a_crowd_or_on_threads),
        cmocka_unit_test(test_tiny_prompts_score_as_alea_score_does),
        cmocka_unit_test(test_real_prompts_score_as_alea_score_does),
        cmocka_unit_test(test_real_requests_do_not_depend_on_company),
        cmocka_unit_test(test_real_requests_do_not_depend_on_a_crowd_or_on_threads),
    };
    return cmocka_run_group_tests_name("engine on models", tests, NULL, group_teardown);
}
