/* Rows of scored prefill: 43 words each. */
#include "contract/scoring.h"

#include <inttypes.h>
#include <math.h>

#include "contract/payload.h"

enum { AT_TOKEN = 0, AT_BITS = 1, AT_RANK = 2, AT_PAIRS = 3 };

int32_t alea__scoring_capacities(int32_t chunk_limit, int32_t capacities[16]) {
    int32_t n = 0;
    if (chunk_limit < 1) return 0;
    for (int64_t c = 128; c < chunk_limit; c *= 4)
        capacities[n++] = (int32_t)c;
    capacities[n++] = chunk_limit;
    return n;
}

static int32_t *score_row(const alea_completion *completion, int32_t frame, int32_t row) {
    const size_t index = (size_t)frame * (size_t)completion->layout.scored_rows + (size_t)row;
    return completion->prompt_logprobs + index * ALEA_SCORE_WORDS;
}

static alea_status check_rows(const alea_completion *completion, int32_t frame, int32_t first_row,
                              int32_t n_rows, alea_error *error) {
    if (completion->layout.scored_rows == 0)
        return alea_error_set(error, ALEA_EUNSUPPORTED, "this core does not score prompts");
    if (frame < 0 || frame >= ALEA_FRAMES)
        return alea_error_set(error, ALEA_EINVAL, "there is no frame %d", frame);
    if (first_row < 0 || n_rows < 0 || (int64_t)first_row + n_rows > completion->layout.scored_rows)
        return alea_error_set(error, ALEA_EINVAL, "scored rows %d..+%d, but there are %d",
                              first_row, n_rows, completion->layout.scored_rows);
    return ALEA_OK;
}

static void write_row(int32_t *row, const alea_row_report *report) {
    row[AT_TOKEN] = report->token;
    row[AT_BITS] = alea__bits_of(report->logprob);
    row[AT_RANK] = report->rank;
    for (int32_t i = 0; i < ALEA_ALTERNATIVES_MAX; i++) {
        const bool used = i < report->n_top;
        alea__pair_set(row + AT_PAIRS + 2 * i, used ? report->top[i].token : ALEA_NO_TOKEN,
                       used ? report->top[i].logprob : NAN);
    }
}

alea_status alea__scoring_begin(alea_completion *completion, int32_t frame, int32_t first_row,
                                const int32_t *prompt, int32_t prompt_tokens, int32_t chunk_start,
                                int32_t n_rows, int32_t graph_rows, alea_error *error) {
    const alea_status status = check_rows(completion, frame, first_row, graph_rows, error);
    if (status < 0) return status;
    if (chunk_start < 0 || n_rows < 0 || n_rows > graph_rows ||
        (int64_t)chunk_start + n_rows > prompt_tokens)
        return alea_error_set(error, ALEA_EINVAL,
                              "chunk %d..+%d does not fit a prompt of %d tokens and %d rows",
                              chunk_start, n_rows, prompt_tokens, graph_rows);
    const alea_row_report none = {.token = ALEA_NO_TOKEN, .logprob = NAN};
    for (int32_t j = 0; j < graph_rows; j++) {
        const int32_t at = chunk_start + j + 1;
        const bool has_target = j < n_rows && at < prompt_tokens;
        completion->prompt_targets[first_row + j] = has_target ? prompt[at] : ALEA_NO_TOKEN;
        write_row(score_row(completion, frame, first_row + j), &none);
    }
    return ALEA_OK;
}

typedef struct scoring {
    const alea_kernel_table *kernels;
    const alea_completion *completion;
    int32_t frame;
    int32_t first_row;
    const float *const *logits;
    int32_t vocab;
    int32_t *greedy;
} scoring;

static void score_task(void *user, int32_t index) {
    const scoring *s = user;
    const int32_t row = s->first_row + index;
    const int32_t target = s->completion->prompt_targets[row];
    if (s->greedy) s->greedy[index] = ALEA_NO_TOKEN;
    if (target < 0) return;
    alea_row_report report;
    alea_status status = ALEA_EROW;
    if (s->logits[index])
        status = alea__row_report(s->kernels, s->logits[index], s->vocab, target,
                                  ALEA_ALTERNATIVES_MAX, false, &report);
    if (status < 0) report = (alea_row_report){.token = target, .logprob = NAN, .greedy = -1};
    if (s->greedy) s->greedy[index] = report.greedy;
    write_row(score_row(s->completion, s->frame, row), &report);
}

