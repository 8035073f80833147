/*
 * Scores of prompts: what may be asked of them, what the engine says of them, and how it is written
 * in the two forms that clients read. With echo a prompt's tokens open the arrays of each of its
 * choices; prompt_logprobs is a list of objects, in which the prompt's own token comes first:
 * readers take the first key for it.
 *
 * The engine reports a prompt once, however many choices it has, so its scores are kept beside the
 * choices and written into each.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "json/json_number.h"

/* ---- what may be asked ---- */

alea_status alea__api_check_scoring(const alea_api *api, const char *param, alea_api_error *error) {
    if (api->allow_prompt_logprobs) return ALEA_OK;
    return alea__api_error_set(error, ALEA_FAULT_UNSUPPORTED, param,
                               api->options.prompt_logprobs_off
                                   ? "%s: prompts are not scored by this server, which was started "
                                     "with --prompt-logprobs off"
                                   : "%s: prompts cannot be scored by the model's core",
                               param);
}

alea_status alea__api_read_scoring(alea_api_maker *maker) {
    const alea_api_values *values = maker->values;
    alea_api_presentation *shown = &maker->draft->presentation;
    alea_request_params *params = &maker->draft->job.params;
    const bool asked = values->prompt_logprobs.given;
    const bool stream = values->stream.given && values->stream.value;
    shown->echo = values->echo.given && values->echo.value;
    shown->echo_logprobs = shown->echo && shown->logprobs;
    params->no_scored_cache = values->scored_cache.given && !values->scored_cache.value;
    if (asked && stream)
        return alea__api_refuse(
            maker->error, "prompt_logprobs",
            "prompt_logprobs does not go with stream: they are a part of the whole "
            "answer");
    if (values->logprob_token_ids && shown->echo && values->max_tokens.given &&
        values->max_tokens.value == 0)
        return alea__api_refuse(maker->error, "logprob_token_ids",
                                "logprob_token_ids are of generated tokens, and max_tokens is 0");
    if (!asked && !shown->echo_logprobs) return ALEA_OK;
    /* The number beside logprob_token_ids has no say there, but it is all that is asked here. */
    params->prompt_top = (int32_t)(asked ? values->prompt_logprobs.value : values->logprobs.value);
    shown->prompt_top = stream ? -1 : params->prompt_top;
    return alea__api_check_scoring(maker->api, asked ? "prompt_logprobs" : "echo", maker->error);
}

/* ---- a text and its tokens ---- */

static alea_bytes text_of(const alea_api *api, const alea_api_prompt *prompt, int32_t at,
                          bool show_special) {
    alea_token_info info = {.flags = 0};
    (void)(alea_core_token(api->core, prompt->tokens[at], &info) < 0); /* the id was checked */
    const bool control = (info.flags & ALEA_TOKEN_CONTROL) != 0;
    const bool named = show_special || (prompt->is_text && at >= prompt->n_added);
    alea_bytes bytes = control && named ? info.name : info.bytes;
    if (at == prompt->n_added && prompt->has_blank && bytes.length > 0) {
        bytes.data++;
        bytes.length--;
    }
    return bytes;
}

/* Whether the tokens from n_added on are the text, with or without its first blank. */
static bool spells(const alea_api *api, alea_bytes text, const alea_api_prompt *prompt) {
    size_t at = 0;
    for (int32_t i = prompt->n_added; i < prompt->n_tokens; i++) {
        const alea_bytes bytes = text_of(api, prompt, i, false);
        if (bytes.length > text.length - at || memcmp(text.data + at, bytes.data, bytes.length))
            return false;
        at += bytes.length;
    }
    return at == text.length;
}

void alea__api_compare_text(const alea_api *api, alea_bytes text, alea_api_prompt *prompt) {
    for (int way = 0; way < 4; way++) {
        prompt->n_added = way / 2;
        prompt->has_blank = way % 2;
        if (prompt->n_added < prompt->n_tokens && spells(api, text, prompt)) return;
    }
    /* The tokenizer rewrites texts: what its tokens say is shown. */
    prompt->n_added = prompt->tokens[0] == api->info.bos;
    prompt->has_blank = false;
}

/* ---- what came ---- */

/* The tokens before a position, nearest first. */
static void tokens_before(const alea_api_prompt *prompt, size_t at,
                          int32_t before[ALEA_COMPAT_CONTEXT]) {
    for (size_t k = 0; k < ALEA_COMPAT_CONTEXT; k++)
        before[k] = k < at ? prompt->tokens[at - 1 - k] : -1;
}

/* The place of the next token in the echoed text. */
static uint64_t next_offset(alea_api_answer *answer, int32_t prompt, size_t at) {
    alea_api_scores *scores = alea__api_scores_of(answer, prompt);
    const alea_api_prompt *asked = &answer->job->prompts[prompt];
    uint64_t offset = 0;
    if (answer->shown->vllm_compat) {
        int32_t before[ALEA_COMPAT_CONTEXT];
        tokens_before(asked, at, before);
        offset = scores->compat_offset;
        scores->compat_offset += alea__api_compat_length(answer, asked->tokens[at], before);
        return offset;
    }
    const alea_bytes bytes = text_of(answer->api, asked, (int32_t)at, answer->shown->show_special);
    alea__text_stream_push(&scores->stream, bytes, (uint8_t *)answer->scratch, &offset);
    return offset;
}

