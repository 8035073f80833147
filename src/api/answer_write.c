/*
 * The frames of an answer: whole bodies, which hold every field, null ones too, and the chunks of
 * a stream, which hold what they set. Between the braces the same functions write.
 */
#include <string.h>

#include "api/answer.h"

/* ---- words ---- */

static bool is_chat(const alea_api_answer *answer) {
    return answer->job->endpoint == ALEA_API_CHAT;
}

static const char *object_word(const alea_api_answer *answer, bool chunk) {
    if (!is_chat(answer)) return "text_completion";
    return chunk ? "chat.completion.chunk" : "chat.completion";
}

static const char *finish_word(alea_finish finish) {
    switch (finish) {
    case ALEA_FINISH_END:
    case ALEA_FINISH_STOP_TOKEN:
    case ALEA_FINISH_STOP: return "stop";
    case ALEA_FINISH_LENGTH: return "length";
    default: return "abort";
    }
}

/* ---- pieces that both frames have ---- */

static void write_head(alea_api_answer *answer, bool chunk) {
    alea_json_writer *writer = &answer->writer;
    alea__json_put_cstring(writer, "id", answer->job->id);
    alea__json_put_cstring(writer, "object", object_word(answer, chunk));
    alea__json_put_int(writer, "created", answer->job->created_s);
    alea__json_put_cstring(writer, "model", answer->api->options.model_names[0]);
}

static alea_bytes text_of(const alea_api_choice *choice) {
    static const uint8_t empty[1] = {0};
    return (alea_bytes){choice->text.n ? choice->text.items : empty, choice->text.n};
}

/* A chunk without entries has null: clients look at the first item of what is no null. */
static void write_logprobs(alea_api_answer *answer, const alea_api_choice *choice, bool chunk) {
    alea__json_key(&answer->writer, "logprobs");
    const bool begins = answer->shown->echo_logprobs && !choice->written;
    if (answer->shown->logprobs && (choice->entries.n > 0 || begins || !chunk))
        alea__api_write_logprobs(answer, choice);
    else
        alea__json_null(&answer->writer);
}

/* The string or the id that stopped it; null at the model's first end token, as in vLLM. */
static void write_stop_reason(alea_api_answer *answer, const alea_api_choice *choice) {
    alea_json_writer *writer = &answer->writer;
    const alea_request_params *params = &answer->job->params;
    const bool by_token =
        choice->finish == ALEA_FINISH_STOP_TOKEN || choice->finish == ALEA_FINISH_END;
    const bool by_end = choice->last_token == answer->api->info.eos && !params->ignore_end;
    alea__json_key(writer, "stop_reason");
    if (choice->finished && choice->finish == ALEA_FINISH_STOP)
        alea__json_string(writer, params->stops[choice->stop]);
    else if (choice->finished && by_token && !by_end && choice->last_token >= 0)
        alea__json_int(writer, choice->last_token);
    else
        alea__json_null(writer);
}

static void write_end(alea_api_answer *answer, const alea_api_choice *choice) {
    if (choice->finished)
        alea__json_put_cstring(&answer->writer, "finish_reason", finish_word(choice->finish));
    else
        alea__json_put_null(&answer->writer, "finish_reason");
    write_stop_reason(answer, choice);
}

static void write_token_ids(alea_api_answer *answer, const char *name, const int32_t *ids,
                            size_t n) {
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, name);
    if (!answer->shown->return_token_ids) {
        alea__json_null(writer);
        return;
    }
    alea__json_begin_array(writer);
    for (size_t i = 0; i < n; i++)
        alea__json_int(writer, ids[i]);
    alea__json_end_array(writer);
}

static void write_output_ids(alea_api_answer *answer, const alea_api_choice *choice) {
    write_token_ids(answer, "token_ids", choice->ids.items, choice->ids.n);
}

static void write_prompt_ids(alea_api_answer *answer, const alea_api_choice *choice) {
    const alea_api_prompt *prompt = &answer->job->prompts[choice->prompt];
    write_token_ids(answer, "prompt_token_ids", prompt->tokens, (size_t)prompt->n_tokens);
}

