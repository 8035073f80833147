/* The fields of a request that are lists: stops, ids, biases, bad words. */
#include <stdio.h>
#include <string.h>

#include "api/api_parts.h"

enum { BAD_SEQUENCES_MAX = 128, BAD_TOKENS_MAX = 1024, ID_DIGITS_MAX = 10 };

#define BIAS_MAX 100.0

alea_status alea__api_read_ids(const alea_json_value *list, const char *name, int32_t vocab,
                               alea_arena *arena, alea_token_list *out, alea_api_error *error) {
    int32_t *ids = alea__arena_array(arena, alea__json_size(list), sizeof *ids);
    if (!ids) return alea__api_no_memory(error);
    int32_t n = 0;
    for (alea_json_walk walk = alea__json_walk(list); alea__json_next(&walk); n++) {
        int64_t id;
        alea_error why;
        if (alea__json_kind(walk.value) != ALEA_JSON_INTEGER)
            return alea__api_error_set(error, ALEA_FAULT_TYPE, name,
                                       "%s must be a list of token ids", name);
        if (alea__json_get_int(walk.value, "a token id", 0, vocab - 1, &id, &why) < 0)
            return alea__api_error_set(error, ALEA_FAULT_VALUE, name, "%s: %s", name, why.message);
        ids[n] = (int32_t)id;
    }
    *out = (alea_token_list){ids, n};
    return ALEA_OK;
}

/* ---- stops ---- */

static alea_status read_stop(const alea_api_maker *maker, const alea_json_value *value,
                             alea_bytes *out) {
    alea_bytes text;
    if (alea__json_get_string(value, "stop", &text, NULL) < 0) return ALEA_EINVAL;
    if (text.length == 0 || text.length > ALEA_STOP_BYTES_MAX)
        return alea__api_refuse(maker->error, "stop", "a stop string must have 1 to 4096 bytes");
    const char *copy = alea__arena_copy(&maker->draft->arena, text);
    if (!copy) return alea__api_no_memory(maker->error);
    *out = (alea_bytes){(const uint8_t *)copy, text.length};
    return ALEA_OK;
}

static alea_status read_stops(const alea_api_maker *maker) {
    const alea_json_value *stop = maker->values->stop;
    if (!stop) return ALEA_OK;
    const bool single = alea__json_kind(stop) == ALEA_JSON_STRING;
    const size_t n = single ? 1 : alea__json_size(stop);
    alea_bytes *stops = alea__arena_array(&maker->draft->arena, n, sizeof *stops);
    if (!stops) return alea__api_no_memory(maker->error);
    size_t i = 0;
    alea_status status = single ? read_stop(maker, stop, stops) : ALEA_OK;
    for (alea_json_walk walk = alea__json_walk(stop); status >= 0 && alea__json_next(&walk); i++)
        status = read_stop(maker, walk.value, &stops[i]);
    if (status < 0) return status;
    maker->draft->job.params.stops = stops;
    maker->draft->job.params.n_stops = (int32_t)n;
    return ALEA_OK;
}

/* ---- biases ---- */

/* A key is a token id in decimal. */
static bool id_of_key(alea_bytes key, int32_t vocab, int32_t *id) {
    int64_t value = 0;
    if (key.length == 0 || key.length > ID_DIGITS_MAX) return false;
    for (size_t i = 0; i < key.length; i++) {
        if (key.data[i] < '0' || key.data[i] > '9') return false;
        value = value * 10 + (key.data[i] - '0');
    }
    if (value >= vocab) return false;
    *id = (int32_t)value;
    return true;
}

static alea_status read_biases(const alea_api_maker *maker) {
    const alea_json_value *object = maker->values->logit_bias;
    const int32_t vocab = maker->api->info.vocab;
    if (!object || !alea__json_size(object)) return ALEA_OK;
    if (alea__json_size(object) > (size_t)vocab)
        return alea__api_refuse(maker->error, "logit_bias",
                                "logit_bias has more entries than the vocabulary");
    alea_token_bias *biases =
        alea__arena_array(&maker->draft->arena, alea__json_size(object), sizeof *biases);
    if (!biases) return alea__api_no_memory(maker->error);
    int32_t n = 0;
    for (alea_json_walk walk = alea__json_walk(object); alea__json_next(&walk); n++) {
        double bias;
        const alea_json_kind kind = alea__json_kind(walk.value);
        if (!id_of_key(walk.key, vocab, &biases[n].token))
            return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "logit_bias",
                                       "logit_bias: a key must be a token id in 0..%d", vocab - 1);
        if (kind != ALEA_JSON_INTEGER && kind != ALEA_JSON_REAL)
            return alea__api_error_set(maker->error, ALEA_FAULT_TYPE, "logit_bias",
                                       "logit_bias: a bias must be a number");
        if (alea__json_get_double(walk.value, "logit_bias", -1.7e308, 1.7e308, &bias, NULL) < 0)
            return alea__api_refuse(maker->error, "logit_bias",
                                    "logit_bias: a bias is out of range");
        biases[n].bias = (float)(bias > BIAS_MAX ? BIAS_MAX : bias < -BIAS_MAX ? -BIAS_MAX : bias);
    }
    maker->draft->job.params.biases = biases;
    maker->draft->job.params.n_biases = n;
    return ALEA_OK;
}

/* ---- bad words ---- */

typedef struct bad_words {
    alea_token_list *lists; /* [BAD_SEQUENCES_MAX] */
    int32_t n;
    int32_t n_tokens;
} bad_words;

