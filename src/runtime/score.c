/*
 * Strided windows over one sequence of a core: fill the part that only gives context, then take
 * rows block by block, reduce them over the pool and hand the records out in order.
 *
 * It owns no memory: reports of a block live on the stack, rows in the core.
 */
#include "runtime/score.h"

#include "kernel/rows.h"

typedef struct score_run {
    alea_core *core;
    const alea_score_options *options;
    const int32_t *tokens;
    size_t n_tokens;
    alea_scored_fn sink;
    void *user;
    alea_error *error;
    int32_t vocab;
    int32_t window, stride, block, chunk; /* resolved, in tokens or rows */
    size_t computed;
} score_run;

static bool cancelled(const score_run *run) {
    return run->options->cancel && *run->options->cancel;
}

static alea_status append(score_run *run, size_t at, int32_t position, int32_t length,
                          int32_t first_row, int32_t *n_rows) {
    if (cancelled(run)) return alea_error_set(run->error, ALEA_ECANCELLED, "interrupted");
    const alea_round_item item = {
        .sequence = run->options->sequence,
        .position = position,
        .first_row = first_row,
        .span = {.kind = ALEA_SPAN_TOKENS, .length = length, .tokens = run->tokens + at},
    };
    const alea_round round = {.items = &item, .n_items = 1};
    alea_status status = alea_core_run(run->core, &round, n_rows, run->error);
    if (status < 0) return status;
    run->computed += (size_t)length;
    if (run->options->progress) run->options->progress(run->options->progress_user, run->computed);
    return ALEA_OK;
}

/* Rows of `length` positions from token `at` on; each tells of the token behind it. */
static alea_status take_rows(score_run *run, size_t window_start, size_t at, int32_t length,
                             const float **rows) {
    int32_t n_rows = 0;
    alea_status status = append(run, at, (int32_t)(at - window_start), length, 0, &n_rows);
    if (status < 0) return status;
    for (int32_t i = 0; i < length; i++) {
        rows[i] = alea_core_row(run->core, i);
        if (!rows[i])
            return alea_error_set(run->error, ALEA_ECORE, "the core gave %d rows instead of %d",
                                  n_rows, length);
    }
    return ALEA_OK;
}

static alea_status score_block(score_run *run, size_t window_start, size_t at, int32_t length) {
    const float *rows[ALEA_SCORE_BLOCK_ROWS];
    alea_row_report reports[ALEA_SCORE_BLOCK_ROWS];
    alea_status status = take_rows(run, window_start, at, length, rows);
    if (status < 0) return status;
    const alea_rows_query query = {.rows = rows,
                                   .tokens = run->tokens + at + 1,
                                   .n_rows = length,
                                   .vocab = run->vocab,
                                   .k = run->options->top};
    int32_t n_sound = length;
    const alea_status verdict =
        alea__rows_report(run->options->kernels, run->options->pool, &query, reports, &n_sound);
    if (verdict >= 0) n_sound = length;
    for (int32_t i = 0; i < n_sound; i++) {
        const size_t index = at + (size_t)i + 1;
        const alea_scored scored = {.index = index,
                                    .token = run->tokens[index],
                                    .context_tokens = (int32_t)(index - window_start),
                                    .report = &reports[i]};
        status = run->sink(run->user, &scored);
        if (status < 0) return status;
    }
    if (verdict < 0)
        return alea_error_set(run->error, verdict, "at token %zu of the text: %s",
                              at + (size_t)n_sound + 1, alea_status_text(verdict));
    return ALEA_OK;
}

/* One window: rows for positions [first, end), context alone for [start, first). */
static alea_status score_window(score_run *run, size_t start, size_t first, size_t end) {
    alea_status status = alea_core_sequence_trim(run->core, run->options->sequence, 0, run->error);
    for (size_t at = start; status >= 0 && at < first;) {
        const size_t left = first - at;
        const int32_t length = left < (size_t)run->chunk ? (int32_t)left : run->chunk;
        int32_t n_rows;
        status = append(run, at, (int32_t)(at - start), length, length, &n_rows);
        at += (size_t)length;
    }
    for (size_t at = first; status >= 0 && at < end;) {
        const size_t left = end - at;
        const int32_t length = left < (size_t)run->block ? (int32_t)left : run->block;
        status = score_block(run, start, at, length);
        at += (size_t)length;
    }
    return status;
}

