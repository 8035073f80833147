/*
 * For people: one row a token, columns that hold for wide characters, colour by probability; and
 * for samples the text itself as it is made. What it prints is rounded; exact values are JSON's.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/printer.h"
#include "cli/terminal.h"
#include "text/stream.h"

enum { TOKEN_COLUMNS = 20, BAR_CELLS = 20, FIXED_COLUMNS = 68, ALTERNATIVE_COLUMNS = 14 };

typedef struct table {
    alea_printer base;
    bool color;
    bool live;   /* a person watches: show each token at once */
    int columns; /* 0: no limit */
    size_t n_texts;
    size_t sample_tokens;
    alea_text_stream stream;
} table;

static alea_status put(table *self, const char *text) {
    return alea__output_write(self->base.output, text, strlen(text));
}

static alea_status put_line(table *self, const char *format, ...) ALEA_PRINTF(2, 3);
static alea_status put_line(table *self, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    alea_status status = put(self, line);
    return status < 0 ? status : put(self, "\n");
}

static alea_status settle(table *self) {
    return self->live ? alea__output_flush(self->base.output) : ALEA_OK;
}

static const char *paint(const table *self, const char *color) {
    return self->color ? color : "";
}

/* A token as a person reads it, padded to `columns`. */
static void show_token(const table *self, int32_t token, int columns, char *out, size_t capacity) {
    alea_token_info info;
    char text[128] = "?";
    int used = 1;
    if (alea_core_token(self->base.session->core, token, &info) >= 0)
        used = alea__visible_text(info.name.length ? info.name : info.bytes, columns, text,
                                  sizeof text);
    snprintf(out, capacity, "%s%*s", text, columns > used ? columns - used : 0, "");
}

/* How many alternatives a line has room for. */
static int32_t n_shown(const table *self, const alea_row_report *report) {
    const int room = (self->columns - FIXED_COLUMNS) / (ALTERNATIVE_COLUMNS + 9);
    if (!self->columns || room >= report->n_top) return report->n_top;
    return room > 0 ? room : 0;
}

static alea_status put_alternatives(table *self, const alea_row_report *report) {
    const int32_t n = n_shown(self, report);
    for (int32_t i = 0; i < n; i++) {
        char text[160], entry[224];
        show_token(self, report->top[i].token, ALTERNATIVE_COLUMNS, text, sizeof text);
        snprintf(entry, sizeof entry, "  %s %5.1f%%", text,
                 100 * exp((double)report->top[i].logprob));
        alea_status status = put(self, paint(self, ALEA_COLOR_DIM));
        if (status >= 0) status = put(self, entry);
        if (status >= 0) status = put(self, paint(self, ALEA_COLOR_OFF));
        if (status < 0) return status;
    }
    return ALEA_OK;
}

/* One row: index, token, logprob, rank, bar, alternatives. */
static alea_status put_row(table *self, size_t index, int32_t token,
                           const alea_row_report *report) {
    char text[160], row[512], bar[96];
    show_token(self, token, TOKEN_COLUMNS, text, sizeof text);
    if (report->rank == 0) {
        snprintf(row, sizeof row, "%5zu  %s          —       —", index, text);
        alea_status status = put(self, row);
        return status < 0 ? status : put(self, "\n");
    }
    const double probability = exp((double)report->logprob);
    alea__bar(probability, BAR_CELLS, bar, sizeof bar);
    if (n_shown(self, report) == 0) bar[strcspn(bar, " ")] = 0; /* no blanks at the line's end */
    const char *color = paint(self, alea__color_of(probability));
    const char *off = paint(self, ALEA_COLOR_OFF);
    const int n = snprintf(row, sizeof row, "%5zu  %s%s%s  %9.4f  %6d", index, color, text, off,
                           (double)report->logprob, report->rank);
    if (*bar) snprintf(row + n, sizeof row - (size_t)n, "  %s%s%s", color, bar, off);
    alea_status status = put(self, row);
    if (status >= 0) status = put_alternatives(self, report);
    if (status >= 0) status = put(self, "\n");
    return status;
}

static alea_status put_titles(table *self) {
    return put_line(self, "%s%5s  %-20s  %9s  %6s  %s%s", paint(self, ALEA_COLOR_DIM), "#", "token",
                    "logprob", "rank", "probability", paint(self, ALEA_COLOR_OFF));
}

static void show_id(const alea_text_id *id, char *out, size_t capacity) {
    switch (id->kind) {
    case ALEA_ID_TEXT: alea__visible_text(id->text, 120, out, capacity); break;
    case ALEA_ID_INT: snprintf(out, capacity, "%lld", (long long)id->integer); break;
    case ALEA_ID_UINT: snprintf(out, capacity, "%llu", (unsigned long long)id->natural); break;
    case ALEA_ID_REAL: snprintf(out, capacity, "%g", id->real); break;
    }
}

static alea_status text_begin(alea_printer *base, const alea_text_id *id) {
    table *self = (table *)base;
    alea_status status = self->n_texts++ ? put(self, "\n") : ALEA_OK;
    char name[512], model[1024];
    show_id(id, name, sizeof name);
    const char *described = base->session->info.model;
    alea__harmless_text((alea_bytes){(const uint8_t *)described, strlen(described)}, model,
                        sizeof model);
    if (status >= 0) status = put_line(self, "%s — %s", name, model);
    return status < 0 ? status : put_titles(self);
}

static alea_status text_token(alea_printer *base, const alea_scored *scored) {
    table *self = (table *)base;
    alea_status status = put_row(self, scored->index, scored->token, scored->report);
    return status < 0 ? status : settle(self);
}

