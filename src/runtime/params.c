/* Defaults and domains of a request's parameters. One check a line, in the order of the struct. */
#include <math.h>

#include "runtime/params.h"

alea_request_params alea__params_default(void) {
    return (alea_request_params){
        .sampling = {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f},
        .choices = 1,
        .repetition_penalty = 1.0f,
        .max_tokens = 16,
        .thinking_budget = -1,
        .top = -1,
        .prompt_top = -1,
    };
}

static alea_status check_int(const char *name, int64_t value, int64_t low, int64_t high,
                             alea_error *error) {
    if (value >= low && value <= high) return ALEA_OK;
    return alea_error_set(error, ALEA_EINVAL, "%s is %lld, the range is %lld..%lld", name,
                          (long long)value, (long long)low, (long long)high);
}

/* Written so that NaN fails. */
static alea_status check_float(const char *name, float value, float low, float high,
                               alea_error *error) {
    if (value >= low && value <= high) return ALEA_OK;
    return alea_error_set(error, ALEA_EINVAL, "%s is %g, the range is %g..%g", name, (double)value,
                          (double)low, (double)high);
}

/* A count without its array is a caller's slip that would otherwise be read as one. */
static alea_status check_array(const char *name, const void *array, int64_t count, int64_t most,
                               alea_error *error) {
    const alea_status status = check_int(name, count, 0, most, error);
    if (status < 0 || count == 0 || array) return status;
    return alea_error_set(error, ALEA_EINVAL, "%s: %lld are announced, but the array is NULL", name,
                          (long long)count);
}

static alea_status check_tokens(const char *name, alea_token_list list, int32_t most, int32_t vocab,
                                alea_error *error) {
    if (list.count < 0 || list.count > most) {
        return alea_error_set(error, ALEA_EINVAL, "%s has %d ids, at most %d are allowed", name,
                              list.count, most);
    }
    const alea_status status = check_array(name, list.tokens, list.count, most, error);
    if (status < 0) return status;
    for (int32_t i = 0; i < list.count; i++) {
        if (list.tokens[i] < 0 || list.tokens[i] >= vocab) {
            return alea_error_set(error, ALEA_EINVAL, "%s[%d] is token %d, the vocabulary is 0..%d",
                                  name, i, list.tokens[i], vocab - 1);
        }
    }
    return ALEA_OK;
}

static alea_status check_penalties(const alea_request_params *p, alea_error *error) {
    /* 0 would divide by zero or erase the sign; negative values would swap the order of logits. */
    if (!(p->repetition_penalty > 0.0f) || !isfinite(p->repetition_penalty)) {
        return alea_error_set(error, ALEA_EINVAL,
                              "repetition_penalty is %g, it must be finite and above 0",
                              (double)p->repetition_penalty);
    }
    alea_status status = check_float("frequency_penalty", p->frequency_penalty, -2.0f, 2.0f, error);
    if (status < 0) return status;
    return check_float("presence_penalty", p->presence_penalty, -2.0f, 2.0f, error);
}

static alea_status check_constraints(const alea_request_params *p, int32_t vocab,
                                     alea_error *error) {
    alea_status status = check_array("logit_bias entries", p->biases, p->n_biases, vocab, error);
    if (status < 0) return status;
    for (int32_t i = 0; i < p->n_biases; i++) {
        const alea_token_bias *bias = &p->biases[i];
        status = check_tokens("logit_bias", (alea_token_list){&bias->token, 1}, 1, vocab, error);
        if (status < 0) return status;
        if (isnan(bias->bias) || bias->bias == INFINITY) {
            return alea_error_set(error, ALEA_EINVAL, "logit_bias of token %d is %g", bias->token,
                                  (double)bias->bias);
        }
    }
    status = check_tokens("allowed_token_ids", p->allowed, vocab, vocab, error);
    if (status < 0) return status;
    status = check_array("bad_words", p->bad_words, p->n_bad_words, ALEA_BAD_WORDS_MAX, error);
    for (int32_t i = 0; i < p->n_bad_words && status >= 0; i++) {
        if (p->bad_words[i].count == 0) {
            return alea_error_set(error, ALEA_EINVAL, "bad_words[%d] is empty", i);
        }
        status = check_tokens("bad_words", p->bad_words[i], 256, vocab, error);
    }
    return status;
}

