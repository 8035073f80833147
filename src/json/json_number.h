/*
 * Numbers as JSON text. Every float32 that Alea prints goes through alea__json_float32: clients
 * decide whether a token was the best one by comparing printed numbers, so one value must have
 * one text everywhere.
 */
#ifndef ALEA_JSON_JSON_NUMBER_H
#define ALEA_JSON_JSON_NUMBER_H

#include "alea/base.h"

#define ALEA_JSON_NUMBER_BYTES 32 /* room for any number that is printed here, with its NUL */

/* What stands for a log-probability of -inf, or below: "no probability". Nothing else prints it. */
#define ALEA_JSON_LOGPROB_FLOOR (-9999.0f)

/*
 * The fewest digits at which correctly rounded decimal text reads back as the same value, as
 * float32 or as double.
 *
 * Shape     text [ALEA_JSON_NUMBER_BYTES], NUL-terminated
 * Domain    finite; otherwise 0 is returned and nothing is written: JSON has no such numbers
 * Result    length of text
 * Exact     a function of the value's bits, in every locale; whole numbers end in ".0"
 * Errors    none but the 0
 * Memory    allocates nothing
 * Threads   reentrant
 */
size_t alea__json_float32(float value, char *text);
size_t alea__json_float64(double value, char *text);

/* An integer; text as above, and the result its length. */
size_t alea__json_int64(int64_t value, char *text);
size_t alea__json_uint64(uint64_t value, char *text);

/* A log-probability: as above, with "-9999.0" for -inf and for anything at or below the floor. NaN
 * and +inf are a model's failure and give 0. */
size_t alea__json_logprob(float logprob, char *text);

#endif
