/* Three quotings, one table: roff, and the words of bash, zsh and fish. */
#include "cli/manual.h"

#include <ctype.h>
#include <string.h>

/* Text as roff takes it: no escape, no hyphen that a reader could not paste, no request. */
static void put_roff(FILE *file, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        const bool line_starts = i == 0 || text[i - 1] == '\n';
        if (line_starts && (text[i] == '.' || text[i] == '\'')) fputs("\\&", file);
        if (text[i] == '\\')
            fputs("\\e", file);
        else if (text[i] == '-')
            fputs("\\-", file);
        else
            fputc(text[i], file);
    }
}

static void put_all(FILE *file, const char *text) {
    put_roff(file, text, strlen(text));
}

/* Paragraphs; lines that begin with two spaces are shown as they are. */
static void put_details(FILE *file, const char *text) {
    bool as_is = false;
    while (*text) {
        const size_t length = strcspn(text, "\n");
        const bool indented = strncmp(text, "  ", 2) == 0;
        if (indented != as_is) fputs(indented ? ".RS\n.nf\n" : ".fi\n.RE\n", file);
        as_is = indented;
        if (length == 0) {
            fputs(".PP\n", file);
        } else {
            put_roff(file, text + (indented ? 2 : 0), length - (indented ? 2 : 0));
            fputc('\n', file);
        }
        text += length + (text[length] == '\n');
    }
    if (as_is) fputs(".fi\n.RE\n", file);
}

static void put_title(FILE *file, const alea_command *command) {
    fputs(".TH ALEA", file);
    if (command) {
        fputs("\\-", file);
        for (const char *at = command->name; *at; at++)
            fputc(toupper((unsigned char)*at), file);
    }
    fprintf(file, " 1 \"\" \"alea %s\" \"Alea\"\n.SH NAME\nalea", alea_version());
    if (command) {
        fputs("\\-", file);
        put_all(file, command->name);
    }
    fputs(" \\- ", file);
    put_all(file, command ? command->summary : alea__program_summary);
    fputs("\n.SH SYNOPSIS\n", file);
}

