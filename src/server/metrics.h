/*
 * What is counted, and its text for Prometheus (format 0.0.4). All of it belongs to the loop's
 * thread; the engine's own counters are a snapshot that the caller brings.
 */
#ifndef ALEA_SERVER_METRICS_H
#define ALEA_SERVER_METRICS_H

#include "api/api.h"
#include "http/http_server.h"
#include "runtime/engine.h"

#define ALEA_BUCKETS_MAX 20
#define ALEA_METRIC_STATUSES_MAX 20

typedef enum alea_histogram_id {
    ALEA_HISTOGRAM_FIRST_TOKEN,    /* seconds */
    ALEA_HISTOGRAM_BETWEEN_TOKENS, /* seconds */
    ALEA_HISTOGRAM_REQUEST,        /* seconds */
    ALEA_HISTOGRAM_PROMPT,         /* tokens */
    ALEA_HISTOGRAM_OUTPUT,         /* tokens */
    ALEA_HISTOGRAMS
} alea_histogram_id;

typedef struct alea_histogram {
    uint64_t counts[ALEA_BUCKETS_MAX]; /* of each bucket alone; the last is beyond all bounds */
    uint64_t count;
    double sum;
} alea_histogram;

typedef struct alea_metrics {
    alea_histogram histograms[ALEA_HISTOGRAMS];
    uint64_t finished[ALEA_FINISH_ERROR + 1]; /* choices, by alea_finish */
    uint64_t busy;                            /* requests refused with 429 */
    uint64_t starved;                         /* requests refused or ended for want of memory */
    int statuses[ALEA_METRIC_STATUSES_MAX];   /* those seen; 0: free */
    uint64_t answers[ALEA_ROUTES + 1][ALEA_METRIC_STATUSES_MAX]; /* the last: of no route */
    double start_s;                                              /* Unix time */
} alea_metrics;

/* What the text holds besides what is counted here. */
typedef struct alea_metrics_sources {
    const alea_engine_stats *engine; /* NULL: still loading */
    const alea_http_stats *http;
    const char *model;
    int32_t jobs;      /* generating or waiting */
    size_t held_bytes; /* by those */
} alea_metrics_sources;

void alea__metrics_observe(alea_metrics *metrics, alea_histogram_id id, double value,
                           uint64_t times);
void alea__metrics_answered(alea_metrics *metrics, size_t route, int status);

/* With vLLM's names where it has one for the thing, if `vllm_names`; else Alea's own, which follow
 * Prometheus's rules for names. The text is freed by the caller; NULL: out of memory. */
char *alea__metrics_text(const alea_metrics *metrics, const alea_metrics_sources *sources,
                         bool vllm_names);

#endif
