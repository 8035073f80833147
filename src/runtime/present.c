/*
 * From a finished frame to the readers: decode each lane's tokens, look for stop strings in their
 * bytes, and release what no stop string can take back any more. It runs while the core computes
 * the next round, so a run that a stop string ends here may have one more token under way; the
 * commit of that round drops it.
 */
#include <math.h>

#include "runtime/engine_parts.h"

/* What a token adds to the request's text. */
static alea_bytes bytes_of(const alea_engine *engine, const alea_run *run, int32_t token) {
    alea_token_info info;
    if (alea_core_token(engine->core, token, &info) < 0) return (alea_bytes){NULL, 0};
    const bool by_name = run->request->params.show_control && (info.flags & ALEA_TOKEN_CONTROL);
    return by_name ? info.name : info.bytes;
}

/* Unread entries that end inside the first `safe` bytes of the stream may go. */
static void release(alea_ring *ring, uint64_t safe) {
    while (ring->released < ring->tail &&
           ring->entries[ring->released % (uint64_t)ring->capacity].end <= safe) {
        ring->released++;
    }
}

/*
 * The text ends at byte `cut` of the stream: entries that add nothing before it go, or stay without
 * text where the request keeps them; the one that crosses it shows its first part. An entry without
 * bytes stays if nothing before it went.
 */
static void cut_ring(const alea_engine *engine, alea_run *run, uint64_t cut) {
    alea_ring *ring = &run->ring;
    const bool keep = run->request->params.keep_stopped;
    for (uint64_t i = ring->released; i < ring->tail; i++) {
        alea_ring_entry *entry = &ring->entries[i % (uint64_t)ring->capacity];
        const uint64_t start = entry->end - bytes_of(engine, run, entry->token).length;
        const bool behind = start >= cut;
        if (entry->end <= cut) continue;
        entry->visible_bytes = behind ? 0 : (int32_t)(cut - start);
        if (keep) continue;
        ring->tail = behind ? i : i + 1;
        return;
    }
}

/* Feed a token's bytes to the stop strings; false: one is complete and the run has ended. What is
 * complete before `may_stop` counts as text. */
static bool pass_stops(alea_engine *engine, alea_run *run, alea_bytes bytes, bool may_stop) {
    const alea_request *request = run->request;
    int32_t held = 0;
    for (size_t i = 0; i < bytes.length; i++) {
        const int32_t stop =
            alea__stop_feed(&request->stops, &run->stop_match, bytes.data[i], &held);
        run->stream_bytes++;
        if (stop < 0 || !may_stop) continue;
        const uint64_t length = request->stops.strings[stop].length;
        cut_ring(engine, run,
                 request->params.include_stop ? run->stream_bytes : run->stream_bytes - length);
        alea__run_end(run, ALEA_FINISH_STOP, stop, NULL);
        return false;
    }
    if (bytes.length > 0 || request->stops.n == 0) {
        release(&run->ring, run->stream_bytes - (uint64_t)held);
    } else if (run->ring.released + 1 == run->ring.tail) {
        release(&run->ring, run->stream_bytes); /* without bytes, and nothing before it is held */
    }
    return true;
}

static void push(alea_run *run, const alea_entry *entry, const alea_extra *extra, int32_t index,
                 alea_bytes bytes) {
    alea_ring *ring = &run->ring;
    const size_t at = ring->tail % (uint64_t)ring->capacity;
    int32_t n = entry->has_logprob ? entry->n_alternatives : 0;
    if (n > ring->width) n = ring->width;
    ring->entries[at] = (alea_ring_entry){
        .token = entry->token,
        .index = index,
        .visible_bytes = (int32_t)bytes.length,
        .end = run->stream_bytes + bytes.length,
        .has_entry = entry->has_logprob,
        .ends = entry->ends,
        .logprob = entry->has_logprob ? entry->logprob : NAN,
        .sampled_logprob = extra->sampled_logprob,
        .kept_mass = extra->kept_mass,
        .entropy = extra->entropy,
        .rank = extra->rank,
        .is_greedy = extra->is_greedy,
        .n_alternatives = n,
    };
    for (int32_t i = 0; i < n; i++) {
        ring->alternatives[at * (size_t)ring->width + (size_t)i] =
            alea__entry_alternative(entry, i);
    }
    ring->tail++;
}

/*
 * What is held back leaves no room for the next token, however much the reader takes: tokens
 * without bytes are held as long as a stop string is open before them, and may come without end.
 */
static bool is_stuck(const alea_ring *ring) {
    return ring->tail - ring->released + 2 > (uint64_t)ring->capacity;
}

/* A run that was ended by something else than its own tokens shows nothing more. */
static bool is_cut_short(const alea_run *run) {
    return run->finish == ALEA_FINISH_STOP || run->finish == ALEA_FINISH_CANCELLED ||
           run->finish == ALEA_FINISH_DEADLINE;
}

static void present_entries(alea_engine *engine, alea_run *run, alea_decoded *decoded,
                            const alea_extra *extra) {
    alea_entry entry;
    while (alea__decode_next(decoded, &entry)) {
        const alea_bytes bytes = entry.ends && !run->request->params.include_stop
                                     ? (alea_bytes){NULL, 0}
                                     : bytes_of(engine, run, entry.token);
        const int32_t index = (int32_t)(entry.position - run->n_prompt);
        push(run, &entry, extra, index, bytes);
        if (!pass_stops(engine, run, bytes, index >= run->request->params.min_tokens)) {
            alea__decode_stop(decoded);
            return;
        }
        if (run->state == ALEA_RUN_ACTIVE && is_stuck(&run->ring)) {
            alea_error error;
            alea_error_set(&error, ALEA_ELIMIT,
                           "more than %d tokens without text while a stop string is open",
                           engine->options.queue_tokens);
            alea__run_end(run, ALEA_FINISH_ERROR, -1, &error);
        }
    }
}

/* The tokens of one lane; an error is the request's. */
static alea_status present_tokens(alea_engine *engine, alea_plan *plan, int32_t i,
                                  alea_error *error) {
    alea_run *run = plan->runs[i];
    if (plan->row[i] < 0) return ALEA_OK;
    alea_decoded decoded;
    const alea_status status =
        alea__decode_open(&engine->frames, plan->frame, &plan->lanes[i], &decoded, error);
    if (status < 0) return status;
    if (decoded.record.count > 0 && run->request->usage.first_token_ns == 0) {
        run->request->usage.first_token_ns = engine->now_ns;
    }
    present_entries(engine, run, &decoded, &plan->extras[i]);
    return ALEA_OK;
}

/* A prompt's scores come before the token that its last row gave. */
static void present_run(alea_engine *engine, alea_plan *plan, int32_t i) {
    alea_run *run = plan->runs[i];
    if ((plan->row[i] < 0 && plan->score_row[i] < 0) || is_cut_short(run)) return;
    alea_error error;
    pthread_mutex_lock(&run->request->mutex);
    alea_status status = alea__present_scores(engine, plan, i, &error);
    if (status < 0 && run->finish == ALEA_FINISH_ERROR) run->error = error; /* the earlier place */
    if (status >= 0) status = present_tokens(engine, plan, i, &error);
    if (status < 0) alea__run_end(run, ALEA_FINISH_ERROR, -1, &error);
    alea__run_tell(run);
    pthread_mutex_unlock(&run->request->mutex);
}

void alea__present_round(alea_engine *engine, alea_plan *plan) {
    for (int32_t i = 0; i < plan->n_items; i++)
        present_run(engine, plan, i);
    alea__engine_note(engine, alea__frames_release(&engine->frames, plan->frame, NULL));
    plan->frame = -1;
}
