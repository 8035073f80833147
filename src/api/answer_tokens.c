/*
 * Logprobs as the two endpoints write them: arrays side by side for completions, a list of entries
 * for chat. A number is printed by one function wherever it stands, so that clients can compare.
 *
 * A token is written as its own text, or as bytes:\xNN where it holds a part of a character; its
 * true bytes stand beside it in chat. vLLM instead completes the character from the tokens before
 * it, or writes nothing: vllm_compat does so too.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "text/token_text.h"

/* Which token is written, and after which others. */
typedef struct token_at {
    int32_t token;
    const int32_t *before; /* [ALEA_COMPAT_CONTEXT], nearest first */
} token_at;

/* ---- one token ---- */

static alea_token_info info_of(const alea_api_answer *answer, int32_t token) {
    alea_token_info info = {.flags = 0};
    (void)(alea_core_token(answer->api->core, token, &info) < 0); /* the engine drew or listed it */
    return info;
}

static alea_bytes shown_bytes(const alea_token_info *info) {
    return info->bytes.length ? info->bytes : info->name;
}

static size_t decode(alea_text_stream *stream, alea_bytes bytes, char *out) {
    return alea__text_stream_push(stream, bytes, (uint8_t *)out, NULL);
}

static bool ends_replaced(const char *text, size_t length) {
    return length >= ALEA_UTF8_REPLACEMENT_BYTES &&
           !memcmp(text + length - ALEA_UTF8_REPLACEMENT_BYTES, ALEA_UTF8_REPLACEMENT,
                   ALEA_UTF8_REPLACEMENT_BYTES);
}

/* The text of the `n` tokens before and of `own` into out; *prefix: how much of it the earlier
 * ones have by themselves, a broken end apart. */
static size_t decode_after(const alea_api_answer *answer, token_at at, int32_t n, alea_bytes own,
                           char *out, size_t *prefix) {
    alea_text_stream stream = {.characters = 0};
    size_t length = 0;
    for (int32_t k = n - 1; k >= 0; k--) {
        const alea_token_info info = info_of(answer, at.before[k]);
        length += decode(&stream, shown_bytes(&info), out + length);
    }
    *prefix = length;
    while (ends_replaced(out, *prefix))
        *prefix -= ALEA_UTF8_REPLACEMENT_BYTES;
    length += decode(&stream, own, out + length);
    return length + alea__text_stream_flush(&stream, (uint8_t *)out + length);
}

/* As vLLM writes it: what ends inside a character is tried again behind 1 to 4 earlier tokens. */
static alea_bytes compat_text(const alea_api_answer *answer, token_at at, char *scratch) {
    const alea_token_info info = info_of(answer, at.token);
    const alea_bytes own = shown_bytes(&info);
    for (int32_t n = 0; n <= ALEA_COMPAT_CONTEXT; n++) {
        if (n > 0 && at.before[n - 1] < 0) break;
        size_t prefix;
        const size_t length = decode_after(answer, at, n, own, scratch, &prefix);
        if (ends_replaced(scratch, length)) continue;
        return (alea_bytes){(const uint8_t *)scratch + prefix, length - prefix};
    }
    return (alea_bytes){(const uint8_t *)scratch, 0};
}

/* A token by itself; scratch [answer->scratch_bytes] is for a part of a character. */
static alea_bytes own_text(const alea_api_answer *answer, int32_t token, char *scratch) {
    const alea_token_info info = info_of(answer, token);
    const alea_bytes shown = shown_bytes(&info);
    if (alea__utf8_valid(shown)) return shown;
    return (alea_bytes){(const uint8_t *)scratch,
                        alea__token_text(&info, scratch, answer->scratch_bytes)};
}

/* What must be written goes to scratch. */
static alea_bytes text_in(const alea_api_answer *answer, token_at at, char *scratch) {
    if (answer->shown->tokens_as_token_ids) {
        const int n = snprintf(scratch, answer->scratch_bytes, "token_id:%d", at.token);
        return (alea_bytes){(const uint8_t *)scratch, (size_t)n};
    }
    if (answer->shown->vllm_compat) return compat_text(answer, at, scratch);
    return own_text(answer, at.token, scratch);
}

alea_bytes alea__api_token_text(const alea_api_answer *answer, int32_t token,
                                const int32_t *before) {
    const token_at at = {token, before};
    if (answer->shown->vllm_compat) return compat_text(answer, at, answer->scratch);
    return own_text(answer, token, answer->scratch);
}

/* Valid until the next call. */
static alea_bytes token_text(const alea_api_answer *answer, token_at at) {
    return text_in(answer, at, answer->scratch);
}

uint64_t alea__api_compat_length(const alea_api_answer *answer, int32_t token,
                                 const int32_t *before) {
    return alea__utf8_count(token_text(answer, (token_at){token, before}));
}

