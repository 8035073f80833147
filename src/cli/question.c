/* The sources of questions; question_json.c reads a line. */
#include "cli/question.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

alea_exit alea__questions_check(const alea_settings *settings) {
    const int kinds =
        (settings->text != NULL) + (settings->jsonl != NULL) + (settings->n_operands > 0);
    if (kinds == 1) return ALEA_EXIT_OK;
    alea__complain(kinds ? "score takes files, --text or --jsonl, one of them"
                         : "score needs something to score: FILE, - for standard input, --text "
                           "TEXT or --jsonl FILE");
    return ALEA_EXIT_USAGE;
}

alea_exit alea__prompts_check(const alea_settings *settings) {
    const int kinds =
        (settings->prompt != NULL) + (settings->jsonl != NULL) + (settings->n_operands > 0);
    if (kinds == 1) return ALEA_EXIT_OK;
    alea__complain("generate needs one source: --prompt TEXT, FILE, - for standard input, or "
                   "--jsonl FILE");
    return ALEA_EXIT_USAGE;
}

static alea_text_id name_of(const char *name) {
    return (alea_text_id){.kind = ALEA_ID_TEXT, .text = {(const uint8_t *)name, strlen(name)}};
}

static alea_exit exit_of_read(alea_status status) {
    if (status == ALEA_EIO) return ALEA_EXIT_INPUT;
    return alea__exit_of(status);
}

static alea_exit walk_files(const alea_settings *settings, alea_question_fn visit, void *user) {
    for (int i = 0; i < settings->n_operands; i++) {
        const char *path = settings->operands[i];
        alea_input_buffer file;
        alea_status status = alea__read_text(path, &file);
        if (status < 0) return exit_of_read(status);
        alea_question question = {
            .id = name_of(path), .kind = ALEA_QUESTION_TEXT, .text = {file.data, file.length}};
        snprintf(question.where, sizeof question.where, "%s",
                 strcmp(path, "-") == 0 ? "standard input" : path);
        const alea_exit code = visit(user, &question);
        alea__buffer_free(&file);
        if (code != ALEA_EXIT_OK) return code;
    }
    return ALEA_EXIT_OK;
}

static bool is_blank_line(alea_bytes line) {
    for (size_t i = 0; i < line.length; i++)
        if (!line.data[i] || !strchr(" \t\r\n", line.data[i])) return false;
    return true;
}

/* Who asks for prompts or questions, and what is done with each. */
typedef struct walker {
    alea_question_forms forms;
    alea_question_fn visit;
    alea_wait_fn wait; /* NULL: nothing to do meanwhile */
    void *user;
} walker;

/* Until the next line is there, or nothing is left to do while it is not. */
static alea_exit use_wait(const walker *self, const alea_lines *lines) {
    bool more = self->wait != NULL;
    alea_exit code = ALEA_EXIT_OK;
    while (more && code == ALEA_EXIT_OK && alea__lines_would_wait(lines))
        code = self->wait(self->user, &more);
    return code;
}

static alea_exit walk_lines(int fd, const char *name, const walker *self) {
    alea_lines lines = {.fd = fd};
    alea_input_buffer buffer = {0};
    alea_exit code = ALEA_EXIT_OK;
    for (uint64_t number = 1; code == ALEA_EXIT_OK; number++) {
        char where[128];
        snprintf(where, sizeof where, "%.90s line %llu", name, (unsigned long long)number);
        code = use_wait(self, &lines);
        if (code != ALEA_EXIT_OK) break;
        const alea_status status = alea__read_line(&lines, where, &buffer);
        if (status < 0) code = exit_of_read(status);
        if (status < 0 || buffer.length == 0) break;
        const bool ended = buffer.data[buffer.length - 1] == '\n';
        const alea_bytes line = {buffer.data, buffer.length - ended};
        if (!is_blank_line(line))
            code =
                alea__question_of_line(line, self->forms, where, number, self->visit, self->user);
    }
    alea__buffer_free(&buffer);
    return code;
}

static alea_exit walk_jsonl(const char *path, const walker *self) {
    if (strcmp(path, "-") == 0) return walk_lines(STDIN_FILENO, "standard input", self);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        alea__complain("cannot open %s: %s", path, strerror(errno));
        return ALEA_EXIT_INPUT;
    }
    const alea_exit code = walk_lines(fd, path, self);
    close(fd);
    return code;
}

alea_exit alea__questions_walk(const alea_settings *settings, alea_question_fn visit, void *user) {
    const walker self = {.forms = ALEA_FORMS_SCORE, .visit = visit, .user = user};
    if (settings->jsonl) return walk_jsonl(settings->jsonl, &self);
    if (!settings->text) return walk_files(settings, visit, user);
    const alea_question question = {.id = name_of("text"),
                                    .kind = ALEA_QUESTION_TEXT,
                                    .text = name_of(settings->text).text,
                                    .where = "--text"};
    return visit(user, &question);
}

alea_exit alea__prompts_walk(const alea_settings *settings, alea_question_fn visit,
                             alea_wait_fn wait, void *user) {
    const walker self = {.forms = ALEA_FORMS_PROMPT, .visit = visit, .wait = wait, .user = user};
    if (settings->jsonl) return walk_jsonl(settings->jsonl, &self);
    if (!settings->prompt) return walk_files(settings, visit, user);
    const alea_question question = {.id = name_of("prompt"),
                                    .kind = ALEA_QUESTION_PROMPT,
                                    .text = name_of(settings->prompt).text,
                                    .where = "--prompt"};
    return visit(user, &question);
}
