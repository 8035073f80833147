/*
 * `alea score`: each question to tokens, tokens to records, records to the printer and the sums.
 * A question is answered whole or not at all; the first that cannot be ends the run.
 */
#include "base/utf8.h"
#include "cli/printer.h"
#include "cli/question.h"
#include "cli/terminal.h"

typedef struct score_command {
    const alea_settings *settings;
    const alea_session *session;
    alea_printer *printer;
    const alea_question *question; /* the present one */
    alea_progress progress;
    alea_score_sums sums;
} score_command;

static alea_status on_scored(void *user, const alea_scored *scored) {
    score_command *self = user;
    alea_token_info info;
    alea_status status = alea_core_token(self->session->core, scored->token, &info);
    if (status < 0) return status;
    alea__score_sums_add(&self->sums, scored, info.bytes.length);
    if (scored->index == 0)
        status = self->printer->api->text_begin(self->printer, &self->question->id);
    if (status < 0) return status;
    return self->printer->api->text_token(self->printer, scored);
}

static void on_progress(void *user, size_t computed_tokens) {
    score_command *self = user;
    alea__progress_update(&self->progress, computed_tokens);
}

/* The ids of a question; the caller frees them. */
static alea_status encode(const score_command *self, const alea_question *question,
                          alea_token_ids *ids, alea_error *error) {
    const alea_core *core = self->session->core;
    if (question->kind == ALEA_QUESTION_PAIR)
        return alea__joint_encode(core, question->text, question->continuation,
                                  ALEA_TOKENIZE_SPECIAL, ids, error);
    return alea__text_encode(core, question->text, ALEA_TOKENIZE_SPECIAL, ids, error);
}

static alea_status score_ids(score_command *self, const alea_question *question,
                             const int32_t *tokens, size_t n_tokens, size_t continuation,
                             alea_error *error) {
    const alea_settings *settings = self->settings;
    const alea_score_options options = {
        .kernels = self->session->kernels,
        .pool = self->session->pool,
        .window_tokens = (int32_t)settings->window_tokens,
        .stride_tokens = (int32_t)settings->stride_tokens,
        .top = (int32_t)settings->top,
        .cancel = &alea__interrupted,
        .progress = on_progress,
        .progress_user = self,
    };
    const int32_t window =
        options.window_tokens ? options.window_tokens : self->session->info.context_tokens;
    const int32_t half = window > 1 ? window / 2 : 1;
    const int32_t stride = options.stride_tokens ? options.stride_tokens : half;
    alea__progress_start(&self->progress, settings, question->where,
                         alea__score_work_tokens(n_tokens, window, stride));
    self->sums = alea__score_sums_start(continuation);
    self->question = question;
    alea_status status =
        alea__score_tokens(self->session->core, &options, tokens, n_tokens, on_scored, self, error);
    if (status >= 0) status = self->printer->api->text_end(self->printer, &self->sums);
    alea__progress_end(&self->progress);
    return status;
}

static alea_exit explain(const score_command *self, const alea_question *question,
                         alea_status status, const alea_error *error) {
    if (self->printer->output->failed) return ALEA_EXIT_OUTPUT;
    if (status == ALEA_ECANCELLED)
        alea__complain("interrupted");
    else if (error->status < 0)
        alea__complain("%s: %s", question->where, error->message);
    else if (status == ALEA_EIO)
        return ALEA_EXIT_OUTPUT; /* the spool has said why */
    else if (status != ALEA_ENOMEM)
        alea__complain("%s: %s", question->where, alea_status_text(status));
    return alea__exit_of(status);
}

static alea_status answer(score_command *self, const alea_question *question, alea_error *error) {
    if (question->kind == ALEA_QUESTION_IDS)
        return score_ids(self, question, question->tokens, question->n_tokens, ALEA_NO_CONTINUATION,
                         error);
    if (question->kind == ALEA_QUESTION_TEXT && question->text.length == 0)
        return alea_error_set(error, ALEA_EINVAL, "the text is empty: there is nothing to score");
    const size_t valid = alea__utf8_valid_length(question->text);
    if (valid < question->text.length)
        return alea_error_set(error, ALEA_EFORMAT,
                              "the text is not UTF-8 at byte %zu; convert it to UTF-8", valid);
    alea_token_ids ids;
    alea_status status = encode(self, question, &ids, error);
    if (status < 0) return status;
    status = score_ids(self, question, ids.tokens, ids.n_tokens, ids.continuation, error);
    alea__token_ids_free(&ids);
    return status;
}

static alea_exit visit(void *user, const alea_question *question) {
    score_command *self = user;
    alea_error error = {.status = ALEA_OK, .message = ""};
    const alea_status status = answer(self, question, &error);
    return status < 0 ? explain(self, question, status, &error) : ALEA_EXIT_OK;
}

static alea_exit check_windows(const alea_settings *settings, const alea_session *session) {
    const int64_t context = session->info.context_tokens;
    const int64_t window = settings->window_tokens ? settings->window_tokens : context;
    if (window > context) {
        alea__complain("--window is %lld, the context holds %lld tokens; see --context",
                       (long long)window, (long long)context);
        return ALEA_EXIT_USAGE;
    }
    if (settings->stride_tokens > window) {
        alea__complain("--stride is %lld, it must be at most the window's %lld tokens",
                       (long long)settings->stride_tokens, (long long)window);
        return ALEA_EXIT_USAGE;
    }
    return ALEA_EXIT_OK;
}

static alea_exit run(const alea_settings *settings, const alea_session *session,
                     alea_output *output) {
    alea_exit code = check_windows(settings, session);
    if (code != ALEA_EXIT_OK) return code;
    score_command self = {.settings = settings, .session = session};
    self.printer = settings->json ? alea__printer_json(settings, session, output)
                                  : alea__printer_table(settings, session, output);
    if (!self.printer) return ALEA_EXIT_FAILURE;
    code = alea__questions_walk(settings, visit, &self);
    self.printer->api->free(self.printer);
    return code;
}

alea_exit alea__cmd_score(const alea_settings *settings) {
    alea_exit code = alea__questions_check(settings);
    if (code != ALEA_EXIT_OK) return code;
    alea_output output;
    if (alea__output_open(&output, settings->output) < 0) return ALEA_EXIT_OUTPUT;
    alea_session session;
    code = alea__session_open(settings, settings->model, 0, 1, &session);
    if (code == ALEA_EXIT_OK) {
        code = run(settings, &session, &output);
        alea__session_close(&session);
    }
    return alea__output_finish(&output, code);
}
