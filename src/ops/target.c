/*
 * The registry, and the choice among candidates. A candidate that declines, when it is made or at
 * a call, says why; when nobody is left, those reasons are the error.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/check.h"
#include "ops/target.h"

enum { REGISTERED_MAX = 8, NAME_MAX_BYTES = 31, REASON_BYTES = 96 };

static const alea_op_target *const builtin[] = {&alea__target_cpu, &alea__target_cpu_ref,
                                                &alea__target_cuda};
enum { N_BUILTIN = sizeof builtin / sizeof builtin[0] };
enum { CANDIDATES_MAX = REGISTERED_MAX + N_BUILTIN };

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static alea_op_target registered[REGISTERED_MAX];
static int32_t n_registered;

typedef struct candidate {
    const alea_op_target *target;
    void *state;               /* NULL: it declined when it was to be made */
    char reason[REASON_BYTES]; /* why it declined, then or at the present call */
} candidate;

struct alea_op {
    alea_op_kind kind;
    alea_op_config config;
    int32_t n_candidates;
    candidate candidates[CANDIDATES_MAX];
};

/* Those before `n_builtin` were registered, the latest first. */
static int32_t list_targets(const alea_op_target **list) {
    int32_t n = 0;
    pthread_mutex_lock(&registry_lock);
    for (int32_t i = n_registered; i-- > 0;)
        list[n++] = &registered[i];
    pthread_mutex_unlock(&registry_lock);
    for (int32_t i = 0; i < N_BUILTIN; i++)
        list[n++] = builtin[i];
    return n;
}

const char *alea_target_name(int32_t index) {
    const alea_op_target *list[CANDIDATES_MAX];
    const int32_t n = list_targets(list);
    return index >= 0 && index < n ? list[index]->name : NULL;
}

static bool name_is_good(const char *name) {
    const size_t length = name ? strnlen(name, NAME_MAX_BYTES + 1) : 0;
    if (length == 0 || length > NAME_MAX_BYTES) return false;
    for (size_t i = 0; i < length; i++) {
        const char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-')) {
            return false;
        }
    }
    return true;
}

static bool name_is_taken(const char *name) {
    if (strcmp(name, ALEA_TARGET_BUILTIN) == 0) return true;
    for (int32_t i = 0; i < N_BUILTIN; i++) {
        if (strcmp(builtin[i]->name, name) == 0) return true;
    }
    for (int32_t i = 0; i < n_registered; i++) {
        if (strcmp(registered[i].name, name) == 0) return true;
    }
    return false;
}

alea_status alea_target_register(const alea_op_target *target, alea_error *error) {
    if (!target) return alea_error_set(error, ALEA_EINVAL, "target is NULL");
    if (target->struct_bytes != sizeof *target) {
        return alea_error_set(error, ALEA_EINVAL,
                              "target.struct_bytes is %u; this library's is %zu",
                              target->struct_bytes, sizeof *target);
    }
    if (!name_is_good(target->name)) {
        return alea_error_set(error, ALEA_EINVAL, "target.name must be 1..%d bytes of [a-z0-9_-]",
                              NAME_MAX_BYTES);
    }
    if (target->flags & ~(uint32_t)ALEA_TARGET_BY_NAME) {
        return alea_error_set(error, ALEA_EINVAL, "target.flags has unknown bits: 0x%x",
                              target->flags);
    }
    if (!target->create || !target->destroy || !target->run) {
        return alea_error_set(error, ALEA_EINVAL, "target.%s is NULL",
                              !target->create    ? "create"
                              : !target->destroy ? "destroy"
                                                 : "run");
    }
    alea_status status = ALEA_OK;
    pthread_mutex_lock(&registry_lock);
    if (name_is_taken(target->name)) {
        status = alea_error_set(error, ALEA_EINVAL, "target.name \"%s\" is taken", target->name);
    } else if (n_registered == REGISTERED_MAX) {
        status =
            alea_error_set(error, ALEA_ELIMIT, "%d targets are registered already", REGISTERED_MAX);
    } else {
        registered[n_registered++] = *target;
    }
    pthread_mutex_unlock(&registry_lock);
    return status;
}

/* Append to a message that may be full already. */
static ALEA_PRINTF(3, 4) void append(char *message, size_t capacity, const char *format, ...) {
    const size_t used = strlen(message);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message + used, capacity - used, format, arguments);
    va_end(arguments);
}

/* `device` is that of a call, whose reader need not hear from what was never made and is of another
 * device; -1: nothing was made. */
static alea_status nobody_serves(const alea_op *op, int32_t device, alea_error *error) {
    char list[256] = "";
    for (int32_t i = 0; i < op->n_candidates; i++) {
        const candidate *c = &op->candidates[i];
        if (!c->state && device >= 0 && c->target->device_type != device) continue;
        append(list, sizeof list, "%s%s: %s", list[0] ? "; " : "", c->target->name, c->reason);
    }
    return alea_error_set(error, ALEA_EUNSUPPORTED, "no target serves this %s: %s",
                          alea_op_name(op->kind), list);
}