alea_status alea__scoring_reduce(const alea_kernel_table *kernels, alea_pool *pool,
                                 alea_completion *completion, int32_t frame, int32_t first_row,
                                 int32_t n_rows, const float *const *logits, int32_t vocab,
                                 int32_t *greedy, alea_error *error) {
    const alea_status status = check_rows(completion, frame, first_row, n_rows, error);
    if (status < 0) return status;
    if (n_rows > ALEA_SCORED_BLOCK_ROWS)
        return alea_error_set(error, ALEA_EINVAL, "%d rows in one block, the limit is %d", n_rows,
                              ALEA_SCORED_BLOCK_ROWS);
    for (int32_t j = first_row; j < first_row + n_rows; j++)
        if (completion->prompt_targets[j] < -1 || completion->prompt_targets[j] >= vocab)
            return alea_error_set(error, ALEA_EINVAL,
                                  "prompt_target_tokens[%d] is %d, the range is -1..%d", j,
                                  completion->prompt_targets[j], vocab - 1);
    scoring s = {kernels, completion, frame, first_row, logits, vocab, greedy};
    alea__pool_run(pool, score_task, &s, n_rows);
    return ALEA_OK;
}

static alea_status refuse(alea_error *error, int64_t position, const char *what) {
    return alea_error_set(error, ALEA_EFORMAT, "prompt position %" PRId64 ": %s", position, what);
}

/* The alternatives, by the order that generation uses. */
static alea_status read_pairs(const int32_t *pairs, alea_score *score, int64_t position,
                              alea_error *error) {
    for (int32_t i = 0; i < ALEA_ALTERNATIVES_MAX && pairs[2 * i] != ALEA_NO_TOKEN; i++) {
        const alea_alternative a = {pairs[2 * i], alea__float_of(pairs[2 * i + 1])};
        if (a.token < 0 || !(a.logprob <= 0))
            return refuse(error, position, "an alternative is malformed");
        if (i > 0) {
            const alea_alternative b = score->alternatives[i - 1];
            if (a.logprob > b.logprob || (a.logprob == b.logprob && a.token <= b.token))
                return refuse(error, position, "the alternatives are out of order");
        }
        score->alternatives[i] = a;
        score->n_alternatives = i + 1;
    }
    return ALEA_OK;
}

const int32_t *alea__scoring_row(const alea_completion *completion, int32_t frame, int32_t row) {
    return score_row(completion, frame, row);
}

alea_status alea__score_read(const int32_t words[ALEA_SCORE_WORDS], int32_t target,
                             int64_t position, alea_score *score, alea_error *error) {
    alea_score read = {
        .token = words[AT_TOKEN],
        .logprob = alea__float_of(words[AT_BITS]),
        .rank = words[AT_RANK],
    };
    if (read.token != target) return refuse(error, position, "the score is for another token");
    if (target == ALEA_NO_TOKEN) {
        *score = read;
        return ALEA_OK;
    }
    if (isnan(read.logprob))
        return alea_error_set(error, ALEA_EROW,
                              "prompt position %" PRId64
                              ": the model's row holds NaN, +inf or nothing finite",
                              position);
    if (read.logprob > 0 || read.rank < 1)
        return refuse(error, position, "the score is not a logprob with a rank");
    const alea_status status = read_pairs(words + AT_PAIRS, &read, position, error);
    if (status < 0) return status;
    if (read.n_alternatives == 0) return refuse(error, position, "the alternatives are missing");
    *score = read;
    return ALEA_OK;
}

alea_status alea__scoring_read(const alea_completion *completion, int32_t frame, int32_t row,
                               int32_t target, int64_t position, alea_score *score,
                               alea_error *error) {
    const alea_status status = check_rows(completion, frame, row, 1, error);
    if (status < 0) return status;
    return alea__score_read(score_row(completion, frame, row), target, position, score, error);
}