static void write_prompt_text(alea_api_answer *answer) {
    const alea_bytes text = answer->shown->prompt_text;
    alea__json_key(&answer->writer, "prompt_text");
    if (text.data)
        alea__json_string(&answer->writer, text);
    else
        alea__json_null(&answer->writer);
}

/* ---- usage ---- */

typedef struct usage {
    int64_t prompt_tokens, output_tokens, cached_tokens;
} usage;

static void write_usage(alea_api_answer *answer, usage used, bool with_nulls) {
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, "usage");
    alea__json_begin_object(writer);
    alea__json_put_int(writer, "prompt_tokens", used.prompt_tokens);
    alea__json_put_int(writer, "total_tokens", used.prompt_tokens + used.output_tokens);
    alea__json_put_int(writer, "completion_tokens", used.output_tokens);
    if (answer->api->options.prompt_tokens_details && used.cached_tokens >= 0) {
        alea__json_key(writer, "prompt_tokens_details");
        alea__json_begin_object(writer);
        alea__json_put_int(writer, "cached_tokens", used.cached_tokens);
        alea__json_end_object(writer);
    } else if (with_nulls) {
        alea__json_put_null(writer, "prompt_tokens_details");
    }
    if (with_nulls) alea__json_put_null(writer, "completion_tokens_details");
    alea__json_end_object(writer);
}

/* A prompt counts once, however many choices it has. */
static usage whole_usage(const alea_api_answer *answer) {
    usage used = {0, answer->output_tokens, answer->cached_tokens};
    for (int32_t i = 0; i < answer->job->n_prompts; i++)
        used.prompt_tokens += answer->job->prompts[i].n_tokens;
    return used;
}

/* Of one choice, so far. */
static usage choice_usage(const alea_api_answer *answer, const alea_api_choice *choice) {
    const int32_t n_tokens = choice->finished ? choice->output_tokens : choice->n_tokens;
    return (usage){answer->job->prompts[choice->prompt].n_tokens, n_tokens, -1};
}

/* ---- whole bodies ---- */

static void write_completion(alea_api_answer *answer, const alea_api_choice *choice) {
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, "text");
    alea__json_string(writer, text_of(choice));
    write_logprobs(answer, choice, false);
    write_end(answer, choice);
    write_output_ids(answer, choice);
    alea__api_write_prompt_logprobs(answer, choice->prompt);
    write_prompt_ids(answer, choice);
    alea__json_put_null(writer, "routed_experts");
}

static void write_chat(alea_api_answer *answer, const alea_api_choice *choice) {
    static const char *const nulls[] = {"refusal", "annotations", "audio", "function_call",
                                        "reasoning"};
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, "message");
    alea__json_begin_object(writer);
    alea__json_key(writer, "role");
    alea__json_string(writer, answer->shown->role);
    alea__json_key(writer, "content");
    alea__json_string(writer, text_of(choice));
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        alea__json_put_null(writer, nulls[i]);
    alea__json_end_object(writer);
    write_logprobs(answer, choice, false);
    write_end(answer, choice);
    write_output_ids(answer, choice);
    alea__json_put_null(writer, "routed_experts");
}

void alea__api_write_choice(alea_api_answer *answer, int32_t index) {
    alea_json_writer *writer = &answer->writer;
    alea__json_begin_object(writer);
    alea__json_put_int(writer, "index", index);
    if (is_chat(answer))
        write_chat(answer, alea__api_choice_of(answer, index));
    else
        write_completion(answer, alea__api_choice_of(answer, index));
    alea__json_end_object(writer);
}

static void write_choices(alea_api_answer *answer, alea_pool *pool) {
    alea__json_key(&answer->writer, "choices");
    alea__json_begin_array(&answer->writer);
    if (!pool || !alea__api_write_beside(answer, pool)) {
        for (int32_t i = 0; i < answer->n_choices; i++)
            alea__api_write_choice(answer, i);
    }
    alea__json_end_array(&answer->writer);
}

