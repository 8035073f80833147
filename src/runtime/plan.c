/*
 * What a round computes: one step of every decoding sequence first, then prompt chunks with what
 * is left of the token budget, oldest first. So a long prompt never delays a running answer by more
 * than one round, and the size of a round bounds how long that is.
 */
#include "runtime/engine_parts.h"

/* Tokens of the run that its sequence does not hold yet. */
static int32_t tokens_due(const alea_engine *engine, const alea_run *run) {
    return run->n_tokens - engine->slots[run->slot].length;
}

/* One token may be pending in a frame and one is drawn now. */
static bool may_run(const alea_engine *engine, const alea_run *run) {
    if (!run || run->state != ALEA_RUN_ACTIVE) return false;
    return run->request->params.max_tokens == 0 || alea__ring_has_room(&run->ring, 2) ||
           tokens_due(engine, run) > 1;
}

static bool is_decoding(const alea_engine *engine, const alea_run *run) {
    return tokens_due(engine, run) == 1 && alea__run_outputs(run) > 0;
}

static void add_item(alea_engine *engine, alea_plan *plan, alea_run *run, int32_t length) {
    alea_slot *slot = &engine->slots[run->slot];
    const bool samples = length == tokens_due(engine, run) && run->request->params.max_tokens > 0;
    const int32_t i = plan->n_items++;
    plan->runs[i] = run;
    plan->row[i] = samples ? plan->n_rows++ : -1;
    plan->items[i] = (alea_round_item){
        .sequence = run->slot,
        .position = slot->length,
        .first_row = samples ? length - 1 : length,
        .span = {.kind = ALEA_SPAN_TOKENS, .length = length, .tokens = run->tokens + slot->length},
    };
    plan->lanes[i] = (alea_lane){
        .slot = run->slot,
        .epoch = run->epoch,
        .logprobs = alea__wants_logprobs(&run->request->params),
        .n_token_ids = run->request->params.selected.count,
        .token_ids = run->request->params.selected.tokens,
    };
    slot->last_round = engine->round;
}

static void add_prompts(alea_engine *engine, alea_plan *plan, int32_t budget) {
    /* Oldest epochs would need a sort; the order of arrival of a handful of slots is enough. */
    while (budget > 0 && plan->n_rows < engine->info.round_rows) {
        alea_run *oldest = NULL;
        for (int32_t s = 0; s < engine->options.slots; s++) {
            alea_run *run = engine->slots[s].run;
            if (!may_run(engine, run) || is_decoding(engine, run)) continue;
            bool planned = false;
            for (int32_t i = 0; i < plan->n_items; i++)
                planned |= plan->runs[i] == run;
            if (planned) continue;
            if (!oldest || run->request->arrival < oldest->request->arrival) oldest = run;
        }
        if (!oldest) return;
        const int32_t due = tokens_due(engine, oldest);
        const int32_t length = due < budget ? due : budget;
        add_item(engine, plan, oldest, length);
        budget -= length;
    }
}

bool alea__plan_round(alea_engine *engine, alea_plan *plan) {
    plan->n_items = plan->n_rows = 0;
    plan->frame = -1;
    int32_t budget = engine->options.round_tokens;
    for (int32_t s = 0; s < engine->options.slots && budget > 0; s++) {
        alea_run *run = engine->slots[s].run;
        if (!may_run(engine, run) || !is_decoding(engine, run)) continue;
        if (plan->n_rows == engine->info.round_rows) break;
        add_item(engine, plan, run, 1);
        budget--;
    }
    add_prompts(engine, plan, budget);
    return plan->n_items > 0;
}
