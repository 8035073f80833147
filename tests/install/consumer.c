/* A program outside the tree: knows the installed headers and library alone. */
#include <alea/alea.h>

#include <stdio.h>
#include <string.h>

int main(void) {
    char expected[64];
    snprintf(expected, sizeof expected, "%d.%d.%d", ALEA_VERSION_MAJOR, ALEA_VERSION_MINOR,
             ALEA_VERSION_PATCH);
    if (strcmp(alea_version(), expected) != 0) {
        fprintf(stderr, "the header says %s, the library %s\n", expected, alea_version());
        return 1;
    }
    return strcmp(alea_status_text(ALEA_OK), "ok") == 0 ? 0 : 1;
}