static alea_status text_end(alea_printer *base, const alea_score_sums *sums) {
    table *self = (table *)base;
    alea_status status =
        put_line(self, "%zu token%s, %zu scored, sum of logprobs %.4f", sums->n_tokens,
                 sums->n_tokens == 1 ? "" : "s", sums->n_scored, sums->sum_logprob);
    if (status >= 0 && sums->n_scored)
        status = put_line(self, "perplexity %.4f, bits per byte %.4f", alea__score_perplexity(sums),
                          alea__score_bits_per_byte(sums));
    if (status >= 0 && sums->continuation != ALEA_NO_CONTINUATION)
        status = put_line(self, "continuation from token %zu: sum of logprobs %.4f, %s",
                          sums->continuation, sums->continuation_sum_logprob,
                          sums->is_greedy ? "greedy" : "not greedy");
    return status < 0 ? status : settle(self);
}

/* Samples: a header where there are several, then text, or a row a token with --logprobs. */
static alea_status sample_begin(alea_printer *base, const alea_sample *sample) {
    table *self = (table *)base;
    self->sample_tokens = 0;
    self->stream = (alea_text_stream){0};
    const alea_settings *settings = base->settings;
    char name[512] = "";
    if (sample->prompt) {
        show_id(sample->prompt, name, sizeof name - 2);
        strcat(name, ", ");
    }
    alea_status status = ALEA_OK;
    if (settings->n > 1 || sample->prompt)
        status = put_line(self, "%s— %ssample %d —%s", paint(self, ALEA_COLOR_DIM), name,
                          sample->index, paint(self, ALEA_COLOR_OFF));
    if (status >= 0 && settings->logprobs >= 0) status = put_titles(self);
    return status;
}

/* Verbatim into a file or a pipe; a terminal would obey control bytes. */
static alea_status put_sampled(table *self, alea_bytes text) {
    if (!self->live) return alea__output_write(self->base.output, text.data, text.length);
    const size_t capacity = ALEA_HARMLESS_BOUND(text.length);
    char *shown = malloc(capacity);
    if (!shown) {
        alea__complain("out of memory");
        return ALEA_ENOMEM;
    }
    const size_t length = alea__harmless_text(text, shown, capacity);
    const alea_status status = alea__output_write(self->base.output, shown, length);
    free(shown);
    return status;
}

static alea_status put_text(table *self, const alea_sampled *sampled) {
    alea_token_info info;
    alea_status status = alea_core_token(self->base.session->core, sampled->report->token, &info);
    if (status < 0) return status;
    info.bytes.length = (size_t)sampled->visible_bytes;
    uint8_t *text = malloc(ALEA_STREAM_BOUND(info.bytes.length));
    if (!text) {
        alea__complain("out of memory");
        return ALEA_ENOMEM;
    }
    const size_t length = alea__text_stream_push(&self->stream, info.bytes, text, NULL);
    if (length) {
        status = put(self, paint(self, alea__color_of(exp((double)sampled->report->logprob))));
        if (status >= 0) status = put_sampled(self, (alea_bytes){text, length});
        if (status >= 0) status = put(self, paint(self, ALEA_COLOR_OFF));
    }
    free(text);
    return status;
}

static alea_status sample_token(alea_printer *base, const alea_sampled *sampled) {
    table *self = (table *)base;
    alea_status status;
    self->sample_tokens++;
    if (base->settings->logprobs >= 0)
        status = put_row(self, (size_t)sampled->index, sampled->report->token, sampled->report);
    else
        status = put_text(self, sampled);
    /* samples are streamed into pipes, too */
    return status < 0 ? status : alea__output_flush(base->output);
}

static alea_status sample_end(alea_printer *base, const alea_sample_end *end) {
    table *self = (table *)base;
    const char *by = end->finish == ALEA_FINISH_LENGTH ? "length"
                     : end->stop                       ? "a stop string"
                                                       : "the model";
    alea_status status = ALEA_OK;
    uint8_t rest[ALEA_UTF8_REPLACEMENT_BYTES];
    const size_t length = alea__text_stream_flush(&self->stream, rest);
    if (status >= 0 && length && base->settings->logprobs < 0)
        status = alea__output_write(base->output, rest, length);
    if (status >= 0 && base->settings->logprobs < 0) status = put(self, "\n");
    if (status >= 0) status = alea__output_flush(base->output);
    if (status >= 0 && !base->settings->quiet)
        fprintf(stderr, "alea: %zu token%s, ended by %s, seed %llu\n", self->sample_tokens,
                self->sample_tokens == 1 ? "" : "s", by, (unsigned long long)base->seed);
    return status;
}

static void table_free(alea_printer *base) {
    free(base);
}

alea_printer *alea__printer_table(const alea_settings *settings, const alea_session *session,
                                  alea_output *output) {
    static const alea_printer_api api = {text_begin,   text_token, text_end,  sample_begin,
                                         sample_token, sample_end, table_free};
    table *self = calloc(1, sizeof *self);
    if (!self) {
        alea__complain("out of memory");
        return NULL;
    }
    self->base =
        (alea_printer){.api = &api, .settings = settings, .session = session, .output = output};
    self->live = !settings->output && isatty(STDOUT_FILENO);
    self->color = alea__terminal_color(settings, settings->output ? -1 : STDOUT_FILENO);
    self->columns = self->live ? alea__terminal_columns(STDOUT_FILENO) : 0;
    return &self->base;
}
