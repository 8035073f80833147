/*
 * Prompts of a completion, in their four forms, and the fit of any prompt into the context. Token
 * ids are taken as they stand: nothing is put in front of them and nothing is tokenized again.
 */
#include <string.h>

#include "api/api_parts.h"

static alea_status refuse(alea_api_error *error, const char *message) {
    return alea__api_error_set(error, ALEA_FAULT_VALUE, "prompt", "%s", message);
}

alea_status alea__api_encode(const alea_api *api, alea_bytes text, bool add_special,
                             const char *param, alea_arena *arena, alea_token_list *out,
                             alea_api_error *error) {
    const uint32_t flags =
        (uint32_t)ALEA_TOKENIZE_MARKUP | (add_special ? (uint32_t)ALEA_TOKENIZE_SPECIAL : 0u);
    size_t capacity = text.length / 2 + 16, count = 0;
    for (;;) {
        int32_t *tokens = alea__arena_array(arena, capacity, sizeof *tokens);
        if (!tokens) return alea__api_no_memory(error);
        const alea_status status =
            alea_core_tokenize(api->core, text, flags, tokens, capacity, &count);
        if (status < 0 || count > INT32_MAX)
            return alea__api_error_set(error, ALEA_FAULT_VALUE, param, "%s cannot be tokenized: %s",
                                       param, alea_status_text(status < 0 ? status : ALEA_ELIMIT));
        if (count <= capacity) {
            *out = (alea_token_list){tokens, (int32_t)count};
            return ALEA_OK;
        }
        capacity = count;
    }
}

/* ---- the four forms ---- */

/* A text of more bytes than a full context of the longest tokens cannot fit; it is not tokenized
 * to find that out. */
static bool is_hopeless(const alea_api_maker *maker, alea_bytes text) {
    const size_t context = (size_t)maker->api->info.context_tokens;
    if (maker->values->truncate_prompt_tokens.given) return false;
    return text.length / context > maker->api->token_bytes_max;
}

static alea_status read_text(const alea_api_maker *maker, const alea_json_value *value,
                             alea_api_prompt *prompt) {
    alea_bytes text;
    if (alea__json_get_string(value, "prompt", &text, NULL) < 0)
        return alea__api_error_set(maker->error, ALEA_FAULT_TYPE, "prompt",
                                   "prompt mixes strings with other things");
    if (text.length == 0) return refuse(maker->error, "prompt must not be empty");
    if (is_hopeless(maker, text))
        return alea__api_error_set(maker->error, ALEA_FAULT_CONTEXT, "prompt",
                                   "the prompt has %zu bytes, which cannot fit the context of %d "
                                   "tokens",
                                   text.length, maker->api->info.context_tokens);
    const alea_api_bool *add = &maker->values->add_special_tokens;
    alea_token_list ids;
    const alea_status status = alea__api_encode(maker->api, text, add->given ? add->value : true,
                                                "prompt", &maker->draft->arena, &ids, maker->error);
    if (status < 0) return status;
    if (ids.count == 0) return refuse(maker->error, "prompt has no tokens");
    *prompt = (alea_api_prompt){.tokens = ids.tokens, .n_tokens = ids.count, .is_text = true};
    if (maker->draft->presentation.echo) alea__api_compare_text(maker->api, text, prompt);
    return ALEA_OK;
}

static alea_status read_ids(const alea_api_maker *maker, const alea_json_value *value,
                            alea_api_prompt *prompt) {
    if (alea__json_kind(value) != ALEA_JSON_ARRAY)
        return alea__api_error_set(maker->error, ALEA_FAULT_TYPE, "prompt",
                                   "prompt mixes lists of token ids with other things");
    if (alea__json_size(value) == 0) return refuse(maker->error, "prompt must not be empty");
    if (alea__json_size(value) > INT32_MAX) return refuse(maker->error, "prompt is too long");
    alea_token_list ids;
    const alea_status status = alea__api_read_ids(value, "prompt", maker->api->info.vocab,
                                                  &maker->draft->arena, &ids, maker->error);
    if (status < 0) return status;
    *prompt = (alea_api_prompt){.tokens = ids.tokens, .n_tokens = ids.count};
    return ALEA_OK;
}

static alea_json_kind kind_of_first(const alea_json_value *list) {
    alea_json_walk walk = alea__json_walk(list);
    return alea__json_next(&walk) ? alea__json_kind(walk.value) : ALEA_JSON_NULL;
}

