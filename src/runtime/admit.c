/*
 * Who gets a sequence of the core, and what of its old content can stay. An idle slot keeps its
 * tokens: together the idle slots are the prefix cache, and the least recently used one is the
 * first to be written over. Reuse is exact because a batch-invariant row depends on its sequence's
 * tokens alone; a core that does not promise that gives rows of its usual scatter.
 */
#include <string.h>

#include "runtime/engine_parts.h"

/* Runs that may pass by a waiting one, and runs that are looked at for it. */
#define FOLLOWERS_MAX 64

/* By priority, then arrival, then choice: also for a run that has lost its slot. */
static bool comes_before(const alea_run *a, const alea_run *b) {
    const alea_request *x = a->request, *y = b->request;
    if (x->params.priority != y->params.priority) return x->params.priority < y->params.priority;
    return x->arrival != y->arrival ? x->arrival < y->arrival : a->index < b->index;
}

/* From `at` on; returns where what comes after the run may be looked for. */
static alea_run **enqueue(alea_run **at, alea_run *run) {
    while (*at && comes_before(*at, run))
        at = &(*at)->next;
    run->next = *at;
    *at = run;
    return &run->next;
}

/* New requests, in order of arrival; each choice waits on its own. */
static void take_inbox(alea_engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    alea_request *request = engine->inbox;
    engine->inbox = engine->inbox_last = NULL;
    pthread_mutex_unlock(&engine->mutex);
    while (request) {
        alea_request *next = request->next;
        alea_run **at = &engine->waiting;
        for (int32_t i = 0; i < request->params.choices; i++)
            at = enqueue(at, &request->runs[i]);
        request = next;
    }
}

static void count_finish(alea_engine *engine, alea_finish finish) {
    pthread_mutex_lock(&engine->mutex);
    if (finish == ALEA_FINISH_CANCELLED || finish == ALEA_FINISH_DEADLINE) {
        engine->stats.cancelled++;
    } else if (finish == ALEA_FINISH_ERROR) {
        engine->stats.failed++;
    } else {
        engine->stats.finished++;
    }
    pthread_mutex_unlock(&engine->mutex);
}

/*
 * The first reason stands, with two exceptions, both learnt of only when the frame is presented: a
 * stop string in the very token that spent the budget, and an entry that is missing or wrong, which
 * makes a failure of what looked like a proper end.
 */
static bool may_end(alea_finish before, alea_finish now) {
    if (before == ALEA_FINISH_NONE) return true;
    if (now == ALEA_FINISH_STOP) return before == ALEA_FINISH_LENGTH;
    return now == ALEA_FINISH_ERROR && before != ALEA_FINISH_ERROR &&
           before != ALEA_FINISH_CANCELLED && before != ALEA_FINISH_DEADLINE;
}

void alea__run_end(alea_run *run, alea_finish finish, int32_t stop, const alea_error *error) {
    if (!may_end(run->finish, finish)) return;
    run->finish = finish;
    run->stop = stop;
    if (error) run->error = *error;
    run->state = ALEA_RUN_OVER;
}

/* Its content is unknown after a failure, so it must not serve as a prefix. */
void alea__slot_forget(alea_engine *engine, int32_t slot) {
    engine->slots[slot].length = 0;
    engine->slots[slot].n_scores = 1;
    alea_error ignored;
    if (alea_core_sequence_trim(engine->core, slot, 0, &ignored) < 0) {
        /* The core cannot even drop it: leave it out for good rather than compute on it. */
        engine->slots[slot].length = -1;
    }
}

static bool is_due(const alea_run *run, uint64_t now_ns, alea_finish *finish) {
    const alea_request *request = run->request;
    if (atomic_load(&request->cancelled)) {
        *finish = ALEA_FINISH_CANCELLED;
        return true;
    }
    if (request->params.deadline_ns != 0 && now_ns >= request->params.deadline_ns) {
        *finish = ALEA_FINISH_DEADLINE;
        return true;
    }
    return false;
}

/* The request leaves the queue that submission is bounded by: it has a slot, or never will. */
static void begin_request(alea_engine *engine, alea_request *request) {
    if (request->begun) return;
    request->begun = true;
    pthread_mutex_lock(&engine->mutex);
    engine->n_waiting_requests--;
    pthread_mutex_unlock(&engine->mutex);
}

