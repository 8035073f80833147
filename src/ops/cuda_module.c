/*
 * Finding and opening the CUDA module. It stands beside libalea or the program, or where
 * ALEA_CUDA_MODULE says; it is never linked, so a machine without a driver is served as any other.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cuda.h"

static const char module_name[] = "libalea-cuda.so";

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const alea_cuda_api *opened;
static alea_error refusal;

/* The module in the folder of the object that holds this code, or in that folder's lib. */
static void *open_beside(const char *below) {
    Dl_info info;
    if (!dladdr(module_name, &info) || !info.dli_fname) return NULL;
    const char *slash = strrchr(info.dli_fname, '/');
    char path[4096];
    const int n =
        snprintf(path, sizeof path, "%.*s%s%s", slash ? (int)(slash - info.dli_fname + 1) : 0,
                 info.dli_fname, below, module_name);
    return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_any(void) {
    const char *named = getenv("ALEA_CUDA_MODULE");
    if (named && *named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    void *module = open_beside("");
    if (!module) module = open_beside("../lib/");
    return module ? module : dlopen(module_name, RTLD_NOW | RTLD_LOCAL);
}

static void open_once(void) {
    void *module = open_any();
    if (!module) {
        (void)alea_error_set(&refusal, ALEA_EUNSUPPORTED,
                             "no CUDA device: %s is not installed beside libalea", module_name);
        return;
    }
    union {
        void *object;
        alea_cuda_open open;
    } symbol = {dlsym(module, ALEA_CUDA_SYMBOL)};
    const alea_cuda_api *api = symbol.object ? symbol.open(ALEA_CUDA_ABI) : NULL;
    if (!api) {
        (void)alea_error_set(&refusal, ALEA_EUNSUPPORTED,
                             "no CUDA device: %s is of another version of Alea", module_name);
        return;
    }
    int device;
    const int code = api->probe(&device);
    enum { DRIVER_TOO_OLD = 35 }; /* also what is said where there is none */
    if (code) {
        (void)alea_error_set(&refusal, ALEA_EUNSUPPORTED, "no CUDA device: %s",
                             code == DRIVER_TOO_OLD ? "no driver, or one older than the module"
                                                    : api->error_text(code));
        return;
    }
    opened = api;
}

const alea_cuda_api *alea__cuda_open(alea_error *error) {
    pthread_once(&once, open_once);
    if (!opened) (void)alea_error_set(error, ALEA_EUNSUPPORTED, "%s", refusal.message);
    return opened;
}

bool alea__cuda_in_use(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver) dlclose(driver);
    return driver != NULL;
}

alea_status alea__cuda_failed(const alea_cuda_api *api, int code, const char *what,
                              alea_error *error) {
    enum { OUT_OF_MEMORY = 2 }; /* cudaErrorMemoryAllocation */
    return alea_error_set(error, code == OUT_OF_MEMORY ? ALEA_ENOMEM : ALEA_ECORE, "%s: %s", what,
                          api->error_text(code));
}
