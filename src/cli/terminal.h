/*
 * What a person sees: whether there is a terminal, how wide things are on it, colours by
 * probability, and the progress bar. Nothing here touches results.
 */
#ifndef ALEA_CLI_TERMINAL_H
#define ALEA_CLI_TERMINAL_H

#include "cli/cli.h"

/* Columns of a terminal, 80 where it does not say. */
int alea__terminal_columns(int fd);

/* --color, NO_COLOR and whether fd is a terminal that is not "dumb". */
bool alea__terminal_color(const alea_settings *settings, int fd);

/* An escape sequence for a probability; ALEA_COLOR_OFF ends it. */
#define ALEA_COLOR_OFF "\x1b[0m"
#define ALEA_COLOR_DIM "\x1b[2m"
const char *alea__color_of(double probability);

/*
 * Text made safe and visible: \n, \t, \xNN for control bytes and broken UTF-8, \u{…} for format
 * characters (they reorder or hide what stands around them), '·' for a space. At most `columns`
 * columns, a longer text ends in '…'. Returns the columns used; `out` gets a NUL.
 */
int alea__visible_text(alea_bytes text, int columns, char *out, size_t capacity);

/*
 * Text with its control bytes made visible, all but newlines and tabs: a model, or who made one,
 * may not drive the terminal. Longer text is cut; `out` gets a NUL. Returns its length.
 */
size_t alea__harmless_text(alea_bytes text, char *out, size_t capacity);

/* Bytes that alea__harmless_text may need for `n`. */
#define ALEA_HARMLESS_BOUND(n) (4 * (size_t)(n) + 8)

/* A bar of `cells` columns for a share of 0..1, in eighths; padded with spaces. */
void alea__bar(double share, int cells, char *out, size_t capacity);

typedef struct alea_progress {
    const char *label;
    bool shown;     /* at all */
    bool terminal;  /* redrawn in place; else a line a second */
    uint64_t total; /* tokens; 0: not known */
    uint64_t start_ns, drawn_ns;
    bool drawn;
} alea_progress;

/* Shown where stderr is a terminal or --progress asks, and not where the results themselves go to
 * a terminal: they show it already. */
void alea__progress_start(alea_progress *progress, const alea_settings *settings, const char *label,
                          uint64_t total_tokens);
void alea__progress_update(alea_progress *progress, uint64_t tokens);
void alea__progress_end(alea_progress *progress);

#endif
