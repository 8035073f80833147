/* The comparison reads every byte that was offered against every key: its time depends on the
 * offer's length and on the number of keys, not on what they are. */
#include "server/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILE_BYTES_MAX (1 << 20)
#define BEARER "Bearer "

static alea_status read_file(const char *path, char **text, alea_error *error) {
    FILE *file = fopen(path, "re");
    if (!file)
        return alea_error_set(error, ALEA_EFORMAT, "cannot read the API keys in %.150s: %s", path,
                              strerror(errno));
    char *bytes = malloc(FILE_BYTES_MAX + 1);
    const size_t length = bytes ? fread(bytes, 1, FILE_BYTES_MAX, file) : 0;
    const bool failed = ferror(file) != 0;
    fclose(file);
    if (!bytes) return alea_error_set(error, ALEA_ENOMEM, "out of memory for the API keys");
    bytes[length] = 0;
    if (failed || length == FILE_BYTES_MAX || strlen(bytes) < length) {
        const size_t nul_at = strlen(bytes);
        free(bytes);
        if (!failed && length < FILE_BYTES_MAX)
            return alea_error_set(error, ALEA_EFORMAT,
                                  "the API keys in %.150s are no text: byte %zu is NUL", path,
                                  nul_at);
        return alea_error_set(error, ALEA_EFORMAT, "cannot read the API keys in %.150s: %s", path,
                              failed ? "reading failed" : "the file is too long");
    }
    *text = bytes;
    return ALEA_OK;
}

static bool is_key(alea_bytes key) {
    for (size_t i = 0; i < key.length; i++)
        if (key.data[i] <= ' ' || key.data[i] > '~') return false;
    return true;
}

static alea_bytes trimmed(char *line, size_t length) {
    while (length > 0 && strchr(" \t\r", line[length - 1]))
        length--;
    while (length > 0 && strchr(" \t", *line)) {
        line++;
        length--;
    }
    return (alea_bytes){(const uint8_t *)line, length};
}

alea_status alea__keys_read(const char *path, alea_keys *keys, alea_error *error) {
    alea_keys made = {0};
    alea_status status = read_file(path, &made.text, error);
    if (status < 0) return status;
    size_t n_lines = 1;
    for (const char *at = made.text; *at; at++)
        n_lines += *at == '\n';
    made.keys = calloc(n_lines, sizeof *made.keys);
    if (!made.keys) status = alea_error_set(error, ALEA_ENOMEM, "out of memory for the API keys");
    size_t number = 1;
    for (char *at = made.text; status >= 0 && number <= n_lines; number++) {
        const size_t length = strcspn(at, "\n");
        const alea_bytes key = trimmed(at, length);
        at += length + 1;
        if (key.length == 0 || key.data[0] == '#') continue;
        if (is_key(key))
            made.keys[made.n_keys++] = key;
        else
            status = alea_error_set(error, ALEA_EFORMAT,
                                    "line %zu of %.150s is no API key: keys are printable ASCII "
                                    "without spaces",
                                    number, path);
    }
    if (status >= 0 && made.n_keys == 0)
        status = alea_error_set(error, ALEA_EFORMAT,
                                "there is no API key in %.150s: write one a line", path);
    if (status < 0) {
        alea__keys_free(&made);
        return status;
    }
    *keys = made;
    return ALEA_OK;
}

void alea__keys_free(alea_keys *keys) {
    free(keys->text);
    free(keys->keys);
    *keys = (alea_keys){0};
}

bool alea__keys_admit(const alea_keys *keys, const char *authorization) {
    if (!authorization || strncasecmp(authorization, BEARER, sizeof BEARER - 1) != 0) return false;
    const uint8_t *offer = (const uint8_t *)authorization + sizeof BEARER - 1;
    const size_t length = strlen((const char *)offer);
    unsigned admitted = 0;
    for (size_t k = 0; k < keys->n_keys; k++) {
        const alea_bytes key = keys->keys[k];
        volatile unsigned differences = length != key.length;
        for (size_t i = 0; i < length; i++)
            differences |= (unsigned)(offer[i] ^ key.data[i % key.length]);
        admitted |= differences == 0;
    }
    return admitted != 0;
}
