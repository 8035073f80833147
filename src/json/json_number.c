/* Shortest round trip by trial: print with few digits, read back, add one until it is the same.
 * Most log-probabilities lie where the trial is a few operations on integers. */
#include "json/json_number.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
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

/* ---- float32 from 1e-4 to 1e5, in integers ---- */

enum { POWERS = 13 };

static const uint64_t powers[POWERS] = {
    1,        10,        100,        1000,        10000,        100000,       1000000,
    10000000, 100000000, 1000000000, 10000000000, 100000000000, 1000000000000};

/* The value is mantissa / 2^shift, and the text of `scaled` / 10^decimals is near it. */
typedef struct decimal {
    uint64_t scaled;
    int decimals;
} decimal;

/* `scaled` is the mantissa times 10^decimals / 2^shift, rounded as printf does; true where it reads
 * back as the same value: nearer than half a step, or just as near and the mantissa is even. Below
 * a power of two the step is half as large. */
static bool round_decimal(uint64_t mantissa, int shift, decimal *out) {
    const uint64_t exact = mantissa * powers[out->decimals]; /* below 2^24 * 10^12 < 2^64 */
    const uint64_t one = UINT64_C(1) << shift, rest = exact & (one - 1);
    const uint64_t down = exact >> shift;
    const bool up = rest > one / 2 || (rest == one / 2 && (down & 1));
    out->scaled = down + up;
    const uint64_t error = up ? one - rest : rest;
    const bool half_step = !up && mantissa == UINT64_C(1) << (FLT_MANT_DIG - 1);
    const uint64_t twice = half_step ? 4 * error : 2 * error;
    return twice < powers[out->decimals] || (twice == powers[out->decimals] && !(mantissa & 1));
}

/* Digits of `value`, written towards the front of a text that ends at `end`; where they begin. */
static char *put_digits(char *end, uint64_t value, int n_least) {
    for (; n_least > 0 || value > 0; n_least--, value /= 10)
        *--end = (char)('0' + value % 10);
    return end;
}

static size_t copy_text(const char *from, const char *end, char *text) {
    const size_t length = (size_t)(end - from);
    memcpy(text, from, length);
    text[length] = 0;
    return length;
}

static size_t print_decimal(decimal number, bool negative, char *text) {
    char digits[ALEA_JSON_NUMBER_BYTES], *const end = digits + sizeof digits - 1, *at = end;
    while (number.decimals > 1 && number.scaled % 10 == 0) {
        number.scaled /= 10;
        number.decimals--;
    }
    for (; number.decimals > 0; number.decimals--, number.scaled /= 10)
        *--at = (char)('0' + number.scaled % 10);
    *--at = '.';
    at = put_digits(at, number.scaled, 1);
    if (negative) *--at = '-';
    return copy_text(at, end, text);
}

/* 0: outside the range. */
static size_t print_common(float value, char *text) {
    static const float limits[] = {1e4f, 1e3f, 1e2f, 1e1f, 1e0f, 1e-1f, 1e-2f, 1e-3f, 0.0f};
    const float size = fabsf(value);
    if (!(size >= 1e-4f && size < 1e5f)) return 0;
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    const uint64_t mantissa = (bits & 0x7fffffu) | 0x800000u;
    const int shift = FLT_MANT_DIG + 126 - (int)(bits >> 23);
    int before = 5; /* digits before the point; below 1 they count the zeros behind it */
    for (const float *limit = limits; size < *limit; limit++)
        before--;
    for (int digits = 6; digits <= FLT_DECIMAL_DIG; digits++) {
        decimal number = {.decimals = digits - before};
        if (round_decimal(mantissa, shift, &number) || digits == FLT_DECIMAL_DIG)
            return print_decimal(number, value < 0, text);
    }
    return 0;
}

size_t alea__json_uint64(uint64_t value, char *text) {
    char digits[ALEA_JSON_NUMBER_BYTES], *const end = digits + sizeof digits - 1;
    return copy_text(put_digits(end, value, 1), end, text);
}

size_t alea__json_int64(int64_t value, char *text) {
    if (value >= 0) return alea__json_uint64((uint64_t)value, text);
    text[0] = '-';
    return 1 + alea__json_uint64(-(uint64_t)value, text + 1);
}

/* ---- any value, by trial ---- */

size_t alea__json_float32(float value, char *text) {
    if (!isfinite(value)) return 0;
    const size_t common = print_common(value, text);
    if (common) return common;
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
