/*
 * What a client holds: the copied parameters, one ring of tokens for each choice, and the reader's
 * side of it. All memory of a request is one block taken at submission, so that rounds take none.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/size.h"
#include "runtime/engine_parts.h"
#include "runtime/wait.h"

/* Carves aligned pieces from a block; with base NULL it only counts. */
typedef struct carver {
    uint8_t *base;
    size_t used;
    bool overflow;
} carver;

static void *carve(carver *c, size_t count, size_t element_bytes) {
    size_t bytes = 0, padded = 0, used = 0;
    if (!alea__size_mul(count, element_bytes, &bytes) || !alea__size_align(bytes, 16, &padded) ||
        !alea__size_add(c->used, padded, &used)) {
        c->overflow = true;
        return NULL;
    }
    void *piece = c->base ? c->base + c->used : NULL;
    c->used = used;
    return piece;
}

/* The copy; while only counting what was to be copied. Empty arrays have a place too: NULL would
 * tell a core that an opaque span without data is none. */
static const void *copy_array(carver *c, const void *from, size_t count, size_t element_bytes) {
    void *copy = carve(c, count, element_bytes);
    if (copy && count > 0) memcpy(copy, from, count * element_bytes);
    return copy ? copy : from;
}

static void copy_list(carver *c, alea_token_list *list) {
    list->tokens = copy_array(c, list->tokens, (size_t)list->count, sizeof *list->tokens);
}

static void copy_bytes(carver *c, alea_bytes *bytes) {
    bytes->data = copy_array(c, bytes->data, bytes->length, 1);
}

static void copy_bad_words(carver *c, alea_request_params *p) {
    alea_token_list *copy = carve(c, (size_t)p->n_bad_words, sizeof *copy);
    for (int32_t i = 0; i < p->n_bad_words; i++) {
        alea_token_list list = p->bad_words[i];
        copy_list(c, &list);
        if (copy) copy[i] = list;
    }
    if (copy) p->bad_words = copy;
}

static void copy_opaques(carver *c, alea_request_params *p) {
    alea_opaque *copy = carve(c, (size_t)p->n_opaques, sizeof *copy);
    for (int32_t i = 0; i < p->n_opaques; i++) {
        alea_opaque opaque = p->opaques[i];
        copy_bytes(c, &opaque.data);
        if (copy) copy[i] = opaque;
    }
    if (copy) p->opaques = copy;
}

static void copy_stops(carver *c, alea_request_params *p, alea_stops *stops) {
    alea_bytes *copy = carve(c, (size_t)p->n_stops, sizeof *copy);
    for (int32_t i = 0; i < p->n_stops; i++) {
        alea_bytes string = p->stops[i];
        copy_bytes(c, &string);
        if (copy) copy[i] = string;
    }
    void *links = carve(c, alea__stops_bytes(p->stops, p->n_stops), 1);
    if (!copy) return;
    p->stops = copy;
    alea__stops_init(stops, copy, p->n_stops, links);
}

/* Tokens that a reader may leave unread, those that a stop string may hold back, and one: a
 * round is planned while the last one's token is on its way, so the smallest queue needs two. */
static int32_t ring_capacity(const alea_engine *engine, const alea_request_params *p) {
    size_t held = 0;
    for (int32_t i = 0; i < p->n_stops; i++) {
        if (p->stops[i].length > held) held = p->stops[i].length;
    }
    const int64_t capacity = (int64_t)engine->options.queue_tokens + (int64_t)held + 1;
    return (int32_t)(capacity < p->max_tokens + 2 ? capacity : p->max_tokens + 2);
}

static int32_t ring_width(const alea_request_params *p) {
    if (p->selected.count > 0) return p->selected.count;
    return p->top > 0 ? p->top : 0;
}

static void fill_history(alea_run *run, void *places, int64_t most) {
    alea__history_init(&run->history, places, most);
    for (int32_t i = 0; i < run->n_prompt; i++)
        if (run->tokens[i] >= 0) alea__history_add_prompt(&run->history, run->tokens[i]);
}

