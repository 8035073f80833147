/*
 * One thing to score or to continue, and where it comes from: files in turn, --text or --prompt, or
 * the lines of a JSONL file. Each is checked whole before it is handed out.
 */
#ifndef ALEA_CLI_QUESTION_H
#define ALEA_CLI_QUESTION_H

#include "cli/input.h"
#include "cli/printer.h"

typedef struct alea_question {
    alea_text_id id;
    enum { ALEA_QUESTION_TEXT, ALEA_QUESTION_PAIR, ALEA_QUESTION_IDS, ALEA_QUESTION_PROMPT } kind;
    alea_bytes text; /* or the prompt */
    alea_bytes continuation;
    const int32_t *tokens;
    size_t n_tokens;
    char where[128]; /* "data.jsonl line 3", for complaints */
} alea_question;

/* Pointers live during the call. A code other than ALEA_EXIT_OK ends the walk and is handed back.
 */
typedef alea_exit (*alea_question_fn)(void *user, const alea_question *question);

/* ALEA_EXIT_OK with *more set: there was something to do, and there may be more. */
typedef alea_exit (*alea_wait_fn)(void *user, bool *more);

/* What a line may hold. */
typedef enum alea_question_forms {
    ALEA_FORMS_SCORE, /* text, prompt and continuation, token_ids */
    ALEA_FORMS_PROMPT /* prompt */
} alea_question_forms;

/* The number of sources named must be one kind: files, --text or --jsonl. Complains. */
alea_exit alea__questions_check(const alea_settings *settings);
alea_exit alea__questions_walk(const alea_settings *settings, alea_question_fn visit, void *user);

/* The same for prompts: one file, --prompt or --jsonl. `wait` is called whenever no further line is
 * there yet, again and again until there is one; it ends the walk as visit does. */
alea_exit alea__prompts_check(const alea_settings *settings);
alea_exit alea__prompts_walk(const alea_settings *settings, alea_question_fn visit,
                             alea_wait_fn wait, void *user);

/* A bad line: complains with its number. `number` counts from 1. */
alea_exit alea__question_of_line(alea_bytes line, alea_question_forms forms, const char *where,
                                 uint64_t number, alea_question_fn visit, void *user);

#endif
