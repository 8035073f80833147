/*
 * The engine's life, its threads and the order of a step: admit, plan, compute while the last
 * frame is presented, draw. All memory that rounds need is one block taken at creation.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "runtime/engine_parts.h"
#include "runtime/wait.h"

static alea_status check_options(const alea_core_info *info, alea_engine_options *options,
                                 alea_error *error) {
    if (options->slots < 0 || options->round_tokens < 0 || options->queue_requests < 0 ||
        options->queue_tokens < 0 || options->threads < 0) {
        return alea_error_set(error, ALEA_EINVAL, "an engine option is negative");
    }
    if (options->slots == 0) options->slots = info->sequences;
    if (options->round_tokens == 0) options->round_tokens = info->round_tokens;
    if (options->brief_rows == 0) options->brief_rows = 4;
    if (options->queue_requests == 0) options->queue_requests = 1024;
    if (options->queue_tokens == 0) options->queue_tokens = 256;
    if (options->slots > info->sequences || options->slots > ALEA_SLOTS_MAX) {
        return alea_error_set(error, ALEA_EINVAL, "%d slots: the core has %d sequences",
                              options->slots, info->sequences);
    }
    if (options->round_tokens > info->round_tokens) {
        return alea_error_set(error, ALEA_EINVAL, "rounds of %d tokens: the core takes %d",
                              options->round_tokens, info->round_tokens);
    }
    return ALEA_OK;
}

/* Where nothing is said, two rounds besides: one is read while the next is computed, so that a
 * reader who keeps up never makes a round smaller. */
static int32_t queue_scores(const alea_engine *engine, const alea_engine_options *asked) {
    const int32_t queue = engine->options.queue_tokens, rounds = 2 * engine->scored_rows;
    return asked->queue_tokens == 0 && rounds > queue ? rounds : queue;
}

/* What the core offers, less what the options leave out. */
static alea_status check_capability(alea_engine *engine, alea_error *error) {
    const alea_engine_options *options = &engine->options;
    const int32_t rows = engine->info.round_rows < options->round_tokens ? engine->info.round_rows
                                                                         : options->round_tokens;
    const alea_status status =
        alea__core_capability(engine->core, options->slots, options->prompt_logprobs ? rows : 0,
                              &engine->capability, error);
    if (status < 0) return status;
    engine->scored_rows = engine->capability.allow_prompt_logprobs ? rows : 0;
    if (options->scored_cache == ALEA_SCORED_CACHE_ON && !engine->info.batch_invariant) {
        return alea_error_set(
            error, ALEA_EUNSUPPORTED,
            "the scored cache needs a core whose rows do not depend on the batch");
    }
    return ALEA_OK;
}

/* One piece of the engine's block; counts only while base is NULL. */
static void *piece(uint8_t *base, size_t *used, size_t count, size_t element_bytes) {
    void *at = base ? base + *used : NULL;
    size_t bytes = 0, end = 0;
    if (!alea__size_mul(count, element_bytes, &bytes) || !alea__size_add(*used, bytes, &end) ||
        !alea__size_align(end, 64, &end)) {
        end = SIZE_MAX;
    }
    *used = *used == SIZE_MAX ? SIZE_MAX : end;
    return at;
}

static bool has_scored_cache(const alea_engine *engine) {
    return engine->scored_rows > 0 && engine->info.batch_invariant &&
           engine->options.scored_cache != ALEA_SCORED_CACHE_OFF;
}

static void lay_out_slots(alea_engine *engine, uint8_t *base, size_t *used) {
    const size_t slots = (size_t)engine->options.slots;
    const size_t context = (size_t)engine->info.context_tokens;
    const size_t stored = has_scored_cache(engine) ? (context + 1) * ALEA_STORED_WORDS : 0;
    engine->slots = piece(base, used, slots, sizeof *engine->slots);
    for (size_t s = 0; s < slots; s++) {
        int32_t *tokens = piece(base, used, context, sizeof *tokens);
        int32_t *scores = piece(base, used, stored, sizeof *scores);
        if (!base) continue;
        engine->slots[s] =
            (alea_slot){.tokens = tokens, .scores = stored > 0 ? scores : NULL, .n_scores = 1};
    }
}

