/* Which model, which core, how large a context; then the order of opening and its one message. */
#include "cli/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/llama/core_llama.h"

#define TOY_PREFIX "toy:"
#define PATH_BYTES 4096

static bool is_toy(const char *model) {
    return strncmp(model, TOY_PREFIX, sizeof TOY_PREFIX - 1) == 0;
}

static char default_model[PATH_BYTES];

/* A build leaves a link beside the program; an installed program has none, and names no tree. */
static void find_default(void) {
    static const char beside[] = "default-model.gguf";
    char path[PATH_BYTES];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof beside);
    if (n <= 0) return;
    path[n] = 0;
    char *slash = strrchr(path, '/');
    memcpy(slash ? slash + 1 : path, beside, sizeof beside);
    const ssize_t length = readlink(path, default_model, sizeof default_model - 1);
    default_model[length > 0 ? length : 0] = 0;
}

static const char *environment_model(void) {
    const char *model = getenv("ALEA_MODEL");
    return model && *model ? model : NULL;
}

const char *alea__model_name(const char *named) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (named) return named;
    if (environment_model()) return environment_model();
    pthread_once(&once, find_default);
    return default_model;
}

static alea_exit exit_of_open(alea_status status) {
    switch (status) {
    case ALEA_EINVAL: return ALEA_EXIT_USAGE; /* --context, --threads, a key of toy: */
    case ALEA_ENOMEM: return ALEA_EXIT_FAILURE;
    case ALEA_ECANCELLED: return ALEA_EXIT_INTERRUPTED;
    default: return ALEA_EXIT_MODEL;
    }
}

static bool keep_loading(float done, void *user) {
    (void)done;
    (void)user;
    return !alea__interrupted;
}

static alea_exit check_unnamed(const char *model, bool named) {
    if (named || is_toy(model)) return ALEA_EXIT_OK;
    if (!*model) {
        alea__complain("no model: give --model FILE or set ALEA_MODEL");
        return ALEA_EXIT_MODEL;
    }
    if (access(model, R_OK) == 0) return ALEA_EXIT_OK;
    if (environment_model())
        alea__complain("ALEA_MODEL names %s: %s; correct it or give --model FILE", model,
                       strerror(errno));
    else
        alea__complain("the default model %s: %s; run `make build` to fetch it, give --model FILE "
                       "or set ALEA_MODEL",
                       model, strerror(errno));
    return ALEA_EXIT_MODEL;
}

/* Whose model it is: the core that was named, else the one that the model's form tells. */
static alea_status find_core(const alea_settings *settings, bool toy, const alea_core_api **api,
                             alea_error *error) {
    if (settings->core) return alea_core_load(settings->core, api, error);
    *api = toy ? alea_core_toy() : alea__core_llama();
    return ALEA_OK;
}

static alea_status open_core(const alea_settings *settings, const char *model, uint32_t flags,
                             int32_t sequences, alea_core **core, alea_error *error) {
    const bool toy = !settings->core && is_toy(model);
    const alea_core_api *api = NULL;
    alea_status status = find_core(settings, toy, &api, error);
    if (status < 0) return status;
    alea_core_options options = {
        .struct_bytes = sizeof options,
        .flags = flags | (settings->fast ? ALEA_CORE_FAST : 0u),
        .model = toy ? model + sizeof TOY_PREFIX - 1 : model,
        .context_tokens = (int32_t)settings->context_tokens,
        .sequences = sequences,
        .threads = (int32_t)settings->threads,
        .progress = keep_loading,
    };
    if (toy || settings->core || options.context_tokens > 0)
        return alea_core_open(api, &options, core, error);
    options.context_tokens = ALEA_CONTEXT_STANDARD;
    status = alea_core_open(api, &options, core, error);
    if (status != ALEA_EINVAL) return status;
    /* The model was trained on fewer; refused before weights are read. */
    options.context_tokens = 0;
    return alea_core_open(api, &options, core, error);
}

alea_exit alea__session_open(const alea_settings *settings, const char *model, uint32_t flags,
                             int32_t sequences, alea_session *session) {
    *session = (alea_session){.model = alea__model_name(model), .kernels = alea__kernels()};
    if (settings->core && !model) {
        alea__complain("--core needs the model that it is to open: --model FILE");
        return ALEA_EXIT_USAGE;
    }
    alea_exit code = check_unnamed(session->model, model != NULL);
    if (code != ALEA_EXIT_OK) return code;
    alea_error error = {.status = ALEA_OK, .message = ""};
    alea_status status =
        open_core(settings, session->model, flags, sequences, &session->core, &error);
    if (status < 0) {
        code = alea__interrupted ? ALEA_EXIT_INTERRUPTED : exit_of_open(status);
        alea__complain("%s", code == ALEA_EXIT_INTERRUPTED ? "interrupted" : error.message);
        return code;
    }
    alea_core_describe(session->core, &session->info);
    status = alea__pool_create((int32_t)settings->threads, &session->pool);
    if (status < 0) {
        alea__complain("cannot start threads: %s", alea_status_text(status));
        alea_core_close(session->core);
        return ALEA_EXIT_FAILURE;
    }
    return ALEA_EXIT_OK;
}

void alea__session_close(alea_session *session) {
    alea__pool_destroy(session->pool);
    alea_core_close(session->core);
}
