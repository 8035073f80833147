/*
 * The loop of lane_max_mass, for the scanner and the weigher of whichever segment header was
 * included before. A segment is weighed from the first cache while the next one, on its way there,
 * is scanned.
 */
#ifndef ALEA_KERNEL_X86_LANE_MAX_MASS_H
#define ALEA_KERNEL_X86_LANE_MAX_MASS_H

/* False where a segment has no exponent, or only the reference can weigh it. */
static inline bool weigher_of(weigher *w, float scale, float top) {
    /* To nearest even, as rintf. */
    return alea__has_exponent(top) && weigher_make(w, scale, _mm_cvtss_si32(_mm_set_ss(top)));
}

static uint64_t rare_mass(const float *x, int32_t n, float scale, float top) {
    if (!alea__has_exponent(top)) return 0;
    return alea__segment_mass_ref(x, n, scale, _mm_cvtss_si32(_mm_set_ss(top)));
}

static inline void lane_max_mass(const float *x, int32_t n, float scale, float *lanes,
                                 float *segments, uint64_t *masses) {
    bool is_scanned = false;
    scanner s;
    for (; n > 0; n -= ALEA_SEGMENT, x += ALEA_SEGMENT, lanes += ALEA_LANES, segments++, masses++) {
        const int32_t length = n < ALEA_SEGMENT ? n : ALEA_SEGMENT;
        if (!is_scanned) s = segment_scan(x, length);
        *segments = scanner_end(&s, x, length, lanes);
        weigher w;
        is_scanned = false;
        if (!weigher_of(&w, scale, *segments * scale)) {
            *masses = rare_mass(x, length, scale, *segments * scale);
        } else if (n < 2 * ALEA_SEGMENT) {
            *masses = segment_weigh(&w, x, length, NULL);
        } else {
            is_scanned = true;
            s = scanner_none();
            *masses = segment_weigh(&w, x, ALEA_SEGMENT, &s);
        }
    }
}

#endif