static size_t lay_out(alea_engine *engine, uint8_t *base) {
    const size_t slots = (size_t)engine->options.slots;
    const size_t rows = (size_t)engine->info.round_rows;
    const size_t workers = (size_t)alea__pool_threads(engine->pool);
    size_t used = 0;
    lay_out_slots(engine, base, &used);
    for (int32_t f = 0; f < ALEA_FRAMES; f++) {
        alea_plan *plan = &engine->plans[f];
        plan->runs = piece(base, &used, slots, sizeof *plan->runs);
        plan->items = piece(base, &used, slots, sizeof *plan->items);
        plan->row = piece(base, &used, slots, sizeof *plan->row);
        plan->score_row = piece(base, &used, slots, sizeof *plan->score_row);
        plan->greedy = piece(base, &used, (size_t)engine->scored_rows, sizeof *plan->greedy);
        plan->lanes = piece(base, &used, slots, sizeof *plan->lanes);
        plan->extras = piece(base, &used, slots, sizeof *plan->extras);
        plan->frame = -1;
    }
    engine->rows = piece(base, &used, rows > slots ? rows : slots, sizeof *engine->rows);
    engine->drawn = piece(base, &used, slots, sizeof *engine->drawn);
    engine->reduce_lanes = piece(base, &used, slots, sizeof *engine->reduce_lanes);
    engine->scratch =
        piece(base, &used, workers * (size_t)engine->info.vocab, sizeof *engine->scratch);
    engine->end_tokens = piece(base, &used, (size_t)engine->n_end_tokens, sizeof(int32_t));
    return used;
}

static int32_t find_end_tokens(const alea_engine *engine, int32_t *tokens) {
    int32_t n = 0;
    for (int32_t token = 0; token < engine->info.vocab; token++) {
        alea_token_info info;
        if (alea_core_token(engine->core, token, &info) < 0) continue;
        if (!(info.flags & ALEA_TOKEN_END)) continue;
        if (tokens) tokens[n] = token;
        n++;
    }
    return n;
}

static alea_status allocate(alea_engine *engine, alea_error *error) {
    engine->n_end_tokens = find_end_tokens(engine, NULL);
    engine->block_bytes = lay_out(engine, NULL);
    if (engine->block_bytes == SIZE_MAX) {
        return alea_error_set(error, ALEA_ELIMIT, "the engine's buffers exceed this machine");
    }
    engine->block = aligned_alloc(64, engine->block_bytes);
    if (!engine->block) {
        return alea_error_set(error, ALEA_ENOMEM, "no memory for %zu bytes of engine buffers",
                              engine->block_bytes);
    }
    memset(engine->block, 0, engine->block_bytes);
    lay_out(engine, engine->block);
    find_end_tokens(engine, engine->end_tokens);
    alea_status status = alea__completion_allocate(engine->options.slots, 0, engine->scored_rows,
                                                   &engine->completion, error);
    if (status < 0) return status;
    alea__frames_init(&engine->frames, engine->info.vocab, &engine->completion, NULL, NULL);
    engine->stats.slots = engine->options.slots;
    engine->stats.memory_bytes = engine->block_bytes + engine->completion.block_bytes;
    return ALEA_OK;
}

static void *present_rounds(void *user) {
    alea_engine *engine = user;
    pthread_mutex_lock(&engine->presenter_mutex);
    for (;;) {
        while (engine->presenter_state == ALEA_PRESENTER_IDLE) {
            pthread_cond_wait(&engine->presenter_cond, &engine->presenter_mutex);
        }
        if (engine->presenter_state == ALEA_PRESENTER_QUIT) break;
        engine->presenter_state = ALEA_PRESENTER_BUSY;
        pthread_mutex_unlock(&engine->presenter_mutex);
        alea__present_pending(engine);
        pthread_mutex_lock(&engine->presenter_mutex);
        engine->presenter_state = ALEA_PRESENTER_IDLE;
        pthread_cond_broadcast(&engine->presenter_cond);
    }
    pthread_mutex_unlock(&engine->presenter_mutex);
    return NULL;
}

