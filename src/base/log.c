/* The sink and its lock. The lock is held during a call of the sink, so lines never mix. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static alea_log_sink log_sink;
static void *log_user;
static alea_log_level log_most;

void alea__log_to(alea_log_sink sink, void *user, alea_log_level most) {
    pthread_mutex_lock(&log_lock);
    log_sink = sink;
    log_user = user;
    log_most = most;
    pthread_mutex_unlock(&log_lock);
}

void alea__log(alea_log_level level, const char *format, ...) {
    pthread_mutex_lock(&log_lock);
    if (log_sink && level <= log_most) {
        char message[512];
        va_list args;
        va_start(args, format);
        vsnprintf(message, sizeof message, format, args);
        va_end(args);
        log_sink(log_user, level, message);
    }
    pthread_mutex_unlock(&log_lock);
}

void alea__log_hold(void) {
    pthread_mutex_lock(&log_lock);
}

void alea__log_resume(bool in_child) {
    if (in_child) log_sink = NULL;
    pthread_mutex_unlock(&log_lock);
}
