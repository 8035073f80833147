/* Two tables say what there is, under both names; the rest writes them. */
#include "server/metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/server_log.h"

static const double seconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                 0.5,   1,      2.5,   5,    10,    25,   50,  100};
static const double tokens[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
#define N_BOUNDS (sizeof seconds / sizeof *seconds)

static const struct {
    const char *name, *vllm, *help;
    const double *bounds;
} histograms[ALEA_HISTOGRAMS] = {
    [ALEA_HISTOGRAM_FIRST_TOKEN] = {"alea_time_to_first_token_seconds",
                                    "vllm:time_to_first_token_seconds",
                                    "From a request's arrival to its first token", seconds},
    [ALEA_HISTOGRAM_BETWEEN_TOKENS] = {"alea_time_between_tokens_seconds",
                                       "vllm:inter_token_latency_seconds",
                                       "From one token of a request to its next", seconds},
    [ALEA_HISTOGRAM_REQUEST] = {"alea_request_duration_seconds", "vllm:e2e_request_latency_seconds",
                                "From a request's arrival to the end of its answer", seconds},
    [ALEA_HISTOGRAM_PROMPT] = {"alea_request_prompt_tokens", "vllm:request_prompt_tokens",
                               "Tokens of a prompt", tokens},
    [ALEA_HISTOGRAM_OUTPUT] = {"alea_request_generated_tokens", "vllm:request_generation_tokens",
                               "Tokens generated for a choice that was finished", tokens},
};

void alea__metrics_observe(alea_metrics *metrics, alea_histogram_id id, double value,
                           uint64_t times) {
    alea_histogram *histogram = &metrics->histograms[id];
    size_t bucket = 0;
    while (bucket < N_BOUNDS && value > histograms[id].bounds[bucket])
        bucket++;
    histogram->counts[bucket] += times;
    histogram->count += times;
    histogram->sum += value * (double)times;
}

void alea__metrics_answered(alea_metrics *metrics, size_t route, int status) {
    for (size_t i = 0; i < ALEA_METRIC_STATUSES_MAX; i++) {
        if (metrics->statuses[i] == 0) metrics->statuses[i] = status;
        if (metrics->statuses[i] != status) continue;
        metrics->answers[route][i]++;
        return;
    }
}

/* ---- the text ---- */

typedef struct text {
    FILE *file;
    const char *labels; /* of every vLLM metric, "" for Alea's */
    bool vllm;
} text;

static const char *chosen(const text *out, const char *name, const char *vllm) {
    return out->vllm && vllm ? vllm : name;
}

static void head(const text *out, const char *name, const char *type, const char *help) {
    fprintf(out->file, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(const text *out, const char *name, const char *vllm, const char *type,
                    const char *help, double value) {
    const char *shown = chosen(out, name, vllm);
    head(out, shown, type, help);
    fprintf(out->file, "%s", shown);
    if (out->labels[0] && shown == vllm) fprintf(out->file, "{%s}", out->labels);
    fprintf(out->file, " %.17g\n", value);
}

static void put_histogram(const text *out, const alea_histogram *histogram, alea_histogram_id id) {
    const char *name = chosen(out, histograms[id].name, histograms[id].vllm);
    const char *comma = out->labels[0] ? "," : "";
    head(out, name, "histogram", histograms[id].help);
    uint64_t below = 0;
    for (size_t i = 0; i < N_BOUNDS; i++) {
        below += histogram->counts[i];
        fprintf(out->file, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, out->labels, comma,
                histograms[id].bounds[i], (unsigned long long)below);
    }
    fprintf(out->file, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, out->labels, comma,
            (unsigned long long)histogram->count);
    const char *open = out->labels[0] ? "{" : "", *close = out->labels[0] ? "}" : "";
    fprintf(out->file, "%s_sum%s%s%s %.17g\n", name, open, out->labels, close, histogram->sum);
    fprintf(out->file, "%s_count%s%s%s %llu\n", name, open, out->labels, close,
            (unsigned long long)histogram->count);
}

static void put_engine(const text *out, const alea_engine_stats *engine) {
    const double prompt_tokens = (double)(engine->prompt_tokens + engine->cached_tokens);
    put_one(out, "alea_requests_running", "vllm:num_requests_running", "gauge",
            "Choices that hold a slot", engine->running);
    put_one(out, "alea_requests_waiting", "vllm:num_requests_waiting", "gauge",
            "Requests that wait for a slot", engine->waiting);
    put_one(out, "alea_slots", NULL, "gauge", "Choices that are computed at once", engine->slots);
    put_one(out, "alea_slots_used_ratio", "vllm:kv_cache_usage_perc", "gauge",
            "Share of the slots that are in use", (double)engine->running / engine->slots);
    put_one(out, "alea_prompt_tokens_total", "vllm:prompt_tokens_total", "counter",
            "Prompt tokens, cached ones included", prompt_tokens);
    put_one(out, "alea_cached_prompt_tokens_total", "vllm:prefix_cache_hits_total", "counter",
            "Prompt tokens that were not computed again", (double)engine->cached_tokens);
    put_one(out, "alea_looked_up_prompt_tokens_total", "vllm:prefix_cache_queries_total", "counter",
            "Prompt tokens that were looked up", prompt_tokens);
    put_one(out, "alea_generated_tokens_total", "vllm:generation_tokens_total", "counter",
            "Generated tokens", (double)engine->output_tokens);
    put_one(out, "alea_preempted_choices_total", "vllm:num_preemptions_total", "counter",
            "Choices that gave their slot to one of higher priority", (double)engine->preempted);
    put_one(out, "alea_rounds_total", NULL, "counter", "Rounds of the engine",
            (double)engine->rounds);
    put_one(out, "alea_reduced_positions_total", NULL, "counter",
            "Rows of logits that were read for logprobs", (double)engine->reduced_positions);
}

static void put_finished(const text *out, const alea_metrics *metrics) {
    static const char *const reasons[] = {"stop", "length", "abort", "error"};
    const uint64_t *n = metrics->finished;
    const uint64_t counts[] = {
        n[ALEA_FINISH_END] + n[ALEA_FINISH_STOP_TOKEN] + n[ALEA_FINISH_STOP], n[ALEA_FINISH_LENGTH],
        n[ALEA_FINISH_CANCELLED] + n[ALEA_FINISH_DEADLINE], n[ALEA_FINISH_ERROR]};
    const char *name = chosen(out, "alea_choices_finished_total", "vllm:request_success_total");
    head(out, name, "counter", "Choices that ended, by reason");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        fprintf(out->file, "%s{%s%sfinished_reason=\"%s\"} %llu\n", name, out->labels,
                out->labels[0] ? "," : "", reasons[i], (unsigned long long)counts[i]);
}

static void put_http(const text *out, const alea_metrics *metrics,
                     const alea_metrics_sources *sources) {
    head(out, "alea_http_requests_total", "counter", "Answered requests");
    for (size_t r = 0; r <= ALEA_ROUTES; r++)
        for (size_t s = 0; s < ALEA_METRIC_STATUSES_MAX && metrics->statuses[s]; s++)
            if (metrics->answers[r][s])
                fprintf(out->file, "alea_http_requests_total{path=\"%s\",status=\"%d\"} %llu\n",
                        r < ALEA_ROUTES ? alea__api_routes[r].path : "other", metrics->statuses[s],
                        (unsigned long long)metrics->answers[r][s]);
    put_one(out, "alea_http_connections", NULL, "gauge", "Open connections", sources->http->open);
    put_one(out, "alea_http_connections_accepted_total", NULL, "counter",
            "Connections that were accepted", (double)sources->http->accepted);
    put_one(out, "alea_http_connections_refused_total", NULL, "counter",
            "Connections over the limit", (double)sources->http->refused_connections);
    put_one(out, "alea_requests_in_flight", NULL, "gauge", "Requests that generate or wait",
            sources->jobs);
    put_one(out, "alea_requests_refused_total", NULL, "counter",
            "Requests refused because the queue was full", (double)metrics->busy);
    put_one(out, "alea_request_memory_bytes", NULL, "gauge", "Memory that requests hold",
            (double)sources->held_bytes);
    put_one(out, "alea_requests_starved_total", NULL, "counter",
            "Requests refused or ended because requests held too much memory",
            (double)metrics->starved);
    put_one(out, "alea_log_lines_lost_total", NULL, "counter",
            "Log lines that could not be written", (double)alea__server_log_lost());
}

static double resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long size = 0, resident = 0;
    if (!file) return 0;
    const int read = fscanf(file, "%llu %llu", &size, &resident);
    fclose(file);
    return read == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : 0;
}

static double open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    double n = -3; /* ".", ".." and this one */
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static void put_process(const text *out, double start_s) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    const double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    put_one(out, "process_cpu_seconds_total", NULL, "counter", "Processor time", cpu);
    put_one(out, "process_resident_memory_bytes", NULL, "gauge", "Resident memory",
            resident_bytes());
    put_one(out, "process_open_fds", NULL, "gauge", "Open descriptors", open_descriptors());
    put_one(out, "process_start_time_seconds", NULL, "gauge", "When the process began, Unix time",
            start_s);
}

/* A label's value: the characters that would end it are written with a backslash. */
static void write_label(char *labels, size_t capacity, const char *model) {
    size_t length = (size_t)snprintf(labels, capacity, "engine=\"0\",model_name=\"");
    for (; *model && length + 4 < capacity; model++) {
        if (*model == '"' || *model == '\\') labels[length++] = '\\';
        labels[length++] = *model == '\n' ? ' ' : *model;
    }
    snprintf(labels + length, capacity - length, "\"");
}

char *alea__metrics_text(const alea_metrics *metrics, const alea_metrics_sources *sources,
                         bool vllm_names) {
    char labels[512] = "";
    char *bytes = NULL;
    size_t length = 0;
    if (vllm_names) write_label(labels, sizeof labels, sources->model);
    text out = {open_memstream(&bytes, &length), labels, vllm_names};
    if (!out.file) return NULL;
    if (sources->engine) put_engine(&out, sources->engine);
    put_finished(&out, metrics);
    for (int i = 0; i < ALEA_HISTOGRAMS; i++)
        put_histogram(&out, &metrics->histograms[i], (alea_histogram_id)i);
    put_http(&out, metrics, sources);
    put_process(&out, metrics->start_s);
    if (fclose(out.file) == 0) return bytes;
    free(bytes);
    return NULL;
}
