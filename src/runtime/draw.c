/*
 * From the rows of a finished round to tokens: draw, commit the records, reduce the payloads that
 * were asked for. Rows are spread over the pool and share nothing, so neither the number of
 * threads nor the neighbours can change a token.
 */
#include <math.h>
#include <string.h>

#include "runtime/engine_parts.h"

/* Where the draws of generated tokens begin in the random stream of a seed. */
#define OFFSET_BASE 0u

static bool tail_is(const alea_run *run, alea_token_list list) {
    const int32_t n = alea__run_outputs(run);
    if (list.count == 0 || n < list.count) return false;
    return memcmp(run->tokens + run->n_tokens - list.count, list.tokens,
                  (size_t)list.count * sizeof *list.tokens) == 0;
}

/* The close of an overdue thinking budget: the ids come one a round, without being drawn. */
static bool next_is_forced(const alea_run *run, int32_t *token) {
    const alea_request_params *p = &run->request->params;
    if (!run->thinking) return false;
    if (run->n_forced == 0 && alea__run_outputs(run) < p->thinking_budget) return false;
    *token = p->thinking_close.tokens[run->n_forced];
    return true;
}

static alea_status draw_token(alea_engine *engine, const alea_run *run, const float *logits,
                              float *scratch, alea_extra *extra, alea_drawn *drawn) {
    const alea_request_params *p = &run->request->params;
    const int32_t vocab = engine->info.vocab;
    const alea_pipeline pipeline = {
        .params = p,
        .history = &run->history,
        .output = run->tokens + run->n_prompt,
        .n_output = alea__run_outputs(run),
        .end_tokens = engine->end_tokens,
        .n_end_tokens = engine->n_end_tokens,
    };
    const float *row = logits;
    if (!alea__pipeline_is_neutral(&pipeline)) {
        const alea_status status =
            alea__pipeline_apply(&pipeline, logits, vocab, scratch, &drawn->error);
        if (status < 0) return status;
        row = scratch;
    }
    const alea_draw_at at = {
        .seed = p->seed,
        .row = (uint32_t)(p->first_choice + run->index),
        .offset = OFFSET_BASE + (uint64_t)alea__run_outputs(run),
    };
    alea_choice choice;
    alea_status status =
        alea__row_choose_shared(engine->kernels, NULL, row, vocab, &p->sampling, &at,
                                p->want_sampled ? ALEA_CHOOSE_KEPT_MASS : 0, &choice);
    if (status < 0) return alea_error_set(&drawn->error, status, "%s", alea_status_text(status));
    drawn->token = choice.token;
    if (p->want_sampled) {
        extra->sampled_logprob = choice.sampled_logprob;
        extra->kept_mass = choice.kept_mass;
    }
    return ALEA_OK;
}

static alea_status read_report(const alea_engine *engine, const alea_request_params *p,
                               const float *logits, alea_extra *extra, alea_drawn *drawn) {
    alea_row_report report;
    const alea_status status = alea__row_report(engine->kernels, logits, engine->info.vocab,
                                                drawn->token, 0, p->want_entropy, &report);
    if (status < 0) return alea_error_set(&drawn->error, status, "%s", alea_status_text(status));
    if (p->want_entropy) extra->entropy = report.entropy;
    if (p->want_rank) {
        extra->rank = report.rank;
        extra->is_greedy = report.greedy == drawn->token;
    }
    return ALEA_OK;
}

typedef struct draw_task {
    alea_engine *engine;
    alea_plan *plan;
    int32_t n_workers;
} draw_task;

/* Worker w takes items w, w + n, …: each has its own scratch row. */
static void draw_items(void *user, int32_t worker) {
    const draw_task *task = user;
    alea_engine *engine = task->engine;
    float *scratch = engine->scratch + (size_t)worker * (size_t)engine->info.vocab;
    for (int32_t i = worker; i < task->plan->n_items; i += task->n_workers) {
        const alea_run *run = task->plan->runs[i];
        const alea_request_params *p = &run->request->params;
        alea_drawn *drawn = &engine->drawn[i];
        alea_extra *extra = &task->plan->extras[i];
        *drawn = (alea_drawn){.token = -1};
        *extra = (alea_extra){NAN, NAN, NAN, 0, false};
        if (task->plan->row[i] < 0) continue;
        const float *logits = engine->rows[task->plan->row[i]];
        drawn->forced = next_is_forced(run, &drawn->token);
        if (drawn->forced) continue;
        if (!logits) {
            drawn->status = alea_error_set(&drawn->error, ALEA_ECORE, "the core gave no row");
            continue;
        }
        drawn->status = draw_token(engine, run, logits, scratch, extra, drawn);
        if (drawn->status >= 0 && (p->want_entropy || p->want_rank)) {
            drawn->status = read_report(engine, p, logits, extra, drawn);
        }
    }
}

static void fail_run(alea_run *run, const alea_error *cause, int32_t position) {
    alea_error error;
    alea_error_set(&error, cause->status, "at position %d: %.200s", position, cause->message);
    alea__run_end(run, ALEA_FINISH_ERROR, -1, &error);
}

static void append_token(alea_run *run, int32_t token, bool forced) {
    const alea_request_params *p = &run->request->params;
    run->tokens[run->n_tokens++] = token;
    if (alea__params_penalize(p)) alea__history_add_output(&run->history, token);
    if (!run->thinking) return;
    if (forced) {
        run->n_forced++;
        run->thinking = run->n_forced < p->thinking_close.count;
    } else {
        run->thinking = !tail_is(run, p->thinking_close);
    }
}