static void put_option(FILE *file, const alea_option *option) {
    fputs(".TP\n", file);
    if (option->letter) fprintf(file, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", file);
    put_all(file, option->name);
    fputs("\\fR", file);
    if (option->value) {
        fputs(" \\fI", file);
        put_all(file, option->value);
        fputs("\\fR", file);
    }
    fputc('\n', file);
    put_all(file, option->help);
    fputc('\n', file);
}

static void put_common(FILE *file) {
    fputs(".SH EXIT STATUS\n", file);
    for (size_t i = 0; i < alea__n_exit_codes; i++) {
        fprintf(file, ".TP\n.B %d\n", (int)alea__exit_codes[i].code);
        put_all(file, alea__exit_codes[i].meaning);
        fputc('\n', file);
    }
    fputs(".SH ENVIRONMENT\n", file);
    for (size_t i = 0; i < alea__n_variables; i++) {
        fprintf(file, ".TP\n.B %s\n", alea__variables[i].name);
        put_all(file, alea__variables[i].meaning);
        fputc('\n', file);
    }
}

static void put_see_also(FILE *file, const alea_command *but) {
    fputs(".SH SEE ALSO\n", file);
    const char *comma = "";
    if (but) {
        fputs("\\fBalea\\fR(1)", file);
        comma = ",\n";
    }
    for (size_t i = 0; i < alea__n_commands; i++) {
        if (&alea__commands[i] == but) continue;
        fprintf(file, "%s\\fBalea\\-%s\\fR(1)", comma, alea__commands[i].name);
        comma = ",\n";
    }
    fputc('\n', file);
}

void alea__manual_page(FILE *file, const alea_command *command) {
    put_title(file, command);
    if (command) {
        fprintf(file, "\\fBalea %s\\fR [\\fIOPTION\\fR]…%s", command->name,
                *command->operands ? " " : "");
        put_all(file, command->operands);
        fputs("\n.SH DESCRIPTION\n", file);
        put_details(file, command->details);
        fputs(".SH OPTIONS\n", file);
        for (size_t i = 0; i < alea__n_options; i++)
            if (alea__options[i].commands & command->bit) put_option(file, &alea__options[i]);
    } else {
        fputs("\\fBalea\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]…\n.br\n"
              "\\fBalea help\\fR [\\fICOMMAND\\fR]\n.br\n"
              "\\fBalea help \\-\\-man\\fR [\\fICOMMAND\\fR]\n.br\n"
              "\\fBalea help \\-\\-completion\\fR bash|zsh|fish\n.br\n"
              "\\fBalea \\-\\-version\\fR\n"
              ".SH COMMANDS\n",
              file);
        for (size_t i = 0; i < alea__n_commands; i++) {
            fprintf(file, ".TP\n.B alea %s\n", alea__commands[i].name);
            put_all(file, alea__commands[i].summary);
            fputc('\n', file);
        }
    }
    put_common(file);
    put_see_also(file, command);
}

/* ---- completion ---- */

/* What `help` takes besides a command. */
#define MANUAL_WORDS "--man --completion"
#define SHELLS "bash zsh fish"

/* "core|engine|ops" as "core engine ops"; false: the operands are files, or there are none. */
static bool operand_words(const alea_command *command, char words[64]) {
    if (!strchr(command->operands, '|') || strchr(command->operands, '[')) return false;
    snprintf(words, 64, "%s", command->operands);
    for (char *at = words; *at; at++)
        if (*at == '|') *at = ' ';
    return true;
}

static void put_names(FILE *file, const alea_command *command) {
    const char *space = "";
    for (size_t i = 0; i < alea__n_options; i++) {
        if (!(alea__options[i].commands & command->bit)) continue;
        fprintf(file, "%s--%s", space, alea__options[i].name);
        space = " ";
    }
}

/* One branch of bash's case for each option that takes a value. */
static void put_bash_values(FILE *file, const alea_command *command) {
    for (size_t i = 0; i < alea__n_options; i++) {
        const alea_option *option = &alea__options[i];
        if (!(option->commands & command->bit) || !option->value) continue;
        fprintf(file, "        '%s --%s'", command->name, option->name);
        if (option->letter) fprintf(file, " | '%s -%c'", command->name, option->letter);
        if (option->words)
            fprintf(file, ") COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", option->words);
        else if (alea__option_names_file(option))
            fputs(") compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n", file);
        else
            fputs(") ;;\n", file);
    }
}

/* The first two words, and what follows `help`. */
static void put_bash_commands(FILE *file) {
    fputs("    local commands='", file);
    for (size_t i = 0; i < alea__n_commands; i++)
        fprintf(file, "%s%s", i ? " " : "", alea__commands[i].name);
    fputs("'\n"
          "    case \"$COMP_CWORD $command $prev\" in\n"
          "        '1 '*) words=\"$commands help\" ;;\n"
          "        '2 help '*) words=\"$commands " MANUAL_WORDS "\" ;;\n"
          "        '3 help --man') words=$commands ;;\n"
          "        '3 help --completion') words='" SHELLS "' ;;\n"
          "    esac\n"
          "    if [[ $COMP_CWORD -eq 1 || $command == help ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "        return\n"
          "    fi\n",
          file);
}

static void put_bash(FILE *file) {
    fputs("# bash completion for alea\n"
          "_alea() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} options= words=\n"
          "    local prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    COMPREPLY=()\n",
          file);
    put_bash_commands(file);
    fputs("    case \"$command $prev\" in\n", file);
    for (size_t i = 0; i < alea__n_commands; i++)
        put_bash_values(file, &alea__commands[i]);
    fputs("        *) case $command in\n", file);
    for (size_t i = 0; i < alea__n_commands; i++) {
        char words[64];
        fprintf(file, "            %s) options='", alea__commands[i].name);
        put_names(file, &alea__commands[i]);
        if (operand_words(&alea__commands[i], words))
            fprintf(file, "' words='%s' ;;\n", words);
        else
            fputs("' ;;\n", file);
    }
    fputs("            esac\n"
          "            if [[ $cur == -* ]]; then\n"
          "                COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
          "            elif [[ $words ]]; then\n"
          "                COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "            else\n"
          "                compopt -o filenames\n"
          "                COMPREPLY=($(compgen -f -- \"$cur\"))\n"
          "            fi ;;\n"
          "    esac\n"
          "}\n"
          "complete -F _alea alea\n",
          file);
}

/* Inside single quotes, and inside the brackets of _arguments. */
static void put_zsh_text(FILE *file, const char *text) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", file);
        else if (strchr("[]:\\", *text))
            fprintf(file, "\\%c", *text);
        else
            fputc(*text, file);
    }
}