static alea_status unknown_target(const char *name, alea_error *error) {
    const alea_op_target *list[CANDIDATES_MAX];
    const int32_t n = list_targets(list);
    char names[160] = "";
    for (int32_t i = 0; i < n; i++)
        append(names, sizeof names, ", %s", list[i]->name);
    return alea_error_set(error, ALEA_EUNSUPPORTED, "no target is named \"%.32s\"; there are %s%s",
                          name, ALEA_TARGET_BUILTIN, names);
}

static bool is_wanted(const alea_op_target *target, const char *name, bool is_builtin) {
    if (!name) return !(target->flags & ALEA_TARGET_BY_NAME);
    if (strcmp(name, ALEA_TARGET_BUILTIN) == 0) {
        return is_builtin && !(target->flags & ALEA_TARGET_BY_NAME);
    }
    return strcmp(target->name, name) == 0;
}

static void keep_reason(candidate *c, const alea_error *reason) {
    snprintf(c->reason, sizeof c->reason, "%.95s",
             reason->message[0] ? reason->message : "declined without a reason");
}

/* Make one candidate. Declining is its right; any other failure is the operator's. */
static alea_status add_candidate(alea_op *op, const alea_op_target *target, alea_error *error) {
    candidate *c = &op->candidates[op->n_candidates];
    alea_error reason = {0};
    *c = (candidate){.target = target};
    const alea_status status =
        target->create(target->user, op->kind, &op->config, &c->state, &reason);
    if (status < 0 && status != ALEA_EUNSUPPORTED) {
        return alea_error_set(error, status, "%s: %s", target->name,
                              reason.message[0] ? reason.message : alea_status_text(status));
    }
    if (status < 0) {
        c->state = NULL;
        keep_reason(c, &reason);
    }
    op->n_candidates++;
    return ALEA_OK;
}

alea_status alea__op_create(alea_op_kind kind, const alea_op_config *config, alea_op **op,
                            alea_error *error) {
    if (!op) return alea_error_set(error, ALEA_EINVAL, "op is NULL");
    alea_status status = alea__op_check_config(kind, config, error);
    if (status < 0) return status;

    const alea_op_target *list[CANDIDATES_MAX];
    const int32_t n = list_targets(list);
    alea_op *made = calloc(1, sizeof *made);
    if (!made) return alea_error_set(error, ALEA_ENOMEM, "no memory for an operator");
    made->kind = kind;
    made->config = *config;
    bool any = false;
    for (int32_t i = 0; i < n && status >= 0; i++) {
        if (!is_wanted(list[i], config->target, i >= n - N_BUILTIN)) continue;
        status = add_candidate(made, list[i], error);
        any |= status >= 0 && made->candidates[made->n_candidates - 1].state != NULL;
    }
    made->config.target = NULL; /* the caller's string may end now */
    if (status >= 0 && made->n_candidates == 0) status = unknown_target(config->target, error);
    if (status >= 0 && !any) status = nobody_serves(made, -1, error);
    if (status < 0) {
        alea__op_destroy(made);
        return status;
    }
    *op = made;
    return ALEA_OK;
}

void alea__op_destroy(alea_op *op) {
    if (!op) return;
    for (int32_t i = 0; i < op->n_candidates; i++) {
        if (op->candidates[i].state) op->candidates[i].target->destroy(op->candidates[i].state);
    }
    free(op);
}

alea_status alea__op_run(alea_op *op, const DLTensor *const *tensors, void *stream,
                         alea_error *error) {
    if (!op) return alea_error_set(error, ALEA_EINVAL, "op is NULL");
    alea_op_sizes sizes;
    const alea_status checked = alea__op_check(op->kind, &op->config, tensors, &sizes, error);
    if (checked < 0) return checked;

    const int32_t n_tensors = alea__op_rules(op->kind)->n_arguments;
    const DLTensor *first = NULL;
    for (int32_t i = 0; i < n_tensors && !first; i++)
        first = tensors[i];
    const int32_t device = alea__device_type(first);
    for (int32_t i = 0; i < op->n_candidates; i++) {
        candidate *c = &op->candidates[i];
        if (!c->state) continue; /* its reason stands since it declined */
        if (c->target->device_type != device) {
            snprintf(c->reason, sizeof c->reason, "serves device type %d, these tensors are on %d",
                     c->target->device_type, device);
            continue;
        }
        alea_error reason = {0};
        const alea_status status = c->target->run(c->state, tensors, n_tensors, stream, &reason);
        if (status >= 0) return ALEA_OK;
        if (status != ALEA_EUNSUPPORTED) {
            return alea_error_set(error, status, "%s",
                                  reason.message[0] ? reason.message : alea_status_text(status));
        }
        keep_reason(c, &reason);
    }
    return nobody_serves(op, device, error);
}
