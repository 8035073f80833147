/*
 * POST /v1/score: one prompt, many continuations, and what each is worth, or a whole document
 * (document.c). Every continuation is a request of its own to the engine, behind the same context,
 * whose scores the engine computes once; nothing is generated. Texts are put together and
 * tokenized, and their values added, by the code of `alea score`, so both report the same bits.
 */
#include <math.h>
#include <string.h>

#include "api/answer.h"
#include "runtime/score_text.h"

/* ---- requests ---- */

/* The one text that prompt and continuation are, to ids in the arena. */
static alea_status join_texts(const alea_api_maker *maker, alea_bytes before,
                              const alea_json_value *value, alea_api_prompt *prompt) {
    const alea_api_bool *add = &maker->values->add_special_tokens;
    const uint32_t flags = !add->given || add->value ? (uint32_t)ALEA_TOKENIZE_SPECIAL : 0;
    alea_bytes text;
    alea_token_ids ids;
    alea_error why;
    if (alea__json_get_string(value, "continuations", &text, NULL) < 0)
        return alea__api_error_set(maker->error, ALEA_FAULT_TYPE, "continuations",
                                   "the prompt is a text, so the continuations must be texts");
    alea_status status = alea__joint_encode(maker->api->core, before, text, flags, &ids, &why);
    if (status == ALEA_ENOMEM) return alea__api_no_memory(maker->error);
    if (status < 0) return alea__api_refuse(maker->error, "continuations", why.message);
    int32_t *tokens = ids.n_tokens > INT32_MAX
                          ? NULL
                          : alea__arena_array(&maker->draft->arena, ids.n_tokens, sizeof *tokens);
    if (tokens) {
        memcpy(tokens, ids.tokens, ids.n_tokens * sizeof *tokens);
        *prompt = (alea_api_prompt){.tokens = tokens,
                                    .n_tokens = (int32_t)ids.n_tokens,
                                    .continuation = (int32_t)ids.continuation};
    }
    alea__token_ids_free(&ids);
    return tokens ? ALEA_OK : alea__api_no_memory(maker->error);
}

static alea_status join_ids(const alea_api_maker *maker, alea_token_list before,
                            const alea_json_value *value, alea_api_prompt *prompt) {
    alea_token_list ids;
    if (alea__json_kind(value) != ALEA_JSON_ARRAY)
        return alea__api_error_set(maker->error, ALEA_FAULT_TYPE, "continuations",
                                   "the prompt is token ids, so the continuations must be lists of "
                                   "token ids");
    if (alea__json_size(value) == 0)
        return alea__api_refuse(maker->error, "continuations", "a continuation must not be empty");
    if (alea__json_size(value) > (size_t)(INT32_MAX - before.count))
        return alea__api_refuse(maker->error, "continuations", "a continuation is too long");
    const alea_status status = alea__api_read_ids(value, "continuations", maker->api->info.vocab,
                                                  &maker->draft->arena, &ids, maker->error);
    if (status < 0) return status;
    const size_t n = (size_t)before.count + (size_t)ids.count;
    int32_t *tokens = alea__arena_array(&maker->draft->arena, n, sizeof *tokens);
    if (!tokens) return alea__api_no_memory(maker->error);
    memcpy(tokens, before.tokens, (size_t)before.count * sizeof *tokens);
    memcpy(tokens + before.count, ids.tokens, (size_t)ids.count * sizeof *tokens);
    *prompt =
        (alea_api_prompt){.tokens = tokens, .n_tokens = (int32_t)n, .continuation = before.count};
    return ALEA_OK;
}

/* What all continuations follow, in one of its two forms. */
typedef struct context {
    bool is_text;
    alea_bytes text;
    alea_token_list ids;
} context;

static alea_status read_context(const alea_api_maker *maker, context *before) {
    const alea_api *api = maker->api;
    before->is_text =
        alea__json_get_string(maker->values->prompt, "prompt", &before->text, NULL) >= 0;
    if (before->is_text &&
        before->text.length / (size_t)api->info.context_tokens > api->token_bytes_max)
        return alea__api_error_set(maker->error, ALEA_FAULT_CONTEXT, "prompt",
                                   "the prompt has %zu bytes, which cannot fit the context of %d "
                                   "tokens",
                                   before->text.length, api->info.context_tokens);
    if (before->is_text) return ALEA_OK;
    if (alea__json_size(maker->values->prompt) == 0)
        return alea__api_refuse(
            maker->error, "prompt",
            "prompt must not be empty: the first token of a continuation needs one "
            "before it");
    if (alea__json_size(maker->values->prompt) > (size_t)api->info.context_tokens)
        return alea__api_error_set(maker->error, ALEA_FAULT_CONTEXT, "prompt",
                                   "the prompt has %zu tokens and the context %d",
                                   alea__json_size(maker->values->prompt),
                                   api->info.context_tokens);
    return alea__api_read_ids(maker->values->prompt, "prompt", api->info.vocab,
                              &maker->draft->arena, &before->ids, maker->error);
}

