/* The text of each status, and the one way to fill an error. */
#include <stdarg.h>
#include <stdio.h>

#include "alea/base.h"

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

const char *alea_status_text(alea_status status) {
    switch (status) {
#define X(name, value, text)                                                                       \
    case name: return text;
        ALEA_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

const char *alea_version(void) {
    return TEXT(ALEA_VERSION_MAJOR) "." TEXT(ALEA_VERSION_MINOR) "." TEXT(ALEA_VERSION_PATCH);
}

alea_status alea_error_set(alea_error *error, alea_status status, const char *format, ...) {
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
        error->status = status;
    }
    return status;
}
