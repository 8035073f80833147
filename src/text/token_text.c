/* One token as text. */
#include "text/token_text.h"

#include <string.h>

#include "base/utf8.h"

static const char prefix[] = "bytes:";

enum { PREFIX_BYTES = sizeof prefix - 1, ESCAPE_BYTES = 4 };

static size_t escape(alea_bytes bytes, char *out, size_t capacity) {
    static const char digits[] = "0123456789abcdef";
    const size_t length = PREFIX_BYTES + ESCAPE_BYTES * bytes.length;
    if (length > capacity) return length;
    memcpy(out, prefix, PREFIX_BYTES);
    out += PREFIX_BYTES;
    for (size_t i = 0; i < bytes.length; i++, out += ESCAPE_BYTES) {
        out[0] = '\\';
        out[1] = 'x';
        out[2] = digits[bytes.data[i] >> 4];
        out[3] = digits[bytes.data[i] & 15];
    }
    return length;
}

size_t alea__token_text(const alea_token_info *info, char *out, size_t capacity) {
    const alea_bytes shown = info->bytes.length ? info->bytes : info->name;
    if (!alea__utf8_valid(shown)) return escape(shown, out, capacity);
    if (shown.length && shown.length <= capacity) memcpy(out, shown.data, shown.length);
    return shown.length;
}
