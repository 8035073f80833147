/* The row processors, one function each, and the table that gives their order. */
#include <math.h>
#include <string.h>

#include "runtime/pipeline.h"

typedef void (*processor_fn)(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                             float *row);

static bool bans_ends(const alea_pipeline *pipeline) {
    return pipeline->n_output < pipeline->params->min_tokens;
}

bool alea__pipeline_is_neutral(const alea_pipeline *pipeline) {
    const alea_request_params *p = pipeline->params;
    return p->n_biases == 0 && p->allowed.count == 0 && p->n_bad_words == 0 &&
           !bans_ends(pipeline) && !alea__params_penalize(p) && !pipeline->grammar;
}

static void apply_biases(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                         float *row) {
    (void)raw, (void)vocab;
    const alea_request_params *p = pipeline->params;
    for (int32_t i = 0; i < p->n_biases; i++)
        row[p->biases[i].token] += p->biases[i].bias;
}

/* Empties the row and puts back what is allowed, with its bias. */
static void apply_allowed(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                          float *row) {
    const alea_request_params *p = pipeline->params;
    if (p->allowed.count == 0) return;
    for (int32_t i = 0; i < vocab; i++)
        row[i] = -INFINITY;
    for (int32_t i = 0; i < p->allowed.count; i++) {
        row[p->allowed.tokens[i]] = raw[p->allowed.tokens[i]];
    }
    apply_biases(pipeline, raw, vocab, row);
}

/* A bad word of m ids bans its last id where the output ends in its first m - 1. */
static void apply_bad_words(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                            float *row) {
    (void)raw, (void)vocab;
    const alea_request_params *p = pipeline->params;
    for (int32_t i = 0; i < p->n_bad_words; i++) {
        const int32_t lead = p->bad_words[i].count - 1;
        if (lead > pipeline->n_output) continue;
        const size_t lead_bytes = (size_t)lead * sizeof *pipeline->output;
        if (lead == 0 || memcmp(pipeline->output + (pipeline->n_output - lead),
                                p->bad_words[i].tokens, lead_bytes) == 0) {
            row[p->bad_words[i].tokens[lead]] = -INFINITY;
        }
    }
}

static void apply_min_tokens(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                             float *row) {
    (void)raw, (void)vocab;
    if (!bans_ends(pipeline)) return;
    const alea_request_params *p = pipeline->params;
    for (int32_t i = 0; i < pipeline->n_end_tokens; i++)
        row[pipeline->end_tokens[i]] = -INFINITY;
    for (int32_t i = 0; i < p->stop_tokens.count; i++)
        row[p->stop_tokens.tokens[i]] = -INFINITY;
}

/* Each token once, however often it occurred; frequency alone counts occurrences. */
static void apply_penalties(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                            float *row) {
    (void)raw, (void)vocab;
    const alea_request_params *p = pipeline->params;
    if (!alea__params_penalize(p)) return;
    const alea_history *history = pipeline->history;
    for (uint32_t i = 0; i <= history->mask; i++) {
        const alea_seen *seen = &history->places[i];
        if (seen->token < 0) continue;
        float *logit = &row[seen->token];
        if (p->repetition_penalty != 1.0f) {
            *logit =
                *logit > 0.0f ? *logit / p->repetition_penalty : *logit * p->repetition_penalty;
        }
        if (seen->output_count == 0) continue;
        *logit -= p->frequency_penalty * (float)seen->output_count;
        *logit -= p->presence_penalty;
    }
}

static void apply_grammar(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                          float *row) {
    (void)raw;
    const alea_grammar *grammar = pipeline->grammar;
    if (grammar) grammar->restrict_row(grammar->user, row, vocab);
}

static const struct {
    const char *name;
    processor_fn apply;
} processors[] = {
    {"logit_bias", apply_biases},       {"allowed_token_ids", apply_allowed},
    {"bad_words", apply_bad_words},     {"min_tokens", apply_min_tokens},
    {"the penalties", apply_penalties}, {"the grammar", apply_grammar},
};

#define N_PROCESSORS (sizeof processors / sizeof processors[0])

static bool has_finite(const float *row, int32_t vocab) {
    for (int32_t i = 0; i < vocab; i++) {
        if (isfinite(row[i])) return true;
    }
    return false;
}

static alea_status refuse_row(alea_error *error) {
    return alea_error_set(error, ALEA_EROW, "%s", alea_status_text(ALEA_EROW));
}

/* False: the row holds NaN or +inf. A ban may cover it, and must not cover it up. */
static bool copy_row(const float *logits, int32_t vocab, float *scratch) {
    int32_t n_bad = 0;
    for (int32_t i = 0; i < vocab; i++) {
        scratch[i] = logits[i];
        n_bad += !(logits[i] < INFINITY);
    }
    return n_bad == 0;
}

/* Runs the processors again, looking after each. It happens once at the end of a request. */
static alea_status name_the_culprit(const alea_pipeline *pipeline, const float *raw, int32_t vocab,
                                    float *row, alea_error *error) {
    memcpy(row, raw, (size_t)vocab * sizeof *row);
    if (!has_finite(row, vocab)) return refuse_row(error);
    size_t i = 0;
    for (; i < N_PROCESSORS - 1; i++) {
        processors[i].apply(pipeline, raw, vocab, row);
        if (!has_finite(row, vocab)) break;
    }
    return alea_error_set(error, ALEA_EEMPTY, "%s left no token to choose from",
                          processors[i].name);
}

alea_status alea__pipeline_apply(const alea_pipeline *pipeline, const float *logits, int32_t vocab,
                                 float *scratch, alea_error *error) {
    if (!copy_row(logits, vocab, scratch)) return refuse_row(error);
    for (size_t i = 0; i < N_PROCESSORS; i++) {
        processors[i].apply(pipeline, logits, vocab, scratch);
    }
    if (has_finite(scratch, vocab)) return ALEA_OK;
    return name_the_culprit(pipeline, logits, vocab, scratch, error);
}
