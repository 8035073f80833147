/*
 * What a round computes: one step of every decoding sequence first, then prompt chunks with what
 * is left of the token budget, oldest first. So a long prompt never delays a running answer by more
 * than one round, and the size of a round bounds how long that is. Scored prompts have rounds of
 * their own, which take turns with the others where there are both.
 */
#include "runtime/engine_parts.h"

/* Tokens of the run that its sequence does not hold yet. */
static int32_t tokens_due(const alea_engine *engine, const alea_run *run) {
    return run->n_tokens - engine->slots[run->slot].length;
}

/* One token may be pending in a frame and one is drawn now. */
static bool may_sample(const alea_run *run) {
    return alea__ring_has_room(&run->ring, 2);
}

/* The opaque span at or behind a position of the run's prompt; NULL: none. */
static const alea_opaque *opaque_from(const alea_run *run, int32_t position) {
    const alea_request_params *p = &run->request->params;
    for (int32_t i = 0; i < p->n_opaques; i++) {
        if (p->opaques[i].position >= position) return &p->opaques[i];
    }
    return NULL;
}

/*
 * Tokens of the run to compute now: none before the stored scores of its prompt are with the
 * reader, which come before what follows; and its last one waits for room for its draw. An opaque
 * span is one item, tokens end where one begins: *whole tells that there is no taking less.
 */
static int32_t tokens_ready(const alea_engine *engine, const alea_run *run, bool *whole) {
    const int32_t position = engine->slots[run->slot].length;
    const int32_t fed = alea__run_scores_prompt(run) ? run->request->scores.tail : INT32_MAX;
    *whole = false;
    if (fed < run->n_stored) return 0;
    int32_t ready = tokens_due(engine, run);
    if (run->request->params.max_tokens == 0) {
        ready = alea__run_prefill(run) - position;
    } else if (!may_sample(run)) {
        ready--;
    }
    const alea_opaque *next = opaque_from(run, position);
    if (!next) return ready;
    if (next->position > position) {
        return next->position - position < ready ? next->position - position : ready;
    }
    *whole = true; /* its nulls are with the reader before the score that its last row gives */
    return next->length <= ready && fed >= position + next->length ? next->length : 0;
}

static bool is_decoding(const alea_engine *engine, const alea_run *run) {
    return tokens_due(engine, run) == 1 && alea__run_outputs(run) > 0;
}

/* Append `length` tokens and ask for the rows from index `first_row` of them on. */
static void add_item(alea_engine *engine, alea_plan *plan, alea_run *run, int32_t length,
                     int32_t first_row) {
    alea_slot *slot = &engine->slots[run->slot];
    const alea_request_params *p = &run->request->params;
    const bool samples = length == tokens_due(engine, run) && p->max_tokens > 0;
    const alea_opaque *opaque = opaque_from(run, slot->length);
    if (opaque && opaque->position > slot->length) opaque = NULL;
    const int32_t i = plan->n_items++;
    const int32_t n_rows = length - first_row;
    plan->runs[i] = run;
    plan->row[i] = samples ? plan->n_rows + n_rows - 1 : -1;
    plan->score_row[i] = plan->scored && n_rows > 0 ? plan->n_rows : -1;
    plan->n_rows += n_rows;
    plan->items[i] = (alea_round_item){
        .sequence = run->slot,
        .position = slot->length,
        .first_row = first_row,
        .span = {.kind = opaque ? ALEA_SPAN_OPAQUE : ALEA_SPAN_TOKENS, .length = length},
    };
    if (opaque) {
        plan->items[i].span.opaque = opaque->data;
    } else {
        plan->items[i].span.tokens = run->tokens + slot->length;
    }
    plan->lanes[i] = (alea_lane){
        .slot = run->slot,
        .epoch = run->epoch,
        .logprobs = alea__wants_logprobs(p),
        .n_token_ids = p->selected.count,
        .token_ids = p->selected.tokens,
    };
    slot->last_round = run->planned_round = engine->round;
}

