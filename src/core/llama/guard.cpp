/* C++ because nothing else can catch. */
#include "core/llama/guard.h"

#include <cstdio>
#include <exception>

bool alea__guard(void (*call)(void *argument), void *argument, char *what, size_t capacity) {
    try {
        call(argument);
        return true;
    } catch (const std::exception &error) {
        std::snprintf(what, capacity, "%s", error.what());
    } catch (...) {
        std::snprintf(what, capacity, "unknown exception");
    }
    return false;
}