static alea_status read_continuation(const alea_api_maker *maker, const context *before,
                                     const alea_json_value *value, alea_api_prompt *prompt) {
    const int32_t most = maker->api->info.context_tokens;
    const alea_status status = before->is_text ? join_texts(maker, before->text, value, prompt)
                                               : join_ids(maker, before->ids, value, prompt);
    if (status < 0 || prompt->n_tokens <= most) return status;
    return alea__api_error_set(maker->error, ALEA_FAULT_CONTEXT, "continuations",
                               "prompt and continuation have %d tokens and the context %d",
                               prompt->n_tokens, most);
}

/* One string, or one list of ids, is one continuation. */
static bool is_single(const alea_json_value *value) {
    if (alea__json_kind(value) != ALEA_JSON_ARRAY) return true;
    alea_json_walk walk = alea__json_walk(value);
    return alea__json_next(&walk) && alea__json_kind(walk.value) == ALEA_JSON_INTEGER;
}

static alea_status read_continuations(alea_api_maker *maker) {
    const alea_json_value *value = maker->values->continuations;
    alea_api_draft *draft = maker->draft;
    const bool single = is_single(value);
    const size_t n = single ? 1 : alea__json_size(value);
    context before = {.is_text = false};
    if (maker->values->window.given || maker->values->stride.given)
        return alea__api_refuse(maker->error, maker->values->window.given ? "window" : "stride",
                                "window and stride are of a document, which has no continuations");
    if (n == 0)
        return alea__api_refuse(maker->error, "continuations", "continuations must not be empty");
    if (n > (size_t)maker->api->options.prompts_max)
        return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "continuations",
                                   "continuations has %zu items, at most %d are allowed", n,
                                   maker->api->options.prompts_max);
    alea_status status = read_context(maker, &before);
    if (status < 0) return status;
    draft->prompts = alea__arena_array(&draft->arena, n, sizeof *draft->prompts);
    if (!draft->prompts) return alea__api_no_memory(maker->error);
    if (single) status = read_continuation(maker, &before, value, draft->prompts);
    size_t i = 0;
    for (alea_json_walk walk = alea__json_walk(value);
         !single && status >= 0 && alea__json_next(&walk); i++)
        status = read_continuation(maker, &before, walk.value, &draft->prompts[i]);
    draft->job.n_prompts = (int32_t)n;
    return status;
}

alea_status alea__api_read_score(alea_api_maker *maker) {
    const alea_api_values *values = maker->values;
    alea_request_params *params = &maker->draft->job.params;
    const char *param = values->continuations ? "continuations" : "prompt";
    const alea_status status = alea__api_check_scoring(maker->api, param, maker->error);
    if (status < 0) return status;
    params->max_tokens = 0;
    params->prompt_top = 0;
    params->no_scored_cache = values->scored_cache.given && !values->scored_cache.value;
    return values->continuations ? read_continuations(maker) : alea__api_read_document(maker);
}

/* ---- answers ---- */

/* What the columns of a score are. */
typedef enum column { COLUMN_TOKEN, COLUMN_ID, COLUMN_LOGPROB, COLUMN_RANK, N_COLUMNS } column;

static void write_cell(alea_api_answer *answer, column which, const alea_api_score *row) {
    static const int32_t none[ALEA_COMPAT_CONTEXT] = {-1, -1, -1, -1};
    alea_json_writer *writer = &answer->writer;
    switch (which) {
    case COLUMN_TOKEN:
        alea__json_string(writer, alea__api_token_text(answer, row->token, none));
        break;
    case COLUMN_ID: alea__json_int(writer, row->token); break;
    case COLUMN_LOGPROB: alea__json_logprob_value(writer, row->logprob); break;
    case COLUMN_RANK: alea__json_int(writer, row->rank); break;
    case N_COLUMNS: break;
    }
}

/* Scores that are shown as one: a continuation's, or all windows of a document. */
typedef struct shown {
    int32_t first, n; /* prompts */
} shown;

static void write_column(alea_api_answer *answer, column which, shown part) {
    alea__json_begin_array(&answer->writer);
    for (int32_t i = 0; i < part.n; i++) {
        const alea_api_scores *scores = alea__api_scores_of(answer, part.first + i);
        const alea_api_score *rows = scores->rows.items;
        for (size_t k = 0; k < scores->rows.n; k++)
            write_cell(answer, which, &rows[k]);
    }
    alea__json_end_array(&answer->writer);
}