static void carve_run(carver *c, const alea_engine *engine, alea_request *request, alea_run *run,
                      int32_t index, const int32_t *prompt, int32_t n_prompt) {
    const alea_request_params *p = &request->params;
    const int64_t most = (int64_t)n_prompt + p->max_tokens;
    const int32_t capacity = ring_capacity(engine, p);
    const int32_t width = ring_width(p);
    int32_t *tokens = carve(c, (size_t)most, sizeof *tokens);
    /* Most of a run's memory, and only penalties look at it. */
    void *places = carve(c, alea__params_penalize(p) ? alea__history_bytes(most) : 0, 1);
    void *match = carve(c, alea__stop_match_bytes(p->n_stops), 1);
    alea_ring_entry *entries = carve(c, (size_t)capacity, sizeof *entries);
    alea_alternative *alternatives =
        carve(c, (size_t)capacity * (size_t)width, sizeof *alternatives);
    if (!c->base) return;
    *run = (alea_run){.request = request,
                      .index = index,
                      .slot = -1,
                      .tokens = tokens,
                      .n_tokens = n_prompt,
                      .n_prompt = n_prompt,
                      .n_stored = 1,
                      .n_scored = 1,
                      .stop = -1,
                      .thinking = p->thinking_budget >= 0};
    memcpy(tokens, prompt, (size_t)n_prompt * sizeof *tokens);
    if (alea__params_penalize(p)) fill_history(run, places, most);
    alea__stop_match_init(&run->stop_match, p->n_stops, match);
    run->ring = (alea_ring){
        .entries = entries, .alternatives = alternatives, .capacity = capacity, .width = width};
}

/* Scores of the prompt that a reader may leave unread; few, however long the prompt is. */
static void carve_scores(carver *c, const alea_engine *engine, alea_request *request,
                         int32_t n_prompt) {
    const alea_request_params *p = &request->params;
    if (p->prompt_top < 0) return;
    const int32_t most = engine->queue_scores;
    alea_score_ring ring = {.capacity = n_prompt < most ? n_prompt : most, .width = p->prompt_top};
    ring.entries = carve(c, (size_t)ring.capacity, sizeof *ring.entries);
    ring.alternatives =
        carve(c, (size_t)ring.capacity * (size_t)ring.width, sizeof *ring.alternatives);
    request->scores.entries = ring.entries;
    request->scores.alternatives = ring.alternatives;
    request->scores.capacity = ring.capacity;
    request->scores.width = ring.width;
}

/* Where the pieces of a request's block begin, behind the request itself. */
enum { RUNS_AT = (sizeof(alea_request) + 15) / 16 * 16 };

/* Called twice: with c->base NULL it counts and changes nothing that it is given, then it fills. */
static void carve_request(carver *c, const alea_engine *engine, alea_request *request,
                          const int32_t *prompt, int32_t n_prompt) {
    alea_request_params *p = &request->params;
    const int32_t n_runs = p->choices;
    alea_run *runs = carve(c, (size_t)n_runs, sizeof *runs);
    for (int32_t i = 0; i < n_runs; i++) {
        carve_run(c, engine, request, runs ? &runs[i] : NULL, i, prompt, n_prompt);
    }
    request->runs = runs;
    carve_scores(c, engine, request, n_prompt);
    copy_list(c, &p->allowed);
    copy_list(c, &p->stop_tokens);
    copy_list(c, &p->thinking_close);
    copy_list(c, &p->selected);
    copy_opaques(c, p);
    p->biases = copy_array(c, p->biases, (size_t)p->n_biases, sizeof *p->biases);
    copy_bad_words(c, p);
    copy_stops(c, p, &request->stops);
}

/* What this core does not report cannot be asked for; nothing is served without it instead. */
static alea_status check_offer(const alea_engine *engine, const alea_request_params *p,
                               alea_error *error) {
    const alea_capability *offer = &engine->capability;
    if (p->prompt_top >= 0 && !offer->allow_prompt_logprobs) {
        return alea_error_set(error, ALEA_EUNSUPPORTED, "%s",
                              engine->options.prompt_logprobs
                                  ? "this core offers no prompt logprobs"
                                  : "prompt logprobs are off: --prompt-logprobs=on allows them");
    }
    const bool wants = p->top >= 0 || p->want_sampled || p->want_entropy || p->want_rank;
    if (wants && !offer->allow_logprobs) {
        return alea_error_set(error, ALEA_EUNSUPPORTED, "this core offers no logprobs");
    }
    if (p->selected.count > 0 && !offer->allow_token_ids) {
        return alea_error_set(error, ALEA_EUNSUPPORTED, "this core offers no logprob_token_ids");
    }
    if (p->top > offer->layout.alternatives) {
        return alea_error_set(error, ALEA_EUNSUPPORTED, "logprobs is %d: this core offers 0..%d",
                              p->top, offer->layout.alternatives);
    }
    return ALEA_OK;
}

