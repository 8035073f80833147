/*
 * POST /v1/score without continuations: a whole document, token by token, in the windows of
 * `alea score`. Each window is a request of its own to the engine, of which only the scores count
 * that no earlier window gave; together they are one score.
 */
#include "api/answer.h"
#include "runtime/score_text.h"

#include <string.h>

static alea_status copy_text_ids(const alea_api_maker *maker, alea_bytes text,
                                 alea_token_list *document) {
    const alea_api_bool *add = &maker->values->add_special_tokens;
    const uint32_t flags = !add->given || add->value ? (uint32_t)ALEA_TOKENIZE_SPECIAL : 0;
    alea_token_ids ids;
    alea_error why;
    const alea_status status = alea__text_encode(maker->api->core, text, flags, &ids, &why);
    if (status == ALEA_ENOMEM) return alea__api_no_memory(maker->error);
    if (status < 0) return alea__api_refuse(maker->error, "prompt", why.message);
    int32_t *tokens = ids.n_tokens > INT32_MAX
                          ? NULL
                          : alea__arena_array(&maker->draft->arena, ids.n_tokens, sizeof *tokens);
    if (tokens && ids.n_tokens > 0) memcpy(tokens, ids.tokens, ids.n_tokens * sizeof *tokens);
    if (tokens) *document = (alea_token_list){tokens, (int32_t)ids.n_tokens};
    alea__token_ids_free(&ids);
    return tokens ? ALEA_OK : alea__api_no_memory(maker->error);
}

static alea_status read_document(const alea_api_maker *maker, alea_token_list *document) {
    const alea_json_value *prompt = maker->values->prompt;
    alea_bytes text;
    const alea_status status =
        alea__json_get_string(prompt, "prompt", &text, NULL) >= 0
            ? copy_text_ids(maker, text, document)
            : alea__api_read_ids(prompt, "prompt", maker->api->info.vocab, &maker->draft->arena,
                                 document, maker->error);
    if (status < 0 || document->count > 1) return status;
    return alea__api_refuse(maker->error, "prompt",
                            "a document needs two tokens at least: its first one has nothing "
                            "before it that could score it");
}

/* `given` or, where it was not, `otherwise`, in 1..most. */
static alea_status read_size(const alea_api_maker *maker, const alea_api_int *given,
                             const char *name, int32_t otherwise, int32_t most, int32_t *size) {
    if (given->given && given->value > most)
        return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, name,
                                   "%s is %lld tokens, at most %d are possible here", name,
                                   (long long)given->value, most);
    *size = given->given ? (int32_t)given->value : otherwise;
    return ALEA_OK;
}

/* Windows for rows of all tokens but the last, whose row would tell of nothing. */
static int32_t count_windows(int32_t n_rows, int32_t window, int32_t stride) {
    return n_rows <= window ? 1 : 1 + (n_rows - window + stride - 1) / stride;
}

alea_status alea__api_read_document(alea_api_maker *maker) {
    alea_api_draft *draft = maker->draft;
    const alea_api_values *values = maker->values;
    alea_token_list document = {NULL, 0};
    int32_t window = 0, stride = 0;
    const int32_t context = maker->api->info.context_tokens;
    alea_status status = read_size(maker, &values->window, "window", context, context, &window);
    const int32_t half = window > 1 ? window / 2 : 1;
    if (status >= 0) status = read_size(maker, &values->stride, "stride", half, window, &stride);
    if (status >= 0) status = read_document(maker, &document);
    if (status < 0) return status;
    const int32_t n_rows = document.count - 1, n = count_windows(n_rows, window, stride);
    if (n > maker->api->options.prompts_max)
        return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "stride",
                                   "%d tokens make %d windows, at most %d are allowed: a larger "
                                   "stride makes fewer",
                                   document.count, n, maker->api->options.prompts_max);
    draft->prompts = alea__arena_array(&draft->arena, (size_t)n, sizeof *draft->prompts);
    if (!draft->prompts) return alea__api_no_memory(maker->error);
    int32_t first = 0; /* the first row that no window has given yet */
    for (int32_t i = 0; i < n; i++) {
        const int32_t start = i * stride, room = n_rows - start;
        const int32_t end = start + (room < window ? room : window);
        draft->prompts[i] = (alea_api_prompt){.tokens = document.tokens + start,
                                              .n_tokens = end - start + 1,
                                              .continuation = first - start + 1};
        first = end;
    }
    draft->job.n_prompts = n;
    draft->job.document_tokens = document.count;
    return ALEA_OK;
}
