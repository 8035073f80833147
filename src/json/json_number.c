/* Shortest round trip by trial: print with few digits, read back, add one until it is the same. */
#include "json/json_number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* printf writes the decimal point of the program's locale, which may be a comma or longer, and none
 * behind a whole number; there JSON readers would take an integer, and -0 would lose its sign. */
static size_t to_json_point(char *text) {
    const size_t digits = strspn(text, "-0123456789");
    const size_t point = strcspn(text + digits, "0123456789e");
    size_t length = strlen(text);
    if (!text[digits]) {
        memcpy(text + length, ".0", sizeof ".0");
        return length + 2;
    }
    if (!point) return length; /* 1e-05 */
    text[digits] = '.';
    if (point > 1) memmove(text + digits + 1, text + digits + point, length - digits - point + 1);
    length -= point - 1;
    return length;
}

size_t alea__json_float32(float value, char *text) {
    if (!isfinite(value)) return 0;
    /* Below the normal range fewer than six digits may do. */
    for (int digits = fabsf(value) < FLT_MIN ? 1 : 6; digits <= FLT_DECIMAL_DIG; digits++) {
        snprintf(text, ALEA_JSON_NUMBER_BYTES, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    return to_json_point(text);
}

size_t alea__json_float64(double value, char *text) {
    if (!isfinite(value)) return 0;
    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(text, ALEA_JSON_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    return to_json_point(text);
}

size_t alea__json_logprob(float logprob, char *text) {
    static const char floor_text[] = "-9999.0";
    if (!(logprob <= ALEA_JSON_LOGPROB_FLOOR)) return alea__json_float32(logprob, text);
    memcpy(text, floor_text, sizeof floor_text);
    return sizeof floor_text - 1;
}