static void presenter_begin(alea_engine *engine) {
    pthread_mutex_lock(&engine->presenter_mutex);
    engine->presenter_state = ALEA_PRESENTER_ASKED;
    pthread_cond_broadcast(&engine->presenter_cond);
    pthread_mutex_unlock(&engine->presenter_mutex);
}

/* Waits only for one that has begun: on busy processors it may not have woken yet. */
static void presenter_finish(alea_engine *engine) {
    pthread_mutex_lock(&engine->presenter_mutex);
    if (engine->presenter_state == ALEA_PRESENTER_ASKED)
        engine->presenter_state = ALEA_PRESENTER_IDLE;
    while (engine->presenter_state == ALEA_PRESENTER_BUSY) {
        pthread_cond_wait(&engine->presenter_cond, &engine->presenter_mutex);
    }
    pthread_mutex_unlock(&engine->presenter_mutex);
}

static void presenter_quit(alea_engine *engine) {
    if (!engine->has_presenter) return;
    pthread_mutex_lock(&engine->presenter_mutex);
    engine->presenter_state = ALEA_PRESENTER_QUIT;
    pthread_cond_broadcast(&engine->presenter_cond);
    pthread_mutex_unlock(&engine->presenter_mutex);
    pthread_join(engine->presenter, NULL);
    engine->has_presenter = false;
}

static void free_parts(alea_engine *engine) {
    presenter_quit(engine);
    alea__completion_free(&engine->completion);
    alea__pool_destroy(engine->pool);
    free(engine->block);
}

alea_status alea__engine_create(alea_core *core, const alea_engine_options *options,
                                alea_engine **out, alea_error *error) {
    alea_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return alea_error_set(error, ALEA_ENOMEM, "no memory for an engine");
    engine->core = core;
    engine->options = *options;
    engine->pending = -1;
    engine->kernels = alea__kernels();
    alea_core_describe(core, &engine->info);
    alea_status status = check_options(&engine->info, &engine->options, error);
    if (status >= 0) status = check_capability(engine, error);
    engine->queue_scores = queue_scores(engine, options);
    if (status >= 0) {
        status = alea__pool_create(engine->options.threads, &engine->pool);
        if (status < 0) alea_error_set(error, status, "no memory for the engine's threads");
    }
    if (status >= 0) status = allocate(engine, error);
    if (status >= 0) {
        pthread_mutex_init(&engine->mutex, NULL);
        alea__wait_init(&engine->work);
        pthread_mutex_init(&engine->presenter_mutex, NULL);
        pthread_cond_init(&engine->presenter_cond, NULL);
        atomic_init(&engine->references, 1);
        if (!engine->options.no_overlap) {
            engine->has_presenter =
                pthread_create(&engine->presenter, NULL, present_rounds, engine) == 0;
        }
        *out = engine;
        return ALEA_OK;
    }
    free_parts(engine);
    free(engine);
    return status;
}

void alea__engine_unref(alea_engine *engine) {
    if (atomic_fetch_sub(&engine->references, 1) != 1) return;
    pthread_cond_destroy(&engine->presenter_cond);
    pthread_mutex_destroy(&engine->presenter_mutex);
    pthread_cond_destroy(&engine->work);
    pthread_mutex_destroy(&engine->mutex);
    free(engine);
}

/* The sequences of the round hold an unspecified part of it: drop them, and end their runs, but for
 * those that a stop string ended meanwhile: what the round gave would have been dropped. */
static void fail_round(alea_engine *engine, alea_plan *plan, const alea_error *error) {
    for (int32_t i = 0; i < plan->n_items; i++) {
        alea_run *run = plan->runs[i];
        alea_error named;
        alea_error_set(&named, error->status, "at position %d: %.200s", plan->items[i].position,
                       error->message);
        alea__slot_forget(engine, run->slot);
        if (run->state == ALEA_RUN_ACTIVE) alea__run_end(run, ALEA_FINISH_ERROR, -1, &named);
    }
    alea__engine_note(engine, alea__frames_abandon(&engine->frames, plan->frame, NULL));
    plan->frame = -1;
}

