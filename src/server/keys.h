/* API keys from a file, compared in a time that says nothing of them. */
#ifndef ALEA_SERVER_KEYS_H
#define ALEA_SERVER_KEYS_H

#include <stdbool.h>

#include "alea/base.h"

typedef struct alea_keys {
    char *text; /* the file */
    alea_bytes *keys;
    size_t n_keys;
} alea_keys;

/* A key a line; empty lines and those that begin with '#' are skipped. ALEA_EFORMAT (unreadable, no
 * key, or one that no header can carry), ALEA_ENOMEM. */
alea_status alea__keys_read(const char *path, alea_keys *keys, alea_error *error) ALEA_MUST_USE;

void alea__keys_free(alea_keys *keys);

/* Whether "Bearer KEY" carries one of the keys; NULL carries none. */
bool alea__keys_admit(const alea_keys *keys, const char *authorization);

#endif
