/*
 * `alea`: find the command, read its options, run it. What must hold before any of it: the three
 * standard descriptors are taken, so that no file becomes stdout by accident; a closed pipe is an
 * error to report, not a signal; and SIGINT asks instead of killing.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/fenv_check.h"
#include "cli/manual.h"
#include "cli/options.h"
#include "cli/output.h"

volatile sig_atomic_t alea__interrupted;

/* The first asks; the second ends the process as if it had not been caught, but leaves no part of
 * an --output file. */
static void interrupt(int signal_number) {
    if (alea__interrupted) {
        alea__output_abandon();
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    alea__interrupted = 1;
}

/* Without SA_RESTART, so that a read which waits for input ends too. */
static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before; /* nohup asks that it stays ignored */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
}

void alea__complain(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *at = line; *at; at++)
        if (iscntrl((unsigned char)*at)) *at = '?';
    fprintf(stderr, "alea: %s\n", line);
}

alea_exit alea__exit_of(alea_status status) {
    switch (status) {
    case ALEA_OK: return ALEA_EXIT_OK;
    case ALEA_ECANCELLED: return ALEA_EXIT_INTERRUPTED;
    case ALEA_EROW: return ALEA_EXIT_MODEL;
    case ALEA_EINVAL:
    case ALEA_EFORMAT:
    case ALEA_ECONTEXT:
    case ALEA_ELIMIT: return ALEA_EXIT_INPUT;
    default: return ALEA_EXIT_FAILURE;
    }
}

/* A descriptor below 3 that the caller closed: fill it with one that refuses every use. */
static void occupy_standard_descriptors(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* After what is printed by stdio: help and the version. */
static alea_exit finish_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return ALEA_EXIT_OK;
    alea__complain("cannot write to standard output: %s", strerror(errno));
    return ALEA_EXIT_OUTPUT;
}

static alea_exit no_command(const char *name) {
    alea__complain("there is no command '%s'; see alea help", name);
    return ALEA_EXIT_USAGE;
}

/* `alea help --man [COMMAND]`, --completion SHELL and --commands: for who installs. */
static alea_exit print_manual(int argc, char **argv) {
    const bool is_page = strcmp(argv[2], "--man") == 0;
    if (strcmp(argv[2], "--commands") == 0) {
        for (size_t i = 0; i < alea__n_commands; i++)
            puts(alea__commands[i].name);
        return finish_stdout();
    }
    const alea_command *command = is_page && argc > 3 ? alea__command_find(argv[3]) : NULL;
    if (is_page && argc > 3 && !command) return no_command(argv[3]);
    if (is_page) {
        alea__manual_page(stdout, command);
    } else if (strcmp(argv[2], "--completion") != 0) {
        return no_command(argv[2]);
    } else if (argc < 4 || !alea__completion(stdout, argv[3])) {
        alea__complain("help --completion needs a shell: bash, zsh or fish");
        return ALEA_EXIT_USAGE;
    }
    return finish_stdout();
}

static alea_exit too_much(const char *word, const char *rest) {
    alea__complain("%s does not know what to do with '%s'", word, rest);
    return ALEA_EXIT_USAGE;
}

static alea_exit usage_top(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        if (argc > 2) return too_much(word, argv[2]);
        printf("alea %s\n", alea_version());
        return finish_stdout();
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        if (argc > 2 && strncmp(argv[2], "--", 2) == 0) return print_manual(argc, argv);
        const alea_command *command = argc > 2 ? alea__command_find(argv[2]) : NULL;
        if (argc > 2 && !command) return no_command(argv[2]);
        if (argc > 3) return too_much(word, argv[3]);
        if (command)
            alea__options_help(stdout, command);
        else
            alea__commands_help(stdout);
        return finish_stdout();
    }
    if (argc < 2)
        alea__complain("which command? see alea help");
    else
        return no_command(word);
    return ALEA_EXIT_USAGE;
}

static alea_exit set_caps(const alea_settings *settings) {
    const char *words = settings->caps ? settings->caps : getenv("ALEA_CAPS");
    if (!words || !*words) return ALEA_EXIT_OK;
    uint32_t mask;
    alea_error error;
    if (alea__caps_parse(words, &mask, &error) < 0) {
        alea__complain("%s: %s", settings->caps ? "--caps" : "ALEA_CAPS", error.message);
        return ALEA_EXIT_USAGE;
    }
    alea__cpu_mask(mask);
    return ALEA_EXIT_OK;
}

int main(int argc, char **argv) {
    occupy_standard_descriptors();
    signal(SIGPIPE, SIG_IGN);
    setlocale(LC_CTYPE, "C.UTF-8"); /* for the width of characters alone */
    const alea_command *command = argc > 1 ? alea__command_find(argv[1]) : NULL;
    if (!command) return (int)usage_top(argc, argv);

    alea_settings settings;
    alea_exit code = alea__options_parse(command, argc - 1, argv + 1, &settings);
    if (code != ALEA_EXIT_OK) return (int)code;
    if (settings.help) {
        alea__options_help(stdout, command);
        return (int)finish_stdout();
    }
    alea_error error;
    if (alea__fenv_check(&error) < 0) {
        alea__complain("%s", error.message);
        return ALEA_EXIT_FAILURE;
    }
    code = set_caps(&settings);
    if (code != ALEA_EXIT_OK) return (int)code;
    catch_interrupts();
    return (int)command->run(&settings);
}
