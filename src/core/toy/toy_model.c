/* The toy core's settings and the arithmetic of its rows. No libm: the bits must not depend on it.
 */
#include "core/toy/toy_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/toy/toy_vocab.h"

static const struct {
    const char *name;
    size_t offset;
    int64_t low, high, standard;
} known[] = {
#define X(name, low, high, standard) {#name, offsetof(toy_settings, name), low, high, standard},
    TOY_SETTING_LIST(X)
#undef X
};

enum { N_KNOWN = sizeof known / sizeof *known };

static int64_t *field(toy_settings *settings, size_t i) {
    return (int64_t *)(void *)((char *)settings + known[i].offset);
}

static alea_status parse_one(const char *key, size_t key_bytes, const char *value, const char **end,
                             toy_settings *settings, alea_error *error) {
    size_t i = 0;
    while (i < N_KNOWN &&
           (strlen(known[i].name) != key_bytes || memcmp(known[i].name, key, key_bytes)))
        i++;
    if (i == N_KNOWN)
        return alea_error_set(error, ALEA_EINVAL,
                              "toy model: there is no setting \"%.*s\"; some are vocab, context, "
                              "sequences, seed, peak, text, ties, nan_at, fail_at",
                              (int)(key_bytes < 40 ? key_bytes : 40), key);
    char *stop;
    errno = 0;
    const long long number = strtoll(value, &stop, 10);
    if (stop == value || (*stop && *stop != ',') || errno || number < known[i].low ||
        number > known[i].high)
        return alea_error_set(
            error, ALEA_EINVAL, "toy model: %s must be a number in %lld..%lld, not \"%.20s\"",
            known[i].name, (long long)known[i].low, (long long)known[i].high, value);
    *field(settings, i) = number;
    *end = stop;
    return ALEA_OK;
}

alea_status alea__toy_settings_parse(const char *text, toy_settings *settings, alea_error *error) {
    toy_settings parsed;
    for (size_t i = 0; i < N_KNOWN; i++)
        *field(&parsed, i) = known[i].standard;
    while (text && *text) {
        const size_t key_bytes = strcspn(text, "=,");
        if (text[key_bytes] != '=')
            return alea_error_set(error, ALEA_EINVAL,
                                  "toy model: \"%.40s\" is not of the form key=value,key=value",
                                  text);
        const alea_status status =
            parse_one(text, key_bytes, text + key_bytes + 1, &text, &parsed, error);
        if (status < 0) return status;
        if (*text == ',') text++;
    }
    *settings = parsed;
    return ALEA_OK;
}

static uint64_t mix(uint64_t z) { /* the finalizer of splitmix64 */
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t alea__toy_hash_start(const toy_settings *settings) {
    return mix((uint64_t)settings->seed);
}

uint64_t alea__toy_hash_token(uint64_t hash, int32_t token) {
    return mix(hash ^ mix((uint64_t)token));
}

uint64_t alea__toy_hash_opaque(uint64_t hash, uint64_t content, int32_t index, int32_t length) {
    const uint64_t place = (uint64_t)length << 32 | (uint64_t)index;
    return mix(hash ^ mix(content ^ mix(~place))); /* ~: apart from every token id */
}

uint64_t alea__toy_hash_bytes(alea_bytes bytes) { /* FNV-1a */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes.length; i++)
        hash = (hash ^ bytes.data[i]) * UINT64_C(0x100000001b3);
    return hash ^ bytes.length;
}

/* -10 to 10 in steps of 20 / 2^24. */
static float uniform_logit(uint64_t r) {
    return (float)((int32_t)(r >> 40) - (1 << 23)) * (10.0f / (1 << 23));
}

/*
 * About -1.3 log(u): such logits make a row whose sorted probabilities fall like a power, as
 * those of language do. log2 is taken as its chord between powers of two.
 */
static float tail_logit(uint64_t r) {
    const uint32_t u = (uint32_t)(r >> 40) + 1; /* 1..2^24 */
    const int32_t whole = 31 - __builtin_clz(u);
    const float part = (float)u / (float)(1u << whole) - 1.0f;
    return 0.9f * (24.0f - ((float)whole + part));
}

/* What English would rather see; valid characters only, an end now and then. */
static float text_preference(int32_t token) {
    if (token < 256) {
        if (token == ' ') return 2.0f;
        if (token >= 'a' && token <= 'z') return 1.0f;
        return (token >= ' ' && token <= '~') || token == '\n' ? -1.0f : -14.0f;
    }
    if (token == TOY_EOS) return -1.0f;
    alea_token_info info;
    alea__toy_token_info(token, &info);
    if (!info.bytes.length) return -30.0f;
    return info.bytes.data[0] < 0x80 && info.bytes.data[info.bytes.length - 1] < 0x80 ? 0.0f
                                                                                      : -14.0f;
}

static float plain_logit(const toy_settings *settings, uint64_t hash, int32_t token) {
    const uint64_t r = mix(hash + mix((uint64_t)token));
    if (settings->holes && (int64_t)(r & 0xffff) * 100 < settings->holes << 16) return -INFINITY;
    if (settings->ties) return (float)((r >> 20) % (uint64_t)settings->ties) * 0.5f;
    if (settings->text) return tail_logit(r) + text_preference(token);
    return uniform_logit(r);
}

void alea__toy_logits(const toy_settings *settings, const toy_row *row, float *logits) {
    const int32_t vocab = (int32_t)settings->vocab;
    for (int32_t i = 0; i < vocab; i++)
        logits[i] = plain_logit(settings, row->hash, i);

    /* One token always keeps a finite logit, so holes never empty a row. */
    const int32_t chosen = (int32_t)(row->hash % (uint64_t)vocab);
    if (logits[chosen] == -INFINITY) logits[chosen] = 1.0f;

    if (settings->peak) logits[(row->last + 1) % vocab] = 10.0f + (float)settings->peak;

    if (settings->fault_sequence >= 0 && settings->fault_sequence != row->sequence) return;
    if (settings->nan_at == row->position) logits[chosen] = NAN;
    if (settings->inf_at == row->position) logits[chosen] = INFINITY;
    if (settings->empty_at == row->position)
        for (int32_t i = 0; i < vocab; i++)
            logits[i] = -INFINITY;
}
