/*
 * A model that is open, with the threads and kernels that go with it: what score, generate and
 * bench start from. Failures are complained about here, in one line.
 */
#ifndef ALEA_CLI_SESSION_H
#define ALEA_CLI_SESSION_H

#include "alea/core.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "kernel/kernel_table.h"

/* Positions of a sequence where neither --context nor the model asks for fewer: a model that was
 * trained on 128k would otherwise take gigabytes before the first token. */
#define ALEA_CONTEXT_STANDARD 4096

typedef struct alea_session {
    alea_core *core;
    alea_core_info info;
    alea_pool *pool;
    const alea_kernel_table *kernels;
    const char *model; /* as the user named it, or the default's path */
} alea_session;

/* The model that is meant: `named`, ALEA_MODEL, or the link that a build leaves beside
 * the program; empty: none. */
const char *alea__model_name(const char *named);

/* `flags` are alea_core_flag bits besides ALEA_CORE_FAST, which the settings give. */
alea_exit alea__session_open(const alea_settings *settings, const char *model, uint32_t flags,
                             int32_t sequences, alea_session *session) ALEA_MUST_USE;
void alea__session_close(alea_session *session);

#endif