static bool is_in(alea_token_list list, int32_t token) {
    for (int32_t i = 0; i < list.count; i++) {
        if (list.tokens[i] == token) return true;
    }
    return false;
}

/* The ends that a commit may clip at: one token decides, so pass it alone when it ends the run. */
static alea_finish ending_of(const alea_engine *engine, const alea_run *run, int32_t token) {
    const alea_request_params *p = &run->request->params;
    if (is_in(p->stop_tokens, token)) return ALEA_FINISH_STOP_TOKEN;
    const alea_token_list ends = {engine->end_tokens, engine->n_end_tokens};
    if (!p->ignore_end && is_in(ends, token)) return ALEA_FINISH_END;
    return ALEA_FINISH_NONE;
}

static alea_status commit_item(alea_engine *engine, alea_plan *plan, int32_t i, alea_error *error) {
    alea_run *run = plan->runs[i];
    const alea_drawn *drawn = &engine->drawn[i];
    const int32_t room = engine->info.context_tokens - run->n_tokens;
    const bool samples = plan->row[i] >= 0;
    const bool first = alea__run_outputs(run) == 0;
    const alea_finish ending =
        samples && !drawn->forced ? ending_of(engine, run, drawn->token) : ALEA_FINISH_NONE;
    const alea_commit commit = {
        .slot = run->slot,
        .epoch = run->epoch,
        .role = first ? ALEA_ROLE_PROMPT : ALEA_ROLE_DECODE,
        .position = run->n_tokens,
        .budget_tokens = run->request->params.max_tokens - alea__run_outputs(run),
        .room_tokens = room > 0 ? room : 0,
        .tokens = &drawn->token,
        .n_tokens = samples ? 1 : 0,
        .forced = drawn->forced ? 1 : 0,
        .end_tokens = &drawn->token,
        .n_end_tokens = ending == ALEA_FINISH_NONE ? 0 : 1,
        .offset = OFFSET_BASE + (uint64_t)alea__run_outputs(run),
    };
    alea_record record;
    const alea_status status =
        alea__commit_write(&engine->completion, plan->frame, &commit, &record, error);
    if (status < 0) return status;
    if (record.count > 0) append_token(run, drawn->token, drawn->forced);
    engine->n_output_tokens += (uint64_t)record.count;
    if (record.status == ALEA_RECORD_END) {
        alea__run_end(run, ending, ending == ALEA_FINISH_STOP_TOKEN ? drawn->token : -1, NULL);
    } else if (record.status == ALEA_RECORD_LENGTH || record.status == ALEA_RECORD_BUDGET) {
        alea__run_end(run, ALEA_FINISH_LENGTH, -1, NULL);
    }
    return ALEA_OK;
}

/* A run that a stop string, a cancel or a deadline ended while the round computed emits nothing. */
static void commit_items(alea_engine *engine, alea_plan *plan) {
    for (int32_t i = 0; i < plan->n_items; i++) {
        alea_run *run = plan->runs[i];
        const int32_t position = run->n_tokens;
        if (run->state != ALEA_RUN_ACTIVE) continue;
        alea_error error = engine->drawn[i].error;
        alea_status status = engine->drawn[i].status;
        if (status >= 0) status = commit_item(engine, plan, i, &error);
        if (status >= 0 && run->request->params.max_tokens == 0 &&
            engine->slots[run->slot].length >= alea__run_prefill(run)) {
            alea__run_end(run, ALEA_FINISH_LENGTH, -1, NULL);
        }
        if (status >= 0) continue;
        alea__engine_note(engine, alea__commit_event(&engine->completion, plan->frame, run->slot,
                                                     run->epoch, ALEA_ROLE_INVALID, position,
                                                     (int32_t)status, NULL));
        fail_run(run, &error, position);
    }
}

static void reduce_items(alea_engine *engine, alea_plan *plan) {
    int32_t n = 0;
    for (int32_t i = 0; i < plan->n_items; i++) {
        if (plan->row[i] < 0 || !plan->lanes[i].logprobs) continue;
        engine->reduce_lanes[n++] = (alea_reduce_lane){
            .slot = plan->lanes[i].slot,
            .epoch = plan->lanes[i].epoch,
            .first_row = plan->row[i],
            .offered_rows = 1,
        };
    }
    if (n == 0) return;
    alea_reduce_batch batch = {.rows = engine->rows,
                               .n_rows = plan->n_rows,
                               .vocab = engine->info.vocab,
                               .lanes = engine->reduce_lanes,
                               .n_lanes = n};
    alea_error error;
    const alea_status status = alea__reduce(engine->kernels, engine->pool, &engine->completion,
                                            plan->frame, &batch, &engine->reduced, &error);
    if (status >= 0) return;
    for (int32_t i = 0; i < plan->n_items; i++) {
        if (plan->lanes[i].logprobs) fail_run(plan->runs[i], &error, plan->runs[i]->n_tokens);
    }
}

void alea__draw_round(alea_engine *engine, alea_plan *plan) {
    for (int32_t r = 0; r < plan->n_rows; r++)
        engine->rows[r] = alea_core_row(engine->core, r);
    draw_task task = {engine, plan, alea__pool_threads(engine->pool)};
    if (task.n_workers > plan->n_items) task.n_workers = plan->n_items;
    alea__pool_run(engine->pool, draw_items, &task, task.n_workers);
    commit_items(engine, plan);
    reduce_items(engine, plan);
    if (plan->scored) alea__reduce_scores(engine, plan);
    alea__pool_rest(engine->pool); /* the core computes next, and needs the processors */
}