static void record_computed(alea_engine *engine, const alea_plan *plan) {
    uint64_t prompt = 0;
    for (int32_t i = 0; i < plan->n_items; i++) {
        const alea_round_item *item = &plan->items[i];
        alea_slot *slot = &engine->slots[item->sequence];
        memcpy(slot->tokens + slot->length, plan->runs[i]->tokens + slot->length,
               (size_t)item->span.length * sizeof *slot->tokens);
        slot->length += item->span.length;
        const int32_t left = plan->runs[i]->n_prompt - item->position;
        if (left > 0) prompt += (uint64_t)(left < item->span.length ? left : item->span.length);
    }
    pthread_mutex_lock(&engine->mutex);
    engine->stats.rounds++;
    engine->stats.prompt_tokens += prompt;
    pthread_mutex_unlock(&engine->mutex);
}

void alea__present_pending(alea_engine *engine) {
    if (engine->pending < 0) return;
    alea_plan *plan = &engine->plans[engine->pending];
    alea__present_round(engine, plan);
    engine->pending = -1;
}

/* Few rows are presented in less time than it takes to wake the presenter, who then takes a
 * processor from the core just when it begins. */
static bool is_brief(const alea_engine *engine, const alea_plan *plan) {
    return plan->n_items <= engine->options.brief_rows && !plan->scored;
}

/* Compute the plan. The last frame is presented meanwhile by a thread of its own, or afterwards
 * here where that one has not woken: the core waits for nobody. */
static alea_status compute(alea_engine *engine, alea_plan *plan, alea_error *error) {
    const alea_round round = {.items = plan->items, .n_items = plan->n_items};
    const bool beside = engine->has_presenter && engine->pending >= 0;
    int32_t n_rows = 0;
    alea_status status = alea_core_submit(engine->core, &round, &n_rows, error);
    if (status < 0) return status;
    if (beside) presenter_begin(engine);
    status = alea_core_wait(engine->core, error);
    if (beside) presenter_finish(engine);
    alea__present_pending(engine);
    return status;
}

static void refresh_stats(alea_engine *engine) {
    int32_t running = 0;
    for (int32_t s = 0; s < engine->options.slots; s++)
        running += engine->slots[s].run != NULL;
    pthread_mutex_lock(&engine->mutex);
    engine->stats.running = running;
    engine->stats.waiting = engine->n_waiting_requests;
    engine->stats.output_tokens = engine->n_output_tokens;
    engine->stats.reduced_positions = (uint64_t)engine->reduced.positions;
    engine->stats.scored_positions = engine->n_scored_positions;
    engine->stats.preempted = engine->n_preempted;
    pthread_mutex_unlock(&engine->mutex);
}

/* A frame that cannot be opened or closed is a fault of this file: end its runs, loudly. */
static bool begin_frame(alea_engine *engine, alea_plan *plan) {
    alea_error error;
    alea_status status =
        alea__frames_begin(&engine->frames, plan->lanes, plan->n_items, &plan->frame, &error);
    if (status >= 0) {
        status = alea__begin_scores(engine, plan, &error);
        if (status >= 0) return true;
        alea__engine_note(engine, alea__frames_abandon(&engine->frames, plan->frame, NULL));
    }
    for (int32_t i = 0; i < plan->n_items; i++) {
        alea__run_end(plan->runs[i], ALEA_FINISH_ERROR, -1, &error);
    }
    return false;
}

/* After a fault of our own nothing computed can be trusted. */
static void fail_all(alea_engine *engine) {
    alea_error error;
    alea_error_set(&error, engine->fault, "the engine broke its own contract: %s",
                   alea_status_text(engine->fault));
    for (int32_t s = 0; s < engine->options.slots; s++) {
        alea_run *run = engine->slots[s].run;
        if (run) alea__run_end(run, ALEA_FINISH_ERROR, -1, &error);
    }
    for (alea_run *run = engine->waiting; run; run = run->next) {
        alea__run_end(run, ALEA_FINISH_ERROR, -1, &error);
    }
}