/* Tokens are tokens, and -1 stands exactly where the opaque spans are. */
static alea_status check_prompt(const alea_engine *engine, const int32_t *prompt, int32_t n_prompt,
                                const alea_request_params *p, alea_error *error) {
    /* A span is computed whole, beside a step of every running choice. */
    const int32_t most = engine->options.round_tokens - engine->options.slots + 1;
    for (int32_t i = 0; i < p->n_opaques; i++) {
        const alea_opaque *o = &p->opaques[i];
        if (o->length > most || o->position > n_prompt - o->length) {
            return alea_error_set(error, ALEA_EINVAL,
                                  "opaque span %d has %d positions from %d on, at most %d fit a "
                                  "round and the prompt has %d",
                                  i, o->length, o->position, most, n_prompt);
        }
    }
    int32_t next = 0; /* the opaque span that ends behind i, or starts there */
    for (int32_t i = 0; i < n_prompt; i++) {
        while (next < p->n_opaques && i >= p->opaques[next].position + p->opaques[next].length)
            next++;
        const bool opaque = next < p->n_opaques && i >= p->opaques[next].position;
        if (opaque && prompt[i] == -1) continue;
        if (!opaque && prompt[i] >= 0 && prompt[i] < engine->info.vocab) continue;
        if (opaque) {
            return alea_error_set(error, ALEA_EINVAL,
                                  "prompt token %d is %d, inside an opaque span it is -1", i,
                                  prompt[i]);
        }
        return alea_error_set(error, ALEA_EINVAL, "prompt token %d is %d, the vocabulary is 0..%d",
                              i, prompt[i], engine->info.vocab - 1);
    }
    return ALEA_OK;
}

static alea_status check_submit(const alea_engine *engine, const int32_t *prompt, int32_t n_prompt,
                                const alea_request_params *params, alea_error *error) {
    const int32_t context = engine->info.context_tokens;
    if (n_prompt < 1 || !prompt) {
        return alea_error_set(error, ALEA_EINVAL, "the prompt is empty");
    }
    /* Where scores are all that is wanted the last token is not computed: alea__run_prefill. */
    const bool spare = params->prompt_top >= 0 && prompt[n_prompt - 1] >= 0;
    const int64_t most = (int64_t)context + (params->max_tokens > 0 ? -1 : spare);
    if (n_prompt > most) {
        return alea_error_set(error, ALEA_ECONTEXT,
                              "the prompt has %d tokens, the context holds %d with the answer",
                              n_prompt, context);
    }
    alea_status status = alea__params_check(params, engine->info.vocab, error);
    if (status >= 0) status = check_prompt(engine, prompt, n_prompt, params, error);
    if (status < 0) return status;
    return check_offer(engine, params, error);
}

/* As the context cuts them. */
static alea_request_params cut_params(const alea_engine *engine, int32_t n_prompt,
                                      const alea_request_params *params) {
    alea_request_params cut = *params;
    const int32_t room = engine->info.context_tokens - n_prompt;
    if (cut.max_tokens > room) cut.max_tokens = room > 0 ? room : 0;
    if (cut.min_tokens > cut.max_tokens) cut.min_tokens = cut.max_tokens;
    return cut;
}

/* Of a request with the parameters of `head`, which stays as it is; 0: too many to count. */
static size_t block_bytes(const alea_engine *engine, alea_request *head, int32_t n_prompt) {
    carver count = {.used = RUNS_AT};
    carve_request(&count, engine, head, NULL, n_prompt);
    size_t bytes = 0;
    return !count.overflow && alea__size_align(count.used, 64, &bytes) ? bytes : 0;
}

size_t alea__engine_request_bytes(const alea_engine *engine, int32_t n_prompt,
                                  const alea_request_params *params) {
    alea_request head = {.params = cut_params(engine, n_prompt, params)};
    return block_bytes(engine, &head, n_prompt);
}

static alea_status build_request(alea_engine *engine, const int32_t *prompt, int32_t n_prompt,
                                 const alea_request_params *params, alea_request **out) {
    alea_request head = {.engine = engine, .params = cut_params(engine, n_prompt, params)};
    if (!head.params.seeded &&
        getrandom(&head.params.seed, sizeof head.params.seed, 0) != sizeof head.params.seed) {
        return ALEA_EIO;
    }
    const size_t bytes = block_bytes(engine, &head, n_prompt);
    uint8_t *block = bytes > 0 ? aligned_alloc(64, bytes) : NULL;
    if (!block) return ALEA_ENOMEM;
    alea_request *request = (alea_request *)block;
    *request = (alea_request){.engine = engine, .params = head.params};
    carver fill = {.base = block, .used = RUNS_AT};
    carve_request(&fill, engine, request, prompt, n_prompt);
    atomic_init(&request->references, 2);
    atomic_fetch_add(&engine->references, 1);
    atomic_init(&request->cancelled, false);
    pthread_mutex_init(&request->mutex, NULL);
    alea__wait_init(&request->readable);
    request->usage = (alea_request_usage){.prompt_tokens = n_prompt, .seed = head.params.seed};
    *out = request;
    return ALEA_OK;
}

