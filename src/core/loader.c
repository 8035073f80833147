/*
 * Third-party cores: from a path to a checked table. A shared object runs its own initializers as
 * soon as it is mapped, which no loader can prevent; beyond that nothing of it is called before its
 * ABI is known to be ours except the entry, whose one job is to return the table.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alea/core.h"

/* The members that every core must have, by name, so that an error can tell which is missing. */
static const char *missing_member(const alea_core_api *api) {
    if (!api->name) return "name";
    if (!api->open) return "open";
    if (!api->close) return "close";
    if (!api->describe) return "describe";
    if (!api->token_info) return "token_info";
    if (!api->tokenize) return "tokenize";
    if (!api->submit) return "submit";
    if (!api->wait) return "wait";
    if (!api->row) return "row";
    if (!api->sequence_length) return "sequence_length";
    if (!api->sequence_copy) return "sequence_copy";
    if (!api->sequence_trim) return "sequence_trim";
    return NULL;
}

static alea_status check_table(const alea_core_api *api, const char *path, alea_error *error) {
    if (!api)
        return alea_error_set(error, ALEA_EFORMAT, "core '%.120s': its %s returned no table", path,
                              ALEA_CORE_ENTRY);
    /* Only `abi` has a place that every ABI shares, so it is read before anything else. */
    if (api->abi != ALEA_CORE_ABI)
        return alea_error_set(error, ALEA_EUNSUPPORTED,
                              "core '%.120s' has core ABI %u, this program has %u; rebuild it "
                              "against this version's alea/core.h",
                              path, (unsigned)api->abi, ALEA_CORE_ABI);
    if (api->struct_bytes < ALEA_CORE_API_BYTES_MIN)
        return alea_error_set(error, ALEA_EFORMAT,
                              "core '%.120s': its table has %u bytes, at least %zu are needed; "
                              "set struct_bytes to sizeof(alea_core_api)",
                              path, (unsigned)api->struct_bytes, ALEA_CORE_API_BYTES_MIN);
    const char *member = missing_member(api);
    if (member)
        return alea_error_set(error, ALEA_EFORMAT, "core '%.120s': its table lacks %s", path,
                              member);
    return ALEA_OK;
}

/* dlerror() repeats the path, which may be long: keep its end, where the reason stands. */
static const char *reason(void) {
    const char *text = dlerror();
    if (!text) return "no reason given";
    const char *after = strstr(text, ": ");
    return after ? after + 2 : text;
}

static alea_status load(const char *path, const char *real, const alea_core_api **api,
                        alea_error *error) {
    void *object = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return alea_error_set(error, ALEA_EIO, "core '%.120s' cannot be loaded: %s", path,
                              reason());
    /* ISO C has no cast from an object pointer to a function pointer; POSIX promises this one. */
    alea_core_entry_fn entry = NULL;
    void *symbol = dlsym(object, ALEA_CORE_ENTRY);
    memcpy(&entry, &symbol, sizeof entry);
    alea_status status = ALEA_OK;
    const alea_core_api *table = NULL;
    if (!entry) {
        status =
            alea_error_set(error, ALEA_EFORMAT, "'%.120s' is not a core: it does not export %s",
                           path, ALEA_CORE_ENTRY);
    } else {
        table = entry();
        status = check_table(table, path, error);
    }
    if (status < 0)
        dlclose(object);
    else
        *api = table;
    return status;
}

alea_status alea_core_load(const char *path, const alea_core_api **api, alea_error *error) {
    if (!path || !*path || !api)
        return alea_error_set(error, ALEA_EINVAL, "a core is loaded from the path of a file");
    char *real = realpath(path, NULL);
    if (!real) {
        const int code = errno;
        return alea_error_set(error, code == ENOMEM ? ALEA_ENOMEM : ALEA_EIO,
                              "core '%.120s' cannot be loaded: %s", path, strerror(code));
    }
    const alea_status status = load(path, real, api, error);
    free(real);
    return status;
}

alea_bytes alea_core_manifest(const alea_core *core) {
    const alea_core_api *api = core->api;
    const size_t end = offsetof(alea_core_api, manifest) + sizeof api->manifest;
    if (api->struct_bytes < end || !api->manifest) return (alea_bytes){NULL, 0};
    return api->manifest(core);
}
