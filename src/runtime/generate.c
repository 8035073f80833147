/*
 * Prefill, draw, append, draw … over one sequence. The first choice pays for the prompt; the
 * others cut the sequence back to it where the core can, and compute it anew where it cannot.
 */
#include "runtime/generate.h"

typedef struct generate_run {
    alea_core *core;
    const alea_generate_options *options;
    const int32_t *prompt;
    int32_t n_prompt;
    const alea_generate_sink *sink;
    alea_error *error;
    alea_core_info info;
} generate_run;

static alea_status check(generate_run *run, size_t n_prompt) {
    const alea_generate_options *options = run->options;
    alea_error *error = run->error;
    alea_status status = alea__sampling_check(&options->sampling, error);
    if (status < 0) return status;
    if (options->choices < 1)
        return alea_error_set(error, ALEA_EINVAL, "n is %d, it must be at least 1",
                              options->choices);
    if (options->max_tokens < 1)
        return alea_error_set(error, ALEA_EINVAL, "max_tokens is %d, it must be at least 1",
                              options->max_tokens);
    if (options->top < 0 || options->top > ALEA_TOP_MAX)
        return alea_error_set(error, ALEA_EINVAL, "top is %d, the range is 0..%d", options->top,
                              ALEA_TOP_MAX);
    if (n_prompt < 1)
        return alea_error_set(error, ALEA_EINVAL, "the prompt has no token to start from");
    alea_core_describe(run->core, &run->info);
    if (n_prompt > (size_t)run->info.context_tokens)
        return alea_error_set(error, ALEA_ECONTEXT,
                              "the prompt has %zu tokens, the context holds %d", n_prompt,
                              run->info.context_tokens);
    run->n_prompt = (int32_t)n_prompt;
    return ALEA_OK;
}

/* Append tokens at the sequence's end; the last one gives the one row, index 0. */
static alea_status append(const generate_run *run, const int32_t *tokens, int32_t position,
                          int32_t length, bool want_row) {
    if (run->options->cancel && *run->options->cancel)
        return alea_error_set(run->error, ALEA_ECANCELLED, "interrupted");
    const alea_round_item item = {
        .sequence = run->options->sequence,
        .position = position,
        .first_row = want_row ? length - 1 : length,
        .span = {.kind = ALEA_SPAN_TOKENS, .length = length, .tokens = tokens},
    };
    const alea_round round = {.items = &item, .n_items = 1};
    int32_t n_rows;
    return alea_core_run(run->core, &round, &n_rows, run->error);
}

/* Bring the sequence to the end of the prompt, reusing what it already holds of it. */
static alea_status prefill(const generate_run *run, bool holds_prompt) {
    int32_t at = holds_prompt ? run->n_prompt - 1 : 0;
    alea_status status = alea_core_sequence_trim(run->core, run->options->sequence, at, run->error);
    if (status == ALEA_EUNSUPPORTED) {
        at = 0;
        status = alea_core_sequence_trim(run->core, run->options->sequence, 0, run->error);
    }
    while (status >= 0 && at < run->n_prompt) {
        const int32_t left = run->n_prompt - at;
        const int32_t length = left < run->info.round_tokens ? left : run->info.round_tokens;
        status = append(run, run->prompt + at, at, length, at + length == run->n_prompt);
        at += length;
    }
    return status;
}

static bool ends(const generate_run *run, int32_t token) {
    alea_token_info info;
    return !run->options->ignore_end && alea_core_token(run->core, token, &info) >= 0 &&
           (info.flags & ALEA_TOKEN_END);
}

static alea_status draw(const generate_run *run, int32_t choice, int32_t index, int32_t *token,
                        alea_row_report *report) {
    const alea_generate_options *options = run->options;
    const float *row = alea_core_row(run->core, 0);
    if (!row) return alea_error_set(run->error, ALEA_ECORE, "the core gave no row");
    const alea_draw_at at = {
        .seed = options->seed, .row = (uint32_t)choice, .offset = (uint64_t)index};
    alea_choice chosen;
    alea_status status =
        alea__row_choose(options->kernels, row, run->info.vocab, &options->sampling, &at, &chosen);
    if (status >= 0)
        status = alea__row_report(options->kernels, row, run->info.vocab, chosen.token,
                                  options->top, false, report);
    if (status < 0)
        return alea_error_set(run->error, status, "at generated token %d: %s", index,
                              alea_status_text(status));
    *token = chosen.token;
    return ALEA_OK;
}

static alea_status run_choice(const generate_run *run, int32_t choice) {
    const alea_generate_options *options = run->options;
    alea_status status = prefill(run, choice > 0);
    for (int32_t index = 0; status >= 0; index++) {
        int32_t token;
        alea_row_report report;
        status = draw(run, choice, index, &token, &report);
        if (status < 0) return status;
        if (ends(run, token)) return run->sink->finish(run->sink->user, choice, ALEA_GENERATE_STOP);
        const alea_generated generated = {choice, index, token, &report};
        status = run->sink->token(run->sink->user, &generated);
        if (status < 0) return status;
        const int32_t position = run->n_prompt + index;
        if (index + 1 == options->max_tokens || position == run->info.context_tokens)
            return run->sink->finish(run->sink->user, choice, ALEA_GENERATE_LENGTH);
        status = append(run, &token, position, 1, true);
    }
    return status;
}

alea_status alea__generate(alea_core *core, const alea_generate_options *options,
                           const int32_t *prompt, size_t n_prompt, const alea_generate_sink *sink,
                           alea_error *error) {
    generate_run run = {
        .core = core, .options = options, .prompt = prompt, .sink = sink, .error = error};
    alea_status status = check(&run, n_prompt);
    for (int32_t choice = 0; status >= 0 && choice < options->choices; choice++)
        status = run_choice(&run, choice);
    return status;
}