alea_status alea__api_read_prompts(alea_api_maker *maker) {
    const alea_json_value *value = maker->values->prompt;
    alea_api_draft *draft = maker->draft;
    const bool list = alea__json_kind(value) == ALEA_JSON_ARRAY;
    const alea_json_kind first = list ? kind_of_first(value) : ALEA_JSON_STRING;
    const bool single = !list || first == ALEA_JSON_INTEGER;
    const size_t n = single ? 1 : alea__json_size(value);
    if (n == 0) return refuse(maker->error, "prompt must not be empty");
    if (n > (size_t)maker->api->options.prompts_max)
        return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "prompt",
                                   "prompt has %zu prompts, at most %d are allowed in one request",
                                   n, maker->api->options.prompts_max);
    if (first != ALEA_JSON_INTEGER && first != ALEA_JSON_STRING && first != ALEA_JSON_ARRAY)
        return alea__api_error_set(maker->error, ALEA_FAULT_TYPE, "prompt",
                                   "prompt must be a string, a list of strings, or one or more "
                                   "lists of token ids");
    draft->prompts = alea__arena_array(&draft->arena, n, sizeof *draft->prompts);
    if (!draft->prompts) return alea__api_no_memory(maker->error);
    draft->job.n_prompts = (int32_t)n;
    if (single)
        return list ? read_ids(maker, value, draft->prompts)
                    : read_text(maker, value, draft->prompts);
    size_t i = 0;
    for (alea_json_walk walk = alea__json_walk(value); alea__json_next(&walk); i++) {
        const alea_status status = first == ALEA_JSON_STRING
                                       ? read_text(maker, walk.value, &draft->prompts[i])
                                       : read_ids(maker, walk.value, &draft->prompts[i]);
        if (status < 0) return status;
    }
    return ALEA_OK;
}

/* ---- the fit ---- */

/* INT64_MAX: whatever fits. */
static int64_t asked_tokens(const alea_api_maker *maker) {
    const alea_api_values *values = maker->values;
    if (values->max_completion_tokens.given) return values->max_completion_tokens.value;
    if (values->max_tokens.given) return values->max_tokens.value;
    return maker->draft->job.endpoint == ALEA_API_CHAT ? INT64_MAX
                                                       : maker->draft->job.params.max_tokens;
}

/* How much of a prompt is kept; -1: all. */
static alea_status read_truncation(const alea_api_maker *maker, int64_t asked, int32_t *keep) {
    const alea_api_int *field = &maker->values->truncate_prompt_tokens;
    const int32_t context = maker->api->info.context_tokens;
    *keep = -1;
    if (!field->given) return ALEA_OK;
    /* Room is left for the answer that was asked for, or for one token where that has no bound. */
    const int64_t answer = asked == INT64_MAX ? 1 : asked < context ? asked : context - 1;
    const int64_t most = context - answer;
    const int64_t wanted = field->value == -1 ? most : field->value;
    if (wanted < 1 || wanted > most)
        return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "truncate_prompt_tokens",
                                   "truncate_prompt_tokens must be -1 or in 1..%lld: the context "
                                   "has %d tokens, and %lld are for the answer",
                                   (long long)most, context, (long long)answer);
    *keep = (int32_t)wanted;
    return ALEA_OK;
}

static void truncate(const alea_api_maker *maker, int32_t keep, alea_api_prompt *prompt) {
    const alea_bytes side = maker->values->truncation_side.value;
    if (keep < 0 || prompt->n_tokens <= keep) return;
    const bool keeps_first = side.length > 0 && side.data[0] == 'r';
    const int32_t cut = prompt->n_tokens - keep;
    prompt->n_tokens = keep;
    if (keeps_first) return;
    prompt->tokens += cut;
    prompt->has_blank = prompt->has_blank && cut <= prompt->n_added;
    prompt->n_added = prompt->n_added > cut ? prompt->n_added - cut : 0;
}

static alea_status fit(const alea_api_maker *maker, int64_t asked, alea_api_prompt *prompt) {
    const int32_t context = maker->api->info.context_tokens;
    const int64_t least = maker->values->min_tokens.given ? maker->values->min_tokens.value : 0;
    const bool chat = maker->draft->job.endpoint == ALEA_API_CHAT;
    if (asked == 0 && prompt->n_tokens > context)
        return alea__api_error_set(maker->error, ALEA_FAULT_CONTEXT, "prompt",
                                   "the prompt has %d tokens and the context %d: shorten it, or "
                                   "ask for truncate_prompt_tokens",
                                   prompt->n_tokens, context);
    if (asked > 0 && prompt->n_tokens >= context)
        return alea__api_error_set(maker->error, ALEA_FAULT_CONTEXT, chat ? "messages" : "prompt",
                                   "the prompt has %d tokens and the context %d, which must hold "
                                   "one more: shorten it, or ask for truncate_prompt_tokens",
                                   prompt->n_tokens, context);
    const int32_t room = context - prompt->n_tokens;
    prompt->max_tokens = asked < room ? (int32_t)asked : room;
    if (least > prompt->max_tokens)
        return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "min_tokens",
                                   "min_tokens is %lld, and max_tokens is %d after its cut to the "
                                   "room in the context",
                                   (long long)least, prompt->max_tokens);
    return ALEA_OK;
}

alea_status alea__api_fit_prompts(alea_api_maker *maker) {
    alea_api_draft *draft = maker->draft;
    const int64_t asked = asked_tokens(maker);
    int32_t keep;
    if (asked == 0 && !draft->presentation.echo)
        return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "max_tokens",
                                   "max_tokens must be at least 1; 0 goes with echo alone");
    alea_status status = read_truncation(maker, asked, &keep);
    for (int32_t i = 0; i < draft->job.n_prompts && status >= 0; i++) {
        truncate(maker, keep, &draft->prompts[i]);
        status = fit(maker, asked, &draft->prompts[i]);
    }
    if (status < 0) return status;
    draft->job.params.min_tokens =
        maker->values->min_tokens.given ? (int32_t)maker->values->min_tokens.value : 0;
    return ALEA_OK;
}
