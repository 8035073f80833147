/*
 * Scored prompts: which rows their rounds need, how scores get from a frame to the reader, and the
 * cache that keeps them with the sequence they belong to. Positions are published strictly in
 * order and once, however often the run lost its slot in between: the ring's tail is the next one.
 *
 * What is stored is the packed score of the frame, so that a cached position has the bits that the
 * first computation reported; a score is reused only where the whole text before it is the same.
 */
#include <math.h>
#include <string.h>

#include "contract/payload.h"
#include "runtime/engine_parts.h"

bool alea__run_scores_prompt(const alea_run *run) {
    return run->index == 0 && run->request->scores.capacity > 0;
}

bool alea__run_is_scoring(const alea_run *run) {
    return alea__run_scores_prompt(run) && run->n_scored < run->n_prompt;
}

int32_t alea__score_room(const alea_run *run) {
    const alea_score_ring *ring = &run->request->scores;
    return ring->capacity - (run->n_scored - atomic_load(&ring->head));
}

static int32_t *stored_at(const alea_slot *slot, int32_t position) {
    return slot->scores + (size_t)position * ALEA_STORED_WORDS;
}

static bool may_reuse(const alea_run *run) {
    const alea_request_params *p = &run->request->params;
    return !p->no_scored_cache && p->selected.count == 0;
}

int32_t alea__stored_scores(const alea_slot *slot, const alea_run *run) {
    if (!slot->scores || !may_reuse(run) || slot->length < 1) return 0;
    if (slot->salt != run->request->params.cache_salt) return 0;
    if (slot->tokens[0] != run->tokens[0] || run->tokens[0] < 0) return 0;
    const int32_t most = slot->n_scores < run->n_prompt ? slot->n_scores : run->n_prompt;
    int32_t n = 1;
    while (n < most && stored_at(slot, n)[0] == run->tokens[n])
        n++;
    return n > 1 ? n : 0;
}

/*
 * Scores of the slot's run are on their way into the slot: in the frame that is presented next, or
 * in rounds to come, if its reader takes what it gets. After a run lost a slot the new one has no
 * scores of what was published before, and gets none of what follows.
 */
static bool is_coming_forward(const alea_engine *engine, const alea_slot *slot) {
    const alea_run *run = slot->run;
    if (!run || !alea__run_scores_prompt(run)) return false;
    if (slot->n_scores < run->request->scores.tail || run->n_scored < slot->n_scores) return false;
    if (alea__run_is_pending(engine, run)) return true;
    return run->state == ALEA_RUN_ACTIVE && alea__run_is_scoring(run) && alea__score_room(run) > 0;
}

bool alea__scores_are_coming(const alea_engine *engine, const alea_run *run) {
    if (!alea__run_is_scoring(run) || !may_reuse(run)) return false;
    for (int32_t s = 0; s < engine->options.slots; s++) {
        const alea_slot *slot = &engine->slots[s];
        if (!slot->scores || !is_coming_forward(engine, slot)) continue;
        if (slot->salt != run->request->params.cache_salt) continue;
        const alea_run *other = slot->run;
        const int32_t most = other->n_prompt < run->n_prompt ? other->n_prompt : run->n_prompt;
        int32_t common = 0;
        while (common < most && other->tokens[common] == run->tokens[common] &&
               run->tokens[common] >= 0) {
            common++;
        }
        if (common >= ALEA_PREFIX_MIN_TOKENS && slot->n_scores < common) return true;
    }
    return false;
}

/* The ring has room for it; the request's mutex is held. */
static void push(alea_run *run, const alea_score *score, bool is_greedy) {
    alea_score_ring *ring = &run->request->scores;
    const size_t at = (size_t)(ring->tail % ring->capacity);
    const int32_t n = score->n_alternatives < ring->width ? score->n_alternatives : ring->width;
    ring->entries[at] = (alea_score_entry){.token = run->tokens[ring->tail],
                                           .rank = score->rank,
                                           .logprob = score->logprob,
                                           .is_greedy = is_greedy,
                                           .n_alternatives = n};
    memcpy(ring->alternatives + at * (size_t)ring->width, score->alternatives,
           (size_t)n * sizeof *score->alternatives);
    ring->tail++;
}

static void store(alea_slot *slot, int32_t position, const int32_t *words, int32_t greedy) {
    if (!slot->scores || slot->n_scores != position) return;
    memcpy(stored_at(slot, position), words, ALEA_SCORE_WORDS * sizeof *words);
    stored_at(slot, position)[ALEA_SCORE_WORDS] = greedy;
    slot->n_scores++;
}

/* The next position needs no row: it is stored, or there is nothing to score. */
static bool is_feedable(const alea_run *run) {
    const int32_t position = run->request->scores.tail;
    if (position == run->n_prompt) return false;
    return position < run->n_stored || run->tokens[position] < 0;
}

