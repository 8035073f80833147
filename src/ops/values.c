/*
 * Values that a call may not hold. Ids are always looked at, for they address memory, and so are
 * the parameters of alea_sample_logits, without which there is nothing to draw from. Everything
 * else costs a pass or was promised by the caller, and is looked at where the config asks.
 */
#include <float.h>
#include <math.h>

#include "ops/cpu.h"

typedef struct value_check {
    const alea_cpu_call *call;
    alea_error *error;
} value_check;

static const char *name_of(const value_check *c, int32_t argument) {
    return alea__op_rules(c->call->kind)->arguments[argument].name;
}

static alea_status check_i32(const value_check *c, int32_t argument, int32_t low, int32_t high) {
    const alea_view *view = &c->call->views[argument];
    if (!view->data) return ALEA_OK;
    const int64_t inner = view->rank > 1 ? view->size[1] : 1;
    for (int64_t i = 0; i < view->size[0]; i++) {
        for (int64_t j = 0; j < inner; j++) {
            const int32_t value = *(const int32_t *)alea__at2(view, i, j);
            if (value >= low && value <= high) continue;
            return alea_error_set(c->error, ALEA_EINVAL,
                                  "%s holds %d in row %lld; the range is %d..%d",
                                  name_of(c, argument), value, (long long)i, low, high);
        }
    }
    return ALEA_OK;
}

/* A share in [0, 1]; NaN is none. */
static alea_status check_share(const value_check *c, int32_t argument) {
    const alea_view *view = &c->call->views[argument];
    for (int64_t i = 0; i < c->call->rows; i++) {
        const float value = alea__f32_at(view, i);
        if (value >= 0 && value <= 1) continue;
        return alea_error_set(c->error, ALEA_EINVAL, "%s holds %g in row %lld; the range is 0..1",
                              name_of(c, argument), (double)value, (long long)i);
    }
    return ALEA_OK;
}

static alea_status check_weights(const value_check *c, int32_t argument, int64_t row,
                                 const float *x) {
    float most = 0;
    for (int32_t i = 0; i < c->call->vocab; i++) {
        if (!(x[i] >= 0 && x[i] <= FLT_MAX)) {
            return alea_error_set(c->error, ALEA_EINVAL,
                                  "%s holds %g in row %lld; weights are finite and not negative",
                                  name_of(c, argument), (double)x[i], (long long)row);
        }
        if (x[i] > most) most = x[i];
    }
    if (most > 0) return ALEA_OK;
    return alea_error_set(c->error, ALEA_EINVAL, "%s has no positive weight in row %lld",
                          name_of(c, argument), (long long)row);
}

static alea_status check_probs(const value_check *c, int32_t argument) {
    const alea_view *view = &c->call->views[argument];
    const bool chains = c->call->kind == ALEA_OP_CHAIN_SAMPLE;
    alea_status status = ALEA_OK;
    for (int64_t row = 0; row < c->call->rows && status >= 0; row++) {
        if (!chains) {
            status = check_weights(c, argument, row, alea__at(view, row));
            continue;
        }
        for (int64_t i = 0; i < view->size[1] && status >= 0; i++)
            status = check_weights(c, argument, row, alea__at2(view, row, i));
    }
    return status;
}

static alea_status check_temperature(const value_check *c, int32_t argument) {
    const alea_view *view = &c->call->views[argument];
    for (int64_t row = 0; view->data && row < c->call->rows; row++) {
        const alea_sampling sampling = {.temperature = alea__f32_at(view, row), .top_p = 1};
        alea_error reason = {0};
        if (alea__sampling_check(&sampling, &reason) == ALEA_OK) continue;
        return alea_error_set(c->error, ALEA_EINVAL, "row %lld: %.200s", (long long)row,
                              reason.message);
    }
    return ALEA_OK;
}

static alea_status check_sampling(const value_check *c) {
    enum { TEMPERATURE = 10, TOP_K, TOP_P, MIN_P };
    const alea_view *v = c->call->views;
    for (int64_t row = 0; row < c->call->rows; row++) {
        const alea_sampling sampling = {
            .temperature = v[TEMPERATURE].data ? alea__f32_at(&v[TEMPERATURE], row) : 1,
            .top_k = v[TOP_K].data ? alea__i32_at(&v[TOP_K], row) : 0,
            .top_p = v[TOP_P].data ? alea__f32_at(&v[TOP_P], row) : 1,
            .min_p = v[MIN_P].data ? alea__f32_at(&v[MIN_P], row) : 0,
        };
        alea_error reason = {0};
        if (alea__sampling_check(&sampling, &reason) == ALEA_OK) continue;
        return alea_error_set(c->error, ALEA_EINVAL, "row %lld: %.200s", (long long)row,
                              reason.message);
    }
    return ALEA_OK;
}

/* What would address memory or distribution that is not there. */
static alea_status check_always(const value_check *c) {
    const int32_t last = c->call->vocab - 1;
    switch (c->call->kind) {
    case ALEA_OP_CHAIN_SAMPLE: return check_i32(c, 3, 0, last);
    case ALEA_OP_LOGPROBS: {
        const alea_status status = check_i32(c, 8, -1, last);
        return status < 0 ? status : check_i32(c, 9, -1, last);
    }
    case ALEA_OP_SAMPLE_LOGITS: return check_sampling(c);
    case ALEA_OP_CHAIN_LOGITS: {
        const alea_status status = check_i32(c, 4, 0, last);
        return status < 0 ? status : check_temperature(c, 6);
    }
    default: return ALEA_OK;
    }
}

static alea_status check_asked(const value_check *c) {
    alea_status status = ALEA_OK;
    switch (c->call->kind) {
    case ALEA_OP_TOPK_SELECT:
        status = check_i32(c, 2, 0, c->call->vocab);
        return status < 0 ? status : check_i32(c, 3, 0, c->call->vocab);
    case ALEA_OP_TOPK_MASK: return check_i32(c, 2, 1, INT32_MAX);
    case ALEA_OP_MINP_MASK:
    case ALEA_OP_TOPP_MASK: return check_share(c, 2);
    case ALEA_OP_TOPK_TOPP_MASK:
        status = check_i32(c, 2, 1, INT32_MAX);
        return status < 0 ? status : check_share(c, 3);
    case ALEA_OP_SAMPLE_PROBS: return check_probs(c, 1);
    case ALEA_OP_CHAIN_SAMPLE:
        status = check_probs(c, 2);
        return status < 0 ? status : check_probs(c, 4);
    default: return ALEA_OK;
    }
}

alea_status alea__check_values(const alea_cpu_call *call, alea_error *error) {
    const value_check c = {call, error};
    const alea_status status = check_always(&c);
    if (status < 0 || !(call->config->flags & ALEA_OP_CHECK_VALUES)) return status;
    return check_asked(&c);
}
