/* Widths come from the C library's wcwidth under the UTF-8 locale that main.c sets. */
#include "cli/terminal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/clock.h"
#include "base/utf8.h"

int alea__terminal_columns(int fd) {
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

bool alea__terminal_color(const alea_settings *settings, int fd) {
    if (strcmp(settings->color, "always") == 0) return true;
    if (strcmp(settings->color, "never") == 0) return false;
    const char *refused = getenv("NO_COLOR");
    const char *kind = getenv("TERM");
    if (refused && *refused) return false;
    return isatty(fd) && kind && strcmp(kind, "dumb") != 0;
}

const char *alea__color_of(double probability) {
    if (probability >= 0.5) return "\x1b[32m";  /* green: expected */
    if (probability >= 0.1) return "\x1b[36m";  /* cyan: likely */
    if (probability >= 0.01) return "\x1b[33m"; /* yellow: possible */
    return "\x1b[31m";                          /* red: a surprise */
}

static uint32_t code_point(const uint8_t *bytes, uint32_t length) {
    static const uint8_t masks[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t value = bytes[0] & masks[length];
    for (uint32_t i = 1; i < length; i++)
        value = value << 6 | (bytes[i] & 0x3fu);
    return value;
}

/* Joiners, direction marks and the like: no ink, but an effect on their neighbours. */
static bool is_format(uint32_t c) {
    return c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xe0000 && c <= 0xe007f);
}

/* One unit of text as it is shown: its form and its width. */
static int show_unit(const uint8_t *bytes, alea_utf8_unit unit, char *form, size_t capacity) {
    const uint32_t c = unit.kind == ALEA_UTF8_CHARACTER ? code_point(bytes, unit.length) : 0;
    if (unit.kind != ALEA_UTF8_CHARACTER) {
        int n = 0;
        for (uint32_t i = 0; i < unit.length; i++)
            n += snprintf(form + n, capacity - (size_t)n, "\\x%02x", bytes[i]);
        return n;
    }
    if (c == ' ') {
        snprintf(form, capacity, "·");
        return 1;
    }
    if (c == '\n') return snprintf(form, capacity, "\\n");
    if (c == '\t') return snprintf(form, capacity, "\\t");
    if (c == '\r') return snprintf(form, capacity, "\\r");
    if (c < 0x20 || c == 0x7f) return snprintf(form, capacity, "\\x%02x", c);
    const int width = wcwidth((wchar_t)c);
    if (width < 0 || is_format(c)) return snprintf(form, capacity, "\\u{%x}", c);
    snprintf(form, capacity, "%.*s", (int)unit.length, (const char *)bytes);
    return width;
}

int alea__visible_text(alea_bytes text, int columns, char *out, size_t capacity) {
    int used = 0;
    size_t length = 0;
    size_t cut_length = 0; /* where '…' would still fit */
    int cut_used = 0;
    out[0] = 0;
    for (size_t at = 0; at < text.length;) {
        const alea_utf8_unit unit =
            alea__utf8_first((alea_bytes){text.data + at, text.length - at});
        char form[24];
        const int width = show_unit(text.data + at, unit, form, sizeof form);
        const size_t bytes = strlen(form);
        if (used + width > columns || length + bytes + sizeof "…" > capacity) {
            memcpy(out + cut_length, "…", sizeof "…");
            return cut_used + 1;
        }
        memcpy(out + length, form, bytes + 1);
        length += bytes;
        used += width;
        if (used < columns) {
            cut_length = length;
            cut_used = used;
        }
        at += unit.length;
    }
    return used;
}

size_t alea__harmless_text(alea_bytes text, char *out, size_t capacity) {
    size_t length = 0;
    for (size_t at = 0; at < text.length;) {
        const alea_utf8_unit unit =
            alea__utf8_first((alea_bytes){text.data + at, text.length - at});
        const uint32_t c =
            unit.kind == ALEA_UTF8_CHARACTER ? code_point(text.data + at, unit.length) : 0xfffd;
        char form[24];
        if (c < 0x80 ? iscntrl((int)c) && c != '\n' && c != '\t' : c < 0xa0)
            snprintf(form, sizeof form, c < 0x80 ? "\\x%02x" : "\\u{%x}", c);
        else
            snprintf(form, sizeof form, "%.*s", (int)unit.length, (const char *)text.data + at);
        const size_t bytes = strlen(form);
        if (length + bytes + 1 > capacity) break;
        memcpy(out + length, form, bytes);
        length += bytes;
        at += unit.length;
    }
    out[length] = 0;
    return length;
}

void alea__bar(double share, int cells, char *out, size_t capacity) {
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const double inside = share > 0 ? (share < 1 ? share : 1) : 0; /* NaN: 0 */
    const int total = (int)lround(inside * cells * 8);
    const int whole = total / 8;
    const int rest = total % 8;
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < cells && n + 4 < capacity; i++) {
        const char *cell = i < whole ? "█" : i == whole && rest ? eighths[rest] : " ";
        n += (size_t)snprintf(out + n, capacity - n, "%s", cell);
    }
}

void alea__progress_start(alea_progress *progress, const alea_settings *settings, const char *label,
                          uint64_t total_tokens) {
    const bool terminal = isatty(STDERR_FILENO);
    const bool results_seen = isatty(STDOUT_FILENO) && !settings->output;
    *progress = (alea_progress){
        .label = label,
        .shown = !settings->quiet && !results_seen && (terminal || settings->progress),
        .terminal = terminal,
        .total = total_tokens,
        .start_ns = alea__clock_ns(),
    };
    progress->drawn_ns = progress->start_ns;
}

void alea__progress_update(alea_progress *progress, uint64_t tokens) {
    if (!progress->shown) return;
    const uint64_t now = alea__clock_ns();
    const uint64_t pause_ns = progress->terminal ? 100000000u : 1000000000u;
    if (now - progress->drawn_ns < pause_ns) return;
    progress->drawn_ns = now;
    progress->drawn = true;
    const double rate = (double)tokens / ((double)(now - progress->start_ns) * 1e-9);
    char label[128];
    alea__visible_text((alea_bytes){(const uint8_t *)progress->label, strlen(progress->label)}, 24,
                       label, sizeof label);
    char line[512];
    if (progress->total) {
        const double share = (double)tokens / (double)progress->total;
        char bar[128];
        alea__bar(share, 24, bar, sizeof bar);
        snprintf(line, sizeof line, "%s %s %3.0f %%  %.0f tokens/s", label, bar, 100 * share, rate);
    } else {
        snprintf(line, sizeof line, "%s  %llu tokens  %.0f tokens/s", label,
                 (unsigned long long)tokens, rate);
    }
    fprintf(stderr, progress->terminal ? "\r%s\x1b[K" : "%s\n", line);
}

void alea__progress_end(alea_progress *progress) {
    if (progress->drawn && progress->terminal) fputs("\r\x1b[K", stderr);
    progress->shown = false;
    progress->drawn = false;
}
