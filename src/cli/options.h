/*
 * The command line as data: commands and options in two constant tables. The parser, --help, the
 * manual pages and shell completion are all made from them, so they cannot disagree.
 */
#ifndef ALEA_CLI_OPTIONS_H
#define ALEA_CLI_OPTIONS_H

#include <stdio.h>

#include "cli/cli.h"

enum alea_command_bit {
    ALEA_COMMAND_SCORE = 1u << 0,
    ALEA_COMMAND_GENERATE = 1u << 1,
    ALEA_COMMAND_INSPECT = 1u << 2,
    ALEA_COMMAND_BENCH = 1u << 3,
    ALEA_COMMAND_SERVE = 1u << 4,
    ALEA_COMMAND_ALL = 31u
};

typedef struct alea_command {
    const char *name;
    uint32_t bit;
    const char *operands; /* as the usage line shows them */
    int most_operands;
    const char *summary; /* one line, lower case */
    const char *details; /* paragraphs; lines of at most 80 columns */
    alea_exit (*run)(const alea_settings *settings);
} alea_command;

typedef enum alea_option_kind {
    ALEA_OPTION_FLAG, /* bool */
    ALEA_OPTION_TEXT, /* const char * */
    ALEA_OPTION_LIST, /* alea_word_list: the option may be given several times */
    ALEA_OPTION_WORD, /* const char *, one of `words` */
    ALEA_OPTION_INT,  /* int64_t in [least, most] */
    ALEA_OPTION_SEED, /* uint64_t, with `seeded` beside it */
    ALEA_OPTION_REAL  /* double in [least, most] */
} alea_option_kind;

typedef struct alea_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    alea_option_kind kind;
    uint32_t commands;  /* alea_command_bit */
    size_t offset;      /* in alea_settings */
    const char *value;  /* as --help shows it; NULL for a flag */
    const char *words;  /* "auto always never"; of a text, those that are completed */
    double least, most; /* ends included */
    const char *help;
} alea_option;

extern const alea_command alea__commands[];
extern const size_t alea__n_commands;
extern const alea_option alea__options[];
extern const size_t alea__n_options;

/* What both help and the manual say at the end. */
typedef struct alea_exit_code {
    alea_exit code;
    const char *meaning;
} alea_exit_code;

typedef struct alea_variable {
    const char *name, *meaning;
} alea_variable;

extern const char alea__program_summary[];
extern const alea_exit_code alea__exit_codes[];
extern const size_t alea__n_exit_codes;
extern const alea_variable alea__variables[];
extern const size_t alea__n_variables;

/* NULL where there is none of that name. */
const alea_command *alea__command_find(const char *name);

/* Parse argv[1..] of a command; defaults first. Complains in one line and returns
 * ALEA_EXIT_USAGE, or ALEA_EXIT_OK. `operands` point into argv. */
alea_exit alea__options_parse(const alea_command *command, int argc, char **argv,
                              alea_settings *settings);

/* The option of that name that a command has, or NULL. */
const alea_option *alea__option_find(const alea_command *command, const char *name, size_t length);

/* Whether its value is the name of a file. */
bool alea__option_names_file(const alea_option *option);

/* Check a value and keep it; `text` must live as long as the settings. Complains. */
alea_exit alea__option_store(const alea_option *option, const char *text, alea_settings *settings);

void alea__options_help(FILE *file, const alea_command *command);
void alea__commands_help(FILE *file);

#endif