static alea_status add_bad_word(const alea_api_maker *maker, alea_bytes text, bad_words *bad) {
    alea_token_list ids;
    /* So many bytes are more tokens than are allowed; they are not tokenized to find that out. */
    if (text.length / BAD_TOKENS_MAX > maker->api->token_bytes_max)
        return alea__api_refuse(maker->error, "bad_words",
                                "bad_words have more than 1024 tokens in all");
    const alea_status status = alea__api_encode(maker->api, text, false, "bad_words",
                                                &maker->draft->arena, &ids, maker->error);
    if (status < 0) return status;
    if (ids.count == 0)
        return alea__api_refuse(maker->error, "bad_words",
                                "a bad word has no tokens, so it cannot be banned");
    if (bad->n == BAD_SEQUENCES_MAX)
        return alea__api_refuse(
            maker->error, "bad_words",
            "bad_words are more than 128 token sequences, with and without a blank before");
    bad->n_tokens += ids.count;
    if (bad->n_tokens > BAD_TOKENS_MAX)
        return alea__api_refuse(maker->error, "bad_words",
                                "bad_words have more than 1024 tokens in all");
    bad->lists[bad->n++] = ids;
    return ALEA_OK;
}

/* In the middle of a text a word begins with a blank, at its start it does not: both are banned. */
static alea_status add_both_forms(const alea_api_maker *maker, alea_bytes word, bad_words *bad) {
    if (word.length == 0)
        return alea__api_refuse(maker->error, "bad_words", "a bad word must not be empty");
    size_t blanks = 0;
    while (blanks < word.length && word.data[blanks] == ' ')
        blanks++;
    if (blanks == word.length) return add_bad_word(maker, word, bad);
    const alea_bytes bare = {word.data + blanks, word.length - blanks};
    uint8_t *blanked = alea__arena_alloc(&maker->draft->arena, bare.length + 1);
    if (!blanked) return alea__api_no_memory(maker->error);
    blanked[0] = ' ';
    memcpy(blanked + 1, bare.data, bare.length);
    const alea_status status = add_bad_word(maker, bare, bad);
    if (status < 0) return status;
    return add_bad_word(maker, (alea_bytes){blanked, bare.length + 1}, bad);
}

static alea_status read_bad_words(const alea_api_maker *maker) {
    const alea_json_value *words = maker->values->bad_words;
    if (!words || !alea__json_size(words)) return ALEA_OK;
    bad_words bad = {
        .lists = alea__arena_array(&maker->draft->arena, BAD_SEQUENCES_MAX, sizeof *bad.lists)};
    if (!bad.lists) return alea__api_no_memory(maker->error);
    for (alea_json_walk walk = alea__json_walk(words); alea__json_next(&walk);) {
        alea_bytes word;
        alea_status status = alea__json_get_string(walk.value, "bad_words", &word, NULL);
        if (status >= 0) status = add_both_forms(maker, word, &bad);
        if (status < 0) return status;
    }
    maker->draft->job.params.bad_words = bad.lists;
    maker->draft->job.params.n_bad_words = bad.n;
    return ALEA_OK;
}

static bool is_banned(const alea_request_params *params, int32_t token) {
    for (int32_t i = 0; i < params->n_bad_words; i++) {
        const alea_token_list word = params->bad_words[i];
        if (word.count == 1 && word.tokens[0] == token) return true;
    }
    return false;
}

/* ---- ids ---- */

static alea_status read_allowed(const alea_api_maker *maker) {
    alea_request_params *params = &maker->draft->job.params;
    if (!maker->values->allowed_token_ids) return ALEA_OK;
    const alea_status status = alea__api_read_ids(
        maker->values->allowed_token_ids, "allowed_token_ids", maker->api->info.vocab,
        &maker->draft->arena, &params->allowed, maker->error);
    if (status < 0) return status;
    if (params->allowed.count > maker->api->info.vocab)
        return alea__api_refuse(maker->error, "allowed_token_ids",
                                "allowed_token_ids has more entries than the vocabulary");
    for (int32_t i = 0; i < params->allowed.count; i++)
        if (!is_banned(params, params->allowed.tokens[i])) return ALEA_OK;
    return alea__api_refuse(
        maker->error, "allowed_token_ids",
        "bad_words ban every one of allowed_token_ids: nothing is left to choose from");
}

static alea_status read_selected(const alea_api_maker *maker) {
    alea_token_list *selected = &maker->draft->job.params.selected;
    if (!maker->values->logprob_token_ids) return ALEA_OK;
    const alea_status status =
        alea__api_read_ids(maker->values->logprob_token_ids, "logprob_token_ids",
                           maker->api->info.vocab, &maker->draft->arena, selected, maker->error);
    if (status < 0) return status;
    for (int32_t i = 0; i < selected->count; i++) {
        for (int32_t j = 0; j < i; j++) {
            if (selected->tokens[i] != selected->tokens[j]) continue;
            return alea__api_error_set(maker->error, ALEA_FAULT_VALUE, "logprob_token_ids",
                                       "logprob_token_ids names token %d twice",
                                       selected->tokens[i]);
        }
    }
    return ALEA_OK;
}

alea_status alea__api_read_lists(alea_api_maker *maker) {
    alea_status status = read_stops(maker);
    if (status >= 0 && maker->values->stop_token_ids)
        status = alea__api_read_ids(maker->values->stop_token_ids, "stop_token_ids",
                                    maker->api->info.vocab, &maker->draft->arena,
                                    &maker->draft->job.params.stop_tokens, maker->error);
    if (status >= 0) status = read_biases(maker);
    if (status >= 0) status = read_bad_words(maker);
    if (status >= 0) status = read_allowed(maker);
    if (status >= 0) status = read_selected(maker);
    return status;
}