/* Position 0, which has nothing before it, what the slot has stored, and opaque positions. */
static alea_status feed(alea_engine *engine, alea_run *run, alea_error *error) {
    alea_score_ring *ring = &run->request->scores;
    const alea_slot *slot = &engine->slots[run->slot];
    while (is_feedable(run) && ring->tail - atomic_load(&ring->head) < ring->capacity) {
        const int32_t position = ring->tail;
        alea_score score = {.token = run->tokens[position], .logprob = NAN};
        bool is_greedy = false;
        if (position > 0 && score.token >= 0) {
            const int32_t *words = stored_at(slot, position);
            const alea_status status =
                alea__score_read(words, run->tokens[position], position, &score, error);
            if (status < 0) return status;
            is_greedy = words[ALEA_SCORE_WORDS] == score.token;
        }
        push(run, &score, is_greedy);
        if (run->n_scored < ring->tail) run->n_scored = ring->tail;
    }
    return ALEA_OK;
}

/* A run without output is over when its scores are there, or its sequence where it has none. */
static bool is_over(const alea_engine *engine, const alea_run *run) {
    if (run->request->params.max_tokens > 0) return false;
    if (alea__run_scores_prompt(run)) return run->request->scores.tail == run->n_prompt;
    return engine->slots[run->slot].length >= alea__run_prefill(run);
}

bool alea__feed_scores(alea_engine *engine) {
    bool done = false;
    for (int32_t s = 0; s < engine->options.slots; s++) {
        alea_run *run = engine->slots[s].run;
        if (!run || run->state != ALEA_RUN_ACTIVE) continue;
        alea_score_ring *ring = &run->request->scores;
        alea_error error;
        alea_status status = ALEA_OK;
        if (alea__run_scores_prompt(run) && is_feedable(run)) {
            const int32_t before = ring->tail;
            pthread_mutex_lock(&run->request->mutex);
            status = feed(engine, run, &error);
            if (ring->tail > before) alea__run_tell(run);
            done |= ring->tail > before;
            pthread_mutex_unlock(&run->request->mutex);
        }
        if (status >= 0 && !is_over(engine, run)) continue;
        alea__run_end(run, status < 0 ? ALEA_FINISH_ERROR : ALEA_FINISH_LENGTH, -1,
                      status < 0 ? &error : NULL);
        done = true;
    }
    return done;
}

alea_status alea__begin_scores(alea_engine *engine, const alea_plan *plan, alea_error *error) {
    for (int32_t i = 0; i < plan->n_items; i++) {
        if (plan->score_row[i] < 0) continue;
        const alea_round_item *item = &plan->items[i];
        const int32_t n_rows = item->span.length - item->first_row;
        const alea_status status = alea__scoring_begin(
            &engine->completion, plan->frame, plan->score_row[i], plan->runs[i]->tokens,
            plan->runs[i]->n_prompt, item->position + item->first_row, n_rows, n_rows, error);
        if (status < 0) return status;
    }
    return ALEA_OK;
}

void alea__reduce_scores(alea_engine *engine, alea_plan *plan) {
    for (int32_t first = 0; first < plan->n_rows; first += ALEA_SCORED_BLOCK_ROWS) {
        const int32_t left = plan->n_rows - first;
        const int32_t n = left < ALEA_SCORED_BLOCK_ROWS ? left : ALEA_SCORED_BLOCK_ROWS;
        alea__engine_note(engine,
                          alea__scoring_reduce(engine->kernels, engine->pool, &engine->completion,
                                               plan->frame, first, n, engine->rows + first,
                                               engine->info.vocab, plan->greedy + first, NULL));
    }
}

alea_status alea__present_scores(alea_engine *engine, alea_plan *plan, int32_t i,
                                 alea_error *error) {
    if (plan->score_row[i] < 0) return ALEA_OK;
    alea_run *run = plan->runs[i];
    const alea_round_item *item = &plan->items[i];
    const int32_t n_rows = item->span.length - item->first_row;
    for (int32_t j = 0; j < n_rows; j++) {
        const int32_t position = item->position + item->first_row + j + 1;
        if (position >= run->n_prompt) return ALEA_OK;
        if (run->tokens[position] < 0) continue; /* fed, not scored */
        const int32_t row = plan->score_row[i] + j;
        alea_score score;
        const alea_status status = alea__scoring_read(
            &engine->completion, plan->frame, row, run->tokens[position], position, &score, error);
        if (status < 0) return status;
        push(run, &score, plan->greedy[row] == score.token);
        store(&engine->slots[run->slot], position,
              alea__scoring_row(&engine->completion, plan->frame, row), plan->greedy[row]);
        engine->n_scored_positions++;
    }
    return ALEA_OK;
}
