/* What `alea score` says, through alea__score_tokens. */
#include "runtime/score_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "runtime/score.h"

const char score_toy[] = "vocab=320,text=1,context=320";

uint32_t score_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

int32_t score_draw(uint64_t *state, int32_t n) {
    return (int32_t)(score_random(state) % (uint32_t)n);
}

void score_fill(int32_t *tokens, int32_t n, uint64_t seed) {
    for (int32_t i = 0; i < n; i++)
        tokens[i] = score_draw(&seed, 256);
}

alea_request_params score_params(int32_t top, int32_t max_tokens) {
    alea_request_params p = alea__params_default();
    p.prompt_top = top;
    p.max_tokens = max_tokens;
    p.ignore_end = true;
    p.seeded = true;
    p.seed = 5;
    return p;
}

alea_engine_options score_options(int32_t queue_tokens, alea_scored_cache cache) {
    return (alea_engine_options){
        .threads = 2, .queue_tokens = queue_tokens, .prompt_logprobs = true, .scored_cache = cache};
}

static alea_status collect(void *user, const alea_scored *scored) {
    rig_choice *into = user;
    rig_score *score = &into->scores[into->n_scores++];
    memset(score, 0, sizeof *score);
    score->token = scored->token;
    if (scored->index == 0) return ALEA_OK;
    const alea_row_report *report = scored->report;
    score->has_entry = true;
    score->is_greedy = report->greedy == scored->token;
    score->logprob = report->logprob;
    score->rank = report->rank;
    score->n_alternatives = report->n_top;
    for (int32_t i = 0; i < report->n_top; i++)
        score->alternatives[i] = report->top[i];
    return ALEA_OK;
}

void score_reference(const char *model, const int32_t *tokens, int32_t n, int32_t top,
                     rig_choice *into) {
    const alea_core_options options = {.struct_bytes = sizeof options, .model = model};
    const alea_score_options how = {.kernels = alea__kernels(), .top = top};
    alea_core *core = NULL;
    alea_error error;
    into->n_scores = 0;
    assert_int_equal(alea_core_open(alea_core_toy(), &options, &core, &error), ALEA_OK);
    assert_int_equal(alea__score_tokens(core, &how, tokens, (size_t)n, collect, into, &error),
                     ALEA_OK);
    alea_core_close(core);
}

void score_assert_equal(const rig_choice *a, const rig_choice *b) {
    assert_int_equal(a->n_scores, b->n_scores);
    assert_memory_equal(a->scores, b->scores, (size_t)a->n_scores * sizeof a->scores[0]);
}

alea_request_usage score_run(rig *r, rig_choice *choices, const int32_t *tokens, int32_t n,
                             const alea_request_params *params) {
    memset(choices, 0, (size_t)params->choices * sizeof *choices);
    alea_request *request = rig_submit(r, tokens, n, params);
    while (!rig_read(request, choices))
        assert_true(alea__engine_step(r->engine, 1) >= 0);
    alea_request_usage usage;
    alea__request_usage_read(request, &usage);
    alea__request_release(request);
    return usage;
}

uint64_t score_positions(const rig *r) {
    alea_engine_stats stats;
    alea__engine_stats_read(r->engine, &stats);
    return stats.scored_positions;
}