alea_status alea__engine_step(alea_engine *engine, uint64_t now_ns) {
    engine->now_ns = now_ns;
    engine->round++;
    const bool had_pending = engine->pending >= 0;
    alea__admit(engine);
    const bool fed = alea__feed_scores(engine);
    alea_plan *plan = &engine->plans[engine->active];
    if (engine->fault < 0) fail_all(engine);
    if (engine->fault < 0 || !alea__plan_round(engine, plan)) {
        alea__present_pending(engine);
        alea__admit(engine); /* the readers learn of the ends that this brought */
        refresh_stats(engine);
        return had_pending || fed ? ALEA_OK : ALEA_DONE;
    }
    if (!begin_frame(engine, plan)) return ALEA_OK;
    alea_error error;
    if (compute(engine, plan, &error) < 0) {
        alea__present_pending(engine);
        fail_round(engine, plan, &error);
        return ALEA_OK;
    }
    record_computed(engine, plan);
    alea__draw_round(engine, plan);
    alea__engine_note(engine, alea__frames_produced(&engine->frames, plan->frame, NULL));
    engine->pending = engine->active;
    engine->active = (engine->active + 1) % ALEA_FRAMES;
    if (engine->options.no_overlap || is_brief(engine, plan)) alea__present_pending(engine);
    refresh_stats(engine);
    return ALEA_OK;
}

/* A paused run becomes able to go on when its reader reads, which signals `work`; the timed wait
 * bounds how late a deadline or a cancel is seen. */
static void *step_until_stopped(void *user) {
    alea_engine *engine = user;
    for (;;) {
        const alea_status status = alea__engine_step(engine, alea__clock_ns());
        pthread_mutex_lock(&engine->mutex);
        if (status == ALEA_DONE && !engine->stopping && !engine->inbox) {
            const struct timespec until = alea__wait_deadline(10);
            pthread_cond_timedwait(&engine->work, &engine->mutex, &until);
        }
        const bool stopping = engine->stopping;
        pthread_mutex_unlock(&engine->mutex);
        if (stopping) return NULL;
    }
}

alea_status alea__engine_start(alea_engine *engine, alea_error *error) {
    if (engine->started) return alea_error_set(error, ALEA_EINVAL, "the engine already runs");
    if (pthread_create(&engine->thread, NULL, step_until_stopped, engine) != 0) {
        return alea_error_set(error, ALEA_ENOMEM, "no thread for the engine");
    }
    engine->started = true;
    return ALEA_OK;
}

void alea__engine_stop(alea_engine *engine) {
    pthread_mutex_lock(&engine->mutex);
    engine->stopping = true;
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->mutex);
    if (engine->started) pthread_join(engine->thread, NULL);
    engine->started = false;
}

static void cancel_list(alea_run *run) {
    for (; run; run = run->next)
        atomic_store(&run->request->cancelled, true);
}

void alea__engine_destroy(alea_engine *engine) {
    if (!engine) return;
    alea__engine_stop(engine);
    for (int32_t s = 0; s < engine->options.slots; s++) {
        if (engine->slots[s].run) atomic_store(&engine->slots[s].run->request->cancelled, true);
    }
    cancel_list(engine->waiting);
    for (alea_request *r = engine->inbox; r; r = r->next)
        atomic_store(&r->cancelled, true);
    while (alea__engine_step(engine, engine->now_ns) == ALEA_OK) {
    }
    free_parts(engine);
    alea__engine_unref(engine);
}

const alea_capability *alea__engine_capability(const alea_engine *engine) {
    return &engine->capability;
}

void alea__engine_stats_read(alea_engine *engine, alea_engine_stats *stats) {
    pthread_mutex_lock(&engine->mutex);
    *stats = engine->stats;
    pthread_mutex_unlock(&engine->mutex);
}
