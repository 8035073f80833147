/*
 * For programs: one JSON object a line, its fields in the documented order. A line goes to the
 * spool while it grows and to the output when it is whole.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/printer.h"
#include "cli/spool.h"
#include "text/stream.h"
#include "text/token_text.h"
#include "json/json_write.h"

enum { WRITER_BYTES = 1 << 15 };

typedef struct sample_token_record {
    int32_t visible_bytes;
    alea_row_report report;
} sample_token_record;

typedef struct json_printer {
    alea_printer base;
    alea_spool spool;
    alea_json_writer writer;
    char *scratch; /* a token's text */
    size_t scratch_bytes;
    alea_sample sample_name;
    sample_token_record *sample; /* the one in the making: its text comes first */
    size_t n_sample, sample_capacity;
    char buffer[WRITER_BYTES];
} json_printer;

static alea_status to_spool(void *user, const char *data, size_t length) {
    return alea__spool_write(user, data, length);
}

static alea_status out_of_memory(void) {
    alea__complain("out of memory");
    return ALEA_ENOMEM;
}

static alea_status need_scratch(json_printer *self, size_t bytes) {
    if (bytes <= self->scratch_bytes) return ALEA_OK;
    char *grown = realloc(self->scratch, bytes);
    if (!grown) return out_of_memory();
    self->scratch = grown;
    self->scratch_bytes = bytes;
    return ALEA_OK;
}

/* "id":…,"text":"…" */
static alea_status write_token_name(json_printer *self, int32_t token, alea_token_info *info) {
    alea_json_writer *writer = &self->writer;
    alea_status status = alea_core_token(self->base.session->core, token, info);
    if (status < 0) return status;
    const size_t length = alea__token_text(info, NULL, 0);
    status = need_scratch(self, length + 1);
    if (status < 0) return status;
    alea__token_text(info, self->scratch, length);
    alea__json_key(writer, "id");
    alea__json_int(writer, token);
    alea__json_key(writer, "text");
    alea__json_string(writer, (alea_bytes){(const uint8_t *)self->scratch, length});
    return ALEA_OK;
}

static alea_status write_token(json_printer *self, int32_t token, const alea_row_report *report) {
    alea_json_writer *writer = &self->writer;
    alea_token_info info;
    alea__json_begin_object(writer);
    alea_status status = write_token_name(self, token, &info);
    if (status < 0) return status;
    alea__json_key(writer, "bytes");
    alea__json_byte_array(writer, info.bytes);
    alea__json_key(writer, "logprob");
    if (report->rank > 0)
        alea__json_logprob_value(writer, report->logprob);
    else
        alea__json_null(writer);
    alea__json_key(writer, "rank");
    if (report->rank > 0)
        alea__json_int(writer, report->rank);
    else
        alea__json_null(writer);
    alea__json_key(writer, "top");
    alea__json_begin_array(writer);
    for (int32_t i = 0; i < report->n_top; i++) {
        alea__json_begin_object(writer);
        status = write_token_name(self, report->top[i].token, &info);
        if (status < 0) return status;
        alea__json_key(writer, "logprob");
        alea__json_logprob_value(writer, report->top[i].logprob);
        alea__json_end_object(writer);
    }
    alea__json_end_array(writer);
    alea__json_end_object(writer);
    return ALEA_OK;
}

static void write_real(alea_json_writer *writer, const char *key, double value) {
    alea__json_key(writer, key);
    if (isfinite(value))
        alea__json_double(writer, value);
    else
        alea__json_null(writer);
}

static void begin_line(json_printer *self) {
    alea__spool_clear(&self->spool);
    alea__json_write_reset(&self->writer);
    alea__json_begin_object(&self->writer);
}

static alea_status end_line(json_printer *self) {
    alea__json_end_object(&self->writer);
    alea__json_newline(&self->writer);
    alea_status status = alea__json_finish(&self->writer);
    if (status >= 0) status = alea__spool_drain(&self->spool, self->base.output);
    if (status >= 0) status = alea__output_flush(self->base.output);
    return status;
}

static void write_id(alea_json_writer *writer, const alea_text_id *id) {
    alea__json_key(writer, "id");
    switch (id->kind) {
    case ALEA_ID_TEXT: alea__json_string(writer, id->text); break;
    case ALEA_ID_INT: alea__json_int(writer, id->integer); break;
    case ALEA_ID_UINT: alea__json_uint(writer, id->natural); break;
    case ALEA_ID_REAL: alea__json_double(writer, id->real); break;
    }
}

static alea_status text_begin(alea_printer *base, const alea_text_id *id) {
    json_printer *self = (json_printer *)base;
    begin_line(self);
    write_id(&self->writer, id);
    alea__json_key(&self->writer, "tokens");
    alea__json_begin_array(&self->writer);
    return ALEA_OK;
}

static alea_status text_token(alea_printer *base, const alea_scored *scored) {
    json_printer *self = (json_printer *)base;
    alea_status status = write_token(self, scored->token, scored->report);
    return status < 0 ? status : self->writer.status;
}