alea_status alea__engine_submit(alea_engine *engine, const int32_t *prompt, int32_t n_prompt,
                                const alea_request_params *params, alea_request **request,
                                alea_error *error) {
    alea_status status = check_submit(engine, prompt, n_prompt, params, error);
    if (status < 0) return status;
    alea_request *built = NULL;
    status = build_request(engine, prompt, n_prompt, params, &built);
    if (status < 0) {
        return alea_error_set(error, status, "a request of %d tokens: %s", n_prompt,
                              alea_status_text(status));
    }
    pthread_mutex_lock(&engine->mutex);
    const bool full = engine->n_waiting_requests >= engine->options.queue_requests;
    if (!full && !engine->stopping) {
        built->arrival = engine->arrivals++;
        if (engine->inbox_last)
            engine->inbox_last->next = built;
        else
            engine->inbox = built;
        engine->inbox_last = built;
        engine->n_waiting_requests++;
        engine->stats.requests++;
        pthread_cond_signal(&engine->work);
    }
    const bool refused = full || engine->stopping;
    pthread_mutex_unlock(&engine->mutex);
    if (refused) {
        alea__request_unref(built);
        alea__request_unref(built);
        return alea_error_set(error, full ? ALEA_ELIMIT : ALEA_ECANCELLED, "%s",
                              full ? "the queue is full: try again later"
                                   : "the engine is stopping");
    }
    *request = built;
    return ALEA_OK;
}

void alea__request_unref(alea_request *request) {
    if (atomic_fetch_sub(&request->references, 1) != 1) return;
    alea__engine_unref(request->engine);
    pthread_cond_destroy(&request->readable);
    pthread_mutex_destroy(&request->mutex);
    free(request);
}

bool alea__ring_has_room(const alea_ring *ring, int32_t entries) {
    return ring->tail - ring->head + (uint64_t)entries <= (uint64_t)ring->capacity;
}

void alea__run_tell(alea_run *run) {
    alea_request *request = run->request;
    pthread_cond_signal(&request->readable);
    if (request->notify) request->notify(request->notify_user);
}

static void event_of_entry(alea_request *request, alea_run *run, alea_event *event) {
    alea_ring *ring = &run->ring;
    const size_t at = ring->head % (uint64_t)ring->capacity;
    const alea_ring_entry *entry = &ring->entries[at];
    *event = (alea_event){
        .kind = ALEA_EVENT_TOKEN,
        .choice = run->index,
        .index = entry->index,
        .token = entry->token,
        .visible_bytes = entry->visible_bytes,
        .has_entry = entry->has_entry,
        .ends = entry->ends,
        .logprob = entry->logprob,
        .sampled_logprob = entry->sampled_logprob,
        .kept_mass = entry->kept_mass,
        .entropy = entry->entropy,
        .rank = entry->rank,
        .is_greedy = entry->is_greedy,
        .n_alternatives = entry->n_alternatives,
        .alternatives = request->shown,
    };
    memcpy(request->shown, ring->alternatives + at * (size_t)ring->width,
           (size_t)entry->n_alternatives * sizeof *request->shown);
    ring->head++;
}

static void event_of_score(alea_request *request, alea_event *event) {
    alea_score_ring *ring = &request->scores;
    const int32_t position = ring->head;
    const size_t at = (size_t)(position % ring->capacity);
    const alea_score_entry *entry = &ring->entries[at];
    *event = (alea_event){
        .kind = ALEA_EVENT_PROMPT,
        .index = position,
        .token = entry->token,
        .has_entry = entry->rank > 0,
        .logprob = entry->logprob,
        .sampled_logprob = NAN,
        .kept_mass = NAN,
        .entropy = NAN,
        .rank = entry->rank,
        .is_greedy = entry->is_greedy,
        .n_alternatives = entry->n_alternatives,
        .alternatives = request->shown,
    };
    memcpy(request->shown, ring->alternatives + at * (size_t)ring->width,
           (size_t)entry->n_alternatives * sizeof *request->shown);
    ring->head++;
}

