#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine_rig.h"

rig rig_open(const char *toy, int32_t slots, int32_t round_tokens, alea_engine_options options) {
    rig r = {0};
    alea_error error = {0};
    const alea_core_options core = {.struct_bytes = sizeof core,
                                    .model = toy,
                                    .sequences = slots,
                                    .round_tokens = round_tokens,
                                    .round_rows = slots > 64 ? slots : 64};
    if (alea_core_open(alea_core_toy(), &core, &r.core, &error) < 0) fail_msg("%s", error.message);
    if (options.brief_rows == 0) options.brief_rows = -1; /* the faults lie where rounds overlap */
    if (alea__engine_create(r.core, &options, &r.engine, &error) < 0) {
        fail_msg("%s", error.message);
    }
    return r;
}

void rig_close(rig *r) {
    alea__engine_destroy(r->engine);
    alea_core_close(r->core);
}

alea_request *rig_submit(rig *r, const int32_t *prompt, int32_t n_prompt,
                         const alea_request_params *params) {
    alea_request *request = NULL;
    alea_error error = {0};
    if (alea__engine_submit(r->engine, prompt, n_prompt, params, &request, &error) < 0) {
        fail_msg("%s", error.message);
    }
    return request;
}

static void keep_score(rig_choice *choice, const alea_event *event) {
    const int32_t i = choice->n_scores++;
    assert_in_range(i, 0, RIG_TOKENS_MAX - 1);
    assert_int_equal(event->index, i);
    assert_int_equal(event->choice, 0);
    assert_int_equal(choice->n, 0);
    assert_int_equal(event->has_entry, event->rank > 0);
    assert_int_equal(event->has_entry, !isnan(event->logprob));
    rig_score *score = &choice->scores[i];
    memset(score, 0, sizeof *score);
    score->token = event->token;
    score->has_entry = event->has_entry;
    score->is_greedy = event->is_greedy;
    score->logprob = event->has_entry ? event->logprob : 0;
    score->rank = event->rank;
    score->n_alternatives = event->n_alternatives;
    for (int32_t a = 0; a < event->n_alternatives; a++)
        score->alternatives[a] = event->alternatives[a];
}

void rig_keep(rig_choice *choice, const alea_event *event) {
    if (event->kind == ALEA_EVENT_PROMPT) {
        keep_score(choice, event);
        return;
    }
    if (event->kind == ALEA_EVENT_FINISH) {
        choice->finish = event->finish;
        choice->stop = event->stop;
        choice->output_tokens = event->output_tokens;
        if (event->message) snprintf(choice->message, sizeof choice->message, "%s", event->message);
        return;
    }
    const int32_t i = choice->n++;
    assert_in_range(i, 0, RIG_TOKENS_MAX - 1);
    assert_int_equal(event->index, i);
    choice->tokens[i] = event->token;
    choice->visible[i] = event->visible_bytes;
    choice->entries[i] = event->has_entry;
    choice->ends[i] = event->ends;
    choice->logprobs[i] = event->logprob;
    choice->sampled[i] = event->sampled_logprob;
    choice->masses[i] = event->kept_mass;
    choice->entropies[i] = event->entropy;
    choice->ranks[i] = event->rank;
    choice->greedy[i] = event->is_greedy;
    choice->n_alternatives[i] = event->n_alternatives;
    for (int32_t a = 0; a < event->n_alternatives && a < 20; a++) {
        choice->alternatives[i][a] = event->alternatives[a];
    }
}

bool rig_read(alea_request *request, rig_choice *choices) {
    alea_event event;
    alea_status status;
    while ((status = alea__request_next(request, 0, &event)) == ALEA_OK) {
        rig_keep(&choices[event.choice], &event);
    }
    return status == ALEA_DONE;
}

void rig_finish(rig *r, alea_request *request, rig_choice *choices) {
    for (int32_t round = 0; !rig_read(request, choices); round++) {
        assert_true(round < 20000);
        assert_true(alea__engine_step(r->engine, 1) >= 0);
    }
    alea__request_release(request);
}

void rig_run(rig *r, const int32_t *prompt, int32_t n_prompt, const alea_request_params *params,
             rig_choice *choices) {
    rig_finish(r, rig_submit(r, prompt, n_prompt, params), choices);
}

void rig_assert_equal(const rig_choice *a, const rig_choice *b) {
    assert_int_equal(a->n, b->n);
    const size_t n = (size_t)a->n;
    assert_memory_equal(a->tokens, b->tokens, n * sizeof a->tokens[0]);
    assert_memory_equal(a->visible, b->visible, n * sizeof a->visible[0]);
    assert_memory_equal(a->logprobs, b->logprobs, n * sizeof a->logprobs[0]);
    assert_memory_equal(a->sampled, b->sampled, n * sizeof a->sampled[0]);
    assert_memory_equal(a->masses, b->masses, n * sizeof a->masses[0]);
    assert_memory_equal(a->entropies, b->entropies, n * sizeof a->entropies[0]);
    assert_memory_equal(a->ranks, b->ranks, n * sizeof a->ranks[0]);
    assert_memory_equal(a->greedy, b->greedy, n * sizeof a->greedy[0]);
    assert_memory_equal(a->n_alternatives, b->n_alternatives, n * sizeof a->n_alternatives[0]);
    assert_memory_equal(a->alternatives, b->alternatives, n * sizeof a->alternatives[0]);
    assert_int_equal(a->n_scores, b->n_scores);
    assert_memory_equal(a->scores, b->scores, (size_t)a->n_scores * sizeof a->scores[0]);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->stop, b->stop);
    assert_int_equal(a->output_tokens, b->output_tokens);
}
