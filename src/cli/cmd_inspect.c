/*
 * `alea inspect`: facts, from the core and from this machine. It computes nothing; a model is
 * opened as scoring would open it, so the sizes are those that scoring takes.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "core/llama/core_llama.h"
#include "json/json_write.h"

/* One fact goes to both forms: a line "label  value" and a JSON member. */
typedef struct fact_sheet {
    alea_output *output;
    alea_json_writer *json; /* NULL: lines */
} fact_sheet;

static void put_line(const fact_sheet *sheet, const char *label, const char *format, ...)
    ALEA_PRINTF(3, 4);
static void put_line(const fact_sheet *sheet, const char *label, const char *format, ...) {
    char value[400], shown[800], line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    alea__harmless_text((alea_bytes){(const uint8_t *)value, strlen(value)}, shown, sizeof shown);
    for (char *at = shown; (at = strchr(at, '\n')) != NULL; at++)
        *at = ' '; /* one fact, one line */
    const int n = snprintf(line, sizeof line, "%-22s %s\n", label, shown);
    if (alea__output_write(sheet->output, line, (size_t)n) < 0) return; /* it has complained */
}

static void fact_text(const fact_sheet *sheet, const char *key, const char *label,
                      const char *value) {
    if (!sheet->json) {
        put_line(sheet, label, "%s", value ? value : "unknown");
        return;
    }
    alea__json_key(sheet->json, key);
    if (value)
        alea__json_cstring(sheet->json, value);
    else
        alea__json_null(sheet->json);
}

static void fact_uint(const fact_sheet *sheet, const char *key, const char *label, uint64_t value) {
    if (!sheet->json) {
        put_line(sheet, label, "%llu", (unsigned long long)value);
        return;
    }
    alea__json_key(sheet->json, key);
    alea__json_uint(sheet->json, value);
}

static void fact_bytes(const fact_sheet *sheet, const char *key, const char *label,
                       uint64_t value) {
    if (sheet->json)
        fact_uint(sheet, key, label, value);
    else
        put_line(sheet, label, "%.1f MiB", (double)value / 1048576.0);
}

static void fact_bool(const fact_sheet *sheet, const char *key, const char *label, bool value) {
    if (!sheet->json) {
        put_line(sheet, label, "%s", value ? "yes" : "no");
        return;
    }
    alea__json_key(sheet->json, key);
    alea__json_bool(sheet->json, value);
}

/* A special token: its id and name; null where the model has none. */
static void fact_token(const fact_sheet *sheet, const alea_core *core, const char *key,
                       const char *label, int32_t token) {
    alea_token_info info;
    const bool known = token >= 0 && alea_core_token(core, token, &info) >= 0;
    if (!sheet->json) {
        if (known)
            put_line(sheet, label, "%d %.*s", token, (int)info.name.length,
                     (const char *)info.name.data);
        else
            put_line(sheet, label, "none");
        return;
    }
    alea__json_key(sheet->json, key);
    if (known)
        alea__json_int(sheet->json, token);
    else
        alea__json_null(sheet->json);
}

static void fact_end_tokens(const fact_sheet *sheet, const alea_core *core, int32_t vocab) {
    char list[300] = "";
    size_t used = 0;
    if (sheet->json) {
        alea__json_key(sheet->json, "end_tokens");
        alea__json_begin_array(sheet->json);
    }
    for (int32_t token = 0; token < vocab; token++) {
        alea_token_info info;
        if (alea_core_token(core, token, &info) < 0 || !(info.flags & ALEA_TOKEN_END)) continue;
        if (sheet->json)
            alea__json_int(sheet->json, token);
        else if (used < sizeof list - 80)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d %.*s", used ? ", " : "",
                                     token, info.name.length < 60 ? (int)info.name.length : 60,
                                     (const char *)info.name.data);
    }
    if (sheet->json)
        alea__json_end_array(sheet->json);
    else
        put_line(sheet, "end tokens", "%s", used ? list : "none");
}