/* Tell the reader that nothing more comes; what a stop string might still have taken back is
 * released, since none can complete now. The engine's hold on a request ends with its last run. */
static void close_run(alea_engine *engine, alea_run *run) {
    alea_request *request = run->request;
    pthread_mutex_lock(&request->mutex);
    run->ring.released = run->ring.tail;
    run->finished = true;
    request->usage.output_tokens += alea__run_outputs(run);
    bool last = true;
    for (int32_t i = 0; i < request->params.choices; i++)
        last &= request->runs[i].finished;
    alea__run_tell(run);
    pthread_mutex_unlock(&request->mutex);
    count_finish(engine, run->finish);
    if (!last) return;
    begin_request(engine, request);
    alea__request_unref(request);
}

bool alea__run_is_pending(const alea_engine *engine, const alea_run *run) {
    if (engine->pending < 0) return false;
    const alea_plan *plan = &engine->plans[engine->pending];
    for (int32_t i = 0; i < plan->n_items; i++) {
        if (plan->runs[i] == run) return true;
    }
    return false;
}

/* Give the slots of ended runs back, once their last frame has been presented. */
static void sweep_slots(alea_engine *engine) {
    for (int32_t s = 0; s < engine->options.slots; s++) {
        alea_run *run = engine->slots[s].run;
        if (!run) continue;
        alea_finish finish;
        if (run->state == ALEA_RUN_ACTIVE && is_due(run, engine->now_ns, &finish)) {
            alea__run_end(run, finish, -1, NULL);
        }
        if (run->state != ALEA_RUN_OVER || alea__run_is_pending(engine, run)) continue;
        engine->slots[s].run = NULL;
        close_run(engine, run);
    }
}

static int32_t common_prefix(const alea_slot *slot, const alea_run *run) {
    /* One token is left to compute: its row is the first answer's. */
    int32_t most = run->n_tokens - 1;
    if (slot->length < most) most = slot->length;
    int32_t n = 0;
    if (slot->salt != run->request->params.cache_salt) return 0;
    /* What an opaque span holds is not among the tokens: no prefix reaches into one. */
    while (n < most && slot->tokens[n] == run->tokens[n] && run->tokens[n] >= 0)
        n++;
    return n;
}

/* An idle slot, the least recently used; -1: none. */
static int32_t idle_slot(const alea_engine *engine) {
    int32_t best = -1;
    for (int32_t s = 0; s < engine->options.slots; s++) {
        const alea_slot *slot = &engine->slots[s];
        if (slot->run || slot->length < 0) continue;
        if (best < 0 || slot->last_round < engine->slots[best].last_round) best = s;
    }
    return best;
}

/* How much of a slot serves a run: common_prefix, or alea__stored_scores for a scored prompt. */
typedef int32_t (*serves_fn)(const alea_slot *slot, const alea_run *run);

/* Idle before running, then the least recently used, whose content is the least missed. */
static bool is_cheaper(const alea_slot *a, const alea_slot *b) {
    if ((a->run == NULL) != (b->run == NULL)) return a->run == NULL;
    return a->last_round < b->last_round;
}

/* The slot that serves the run most, of equals the cheapest; -1: none serves it at all. */
static int32_t best_slot(const alea_engine *engine, const alea_run *run, serves_fn serves,
                         int32_t *most) {
    int32_t best = -1;
    *most = 0;
    for (int32_t s = 0; s < engine->options.slots; s++) {
        const int32_t n = serves(&engine->slots[s], run);
        if (n < *most || n == 0) continue;
        if (n == *most && !is_cheaper(&engine->slots[s], &engine->slots[best])) continue;
        best = s;
        *most = n;
    }
    return best;
}

static bool trim_slot(alea_engine *engine, int32_t s, int32_t length) {
    alea_slot *slot = &engine->slots[s];
    if (length > slot->length) return false;
    if (alea_core_sequence_trim(engine->core, s, length, NULL) < 0) return false;
    slot->length = length;
    if (slot->n_scores > length + 1) slot->n_scores = length + 1;
    return true;
}