static alea_status check(score_run *run) {
    const alea_score_options *options = run->options;
    alea_core_info info;
    alea_core_describe(run->core, &info);
    alea_error *error = run->error;
    run->vocab = info.vocab;
    run->window = options->window_tokens ? options->window_tokens : info.context_tokens;
    if (run->window < 1 || run->window > info.context_tokens)
        return alea_error_set(error, ALEA_EINVAL, "window is %d tokens, the range is 1..%d",
                              run->window, info.context_tokens);
    const int32_t half = run->window > 1 ? run->window / 2 : 1;
    run->stride = options->stride_tokens ? options->stride_tokens : half;
    if (run->stride < 1 || run->stride > run->window)
        return alea_error_set(error, ALEA_EINVAL, "stride is %d tokens, the range is 1..%d",
                              run->stride, run->window);
    if (options->block_rows < 0 || options->block_rows > ALEA_SCORE_BLOCK_ROWS)
        return alea_error_set(error, ALEA_EINVAL, "block is %d rows, the range is 1..%d",
                              options->block_rows, ALEA_SCORE_BLOCK_ROWS);
    if (options->top < 0 || options->top > ALEA_TOP_MAX)
        return alea_error_set(error, ALEA_EINVAL, "top is %d, the range is 0..%d", options->top,
                              ALEA_TOP_MAX);
    run->block = options->block_rows ? options->block_rows : ALEA_SCORE_BLOCK_ROWS;
    if (run->block > info.round_rows) run->block = info.round_rows;
    if (run->block > info.round_tokens) run->block = info.round_tokens;
    run->chunk = info.round_tokens;
    if (run->n_tokens < 1) return alea_error_set(error, ALEA_EINVAL, "there is no token to score");
    for (size_t i = 0; i < run->n_tokens; i++)
        if (run->tokens[i] < 0 || run->tokens[i] >= run->vocab)
            return alea_error_set(error, ALEA_EINVAL, "token %zu is %d, ids are 0..%d", i,
                                  run->tokens[i], run->vocab - 1);
    return ALEA_OK;
}

static alea_status announce_first(const score_run *run) {
    const alea_row_report none = {
        .token = run->tokens[0], .logprob = __builtin_nanf(""), .rank = 0, .greedy = -1};
    const alea_scored scored = {.index = 0, .token = run->tokens[0], .report = &none};
    return run->sink(run->user, &scored);
}

alea_status alea__score_tokens(alea_core *core, const alea_score_options *options,
                               const int32_t *tokens, size_t n_tokens, alea_scored_fn sink,
                               void *user, alea_error *error) {
    score_run run = {.core = core,
                     .options = options,
                     .tokens = tokens,
                     .n_tokens = n_tokens,
                     .sink = sink,
                     .user = user,
                     .error = error};
    alea_status status = check(&run);
    if (status < 0) return status;
    status = announce_first(&run);
    const size_t last = n_tokens - 1; /* its own row would tell of nothing */
    size_t first = 0;
    for (size_t start = 0; status >= 0 && first < last; start += (size_t)run.stride) {
        const size_t room = last - start;
        const size_t end = start + (room < (size_t)run.window ? room : (size_t)run.window);
        status = score_window(&run, start, first, end);
        first = end;
    }
    return status;
}

size_t alea__score_work_tokens(size_t n_tokens, int32_t window_tokens, int32_t stride_tokens) {
    const size_t window = (size_t)window_tokens;
    const size_t stride = (size_t)stride_tokens;
    if (n_tokens < 2) return 0;
    const size_t last = n_tokens - 1;
    if (last <= window) return last;
    const size_t more = (last - window + stride - 1) / stride; /* windows after the first */
    return window + (more - 1) * window + (last - more * stride);
}
