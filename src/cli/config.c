/* The file is read once and kept: settings point into it. */
#include "cli/config.h"

#include <string.h>

#include "cli/input.h"

static char *trim(char *text) {
    while (*text == ' ' || *text == '\t')
        text++;
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1]))
        text[--length] = 0;
    return text;
}

static alea_exit complain(const char *path, int number, const char *what, const char *name) {
    alea__complain("%s line %d: %s '%s'", path, number, what, name);
    return ALEA_EXIT_USAGE;
}

static alea_exit read_line(const alea_command *command, const char *path, int number, char *line,
                           alea_settings *settings) {
    line = trim(line);
    if (!*line || *line == '#') return ALEA_EXIT_OK;
    char *equals = strchr(line, '=');
    char *value = equals ? trim(equals + 1) : NULL;
    if (equals) *equals = 0;
    const char *name = trim(line);
    const alea_option *option = alea__option_find(command, name, strlen(name));
    if (!option || strcmp(name, "config") == 0 || strcmp(name, "help") == 0) {
        alea__complain("%s line %d: there is no option '%s'; see alea help %s", path, number, name,
                       command->name);
        return ALEA_EXIT_USAGE;
    }
    if (option->kind == ALEA_OPTION_FLAG) {
        if (value && strcmp(value, "false") == 0) return ALEA_EXIT_OK;
        if (value && strcmp(value, "true") != 0)
            return complain(path, number, "true or false is needed, not", value);
    } else if (!value) {
        return complain(path, number, "a value is needed: NAME = VALUE, for", name);
    }
    const alea_exit code = alea__option_store(option, value, settings);
    if (code != ALEA_EXIT_OK) alea__complain("that is line %d of %s", number, path);
    return code;
}

alea_exit alea__config_read(const alea_command *command, const char *path,
                            alea_settings *settings) {
    static char *kept; /* for as long as the settings, which is for ever */
    if (alea__read_string(path, &kept) < 0) return ALEA_EXIT_INPUT;
    alea_exit code = ALEA_EXIT_OK;
    int number = 1;
    for (char *line = kept; line && code == ALEA_EXIT_OK; number++) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        code = read_line(command, path, number, line, settings);
        line = end ? end + 1 : NULL;
    }
    return code;
}
