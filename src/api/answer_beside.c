/*
 * The choices of a long answer, written by several threads. A batch of scored prompts ends with
 * megabytes of numbers, which one thread writes while the others have nothing to do.
 *
 * The one thing to know: a thread writes with a copy of the answer that has a writer and scratch of
 * its own; what was collected is only read. The documents are then put together in order.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "api/answer.h"

/* Of all documents, which stand in memory beside the body. What others are at work on does not
 * count yet: for a moment there may be as much for each thread. */
#define BESIDE_BYTES_MAX ((size_t)32 << 20)

typedef struct beside {
    const alea_api_answer *answer;
    alea_json_writer *documents; /* [n_choices] */
    size_t bytes_max;
    atomic_size_t bytes; /* of those that are written */
    atomic_bool failed;
} beside;

static alea_status write_document(beside *b, int32_t index) {
    alea_api_answer own = *b->answer;
    const size_t taken = b->bytes;
    if (taken > b->bytes_max) return ALEA_ELIMIT;
    own.scratch = malloc(2 * own.scratch_bytes);
    if (!own.scratch) return ALEA_ENOMEM;
    alea__json_write_to_buffer(&own.writer, b->bytes_max - taken);
    alea__api_write_choice(&own, index);
    free(own.scratch);
    const alea_status status = alea__json_finish(&own.writer);
    b->documents[index] = own.writer;
    b->bytes += own.writer.length;
    return status;
}

static void write_one(void *user, int32_t index) {
    beside *b = user;
    if (!b->failed && write_document(b, index) < 0) b->failed = true;
}

bool alea__api_write_beside(alea_api_answer *answer, alea_pool *pool) {
    const int32_t n = answer->n_choices;
    const size_t most = answer->writer.bytes_max;
    if (n < 2) return false;
    beside b = {.answer = answer,
                .documents = calloc((size_t)n, sizeof *b.documents),
                .bytes_max = most < BESIDE_BYTES_MAX ? most : BESIDE_BYTES_MAX};
    if (!b.documents) return false;
    alea__pool_run(pool, write_one, &b, n);
    alea__pool_rest(pool);
    const bool whole = !b.failed && b.bytes <= b.bytes_max;
    for (int32_t i = 0; i < n; i++) {
        alea_json_writer *document = &b.documents[i];
        if (whole)
            alea__json_document(&answer->writer,
                                (alea_bytes){(const uint8_t *)document->data, document->length});
        alea__json_write_free(document);
    }
    free(b.documents);
    return whole;
}