/* What the token adds to the text; vLLM: its text, or the placeholder's in a list. */
static void write_bytes(alea_api_answer *answer, token_at at, bool in_list) {
    const alea_api_presentation *shown = answer->shown;
    const alea_token_info info = info_of(answer, at.token);
    alea_bytes bytes = info.bytes;
    if (shown->show_special && (info.flags & ALEA_TOKEN_CONTROL)) bytes = info.name;
    if (shown->vllm_compat)
        bytes = in_list && shown->tokens_as_token_ids ? token_text(answer, at)
                                                      : compat_text(answer, at, answer->scratch);
    alea__json_key(&answer->writer, "bytes");
    alea__json_byte_array(&answer->writer, bytes);
}

static float logprob_of(const alea_api_answer *answer, const alea_api_entry *entry) {
    return answer->shown->mode == ALEA_MODE_PROCESSED ? entry->sampled_logprob : entry->logprob;
}

/* ---- the list of an entry ---- */

/* `alternatives`: the list that the entry's stand in. */
static const alea_alternative *alternatives_of(const alea_api_list *alternatives,
                                               const alea_api_entry *entry) {
    const alea_alternative *all = alternatives->items;
    return entry->n_alternatives > 0 ? all + entry->first_alternative : NULL;
}

/* The chosen token, then the others; `rows` has room for all. */
static int32_t chosen_first(const alea_api_answer *answer, const alea_api_list *alternatives,
                            const alea_api_entry *entry, alea_alternative *rows) {
    const alea_alternative *others = alternatives_of(alternatives, entry);
    int32_t n = 0;
    rows[n++] = (alea_alternative){entry->token, logprob_of(answer, entry)};
    for (int32_t i = 0; i < entry->n_alternatives; i++) {
        if (others[i].token != entry->token && others[i].token >= 0) rows[n++] = others[i];
    }
    return n;
}

/* FNV-1a: texts that differ mostly differ here, so that few are written to be compared. */
static uint32_t hash_of(alea_bytes text) {
    uint32_t hash = 0x811c9dc5u;
    for (size_t i = 0; i < text.length; i++)
        hash = (hash ^ text.data[i]) * 0x01000193u;
    return hash;
}

static bool same_text(const alea_api_answer *answer, token_at a, token_at b) {
    const alea_bytes text_a = text_in(answer, a, answer->scratch);
    const alea_bytes text_b = text_in(answer, b, answer->scratch + answer->scratch_bytes);
    return text_a.length == text_b.length && !memcmp(text_a.data, text_b.data, text_a.length);
}

/* Two ids may have one text: the first place stays, with the higher value (vLLM: the later). */
static int32_t merge_texts(const alea_api_answer *answer, const int32_t *before,
                           alea_alternative *rows, int32_t n) {
    uint32_t hashes[1 + ALEA_TOKEN_IDS_MAX];
    int32_t kept = 0;
    if (answer->shown->tokens_as_token_ids) return n;
    for (int32_t i = 0; i < n; i++) {
        const token_at at = {rows[i].token, before};
        const uint32_t hash = hash_of(token_text(answer, at));
        int32_t twin = 0;
        while (twin < kept && (hashes[twin] != hash ||
                               !same_text(answer, (token_at){rows[twin].token, before}, at)))
            twin++;
        if (twin == kept) {
            hashes[kept] = hash;
            rows[kept++] = rows[i];
        } else if (answer->shown->vllm_compat || rows[i].logprob > rows[twin].logprob) {
            rows[twin].logprob = rows[i].logprob;
        }
    }
    return kept;
}

/* ---- completions ---- */

static void write_top_object(alea_api_answer *answer, const alea_api_list *alternatives,
                             const alea_api_entry *entry) {
    alea_alternative rows[1 + ALEA_TOKEN_IDS_MAX];
    const int32_t n =
        merge_texts(answer, entry->before, rows, chosen_first(answer, alternatives, entry, rows));
    alea__json_begin_object(&answer->writer);
    for (int32_t i = 0; i < n; i++) {
        alea__json_key_bytes(&answer->writer,
                             token_text(answer, (token_at){rows[i].token, entry->before}));
        alea__json_logprob_value(&answer->writer, rows[i].logprob);
    }
    alea__json_end_object(&answer->writer);
}

static void write_real(alea_json_writer *writer, float value) {
    if (isnan(value))
        alea__json_null(writer);
    else
        alea__json_float(writer, value);
}

typedef enum column {
    COLUMN_OFFSET,
    COLUMN_LOGPROB,
    COLUMN_TOKEN,
    COLUMN_TOP,
    N_COLUMNS,
    COLUMN_PROCESSED = N_COLUMNS,
    COLUMN_MASS,
    COLUMN_ENTROPY,
    N_ALL_COLUMNS
} column;