static alea_status check_end(const alea_request_params *p, int32_t vocab, alea_error *error) {
    alea_status status = check_int("max_tokens", p->max_tokens, 0, INT32_MAX / 2, error);
    if (status < 0) return status;
    status = check_int("min_tokens", p->min_tokens, 0, p->max_tokens, error);
    if (status < 0) return status;
    status = check_tokens("stop_token_ids", p->stop_tokens, 1024, vocab, error);
    if (status < 0) return status;
    status = check_array("stop", p->stops, p->n_stops, ALEA_STOPS_MAX, error);
    if (status < 0) return status;
    for (int32_t i = 0; i < p->n_stops; i++) {
        if (p->stops[i].length == 0 || p->stops[i].length > ALEA_STOP_BYTES_MAX) {
            return alea_error_set(error, ALEA_EINVAL, "stop[%d] has %zu bytes, the range is 1..%d",
                                  i, p->stops[i].length, ALEA_STOP_BYTES_MAX);
        }
        if (!p->stops[i].data) return alea_error_set(error, ALEA_EINVAL, "stop[%d] is NULL", i);
    }
    status = check_int("thinking_token_budget", p->thinking_budget, -1, INT32_MAX / 2, error);
    if (status < 0) return status;
    if (p->thinking_budget >= 0 && p->thinking_close.count == 0) {
        return alea_error_set(error, ALEA_EINVAL,
                              "thinking_token_budget needs the ids that close the thinking");
    }
    return check_tokens("thinking close", p->thinking_close, 64, vocab, error);
}

static alea_status check_reports(const alea_request_params *p, int32_t vocab, alea_error *error) {
    alea_status status = check_int("logprobs", p->top, -1, ALEA_TOP_MAX, error);
    if (status < 0) return status;
    status = check_int("prompt_logprobs", p->prompt_top, -1, ALEA_TOP_MAX, error);
    if (status < 0) return status;
    status = check_tokens("logprob_token_ids", p->selected, ALEA_TOKEN_IDS_MAX, vocab, error);
    if (status < 0) return status;
    if (p->selected.count > 0 && p->top < 0) {
        return alea_error_set(error, ALEA_EINVAL, "logprob_token_ids needs logprobs");
    }
    for (int32_t i = 0; i < p->selected.count; i++) {
        for (int32_t j = 0; j < i; j++) {
            if (p->selected.tokens[i] == p->selected.tokens[j]) {
                return alea_error_set(error, ALEA_EINVAL, "logprob_token_ids names token %d twice",
                                      p->selected.tokens[i]);
            }
        }
    }
    return ALEA_OK;
}

static alea_status check_opaques(const alea_request_params *p, alea_error *error) {
    const alea_status status = check_array("opaque spans", p->opaques, p->n_opaques, 4096, error);
    if (status < 0) return status;
    int64_t end = 0;
    for (int32_t i = 0; i < p->n_opaques; i++) {
        const alea_opaque *o = &p->opaques[i];
        if (o->length < 1 || o->position < end || (o->data.length > 0 && !o->data.data)) {
            return alea_error_set(error, ALEA_EINVAL,
                                  "opaque span %d: %d positions from %d on, after one that ends at "
                                  "%lld",
                                  i, o->length, o->position, (long long)end);
        }
        end = (int64_t)o->position + o->length;
    }
    return ALEA_OK;
}

alea_status alea__params_check(const alea_request_params *p, int32_t vocab, alea_error *error) {
    alea_status status = alea__sampling_check(&p->sampling, error);
    if (status < 0) return status;
    status = check_int("n", p->choices, 1, ALEA_CHOICES_MAX, error);
    if (status < 0) return status;
    status = check_int("the first choice", p->first_choice, 0, INT32_MAX - ALEA_CHOICES_MAX, error);
    if (status < 0) return status;
    status = check_penalties(p, error);
    if (status < 0) return status;
    status = check_constraints(p, vocab, error);
    if (status < 0) return status;
    status = check_end(p, vocab, error);
    if (status < 0) return status;
    status = check_opaques(p, error);
    if (status < 0) return status;
    return check_reports(p, vocab, error);
}