static bool copy_slot(alea_engine *engine, int32_t from, int32_t to, int32_t length) {
    if (!trim_slot(engine, to, 0)) return false;
    if (alea_core_sequence_copy(engine->core, from, to, NULL) < 0) return false;
    alea_slot *slot = &engine->slots[to];
    slot->length = engine->slots[from].length;
    memcpy(slot->tokens, engine->slots[from].tokens, (size_t)slot->length * sizeof *slot->tokens);
    if (slot->scores) {
        slot->n_scores = engine->slots[from].n_scores;
        memcpy(slot->scores, engine->slots[from].scores,
               (size_t)slot->n_scores * ALEA_STORED_WORDS * sizeof *slot->scores);
    }
    return trim_slot(engine, to, length);
}

/*
 * Whether an idle slot is cut to its first `length` tokens: it is the one that goes next anyway, or
 * most of it stays. Two texts that share a beginning would otherwise take turns in one slot and
 * find the rest of themselves gone, while other slots lie idle.
 */
static bool may_cut(const alea_engine *engine, int32_t s, int32_t lru, int32_t length) {
    const alea_slot *slot = &engine->slots[s];
    return !slot->run && (s == lru || length >= slot->length - length);
}

/*
 * Choose a slot for the run and keep what it may of its content; -1: all are busy. A prompt to be
 * scored passes by every prefix but one whose scores are there too: then it needs the row of the
 * last scored position, and what lies before that is kept.
 */
static int32_t place_run(alea_engine *engine, alea_run *run, int32_t *cached) {
    int32_t slot = idle_slot(engine);
    if (slot < 0) return -1;
    const bool scores = alea__run_is_scoring(run);
    const bool looks = scores || !engine->options.no_prefix_cache;
    int32_t length = 0;
    const int32_t best =
        looks ? best_slot(engine, run, scores ? alea__stored_scores : common_prefix, &length) : -1;
    const int32_t n_scores = length;
    if (scores && length > 0) length--;
    *cached = 0;
    if (best >= 0 && may_cut(engine, best, slot, length) && trim_slot(engine, best, length)) {
        *cached = length;
        slot = best;
    } else if (best >= 0 && best != slot && length >= ALEA_PREFIX_MIN_TOKENS &&
               copy_slot(engine, best, slot, length)) {
        *cached = length;
    } else {
        alea__slot_forget(engine, slot);
        if (engine->slots[slot].length != 0) return -1;
    }
    engine->slots[slot].salt = run->request->params.cache_salt;
    if (scores) {
        const int32_t published = run->request->scores.tail;
        run->n_stored = *cached > 0 ? n_scores : 1;
        run->n_scored = run->n_stored > published ? run->n_stored : published;
    }
    return slot;
}

/* Choices after the first wait until it has computed the prompt, which they then copy; so does a
 * scored prompt for the part that another one is having scored. */
static bool must_wait(const alea_engine *engine, const alea_run *run) {
    if (run->index == 0) return alea__scores_are_coming(engine, run);
    if (engine->options.no_prefix_cache) return false;
    const alea_run *first = &run->request->runs[0];
    if (first->state == ALEA_RUN_WAITING) return true;
    return first->state == ALEA_RUN_ACTIVE &&
           engine->slots[first->slot].length < alea__run_prefill(first);
}

static void start_run(alea_engine *engine, alea_run *run, int32_t s, int32_t cached) {
    alea_slot *slot = &engine->slots[s];
    slot->run = run;
    slot->epoch++;
    slot->last_round = engine->round;
    run->slot = s;
    run->epoch = slot->epoch;
    run->state = ALEA_RUN_ACTIVE;
    begin_request(engine, run->request);
    if (run->placed) return; /* again: what it finds of itself is no reuse */
    run->placed = true;
    if (run->index == 0) {
        pthread_mutex_lock(&run->request->mutex);
        run->request->usage.cached_tokens = cached;
        pthread_mutex_unlock(&run->request->mutex);
    }
    pthread_mutex_lock(&engine->mutex);
    engine->stats.cached_tokens += (uint64_t)cached;
    pthread_mutex_unlock(&engine->mutex);
}

/* The running choice that comes last, if it has a larger priority number; NULL: none. */
static alea_run *victim_of(const alea_engine *engine, const alea_run *run) {
    alea_run *last = NULL;
    for (int32_t s = 0; s < engine->options.slots; s++) {
        alea_run *other = engine->slots[s].run;
        if (!other || other->state != ALEA_RUN_ACTIVE) continue;
        if (!last || comes_before(last, other)) last = other;
    }
    const bool lower = last && last->request->params.priority > run->request->params.priority;
    return lower ? last : NULL;
}

