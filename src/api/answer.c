/*
 * Events in, chunks or a body out. Each token goes through the text decoder, and what it shows is
 * kept until the next write. Streams write when stream_interval tokens are there, whole answers at
 * the end: there is no second path.
 */
#include "api/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

static const char done_payload[] = "[DONE]";

/* ---- lists ---- */

/* Room for `more` elements; false: out of memory. */
bool alea__api_list_reserve(alea_api_answer *answer, alea_api_list *list, size_t more,
                            size_t element_bytes) {
    size_t need = 0, bytes = 0;
    if (!alea__size_add(list->n, more, &need)) return false;
    if (need <= list->capacity) return true;
    size_t capacity = list->capacity ? list->capacity : 16;
    while (capacity < need && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    if (!alea__size_mul(capacity, element_bytes, &bytes)) return false;
    void *items = realloc(list->items, bytes);
    if (!items) return false;
    answer->held_bytes += (capacity - list->capacity) * element_bytes;
    list->items = items;
    list->capacity = capacity;
    return true;
}

bool alea__api_list_append(alea_api_answer *answer, alea_api_list *list, const void *element,
                           size_t element_bytes) {
    if (!alea__api_list_reserve(answer, list, 1, element_bytes)) return false;
    memcpy((char *)list->items + list->n * element_bytes, element, element_bytes);
    list->n++;
    return true;
}

void alea__api_list_free(alea_api_answer *answer, alea_api_list *list, size_t element_bytes) {
    answer->held_bytes -= list->capacity * element_bytes;
    free(list->items);
    *list = (alea_api_list){NULL, 0, 0};
}

/* What was written is forgotten. */
static void clear_pending(alea_api_choice *choice) {
    choice->text.n = choice->entries.n = choice->alternatives.n = choice->ids.n = 0;
    choice->pending_tokens = 0;
    choice->written = true;
}

/* ---- life ---- */

static size_t group_bytes(const alea_api_answer *answer) {
    return sizeof(alea_api_group) + (size_t)answer->job->params.choices * sizeof(alea_api_choice);
}

/* False: out of memory. */
static bool open_group(alea_api_answer *answer, int32_t prompt) {
    if (answer->groups[prompt]) return true;
    const int32_t n = answer->job->params.choices;
    alea_api_group *group = calloc(1, group_bytes(answer));
    if (!group) return false;
    group->n_open = n;
    for (int32_t i = 0; i < n; i++) {
        alea_api_choice *choice = &group->choices[i];
        choice->prompt = prompt;
        choice->last_token = -1;
        for (int32_t k = 0; k < ALEA_COMPAT_CONTEXT; k++)
            choice->before[k] = -1;
    }
    answer->held_bytes += group_bytes(answer);
    answer->groups[prompt] = group;
    return true;
}

static void close_group(alea_api_answer *answer, int32_t prompt) {
    alea_api_group *group = answer->groups[prompt];
    if (!group) return;
    alea__api_list_free(answer, &group->scores.rows, sizeof(alea_api_score));
    alea__api_list_free(answer, &group->scores.alternatives, sizeof(alea_alternative));
    for (int32_t i = 0; i < answer->job->params.choices; i++) {
        alea_api_choice *choice = &group->choices[i];
        alea__api_list_free(answer, &choice->text, 1);
        alea__api_list_free(answer, &choice->entries, sizeof(alea_api_entry));
        alea__api_list_free(answer, &choice->alternatives, sizeof(alea_alternative));
        alea__api_list_free(answer, &choice->ids, sizeof(int32_t));
    }
    answer->held_bytes -= group_bytes(answer);
    free(group);
    answer->groups[prompt] = NULL;
}

/* A fragment is written as bytes:\xNN…, four characters a byte; vLLM's form of a token is the text
 * of five of them, each byte of which may become U+FFFD. */
static bool open_scratch(alea_api_answer *answer) {
    const size_t longest = answer->api->token_bytes_max;
    answer->scratch_bytes =
        64 + (answer->shown->vllm_compat ? (ALEA_COMPAT_CONTEXT + 1) * ALEA_STREAM_BOUND(longest)
                                         : 4 * longest);
    answer->scratch = malloc(2 * answer->scratch_bytes);
    return answer->scratch != NULL;
}

alea_status alea__api_answer_begin(const alea_api_job *job, alea_api_emit emit, void *user,
                                   alea_api_answer **answer) {
    const int64_t n_choices = (int64_t)job->n_prompts * job->params.choices;
    alea_api_answer *made = n_choices <= INT32_MAX ? calloc(1, sizeof *made) : NULL;
    if (!made) return ALEA_ENOMEM;
    made->job = job;
    made->n_choices = (int32_t)n_choices;
    made->groups = calloc((size_t)job->n_prompts, sizeof(alea_api_group *));
    made->api = job->api;
    made->shown = job->presentation;
    made->emit = job->stream ? emit : NULL;
    made->user = user;
    made->error.int_code = made->shown->vllm_compat;
    alea__json_write_to_buffer(&made->writer, ALEA_API_BODY_BYTES_MAX);
    if (!made->groups || !open_scratch(made)) {
        alea__api_answer_free(made);
        return ALEA_ENOMEM;
    }
    *answer = made;
    return ALEA_OK;
}

void alea__api_answer_free(alea_api_answer *answer) {
    if (!answer) return;
    for (int32_t i = 0; answer->groups && i < answer->job->n_prompts; i++)
        close_group(answer, i);
    free(answer->groups);
    free(answer->scratch);
    alea__json_write_free(&answer->writer);
    free(answer);
}

size_t alea__api_answer_bytes(const alea_api_answer *answer) {
    return sizeof *answer + (size_t)answer->job->n_prompts * sizeof(alea_api_group *) +
           2 * answer->scratch_bytes + answer->held_bytes + answer->writer.capacity;
}

/* ---- collecting ---- */

/* What a token adds to the text when all of it is shown. */
static alea_bytes text_of(const alea_api_answer *answer, const alea_token_info *info) {
    const bool by_name = answer->shown->show_special && (info->flags & ALEA_TOKEN_CONTROL);
    return by_name ? info->name : info->bytes;
}

alea_status alea__api_add_text(alea_api_answer *answer, alea_api_choice *choice, alea_bytes bytes,
                               uint64_t *offset) {
    if (!alea__api_list_reserve(answer, &choice->text, ALEA_STREAM_BOUND(bytes.length), 1))
        return ALEA_ENOMEM;
    uint8_t *end = (uint8_t *)choice->text.items + choice->text.n;
    choice->text.n += alea__text_stream_push(&choice->stream, bytes, end, offset);
    return ALEA_OK;
}

static alea_status add_entry(alea_api_answer *answer, alea_api_choice *choice,
                             const alea_event *event, uint64_t offset) {
    alea_api_entry entry = {
        .token = event->token,
        .n_alternatives = event->n_alternatives,
        .first_alternative = choice->alternatives.n,
        .offset = offset,
        .logprob = event->logprob,
        .sampled_logprob = event->sampled_logprob,
        .kept_mass = event->kept_mass,
        .entropy = event->entropy,
    };
    memcpy(entry.before, choice->before, sizeof entry.before);
    if (answer->shown->vllm_compat) {
        entry.offset = choice->compat_offset;
        choice->compat_offset += alea__api_compat_length(answer, event->token, choice->before);
    }
    const size_t n = (size_t)event->n_alternatives;
    if (!alea__api_list_reserve(answer, &choice->alternatives, n, sizeof *event->alternatives) ||
        !alea__api_list_append(answer, &choice->entries, &entry, sizeof entry))
        return ALEA_ENOMEM;
    if (n > 0)
        memcpy((alea_alternative *)choice->alternatives.items + choice->alternatives.n,
               event->alternatives, n * sizeof *event->alternatives);
    choice->alternatives.n += n;
    return ALEA_OK;
}

static void remember(alea_api_choice *choice, int32_t token) {
    for (int32_t k = ALEA_COMPAT_CONTEXT - 1; k > 0; k--)
        choice->before[k] = choice->before[k - 1];
    choice->before[0] = token;
}

/* The terminating token is shown where its text is, or where vLLM would show it. */
static alea_status take_token(alea_api_answer *answer, alea_api_choice *choice,
                              const alea_event *event) {
    const alea_api_presentation *shown = answer->shown;
    alea_token_info info;
    alea_status status = alea_core_token(answer->api->core, event->token, &info);
    if (status < 0) return status;
    alea_bytes bytes = text_of(answer, &info);
    if (bytes.length > (size_t)event->visible_bytes) bytes.length = (size_t)event->visible_bytes;
    /* With the prompt in the arrays clients cut by the number of tokens, so all must be there. */
    const bool counts =
        !event->ends || bytes.length > 0 || shown->vllm_compat || shown->echo_logprobs;
    uint64_t offset = 0;
    status = alea__api_add_text(answer, choice, bytes, &offset);
    if (status < 0) return status;
    choice->pending_tokens++;
    choice->n_tokens++;
    if (event->ends) choice->last_token = event->token;
    if (!counts) return ALEA_OK;
    if (shown->return_token_ids &&
        !alea__api_list_append(answer, &choice->ids, &event->token, sizeof event->token))
        return ALEA_ENOMEM;
    /* Forced tokens have no entry, and only a thinking budget forces. */
    if (shown->logprobs && !event->has_entry && answer->job->params.thinking_budget < 0)
        return ALEA_EROW;
    if (shown->logprobs && event->has_entry) status = add_entry(answer, choice, event, offset);
    remember(choice, event->token);
    return status;
}

static alea_status take_finish(alea_api_answer *answer, alea_api_choice *choice,
                               const alea_event *event, const alea_request_usage *usage) {
    uint8_t rest[ALEA_UTF8_REPLACEMENT_BYTES];
    const size_t n = alea__text_stream_flush(&choice->stream, rest);
    if (!alea__api_list_reserve(answer, &choice->text, n, 1)) return ALEA_ENOMEM;
    if (n > 0) memcpy((uint8_t *)choice->text.items + choice->text.n, rest, n);
    choice->text.n += n;
    choice->finished = true;
    choice->finish = event->finish;
    choice->stop = event->stop;
    choice->output_tokens = event->output_tokens;
    answer->n_finished++;
    answer->output_tokens += event->output_tokens;
    if (usage && event->choice == 0) answer->cached_tokens += usage->cached_tokens;
    return ALEA_OK;
}

/* ---- emitting ---- */

static alea_status emit_writer(alea_api_answer *answer) {
    const alea_json_writer *writer = &answer->writer;
    return answer->emit(answer->user, (alea_bytes){(const uint8_t *)writer->data, writer->length});
}

static alea_status emit_chunk(alea_api_answer *answer, alea_api_chunk kind, int32_t index) {
    const bool last = answer->n_finished == answer->n_choices &&
                      (kind == ALEA_CHUNK_USAGE || !answer->shown->include_usage);
    alea_status status = alea__api_write_chunk(answer, kind, index, last);
    if (status >= 0) status = emit_writer(answer);
    if (status < 0 || kind == ALEA_CHUNK_ROLE || kind == ALEA_CHUNK_USAGE) return status;
    alea_api_choice *choice = alea__api_choice_of(answer, index);
    const int32_t prompt = choice->prompt;
    clear_pending(choice);
    if (kind == ALEA_CHUNK_FINISH && --answer->groups[prompt]->n_open == 0)
        close_group(answer, prompt);
    return status;
}

/* Tokens that show nothing wait for those that do. */
static bool has_something(const alea_api_answer *answer, const alea_api_choice *choice) {
    return choice->text.n > 0 || choice->entries.n > 0 || choice->ids.n > 0 ||
           (answer->shown->continuous_usage && choice->pending_tokens > 0);
}

static alea_status stream_choice(alea_api_answer *answer, int32_t index, bool opens) {
    const alea_api_choice *choice = alea__api_choice_of(answer, index);
    const bool due = choice->pending_tokens >= answer->shown->stream_interval || !choice->written;
    alea_status status = ALEA_OK;
    if (!alea__api_scores_complete(answer, choice->prompt)) return ALEA_OK;
    if (opens && answer->job->endpoint == ALEA_API_CHAT)
        status = emit_chunk(answer, ALEA_CHUNK_ROLE, index);
    if (status < 0) return status;
    if (choice->finished) return emit_chunk(answer, ALEA_CHUNK_FINISH, index);
    if (!due || !has_something(answer, choice)) return ALEA_OK;
    return emit_chunk(answer, ALEA_CHUNK_TOKENS, index);
}

static alea_status emit_done(alea_api_answer *answer) {
    const alea_bytes payload = {(const uint8_t *)done_payload, sizeof done_payload - 1};
    return answer->emit(answer->user, payload);
}

static alea_status finish_stream(alea_api_answer *answer) {
    alea_status status = ALEA_OK;
    if (answer->shown->include_usage) status = emit_chunk(answer, ALEA_CHUNK_USAGE, -1);
    if (status < 0) return status;
    answer->done = true;
    return emit_done(answer);
}

/* Choices that were held back until their beginning was there. */
static alea_status stream_held(alea_api_answer *answer, int32_t prompt) {
    const int32_t n = answer->job->params.choices;
    alea_status status = ALEA_OK;
    for (int32_t i = prompt * n; i < (prompt + 1) * n && status >= 0; i++) {
        if (!answer->groups[prompt]) break; /* that was the last */
        const alea_api_choice *choice = alea__api_choice_of(answer, i);
        if (choice->n_tokens > 0 || choice->finished) status = stream_choice(answer, i, false);
    }
    return status;
}

static alea_status take_score(alea_api_answer *answer, int32_t prompt, const alea_event *event) {
    const alea_status status = alea__api_scores_take(answer, prompt, event);
    const bool last = event->index + 1 == answer->job->prompts[prompt].n_tokens;
    return status >= 0 && last && answer->emit ? stream_held(answer, prompt) : status;
}

/* ---- the whole ---- */

alea_status alea__api_answer_take(alea_api_answer *answer, int32_t prompt, const alea_event *event,
                                  const alea_request_usage *usage) {
    if (answer->done) return ALEA_DONE;
    if (event->kind == ALEA_EVENT_FINISH && event->finish == ALEA_FINISH_ERROR) {
        alea_api_error error = {.int_code = answer->error.int_code};
        alea__api_error_late(&error, event->status, event->message);
        alea__api_answer_fail(answer, &error);
        return ALEA_DONE;
    }
    if (!open_group(answer, prompt)) return ALEA_ENOMEM;
    if (event->kind == ALEA_EVENT_PROMPT) return take_score(answer, prompt, event);
    const int32_t index = prompt * answer->job->params.choices + event->choice;
    alea_api_choice *choice = alea__api_choice_of(answer, index);
    const bool opens = choice->n_tokens == 0 && !choice->finished;
    alea_status status = opens ? alea__api_echo(answer, choice) : ALEA_OK;
    if (status >= 0)
        status = event->kind == ALEA_EVENT_FINISH ? take_finish(answer, choice, event, usage)
                                                  : take_token(answer, choice, event);
    if (status >= 0 && answer->emit) status = stream_choice(answer, index, opens);
    if (status < 0) return status;
    if (answer->n_finished < answer->n_choices) return ALEA_OK;
    if (answer->emit)
        status = finish_stream(answer);
    else
        answer->done = true;
    return status < 0 ? status : ALEA_DONE;
}

void alea__api_answer_fail(alea_api_answer *answer, const alea_api_error *error) {
    if (answer->done) return;
    answer->done = answer->failed = true;
    answer->error = *error;
    answer->error.int_code = answer->shown->vllm_compat;
    if (!answer->emit) return;
    char body[ALEA_API_ERROR_BYTES];
    const size_t length = alea__api_error_body(&answer->error, body);
    const alea_status status =
        answer->emit(answer->user, (alea_bytes){(const uint8_t *)body, length});
    if (status >= 0) (void)(emit_done(answer) < 0); /* the client is gone: nobody is left to tell */
}

alea_status alea__api_text_of(alea_json_writer *writer, alea_api_text *text) {
    const alea_status status = alea__json_finish(writer);
    if (status < 0) {
        alea__json_write_free(writer);
        return status;
    }
    *text = (alea_api_text){writer->data, writer->length};
    return ALEA_OK;
}

void alea__api_text_free(alea_api_text *text) {
    free(text->data);
    *text = (alea_api_text){NULL, 0};
}

/* Begins again with no memory: what was written belongs to the caller. */
static alea_status give_writer(alea_api_answer *answer, alea_api_text *body) {
    const alea_status status = alea__api_text_of(&answer->writer, body);
    alea__json_write_to_buffer(&answer->writer, ALEA_API_BODY_BYTES_MAX);
    return status;
}

static void become_error(alea_api_answer *answer, alea_status status) {
    answer->failed = true;
    alea__api_error_late(&answer->error, status,
                         status == ALEA_ELIMIT
                             ? "the answer is longer than the server has room for: ask for less "
                               "in one request"
                             : NULL);
}

alea_status alea__api_answer_body(alea_api_answer *answer, size_t bytes_max, alea_pool *pool,
                                  int *status, alea_api_text *body) {
    if (!answer->done) return ALEA_MORE;
    if (!answer->failed) {
        if (bytes_max < ALEA_API_BODY_BYTES_MAX) answer->writer.bytes_max = bytes_max;
        const alea_status written = alea__api_write_whole(answer, pool);
        if (written >= 0) {
            *status = 200;
            return give_writer(answer, body);
        }
        alea__json_write_reset(&answer->writer);
        become_error(answer, written);
    }
    char *copy = malloc(ALEA_API_ERROR_BYTES);
    if (!copy) return ALEA_ENOMEM;
    *body = (alea_api_text){copy, alea__api_error_body(&answer->error, copy)};
    *status = answer->error.status;
    return ALEA_OK;
}