/* The oldest run, not yet planned, that has prompt tokens for this kind of round; NULL: none. */
static alea_run *oldest_prompt(const alea_engine *engine, const alea_plan *plan, int32_t budget) {
    alea_run *oldest = NULL;
    for (int32_t s = 0; s < engine->options.slots; s++) {
        alea_run *run = engine->slots[s].run;
        if (!run || run->state != ALEA_RUN_ACTIVE || is_decoding(engine, run)) continue;
        if (run->planned_round == engine->round) continue;
        if (alea__run_is_scoring(run) != plan->scored) continue;
        if (plan->scored && alea__score_room(run) <= 0) continue;
        bool whole = false;
        const int32_t ready = tokens_ready(engine, run, &whole);
        if (ready <= 0 || (whole && ready > budget)) continue;
        if (!oldest || run->request->arrival < oldest->request->arrival) oldest = run;
    }
    return oldest;
}

static void plan_decoding(alea_engine *engine, alea_plan *plan, int32_t *budget) {
    for (int32_t s = 0; s < engine->options.slots; s++) {
        alea_run *run = engine->slots[s].run;
        if (*budget == 0 || plan->n_rows == engine->info.round_rows) return;
        if (!run || run->state != ALEA_RUN_ACTIVE) continue;
        if (!is_decoding(engine, run) || !may_sample(run)) continue;
        add_item(engine, plan, run, 1, 0);
        --*budget;
    }
}

static void plan_prompts(alea_engine *engine, alea_plan *plan, int32_t budget) {
    while (budget > 0 && plan->n_rows < engine->info.round_rows) {
        alea_run *run = oldest_prompt(engine, plan, budget);
        if (!run) return;
        bool whole = false;
        const int32_t ready = tokens_ready(engine, run, &whole);
        const int32_t length = ready < budget ? ready : budget;
        const bool samples =
            length == tokens_due(engine, run) && run->request->params.max_tokens > 0;
        add_item(engine, plan, run, length, samples ? length - 1 : length);
        budget -= length;
    }
}

/*
 * Every position from the first unscored one on needs its row. Those before it, of a prompt whose
 * run lost its slot or of an opaque span, are computed without.
 */
static void plan_scored(alea_engine *engine, alea_plan *plan, int32_t budget) {
    while (budget > 0 && plan->n_rows < engine->scored_rows) {
        alea_run *run = oldest_prompt(engine, plan, budget);
        if (!run) return;
        bool whole = false;
        int32_t length = tokens_ready(engine, run, &whole);
        const int32_t position = engine->slots[run->slot].length;
        const int32_t bare = run->n_scored - 1 - position;
        const int32_t room = alea__score_room(run);
        int32_t rows = engine->scored_rows - plan->n_rows;
        /* The row of the prompt's last token has no score, so it needs no room for one. */
        if (rows > room && room < run->n_prompt - run->n_scored) rows = room;
        if (length > budget) length = budget;
        if (length > bare + rows) length = bare + rows;
        add_item(engine, plan, run, length, bare < length ? bare : length);
        const int32_t scored = position + length + 1;
        if (scored > run->n_scored) run->n_scored = scored < run->n_prompt ? scored : run->n_prompt;
        budget -= length;
    }
}

bool alea__plan_round(alea_engine *engine, alea_plan *plan) {
    plan->frame = -1;
    for (int32_t turn = 0; turn < 2; turn++) {
        plan->n_items = plan->n_rows = 0;
        plan->scored = (turn == 0) != engine->last_was_scored;
        int32_t budget = engine->options.round_tokens;
        if (plan->scored) {
            plan_scored(engine, plan, budget);
        } else {
            plan_decoding(engine, plan, &budget);
            plan_prompts(engine, plan, budget);
        }
        if (plan->n_items == 0) continue;
        engine->last_was_scored = plan->scored;
        return true;
    }
    return false;
}