alea_status alea__api_write_whole(alea_api_answer *answer, alea_pool *pool) {
    alea_json_writer *writer = &answer->writer;
    if (answer->job->endpoint == ALEA_API_SCORE) return alea__api_write_score(answer);
    alea__json_write_reset(writer);
    alea__json_begin_object(writer);
    write_head(answer, false);
    write_choices(answer, pool);
    alea__json_put_null(writer, "service_tier");
    alea__json_put_cstring(writer, "system_fingerprint", answer->api->fingerprint);
    write_usage(answer, whole_usage(answer), true);
    if (is_chat(answer)) {
        alea__api_write_prompt_logprobs(answer, 0);
        write_prompt_ids(answer, alea__api_choice_of(answer, 0));
        write_prompt_text(answer);
    }
    alea__json_put_null(writer, "kv_transfer_params");
    alea__json_put_null(writer, "ec_transfer_params");
    alea__json_put_null(writer, "metrics");
    alea__json_end_object(writer);
    return alea__json_finish(writer);
}

/* ---- chunks ---- */

static void write_text_chunk(alea_api_answer *answer, const alea_api_choice *choice) {
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, "text");
    alea__json_string(writer, text_of(choice));
    write_logprobs(answer, choice, true);
    write_end(answer, choice);
    if (choice->written)
        alea__json_put_null(writer, "prompt_token_ids");
    else
        write_prompt_ids(answer, choice);
    write_output_ids(answer, choice);
}

/* A delta without text is {}: it carries what came while no character was whole, or the end. */
static void write_delta_chunk(alea_api_answer *answer, const alea_api_choice *choice) {
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, "delta");
    alea__json_begin_object(writer);
    if (choice->text.n) {
        alea__json_key(writer, "content");
        alea__json_string(writer, text_of(choice));
    }
    alea__json_end_object(writer);
    write_logprobs(answer, choice, true);
    write_end(answer, choice);
    write_output_ids(answer, choice);
}

static void write_role_chunk(alea_api_answer *answer) {
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, "delta");
    alea__json_begin_object(writer);
    alea__json_key(writer, "role");
    alea__json_string(writer, answer->shown->role);
    alea__json_put_cstring(writer, "content", "");
    alea__json_end_object(writer);
    alea__json_put_null(writer, "logprobs");
    alea__json_put_null(writer, "finish_reason");
}

static void write_chunk_choice(alea_api_answer *answer, alea_api_chunk kind, int32_t index) {
    alea_json_writer *writer = &answer->writer;
    alea__json_begin_object(writer);
    alea__json_put_int(writer, "index", index);
    if (kind == ALEA_CHUNK_ROLE)
        write_role_chunk(answer);
    else if (is_chat(answer))
        write_delta_chunk(answer, alea__api_choice_of(answer, index));
    else
        write_text_chunk(answer, alea__api_choice_of(answer, index));
    alea__json_end_object(writer);
}

alea_status alea__api_write_chunk(alea_api_answer *answer, alea_api_chunk kind, int32_t index,
                                  bool last) {
    alea_json_writer *writer = &answer->writer;
    alea__json_write_reset(writer);
    alea__json_begin_object(writer);
    write_head(answer, true);
    alea__json_key(writer, "choices");
    alea__json_begin_array(writer);
    if (kind != ALEA_CHUNK_USAGE) write_chunk_choice(answer, kind, index);
    alea__json_end_array(writer);
    if (last) alea__json_put_cstring(writer, "system_fingerprint", answer->api->fingerprint);
    if (kind == ALEA_CHUNK_ROLE) {
        write_prompt_ids(answer, alea__api_choice_of(answer, index));
        write_prompt_text(answer);
    }
    if (kind == ALEA_CHUNK_USAGE)
        write_usage(answer, whole_usage(answer), false);
    else if (answer->shown->continuous_usage)
        write_usage(answer, choice_usage(answer, alea__api_choice_of(answer, index)), false);
    alea__json_end_object(writer);
    return alea__json_finish(writer);
}