static void put_zsh_option(FILE *file, const alea_option *option) {
    const char *several = option->kind == ALEA_OPTION_LIST ? "*" : "";
    if (option->letter)
        fprintf(file, "        '(-%c --%s)'{-%c,--%s}'[", option->letter, option->name,
                option->letter, option->name);
    else
        fprintf(file, "        '%s--%s[", several, option->name);
    put_zsh_text(file, option->help);
    fputc(']', file);
    if (option->value) {
        fputc(':', file);
        put_zsh_text(file, option->value);
        fputc(':', file);
        if (option->words) fprintf(file, "(%s)", option->words);
        if (alea__option_names_file(option)) fputs("_files", file);
    }
    fputs("' \\\n", file);
}

static void put_zsh(FILE *file) {
    fputs("#compdef alea\n"
          "local context state state_descr line\n"
          "typeset -A opt_args\n"
          "local -a commands=(\n",
          file);
    for (size_t i = 0; i < alea__n_commands; i++) {
        fprintf(file, "    '%s:", alea__commands[i].name);
        put_zsh_text(file, alea__commands[i].summary);
        fputs("'\n", file);
    }
    fputs("    'help:what a command takes'\n"
          ")\n"
          "_alea_commands() { _describe command commands; }\n"
          "_arguments -C '1:command:->command' '*::argument:->argument'\n"
          "case $state in\n"
          "command) _describe command commands ;;\n"
          "argument)\n"
          "    case $words[1] in\n"
          "    help) _arguments '(--completion)--man[manual page]' '(--man)--completion[completion "
          "script]:shell:(" SHELLS ")' '*:command:_alea_commands' ;;\n",
          file);
    for (size_t i = 0; i < alea__n_commands; i++) {
        fprintf(file, "    %s) _arguments -s \\\n", alea__commands[i].name);
        for (size_t j = 0; j < alea__n_options; j++)
            if (alea__options[j].commands & alea__commands[i].bit)
                put_zsh_option(file, &alea__options[j]);
        char words[64];
        if (operand_words(&alea__commands[i], words))
            fprintf(file, "        '1:what:(%s)' ;;\n", words);
        else
            fputs("        '*:file:_files' ;;\n", file);
    }
    fputs("    esac ;;\n"
          "esac\n",
          file);
}

static void put_fish_text(FILE *file, const char *text) {
    fputc('\'', file);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', file);
        fputc(*text, file);
    }
    fputc('\'', file);
}

static void put_fish_option(FILE *file, const alea_command *command, const alea_option *option) {
    fprintf(file, "complete -c alea -n '__fish_seen_subcommand_from %s' -l %s", command->name,
            option->name);
    if (option->letter) fprintf(file, " -s %c", option->letter);
    if (option->words)
        fprintf(file, " -x -a '%s'", option->words);
    else if (option->value)
        fputs(alea__option_names_file(option) ? " -r -F" : " -x", file);
    fputs(" -d ", file);
    put_fish_text(file, option->help);
    fputc('\n', file);
}

static void put_fish(FILE *file) {
    fputs("# fish completion for alea\n", file);
    for (size_t i = 0; i < alea__n_commands; i++) {
        fprintf(file, "complete -c alea -n __fish_use_subcommand -f -a %s -d ",
                alea__commands[i].name);
        put_fish_text(file, alea__commands[i].summary);
        fputc('\n', file);
    }
    fputs("complete -c alea -n __fish_use_subcommand -f -a help -d 'what a command takes'\n", file);
    fputs("complete -c alea -n '__fish_seen_subcommand_from help' -f -a '", file);
    for (size_t i = 0; i < alea__n_commands; i++)
        fprintf(file, "%s%s", i ? " " : "", alea__commands[i].name);
    fputs("'\ncomplete -c alea -n '__fish_seen_subcommand_from help' -f -l man -d 'manual page'\n"
          "complete -c alea -n '__fish_seen_subcommand_from help' -x -l completion -a '" SHELLS
          "' -d 'completion script'\n",
          file);
    for (size_t i = 0; i < alea__n_commands; i++) {
        char words[64];
        if (operand_words(&alea__commands[i], words))
            fprintf(file, "complete -c alea -n '__fish_seen_subcommand_from %s' -f -a '%s'\n",
                    alea__commands[i].name, words);
    }
    for (size_t i = 0; i < alea__n_commands; i++)
        for (size_t j = 0; j < alea__n_options; j++)
            if (alea__options[j].commands & alea__commands[i].bit)
                put_fish_option(file, &alea__commands[i], &alea__options[j]);
}

bool alea__completion(FILE *file, const char *shell) {
    if (strcmp(shell, "bash") == 0)
        put_bash(file);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(file);
    else if (strcmp(shell, "fish") == 0)
        put_fish(file);
    else
        return false;
    return true;
}