static alea_status text_end(alea_printer *base, const alea_score_sums *sums) {
    json_printer *self = (json_printer *)base;
    alea_json_writer *writer = &self->writer;
    alea__json_end_array(writer);
    alea__json_key(writer, "n_tokens");
    alea__json_uint(writer, sums->n_tokens);
    alea__json_key(writer, "n_scored");
    alea__json_uint(writer, sums->n_scored);
    write_real(writer, "sum_logprob", sums->sum_logprob);
    write_real(writer, "perplexity", alea__score_perplexity(sums));
    write_real(writer, "bits_per_byte", alea__score_bits_per_byte(sums));
    if (sums->continuation != ALEA_NO_CONTINUATION) {
        alea__json_key(writer, "continuation");
        alea__json_begin_object(writer);
        alea__json_key(writer, "first");
        alea__json_uint(writer, sums->continuation);
        write_real(writer, "sum_logprob", sums->continuation_sum_logprob);
        alea__json_key(writer, "is_greedy");
        alea__json_bool(writer, sums->is_greedy);
        alea__json_end_object(writer);
    }
    return end_line(self);
}

static alea_status sample_begin(alea_printer *base, const alea_sample *sample) {
    json_printer *self = (json_printer *)base;
    self->sample_name = *sample;
    self->n_sample = 0;
    return ALEA_OK;
}

static alea_status sample_token(alea_printer *base, const alea_sampled *sampled) {
    json_printer *self = (json_printer *)base;
    if (self->n_sample == self->sample_capacity) {
        const size_t capacity = self->sample_capacity ? self->sample_capacity * 2 : 256;
        sample_token_record *grown = realloc(self->sample, capacity * sizeof *grown);
        if (!grown) return out_of_memory();
        self->sample = grown;
        self->sample_capacity = capacity;
    }
    self->sample[self->n_sample++] =
        (sample_token_record){sampled->visible_bytes, *sampled->report};
    return ALEA_OK;
}

/* The sample's text, into scratch. */
static alea_status join_text(json_printer *self, alea_bytes *text) {
    const alea_core *core = self->base.session->core;
    alea_token_info info;
    size_t total = 0;
    for (size_t i = 0; i < self->n_sample; i++)
        total += (size_t)self->sample[i].visible_bytes;
    alea_status status = need_scratch(self, ALEA_STREAM_BOUND(total));
    if (status < 0) return status;
    alea_text_stream stream = {0};
    uint8_t *out = (uint8_t *)self->scratch;
    size_t length = 0;
    for (size_t i = 0; i < self->n_sample; i++) {
        status = alea_core_token(core, self->sample[i].report.token, &info);
        if (status < 0) return status;
        const alea_bytes shown = {info.bytes.data, (size_t)self->sample[i].visible_bytes};
        length += alea__text_stream_push(&stream, shown, out + length, NULL);
    }
    length += alea__text_stream_flush(&stream, out + length);
    *text = (alea_bytes){out, length};
    return ALEA_OK;
}

static void write_sample_name(alea_json_writer *writer, const alea_sample *sample) {
    if (sample->prompt) write_id(writer, sample->prompt);
    alea__json_key(writer, sample->prompt ? "sample" : "id");
    alea__json_int(writer, sample->index);
}

static alea_status sample_end(alea_printer *base, const alea_sample_end *end) {
    json_printer *self = (json_printer *)base;
    alea_json_writer *writer = &self->writer;
    alea_bytes text;
    alea_status status = join_text(self, &text);
    if (status < 0) return status;
    begin_line(self);
    write_sample_name(writer, &self->sample_name);
    alea__json_key(writer, "text");
    alea__json_string(writer, text);
    alea__json_key(writer, "tokens");
    alea__json_begin_array(writer);
    for (size_t i = 0; i < self->n_sample; i++) {
        status = write_token(self, self->sample[i].report.token, &self->sample[i].report);
        if (status < 0) return status;
    }
    alea__json_end_array(writer);
    alea__json_key(writer, "finish_reason");
    alea__json_cstring(writer, end->finish == ALEA_FINISH_LENGTH ? "length" : "stop");
    alea__json_key(writer, "stop_reason"); /* a stop string; an end token is none */
    if (end->stop)
        alea__json_cstring(writer, end->stop);
    else
        alea__json_null(writer);
    alea__json_key(writer, "seed");
    alea__json_uint(writer, base->seed);
    return end_line(self);
}

static void json_free(alea_printer *base) {
    json_printer *self = (json_printer *)base;
    alea__spool_free(&self->spool);
    free(self->scratch);
    free(self->sample);
    free(self);
}

alea_printer *alea__printer_json(const alea_settings *settings, const alea_session *session,
                                 alea_output *output) {
    static const alea_printer_api api = {text_begin,   text_token, text_end, sample_begin,
                                         sample_token, sample_end, json_free};
    json_printer *self = calloc(1, sizeof *self);
    if (!self) {
        (void)out_of_memory();
        return NULL;
    }
    self->base =
        (alea_printer){.api = &api, .settings = settings, .session = session, .output = output};
    alea__spool_init(&self->spool);
    alea__json_write_to_flush(&self->writer, self->buffer, sizeof self->buffer, to_spool,
                              &self->spool);
    return &self->base;
}