static void event_of_finish(alea_run *run, alea_event *event) {
    *event = (alea_event){
        .kind = ALEA_EVENT_FINISH,
        .choice = run->index,
        .index = (int32_t)run->ring.head,
        .finish = run->finish,
        .stop = run->stop,
        .output_tokens = alea__run_outputs(run),
        .status = run->finish == ALEA_FINISH_ERROR ? run->error.status : ALEA_OK,
        .message = run->finish == ALEA_FINISH_ERROR ? run->error.message : NULL,
    };
    run->finish_told = true;
}

/* ALEA_OK with an event, ALEA_MORE, or ALEA_DONE. The request's mutex is held. */
static alea_status take_event_of(alea_run *run, alea_event *event) {
    if (run->finish_told) return ALEA_DONE;
    const alea_score_ring *scores = &run->request->scores;
    if (run->index == 0 && scores->head < scores->tail) {
        event_of_score(run->request, event);
        return ALEA_OK;
    }
    if (run->ring.head < run->ring.released) {
        event_of_entry(run->request, run, event);
        return ALEA_OK;
    }
    if (!run->finished) return ALEA_MORE;
    event_of_finish(run, event);
    return ALEA_OK;
}

/* The same for whichever choice has something; each in turn. What the prompt scored may open the
 * answers of all choices, so it comes before what they drew: nobody has to hold them back. */
static alea_status take_event(alea_request *request, alea_event *event) {
    const int32_t n = request->params.choices;
    int32_t told = 0;
    if (request->scores.head < request->scores.tail) return take_event_of(&request->runs[0], event);
    for (int32_t i = 0; i < n; i++) {
        alea_run *run = &request->runs[(request->next_choice + i) % n];
        const alea_status status = take_event_of(run, event);
        told += status == ALEA_DONE;
        if (status != ALEA_OK) continue;
        request->next_choice = (run->index + 1) % n;
        return ALEA_OK;
    }
    return told == n ? ALEA_DONE : ALEA_MORE;
}

static alea_status take_event_from(alea_request *request, int32_t choice, alea_event *event) {
    return choice < 0 ? take_event(request, event) : take_event_of(&request->runs[choice], event);
}

/* choice -1: any. */
static alea_status next_event(alea_request *request, int32_t choice, int32_t timeout_ms,
                              alea_event *event) {
    const struct timespec until = alea__wait_deadline(timeout_ms > 0 ? timeout_ms : 0);
    pthread_mutex_lock(&request->mutex);
    alea_status status = take_event_from(request, choice, event);
    while (status == ALEA_MORE && timeout_ms != 0) {
        const int waited =
            timeout_ms < 0 ? pthread_cond_wait(&request->readable, &request->mutex)
                           : pthread_cond_timedwait(&request->readable, &request->mutex, &until);
        status = take_event_from(request, choice, event);
        if (waited == ETIMEDOUT) break;
    }
    pthread_mutex_unlock(&request->mutex);
    if (status == ALEA_OK) {
        /* A choice that paused because its ring was full may go on now. */
        pthread_mutex_lock(&request->engine->mutex);
        pthread_cond_signal(&request->engine->work);
        pthread_mutex_unlock(&request->engine->mutex);
    }
    return status;
}

alea_status alea__request_next(alea_request *request, int32_t timeout_ms, alea_event *event) {
    return next_event(request, -1, timeout_ms, event);
}

alea_status alea__request_next_of(alea_request *request, int32_t choice, int32_t timeout_ms,
                                  alea_event *event) {
    return next_event(request, choice, timeout_ms, event);
}

void alea__request_cancel(alea_request *request) {
    atomic_store(&request->cancelled, true);
    pthread_mutex_lock(&request->engine->mutex);
    pthread_cond_signal(&request->engine->work);
    pthread_mutex_unlock(&request->engine->mutex);
}

void alea__request_notify(alea_request *request, void (*notify)(void *user), void *user) {
    pthread_mutex_lock(&request->mutex);
    request->notify_user = user;
    request->notify = notify;
    pthread_mutex_unlock(&request->mutex);
}

void alea__request_usage_read(alea_request *request, alea_request_usage *usage) {
    pthread_mutex_lock(&request->mutex);
    *usage = request->usage;
    pthread_mutex_unlock(&request->mutex);
}

void alea__request_release(alea_request *request) {
    if (!request) return;
    atomic_store(&request->cancelled, true);
    alea__request_unref(request);
}
