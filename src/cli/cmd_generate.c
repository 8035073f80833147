/* `alea generate`: one prompt, n samples. The seed is drawn here when none is given, and always
 * reported, so that whatever was seen can be seen again. */
#include <string.h>
#include <sys/random.h>

#include "cli/input.h"
#include "cli/printer.h"

#define SEED_BITS 53 /* any JSON reader keeps such a number whole */

static alea_exit read_prompt(const alea_settings *settings, alea_buffer *file, alea_bytes *prompt) {
    if ((settings->prompt != NULL) + (settings->n_operands > 0) != 1) {
        alea__complain("generate needs one prompt: --prompt TEXT, FILE, or - for standard input");
        return ALEA_EXIT_USAGE;
    }
    if (settings->prompt) {
        *prompt = (alea_bytes){(const uint8_t *)settings->prompt, strlen(settings->prompt)};
        return ALEA_EXIT_OK;
    }
    alea_status status = alea__read_text(settings->operands[0], file);
    *prompt = (alea_bytes){file->data, file->length};
    if (status == ALEA_EIO || status == ALEA_EFORMAT) return ALEA_EXIT_INPUT;
    return alea__exit_of(status);
}

static alea_exit choose_seed(const alea_settings *settings, uint64_t *seed) {
    *seed = settings->seed;
    if (settings->seeded) return ALEA_EXIT_OK;
    if (getrandom(seed, sizeof *seed, 0) != (ssize_t)sizeof *seed) {
        alea__complain("no random seed can be drawn; give --seed N");
        return ALEA_EXIT_FAILURE;
    }
    *seed >>= 64 - SEED_BITS;
    return ALEA_EXIT_OK;
}

static alea_status on_token(void *user, const alea_generated *generated) {
    alea_printer *printer = user;
    return printer->api->sample_token(printer, generated);
}

static alea_status on_end(void *user, int32_t choice, alea_generate_end end) {
    alea_printer *printer = user;
    return printer->api->sample_end(printer, choice, end);
}

static alea_exit generate(const alea_settings *settings, const alea_session *session,
                          alea_bytes prompt, alea_printer *printer) {
    alea_error error = {.status = ALEA_OK, .message = ""};
    alea_token_ids ids;
    const uint32_t flags =
        ALEA_TOKENIZE_SPECIAL | (settings->markup ? (uint32_t)ALEA_TOKENIZE_MARKUP : 0u);
    alea_status status = alea__text_encode(session->core, prompt, flags, &ids, &error);
    if (status >= 0) {
        const alea_generate_options options = {
            .kernels = session->kernels,
            .sampling = {(float)settings->temperature, (int32_t)settings->top_k,
                         (float)settings->top_p, (float)settings->min_p},
            .seed = printer->seed,
            .choices = (int32_t)settings->n,
            .max_tokens = (int32_t)settings->max_tokens,
            .top = settings->logprobs > 0 ? (int32_t)settings->logprobs : 0,
            .ignore_end = settings->ignore_end,
            .cancel = &alea__interrupted,
        };
        const alea_generate_sink sink = {on_token, on_end, printer};
        status = alea__generate(session->core, &options, ids.tokens, ids.n_tokens, &sink, &error);
        alea__token_ids_free(&ids);
    }
    if (status >= 0) return ALEA_EXIT_OK;
    if (printer->output->failed) return ALEA_EXIT_OUTPUT;
    if (error.status < 0) alea__complain("%s", error.message);
    return alea__exit_of(status);
}

/* What the kernels refuse is refused before a model is opened. */
static alea_exit check_sampling(const alea_settings *settings) {
    const alea_sampling sampling = {(float)settings->temperature, (int32_t)settings->top_k,
                                    (float)settings->top_p, (float)settings->min_p};
    alea_error error;
    if (alea__sampling_check(&sampling, &error) >= 0) return ALEA_EXIT_OK;
    alea__complain("%s", error.message);
    return ALEA_EXIT_USAGE;
}

static alea_exit run(const alea_settings *settings, const alea_session *session, alea_bytes prompt,
                     uint64_t seed) {
    alea_output output;
    if (alea__output_open(&output, settings->output) < 0) return ALEA_EXIT_OUTPUT;
    alea_printer *printer = settings->json ? alea__printer_json(settings, session, &output)
                                           : alea__printer_table(settings, session, &output);
    alea_exit code = ALEA_EXIT_FAILURE;
    if (printer) {
        printer->seed = seed;
        code = generate(settings, session, prompt, printer);
        printer->api->free(printer);
    }
    if (alea__output_close(&output, code == ALEA_EXIT_OK) < 0 && code == ALEA_EXIT_OK)
        code = ALEA_EXIT_OUTPUT;
    return code;
}

alea_exit alea__cmd_generate(const alea_settings *settings) {
    alea_exit code = check_sampling(settings);
    uint64_t seed = 0;
    if (code == ALEA_EXIT_OK) code = choose_seed(settings, &seed);
    alea_buffer file = {0};
    alea_bytes prompt;
    if (code == ALEA_EXIT_OK) code = read_prompt(settings, &file, &prompt);
    if (code != ALEA_EXIT_OK) return code;
    alea_session session;
    code = alea__session_open(settings, settings->model, 0, &session);
    if (code == ALEA_EXIT_OK) {
        code = run(settings, &session, prompt, seed);
        alea__session_close(&session);
    }
    alea__buffer_free(&file);
    return code;
}