static void write_columns(alea_api_answer *answer, shown part) {
    static const char *const names[N_COLUMNS] = {"tokens", "token_ids", "token_logprobs", "ranks"};
    for (int c = 0; c < N_COLUMNS; c++) {
        alea__json_key(&answer->writer, names[c]);
        write_column(answer, (column)c, part);
    }
}

/* Null: the model rules a token out, so the sum is no number. */
static void write_real(alea_json_writer *writer, const char *name, double value) {
    alea__json_key(writer, name);
    if (isfinite(value))
        alea__json_double(writer, value);
    else
        alea__json_null(writer);
}

static alea_status add_scores(const alea_api_answer *answer, const alea_api_scores *scores,
                              alea_score_sums *sums) {
    const alea_api_score *rows = scores->rows.items;
    if (!scores->complete) return ALEA_ECANCELLED;
    for (size_t i = 0; i < scores->rows.n; i++) {
        alea_token_info info;
        if (rows[i].rank == 0) return ALEA_EROW;
        const alea_status status = alea_core_token(answer->api->core, rows[i].token, &info);
        if (status < 0) return status;
        const alea_row_report report = {.token = rows[i].token,
                                        .logprob = rows[i].logprob,
                                        .rank = rows[i].rank,
                                        .greedy = rows[i].is_greedy ? rows[i].token : -1};
        const alea_scored scored = {.index = i + 1, .token = rows[i].token, .report = &report};
        alea__score_sums_add(sums, &scored, info.bytes.length);
    }
    return ALEA_OK;
}

static alea_status write_part(alea_api_answer *answer, int32_t index, shown part) {
    alea_json_writer *writer = &answer->writer;
    alea_score_sums sums = alea__score_sums_start(0);
    for (int32_t i = 0; i < part.n; i++) {
        const alea_api_scores *scores = alea__api_scores_of(answer, part.first + i);
        const alea_status status = add_scores(answer, scores, &sums);
        if (status < 0) return status;
    }
    alea__json_begin_object(writer);
    alea__json_put_int(writer, "index", index);
    write_real(writer, "sum_logprob", sums.sum_logprob);
    write_real(writer, "mean_logprob", sums.sum_logprob / (double)sums.n_scored);
    write_real(writer, "logprob_per_byte",
               sums.scored_bytes ? sums.sum_logprob / (double)sums.scored_bytes : (double)NAN);
    alea__json_put_int(writer, "n_tokens", (int64_t)sums.n_scored);
    alea__json_put_int(writer, "n_bytes", (int64_t)sums.scored_bytes);
    alea__json_key(writer, "is_greedy");
    alea__json_bool(writer, sums.is_greedy);
    alea__json_put_int(writer, "first", answer->job->prompts[index].continuation);
    write_columns(answer, part);
    alea__json_end_object(writer);
    return writer->status;
}

static alea_status write_parts(alea_api_answer *answer) {
    const bool is_document = answer->job->document_tokens > 0;
    if (is_document) return write_part(answer, 0, (shown){0, answer->job->n_prompts});
    alea_status status = ALEA_OK;
    for (int32_t i = 0; i < answer->job->n_prompts && status >= 0; i++)
        status = write_part(answer, i, (shown){i, 1});
    return status;
}

static void write_usage(alea_api_answer *answer) {
    alea_json_writer *writer = &answer->writer;
    int64_t n_tokens = 0;
    for (int32_t i = 0; i < answer->job->n_prompts; i++)
        n_tokens += answer->job->prompts[i].n_tokens;
    if (answer->job->document_tokens > 0) n_tokens = answer->job->document_tokens;
    alea__json_key(writer, "usage");
    alea__json_begin_object(writer);
    alea__json_put_int(writer, "prompt_tokens", n_tokens);
    alea__json_put_int(writer, "total_tokens", n_tokens);
    alea__json_put_int(writer, "completion_tokens", 0);
    alea__json_key(writer, "prompt_tokens_details");
    alea__json_begin_object(writer);
    alea__json_put_int(writer, "cached_tokens", answer->cached_tokens);
    alea__json_end_object(writer);
    alea__json_end_object(writer);
}

alea_status alea__api_write_score(alea_api_answer *answer) {
    alea_json_writer *writer = &answer->writer;
    alea__json_write_reset(writer);
    alea__json_begin_object(writer);
    alea__json_put_cstring(writer, "id", answer->job->id);
    alea__json_put_cstring(writer, "object", "score");
    alea__json_put_int(writer, "created", answer->job->created_s);
    alea__json_put_cstring(writer, "model", answer->api->options.model_names[0]);
    alea__json_key(writer, "scores");
    alea__json_begin_array(writer);
    const alea_status status = write_parts(answer);
    if (status < 0) return status;
    alea__json_end_array(writer);
    alea__json_put_cstring(writer, "system_fingerprint", answer->api->fingerprint);
    write_usage(answer);
    alea__json_end_object(writer);
    return alea__json_finish(writer);
}
