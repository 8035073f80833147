/*
 * The first error line of a failing call names the cause ("unknown model architecture: 'x'"); the
 * last says only that loading failed. Lines come in pieces and from any thread, hence the lock.
 */
#include "core/llama/llama_log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "llama.h"

static struct {
    pthread_mutex_t lock;
    char line[512];
    size_t length;
    enum ggml_log_level level;
    char complaint[200];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = GGML_LOG_LEVEL_NONE};

/* "llama_model_load: error loading model: cause" to "cause". */
static const char *cause_of(const char *line) {
    static const char *const prefixes[] = {
        "error loading model: ",
        "error loading model hyperparameters: ",
        "error loading model architecture: ",
        "error loading model vocabulary: ",
        "failed to initialize the context: ",
    };
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
            const char *found = strstr(line, prefixes[i]);
            if (found != NULL) line = found + strlen(prefixes[i]);
        }
    }
    const char *colon = strstr(line, ": ");
    const char *space = strchr(line, ' ');
    return colon != NULL && space == colon + 1 ? colon + 2 : line; /* "function_name: cause" */
}

static void finish_line(void) {
    state.line[state.length] = '\0';
    if (state.length > 0) {
        const bool bad = state.level == GGML_LOG_LEVEL_ERROR;
        if (bad && state.complaint[0] == '\0')
            snprintf(state.complaint, sizeof(state.complaint), "%.199s", cause_of(state.line));
        alea__log(bad                                  ? ALEA_LOG_INFO
                  : state.level == GGML_LOG_LEVEL_WARN ? ALEA_LOG_INFO
                                                       : ALEA_LOG_DEBUG,
                  "libllama: %s", state.line);
    }
    state.length = 0;
}

static void receive(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    pthread_mutex_lock(&state.lock);
    if (level != GGML_LOG_LEVEL_CONT) state.level = level;
    for (; *text != '\0'; text++) {
        if (*text == '\n') {
            finish_line();
        } else if (state.length < sizeof(state.line) - 1) {
            state.line[state.length++] = *text;
        }
    }
    pthread_mutex_unlock(&state.lock);
}

void alea__llama_log_take(void) {
    llama_log_set(receive, NULL);
}

void alea__llama_log_clear(void) {
    pthread_mutex_lock(&state.lock);
    state.length = 0;
    state.complaint[0] = '\0';
    pthread_mutex_unlock(&state.lock);
}

void alea__llama_log_complaint(char *text, size_t capacity) {
    pthread_mutex_lock(&state.lock);
    snprintf(text, capacity, "%s", state.complaint);
    pthread_mutex_unlock(&state.lock);
}

void alea__llama_log_hold(void) {
    pthread_mutex_lock(&state.lock); /* in the order that a line takes */
    alea__log_hold();
}

void alea__llama_log_resume(bool in_child) {
    alea__log_resume(in_child);
    pthread_mutex_unlock(&state.lock);
}
