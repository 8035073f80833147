/*
 * The trial run. The child speaks through a pipe: a status byte and a line. No byte at all means
 * that it was ended, by a signal or by the parent's clock.
 *
 * It is a fork without exec: the child never returns and never runs exit handlers. The logs are
 * held over the fork, or a thread that is just writing a line would leave them locked in the child.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "core/llama/guard.h"
#include "core/llama/llama_log.h"
#include "core/llama/open.h"
#include "core/llama/vocab.h"
#include "ggml.h"
#include "llama.h"

/* A minute, and another for every 3 GB of the file that a slow disk has to bring. */
enum { PROBE_MS_MIN = 60000, FILE_BYTES_PER_MS = 50000, ABORTED = 1 };

typedef struct probe_report {
    int8_t status; /* alea_status, or ABORTED */
    char line[256];
} probe_report;

static int report_to = -1; /* the child's end of the pipe; unused in the parent */

static void send_report(int status, const char *line) {
    probe_report report = {.status = (int8_t)status};
    snprintf(report.line, sizeof(report.line), "%s", line);
    const ssize_t sent = write(report_to, &report, sizeof(report));
    (void)sent;
}

/* "…/file.cpp:12: GGML_ASSERT(x) failed" to "GGML_ASSERT(x) failed". */
static void on_abort(const char *message) {
    const char *colon = strstr(message, ": ");
    send_report(ABORTED, colon != NULL ? colon + 2 : message);
    _exit(ABORTED);
}

/* Every byte alone and some words: reaches the byte fallback of each kind of vocabulary. */
static void tokenize_samples(void *argument) {
    const struct llama_vocab *vocab = argument;
    static const char words[] = "Hello, world! 12345 \xc3\xa9\xe4\xb8\xad\xf0\x9f\x99\x82\n\t  <s>";
    int32_t tokens[64];
    for (int byte = 0; byte < 256; byte++) {
        const char text = (char)byte;
        (void)llama_tokenize(vocab, &text, 1, tokens, 64, false, false);
    }
    (void)llama_tokenize(vocab, words, (int32_t)sizeof(words) - 1, tokens, 64, true, true);
}

/* Two tokens, then one: few and single rows take different kernels. */
static void compute_samples(void *argument) {
    struct llama_context *context = argument;
    int32_t tokens[2] = {0, 0};
    (void)llama_decode(context, llama_batch_get_one(tokens, 2));
    (void)llama_decode(context, llama_batch_get_one(tokens, 1));
    llama_synchronize(context);
}

static alea_status try_out(const alea_llama_engine *engine, alea_error *error) {
    const struct llama_vocab *llama = llama_model_get_vocab(engine->model);
    alea_llama_vocab vocab;
    char thrown[160];
    const alea_status status = alea__llama_vocab_load(&vocab, llama, error);
    if (status < 0) return status;
    if (!alea__guard(tokenize_samples, (void *)(uintptr_t)llama, thrown, sizeof(thrown)))
        return alea_error_set(error, ALEA_EFORMAT, "its vocabulary cannot tokenize: %s", thrown);
    if (engine->context != NULL &&
        !alea__guard(compute_samples, engine->context, thrown, sizeof(thrown)))
        return alea_error_set(error, ALEA_EFORMAT, "it cannot be computed: %s", thrown);
    return ALEA_OK;
}

static void run_child(const alea_core_options *options, const alea_gguf_facts *facts) {
    alea_llama_engine engine;
    alea_error error = {.status = ALEA_OK};
    alea_core_options small = *options;
    small.progress = NULL;
    small.threads = 1;
    small.sequences = 1;
    small.context_tokens = 1; /* libllama rounds it up to 256 cells */
    small.round_tokens = 2;
    small.round_rows = 2;
    setenv("GGML_NO_BACKTRACE", "1", 1); /* ggml would start a debugger on itself */
    ggml_set_abort_callback(on_abort);
    alea_status status = alea__llama_engine_open(&small, facts, true, &engine, &error);
    if (status == ALEA_OK) status = try_out(&engine, &error);
    send_report(status, error.message);
}

static void limit_child(uint64_t ms_max) {
    static const int faults[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGALRM};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        signal(faults[i], SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    alarm((unsigned)(ms_max / 1000) + 5); /* should the parent be gone */
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere >= 0) {
        for (int fd = 0; fd <= 2; fd++)
            dup2(nowhere, fd);
    }
}

/* Why a report is not whole: the child's end, the parent's clock, or who opens the model. */
typedef enum verdict { WHOLE, ENDED, LATE, CANCELLED } verdict;

static verdict receive(int from, uint64_t ms_max, const alea_core_options *options,
                       probe_report *report) {
    const uint64_t end = alea__clock_ns() + ms_max * 1000000u;
    size_t got = 0;
    while (got < sizeof(*report)) {
        if (alea__clock_ns() >= end) return LATE;
        if (options->progress != NULL && !options->progress(0.0f, options->progress_user))
            return CANCELLED;
        struct pollfd wait = {.fd = from, .events = POLLIN};
        if (poll(&wait, 1, 100) < 1) continue;
        const ssize_t n = read(from, (char *)report + got, sizeof(*report) - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return ENDED;
        got += (size_t)n;
    }
    report->line[sizeof(report->line) - 1] = '\0';
    return WHOLE;
}

static alea_status judge(const char *path, const probe_report *report, verdict outcome, int ended,
                         alea_error *error) {
    const char *name = alea__path_tail(path);
    if (outcome == CANCELLED)
        return alea_error_set(error, ALEA_ECANCELLED, "opening '%s' was cancelled", name);
    if (outcome == WHOLE && report->status == ALEA_OK) return ALEA_OK;
    if (outcome == WHOLE && report->status < 0)
        return alea_error_set(error, (alea_status)report->status, "%s", report->line);
    if (outcome == WHOLE)
        return alea_error_set(error, ALEA_EFORMAT,
                              "model '%.60s' is damaged or not supported; libllama gave up: %.150s",
                              name, report->line);
    if (outcome == LATE)
        return alea_error_set(error, ALEA_EFORMAT,
                              "model '%s' kept libllama busy without an end; it is damaged, or the "
                              "disk is very slow",
                              name);
    return alea_error_set(error, ALEA_EFORMAT, "model '%s' is damaged; libllama ended with %s",
                          name, WIFSIGNALED(ended) ? strsignal(WTERMSIG(ended)) : "no message");
}

alea_status alea__llama_probe(const alea_core_options *options, const alea_gguf_facts *facts,
                              alea_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return alea_error_set(error, ALEA_EIO, "no pipe for the trial of a model: %s",
                              strerror(errno));
    const uint64_t ms_max = PROBE_MS_MIN + facts->file_bytes / FILE_BYTES_PER_MS;
    alea__llama_log_hold();
    const pid_t child = fork();
    alea__llama_log_resume(child == 0);
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return alea_error_set(error, ALEA_EIO, "no process for the trial of a model: %s",
                              strerror(errno));
    }
    if (child == 0) {
        report_to = ends[1];
        limit_child(ms_max);
        run_child(options, facts);
        _exit(0);
    }
    close(ends[1]);
    probe_report report = {.status = 0};
    const verdict outcome = receive(ends[0], ms_max, options, &report);
    close(ends[0]);
    int ended = 0;
    if (outcome == LATE || outcome == CANCELLED) kill(child, SIGKILL);
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR)
        continue;
    return judge(options->model, &report, outcome, ended, error);
}