static void put_model(const fact_sheet *sheet, const alea_session *session) {
    const alea_core_info *info = &session->info;
    const alea_core *core = session->core;
    fact_text(sheet, "model", "model", info->model);
    fact_text(sheet, "architecture", "architecture", info->architecture);
    fact_text(sheet, "core", "core", info->core);
    fact_text(sheet, "build", "engine", info->build);
    fact_uint(sheet, "parameters", "parameters", info->parameters);
    fact_uint(sheet, "layers", "layers", (uint64_t)info->layers);
    fact_uint(sheet, "embedding", "embedding", (uint64_t)info->embedding);
    fact_bool(sheet, "batch_invariant", "batch invariant", info->batch_invariant);
    fact_text(sheet, "tokenizer", "tokenizer", info->tokenizer);
    fact_uint(sheet, "vocab", "vocabulary", (uint64_t)info->vocab);
    fact_token(sheet, core, "bos", "first token (bos)", info->bos);
    fact_token(sheet, core, "eos", "end of text (eos)", info->eos);
    fact_token(sheet, core, "eot", "end of turn (eot)", info->eot);
    fact_token(sheet, core, "pad", "padding", info->pad);
    fact_bool(sheet, "adds_bos", "adds bos to a text", info->adds_bos);
    fact_end_tokens(sheet, core, info->vocab);
    fact_bool(sheet, "chat_template", "chat template", info->chat_template != NULL);
    fact_uint(sheet, "trained_context_tokens", "trained context",
              (uint64_t)info->trained_context_tokens);
    fact_uint(sheet, "context_tokens", "context", (uint64_t)info->context_tokens);
    fact_bytes(sheet, "weight_bytes", "memory: weights", info->weight_bytes);
    fact_bytes(sheet, "cache_bytes", "memory: context", info->cache_bytes);
    fact_bytes(sheet, "row_bytes", "memory: rows", info->row_bytes);
    fact_bytes(sheet, "memory_bytes", "memory: together",
               info->weight_bytes + info->cache_bytes + info->row_bytes);
}

static void put_machine(const fact_sheet *sheet) {
    char model[128], features[256];
    alea__cpu_model(model, sizeof model);
    alea__cpu_features(features, sizeof features);
    const alea_kernel_table *kernels = alea__kernels();
    fact_text(sheet, "version", "alea", alea_version());
    fact_text(sheet, "libllama", "libllama", alea__core_llama_build());
    fact_text(sheet, "compiler", "compiler", __VERSION__);
    fact_text(sheet, "cpu", "processor", *model ? model : NULL);
    fact_text(sheet, "features", "features", features);
    fact_uint(sheet, "threads", "processors to use", (uint64_t)alea__cpu_count());
    fact_text(sheet, "target", "kernels up to", alea__caps_name(alea__cpu_caps()));
    if (sheet->json) {
        alea__json_key(sheet->json, "kernels");
        alea__json_begin_object(sheet->json);
    }
    for (int32_t i = 0; i < alea__kernel_count(); i++) {
        char label[64];
        snprintf(label, sizeof label, "  %s", alea__kernel_name(i));
        fact_text(sheet, alea__kernel_name(i), label, alea__kernel_step(kernels, i));
    }
    if (sheet->json) alea__json_end_object(sheet->json);
}

static alea_status to_output(void *user, const char *data, size_t length) {
    return alea__output_write(user, data, length);
}

static alea_exit print(const alea_settings *settings, const alea_session *session,
                       alea_output *output) {
    char buffer[4096];
    alea_json_writer writer;
    fact_sheet sheet = {.output = output};
    if (settings->json) {
        alea__json_write_to_flush(&writer, buffer, sizeof buffer, to_output, output);
        alea__json_begin_object(&writer);
        sheet.json = &writer;
    }
    if (session)
        put_model(&sheet, session);
    else
        put_machine(&sheet);
    alea_status status = ALEA_OK;
    if (settings->json) {
        alea__json_end_object(&writer);
        alea__json_newline(&writer);
        status = alea__json_finish(&writer);
        if (status < 0 && !output->failed)
            alea__complain("a fact cannot be written as JSON: %s", alea_status_text(status));
    }
    return status >= 0 && !output->failed ? ALEA_EXIT_OK : ALEA_EXIT_OUTPUT;
}

alea_exit alea__cmd_inspect(const alea_settings *settings) {
    const bool has_operand = settings->n_operands > 0;
    if (has_operand && settings->model) {
        alea__complain("inspect takes MODEL or --model, not both");
        return ALEA_EXIT_USAGE;
    }
    const char *const model = has_operand ? settings->operands[0] : settings->model;
    alea_output output;
    if (alea__output_open(&output, settings->output) < 0) return ALEA_EXIT_OUTPUT;
    if (!model) return alea__output_finish(&output, print(settings, NULL, &output));
    alea_session session;
    alea_exit code = alea__session_open(settings, model, 0, 1, &session);
    if (code == ALEA_EXIT_OK) {
        code = print(settings, &session, &output);
        alea__session_close(&session);
    }
    return alea__output_finish(&output, code);
}
