/*
 * Manual pages and shell completion, made by the program itself from its two tables. Installed by
 * cmake --install; cmake/manual.cmake asks for each.
 */
#ifndef ALEA_CLI_MANUAL_H
#define ALEA_CLI_MANUAL_H

#include "cli/options.h"

/* A page in man(7) macros; NULL: that of the program. */
void alea__manual_page(FILE *file, const alea_command *command);

/* `shell` is bash, zsh or fish; false for another. */
bool alea__completion(FILE *file, const char *shell);

#endif