static void write_cell(alea_api_answer *answer, const alea_api_list *alternatives, column which,
                       const alea_api_entry *entry) {
    alea_json_writer *writer = &answer->writer;
    const bool drawn_alone = which >= COLUMN_PROCESSED && entry->of_prompt;
    if (drawn_alone || (entry->blank && which != COLUMN_OFFSET && which != COLUMN_TOKEN)) {
        alea__json_null(writer);
        return;
    }
    switch (which) {
    case COLUMN_OFFSET: alea__json_uint(writer, entry->offset); break;
    case COLUMN_LOGPROB: alea__json_logprob_value(writer, logprob_of(answer, entry)); break;
    case COLUMN_TOKEN:
        alea__json_string(writer, token_text(answer, (token_at){entry->token, entry->before}));
        break;
    case COLUMN_TOP: write_top_object(answer, alternatives, entry); break;
    case COLUMN_PROCESSED: alea__json_logprob_value(writer, entry->sampled_logprob); break;
    case COLUMN_MASS: write_real(writer, entry->kept_mass); break;
    case COLUMN_ENTROPY: write_real(writer, entry->entropy); break;
    case N_ALL_COLUMNS: break;
    }
}

static void write_arrays(alea_api_answer *answer, const alea_api_choice *choice) {
    static const char *const names[N_ALL_COLUMNS] = {
        "text_offset",        "token_logprobs", "tokens", "top_logprobs",
        "processed_logprobs", "kept_mass",      "entropy"};
    const alea_api_entry *entries = choice->entries.items;
    const int n = answer->shown->mode == ALEA_MODE_ALL ? N_ALL_COLUMNS : N_COLUMNS;
    const bool begins = answer->shown->echo_logprobs && !choice->written;
    const alea_api_scores *scores = alea__api_scores_of(answer, choice->prompt);
    const size_t n_prompt = begins ? scores->rows.n : 0;
    alea__json_begin_object(&answer->writer);
    for (int c = 0; c < n; c++) {
        alea__json_key(&answer->writer, names[c]);
        alea__json_begin_array(&answer->writer);
        for (size_t i = 0; i < n_prompt; i++) {
            const alea_api_entry entry = alea__api_prompt_entry(answer, choice->prompt, i);
            write_cell(answer, &scores->alternatives, (column)c, &entry);
        }
        for (size_t i = 0; i < choice->entries.n; i++)
            write_cell(answer, &choice->alternatives, (column)c, &entries[i]);
        alea__json_end_array(&answer->writer);
    }
    alea__json_end_object(&answer->writer);
}

/* ---- chat ---- */

static void write_pair(alea_api_answer *answer, token_at at, float logprob, bool in_list) {
    alea_json_writer *writer = &answer->writer;
    alea__json_key(writer, "token");
    alea__json_string(writer, token_text(answer, at));
    alea__json_key(writer, "logprob");
    alea__json_logprob_value(writer, logprob);
    write_bytes(answer, at, in_list);
}

/* Exactly the most probable ones, or the ids that were asked for. vLLM puts the chosen token in
 * front and cuts to as many. */
static int32_t list_of(const alea_api_answer *answer, const alea_api_list *alternatives,
                       const alea_api_entry *entry, alea_alternative *rows) {
    if (answer->shown->vllm_compat) {
        const int32_t n = chosen_first(answer, alternatives, entry, rows);
        const bool selects = answer->job->params.selected.count > 0;
        return selects || n < answer->shown->top ? n : answer->shown->top;
    }
    const alea_alternative *others = alternatives_of(alternatives, entry);
    int32_t n = 0;
    for (int32_t i = 0; i < entry->n_alternatives; i++)
        if (others[i].token >= 0) rows[n++] = others[i];
    return n;
}

static void write_entry(alea_api_answer *answer, const alea_api_choice *choice,
                        const alea_api_entry *entry) {
    alea_json_writer *writer = &answer->writer;
    alea_alternative rows[1 + ALEA_TOKEN_IDS_MAX];
    const int32_t n = list_of(answer, &choice->alternatives, entry, rows);
    alea__json_begin_object(writer);
    write_pair(answer, (token_at){entry->token, entry->before}, logprob_of(answer, entry), false);
    if (answer->shown->mode == ALEA_MODE_ALL) {
        alea__json_key(writer, "processed_logprob");
        alea__json_logprob_value(writer, entry->sampled_logprob);
        alea__json_key(writer, "kept_mass");
        write_real(writer, entry->kept_mass);
        alea__json_key(writer, "entropy");
        write_real(writer, entry->entropy);
    }
    alea__json_key(writer, "top_logprobs");
    alea__json_begin_array(writer);
    for (int32_t i = 0; i < n; i++) {
        alea__json_begin_object(writer);
        write_pair(answer, (token_at){rows[i].token, entry->before}, rows[i].logprob, true);
        alea__json_end_object(writer);
    }
    alea__json_end_array(writer);
    alea__json_end_object(writer);
}

static void write_content(alea_api_answer *answer, const alea_api_choice *choice) {
    const alea_api_entry *entries = choice->entries.items;
    alea__json_begin_object(&answer->writer);
    alea__json_key(&answer->writer, "content");
    alea__json_begin_array(&answer->writer);
    for (size_t i = 0; i < choice->entries.n; i++)
        write_entry(answer, choice, &entries[i]);
    alea__json_end_array(&answer->writer);
    alea__json_end_object(&answer->writer);
}

void alea__api_write_logprobs(alea_api_answer *answer, const alea_api_choice *choice) {
    if (answer->job->endpoint == ALEA_API_CHAT)
        write_content(answer, choice);
    else
        write_arrays(answer, choice);
}
