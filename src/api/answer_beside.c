/*
 * The choices of a long answer, written by several threads. A batch of scored prompts ends with
 * megabytes of numbers, and until they are written nothing else is left to compute.
 *
 * The one thing to know: a thread writes with a copy of the answer that has a writer and scratch of
 * its own; what was collected is only read. The documents are then put together in order.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "api/answer.h"

/* Of all documents, which stand in memory beside the body; a longer answer is written by one. */
#define BESIDE_BYTES_MAX ((size_t)32 << 20)

typedef struct beside {
    const alea_api_answer *answer;
    alea_json_writer *documents; /* [n_choices] */
    atomic_bool failed;
} beside;

static void write_one(void *user, int32_t index) {
    beside *b = user;
    alea_json_writer *document = &b->documents[index];
    alea_api_answer own = *b->answer;
    own.scratch = malloc(2 * own.scratch_bytes);
    if (own.scratch && !b->failed) {
        alea__json_write_to_buffer(&own.writer, BESIDE_BYTES_MAX / (size_t)own.n_choices);
        alea__api_write_choice(&own, index);
        *document = own.writer;
    }
    free(own.scratch);
    if (!document->data || alea__json_finish(document) < 0) b->failed = true;
}

bool alea__api_write_beside(alea_api_answer *answer, alea_pool *pool) {
    const int32_t n = answer->n_choices;
    if (n < 2) return false;
    beside b = {.answer = answer, .documents = calloc((size_t)n, sizeof *b.documents)};
    if (!b.documents) return false;
    alea__pool_run(pool, write_one, &b, n);
    alea__pool_rest(pool);
    for (int32_t i = 0; i < n; i++) {
        alea_json_writer *document = &b.documents[i];
        if (!b.failed)
            alea__json_document(&answer->writer,
                                (alea_bytes){(const uint8_t *)document->data, document->length});
        alea__json_write_free(document);
    }
    free(b.documents);
    return !b.failed;
}