alea_status alea__api_scores_take(alea_api_answer *answer, int32_t prompt,
                                  const alea_event *event) {
    alea_api_scores *scores = alea__api_scores_of(answer, prompt);
    const alea_api_prompt *asked = &answer->job->prompts[prompt];
    const size_t n = (size_t)event->n_alternatives, at = scores->rows.n;
    if (event->index < asked->continuation) return ALEA_OK; /* a score's context */
    if (!scores->rows.items &&
        !alea__api_list_reserve(answer, &scores->rows,
                                (size_t)(asked->n_tokens - asked->continuation),
                                sizeof(alea_api_score)))
        return ALEA_ENOMEM;
    const alea_api_score row = {
        .token = event->token,
        .rank = event->has_entry ? event->rank : 0,
        .logprob = event->logprob,
        .is_greedy = event->is_greedy,
        .n_alternatives = event->n_alternatives,
        .first_alternative = scores->alternatives.n,
        .offset = answer->shown->echo_logprobs ? next_offset(answer, prompt, at) : 0,
    };
    if (!alea__api_list_reserve(answer, &scores->alternatives, n, sizeof *event->alternatives) ||
        !alea__api_list_append(answer, &scores->rows, &row, sizeof row))
        return ALEA_ENOMEM;
    if (n > 0)
        memcpy((alea_alternative *)scores->alternatives.items + scores->alternatives.n,
               event->alternatives, n * sizeof *event->alternatives);
    scores->alternatives.n += n;
    scores->complete = event->index + 1 == asked->n_tokens;
    return ALEA_OK;
}

bool alea__api_scores_complete(const alea_api_answer *answer, int32_t prompt) {
    return !answer->shown->echo_logprobs || alea__api_scores_of(answer, prompt)->complete;
}

/* vLLM leaves the text out where the ids are given. */
alea_status alea__api_echo(alea_api_answer *answer, alea_api_choice *choice) {
    const alea_api_prompt *prompt = &answer->job->prompts[choice->prompt];
    const alea_api_presentation *shown = answer->shown;
    if (!shown->echo) return ALEA_OK;
    for (int32_t i = 0; i < prompt->n_tokens; i++) {
        if (shown->vllm_compat) {
            int32_t before[ALEA_COMPAT_CONTEXT];
            tokens_before(prompt, (size_t)i, before);
            choice->compat_offset += alea__api_compat_length(answer, prompt->tokens[i], before);
            if (shown->return_token_ids) continue;
        }
        const alea_bytes text = text_of(answer->api, prompt, i, shown->show_special);
        const alea_status status = alea__api_add_text(answer, choice, text, NULL);
        if (status < 0) return status;
    }
    return ALEA_OK;
}

/* ---- how it is written ---- */

/* No token of a prompt was drawn, so there is one distribution, whatever the mode. */
alea_api_entry alea__api_prompt_entry(const alea_api_answer *answer, int32_t prompt, size_t at) {
    const alea_api_scores *scores = alea__api_scores_of(answer, prompt);
    const alea_api_score *row = (const alea_api_score *)scores->rows.items + at;
    alea_api_entry entry = {
        .token = row->token,
        .n_alternatives = row->n_alternatives,
        .first_alternative = row->first_alternative,
        .offset = row->offset,
        .logprob = row->logprob,
        .sampled_logprob = row->logprob,
        .of_prompt = true,
        .blank = row->rank == 0,
    };
    tokens_before(&answer->job->prompts[prompt], at, entry.before);
    return entry;
}

typedef struct ranked {
    alea_alternative token;
    int32_t rank;
} ranked;

static void write_ranked(alea_api_answer *answer, const ranked *one, const int32_t *before) {
    alea_json_writer *writer = &answer->writer;
    char key[ALEA_JSON_NUMBER_BYTES];
    const size_t n = alea__json_int64(one->token.token, key);
    alea__json_key_bytes(writer, (alea_bytes){(const uint8_t *)key, n});
    alea__json_begin_object(writer);
    alea__json_key(writer, "logprob");
    alea__json_logprob_value(writer, one->token.logprob);
    alea__json_key(writer, "rank");
    alea__json_int(writer, one->rank);
    alea__json_key(writer, "decoded_token");
    alea__json_string(writer, alea__api_token_text(answer, one->token.token, before));
    alea__json_end_object(writer);
}

/* The list is of the greatest values in order, so it knows its own ranks: 1 + those greater. */
static void write_position(alea_api_answer *answer, int32_t prompt, size_t at) {
    const alea_api_scores *scores = alea__api_scores_of(answer, prompt);
    const alea_api_score *row = (const alea_api_score *)scores->rows.items + at;
    int32_t before[ALEA_COMPAT_CONTEXT], rank = 1;
    if (row->rank == 0) {
        alea__json_null(&answer->writer);
        return;
    }
    tokens_before(&answer->job->prompts[prompt], at, before);
    alea__json_begin_object(&answer->writer);
    write_ranked(answer, &(ranked){{row->token, row->logprob}, row->rank}, before);
    for (int32_t i = 0; i < row->n_alternatives; i++) {
        const alea_alternative *list =
            (const alea_alternative *)scores->alternatives.items + row->first_alternative;
        if (i > 0 && list[i].logprob < list[i - 1].logprob) rank = i + 1;
        if (list[i].token < 0 || list[i].token == row->token) continue;
        write_ranked(answer, &(ranked){list[i], rank}, before);
    }
    alea__json_end_object(&answer->writer);
}

void alea__api_write_prompt_logprobs(alea_api_answer *answer, int32_t prompt) {
    alea__json_key(&answer->writer, "prompt_logprobs");
    if (answer->shown->prompt_top < 0) {
        alea__json_null(&answer->writer);
        return;
    }
    alea__json_begin_array(&answer->writer);
    for (size_t i = 0; i < alea__api_scores_of(answer, prompt)->rows.n; i++)
        write_position(answer, prompt, i);
    alea__json_end_array(&answer->writer);
}
