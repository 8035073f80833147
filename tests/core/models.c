#include "core/models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/llama/core_llama.h"

static char folder[MODEL_PATH_BYTES / 2];

void scratch_path(const char *name, char path[MODEL_PATH_BYTES]) {
    if (!folder[0]) {
        const char *tmp = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/alea-test-XXXXXX", tmp ? tmp : "/tmp");
        if (!mkdtemp(folder)) fail_msg("no folder %s", folder);
    }
    snprintf(path, MODEL_PATH_BYTES, "%s/%s", folder, name);
}

void remove_models(void) {
    char command[MODEL_PATH_BYTES + 16];
    if (!folder[0]) return;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) print_error("cannot remove %s\n", folder);
    folder[0] = '\0';
}

void tiny_model(const char *options, char path[MODEL_PATH_BYTES]) {
    static int count;
    char name[32];
    char command[2 * MODEL_PATH_BYTES + 256];
    snprintf(name, sizeof name, "tiny-%d.gguf", count++);
    scratch_path(name, path);
    snprintf(command, sizeof command, "'%s' %s --out '%s'", ALEA_TINY_GGUF, options, path);
    if (system(command) != 0) fail_msg("%s failed", command);
}

const char *real_model(void) {
    const char *path = getenv("ALEA_TEST_MODEL");
    if (!path) path = ALEA_DEFAULT_MODEL;
    struct stat about;
    return stat(path, &about) == 0 ? path : NULL;
}

alea_core *open_llama(const char *path, uint32_t flags, int32_t context_tokens, int32_t sequences,
                      int32_t rows, int32_t threads) {
    const alea_core_options options = {.struct_bytes = sizeof options,
                                       .flags = flags,
                                       .model = path,
                                       .context_tokens = context_tokens,
                                       .sequences = sequences,
                                       .round_rows = rows,
                                       .threads = threads};
    alea_core *core = NULL;
    alea_error error = {.status = ALEA_OK};
    if (alea_core_open(alea__core_llama(), &options, &core, &error) < 0)
        fail_msg("%s", error.message);
    return core;
}
