/* libFuzzer target: whatever is read can be written, and what was written reads as the same. */
#include <stdint.h>
#include <string.h>

#include "json/json_copy.h"

enum { BYTES_MAX = 1 << 20, COPY_BYTES_MAX = 8 * BYTES_MAX };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) __builtin_trap();
}

static void copy_of(alea_json_document *document, alea_json_writer *writer) {
    alea__json_write_to_buffer(writer, COPY_BYTES_MAX);
    json_copy(writer, alea__json_root(document));
    check(alea__json_finish(writer) == ALEA_OK);
    alea__json_free(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    alea_json_document *document = NULL;
    alea_error error;
    if (alea__json_parse((alea_bytes){data, size}, BYTES_MAX, &document, &error) < 0) {
        check(error.message[0] != 0);
        return 0;
    }
    alea_json_writer first, second;
    copy_of(document, &first);
    const alea_bytes copy = {(const uint8_t *)first.data, first.length};
    check(alea__json_parse(copy, COPY_BYTES_MAX, &document, NULL) == ALEA_OK);
    copy_of(document, &second);
    check(first.length == second.length && !memcmp(first.data, second.data, first.length));
    alea__json_write_free(&first);
    alea__json_write_free(&second);
    return 0;
}