/*
 * Take the slot of a choice that matters less. It waits again and later goes on where it was: its
 * tokens and the place of its random stream are its own, and what its reader has or will get of
 * the last frame stays.
 */
static bool preempt_for(alea_engine *engine, const alea_run *run) {
    alea_run *victim = victim_of(engine, run);
    if (!victim) return false;
    alea__present_pending(engine);
    if (victim->state == ALEA_RUN_OVER) { /* by what the frame held */
        sweep_slots(engine);
        return true;
    }
    engine->slots[victim->slot].run = NULL;
    victim->slot = -1;
    victim->state = ALEA_RUN_WAITING;
    victim->n_stored = 1;
    if (alea__run_scores_prompt(victim)) victim->n_scored = victim->request->scores.tail;
    engine->n_preempted++;
    enqueue(&engine->waiting, victim);
    return true;
}

/* Its scores lie in a slot that nobody holds, and whoever came first would write over them. */
static bool has_scores_waiting(const alea_engine *engine, const alea_run *run) {
    if (!alea__run_is_scoring(run)) return false;
    int32_t n_scores = 0;
    const int32_t best = best_slot(engine, run, alea__stored_scores, &n_scores);
    return best >= 0 && n_scores >= ALEA_PREFIX_MIN_TOKENS && !engine->slots[best].run;
}

/*
 * Scored prompts that go on where an idle slot ended go first, so that the answers to one question
 * follow each other in one slot. They pass by a run of their own priority FOLLOWERS_MAX times, and
 * only the beginning of the list is looked through: the search costs comparing tokens.
 */
static void start_followers(alea_engine *engine) {
    alea_run **at = &engine->waiting;
    alea_run *first = NULL; /* the one that is passed by */
    for (int32_t i = 0; *at && i < FOLLOWERS_MAX && idle_slot(engine) >= 0; i++) {
        alea_run *run = *at;
        alea_finish finish;
        int32_t cached = 0;
        if (first && first->request->params.priority != run->request->params.priority) return;
        const bool ready = !is_due(run, engine->now_ns, &finish) &&
                           run->state == ALEA_RUN_WAITING && !must_wait(engine, run);
        const int32_t slot =
            ready && has_scores_waiting(engine, run) ? place_run(engine, run, &cached) : -1;
        if (slot >= 0) {
            *at = run->next;
            start_run(engine, run, slot, cached);
            if (first && ++first->passed_by == FOLLOWERS_MAX) return;
            continue;
        }
        if (ready && !first) first = run;
        if (first && first->passed_by == FOLLOWERS_MAX) return;
        at = &run->next;
    }
}

/* False: the core could not even drop what failed rounds left, in any of them. */
static bool has_sound_slot(const alea_engine *engine) {
    for (int32_t s = 0; s < engine->options.slots; s++) {
        if (engine->slots[s].length >= 0) return true;
    }
    return false;
}

/* No slot will ever be free for it. */
static void end_unplaced(alea_run *run) {
    alea_error error;
    alea_error_set(&error, ALEA_ECORE, "the core has no sequence left that it can use");
    alea__run_end(run, ALEA_FINISH_ERROR, -1, &error);
}

/*
 * In order of the list; a waiting sibling lets later requests pass, a lack of slots does not. What
 * was cancelled or is overdue ends wherever it stands: its place in the queue is free again.
 */
static void start_waiting(alea_engine *engine) {
    alea_run **at = &engine->waiting;
    const bool broken = !has_sound_slot(engine);
    bool full = false;
    while (*at) {
        alea_run *run = *at;
        alea_finish finish;
        if (is_due(run, engine->now_ns, &finish)) alea__run_end(run, finish, -1, NULL);
        if (broken) end_unplaced(run);
        if (run->state == ALEA_RUN_OVER) {
            *at = run->next;
            close_run(engine, run);
            continue;
        }
        int32_t cached = 0;
        const bool waits = full || must_wait(engine, run);
        int32_t slot = waits ? -1 : place_run(engine, run, &cached);
        if (slot < 0 && !waits && preempt_for(engine, run)) slot = place_run(engine, run, &cached);
        if (slot < 0) {
            full |= !waits;
            at = &run->next;
            continue;
        }
        *at = run->next;
        start_run(engine, run, slot, cached);
    }
}

void alea__admit(alea_engine *engine) {
    take_inbox(engine);
    sweep_slots(engine);
    start_followers(engine);
    start_waiting(engine);
}
