/* Options from a file: a line "NAME = VALUE" is "--NAME VALUE". The words are the option table's.
 */
#ifndef ALEA_CLI_CONFIG_H
#define ALEA_CLI_CONFIG_H

#include "cli/options.h"

/* Complains with the file and the line. Values point into memory that is kept for the process. */
alea_exit alea__config_read(const alea_command *command, const char *path, alea_settings *settings);

#endif
