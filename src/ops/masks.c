/*
 * The four filters. Each comes down to one cut, kept iff value >= cut; NaN as the cut keeps
 * nothing, and a row that passes whole is copied, so that its NaNs keep their bits.
 */
#include <math.h>
#include <string.h>

#include "ops/cpu.h"

enum { MASKED, LOGITS, FIRST, SECOND }; /* arguments, in the order of rules.c */

static void pass_whole(const alea_cpu_call *call, int64_t row) {
    const alea_view *in = &call->views[LOGITS];
    const void *from = alea__at(in, row);
    void *to = alea__at(&call->views[MASKED], row);
    const size_t bytes = in->dtype_bit == ALEA_BIT_F32 ? 4 : 2;
    if (from != to && call->vocab > 0) memcpy(to, from, (size_t)call->vocab * bytes);
}

static void keep_from(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row,
                      const float *value, float cut) {
    alea__row_keep(scratch, alea__at(&call->views[MASKED], row),
                   alea__at(&call->views[LOGITS], row), value, call->vocab, cut,
                   call->views[LOGITS].dtype_bit);
}

/*
 * The k-th largest of a row in which NaN ranks first; NaN where that is one. What it leaves
 * scanned holds -inf in place of NaN. Domain: 1 <= k < n.
 */
static float topk_cut(alea_row_scratch *scratch, const float *x, int32_t n, int32_t k) {
    if (isnan(alea__row_maxima(scratch, x, n))) {
        const int32_t n_nan = n - scratch->kernels->count_ge(x, n, -INFINITY);
        if (k <= n_nan) return NAN;
        k -= n_nan;
        scratch->kernels->keep_ge(scratch->clean, x, n, -INFINITY);
        (void)alea__row_maxima(scratch, scratch->clean, n);
    }
    return alea__row_kth(scratch, k).value;
}

static int32_t topk_of(const alea_cpu_call *call, int64_t row) {
    const int32_t k = alea__i32_at(&call->views[FIRST], row);
    return k < 1 ? 1 : k;
}

void alea__run_topk_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const int32_t n = call->vocab;
    const int32_t k = topk_of(call, row);
    if (k >= n) {
        pass_whole(call, row);
        return;
    }
    const float *x = alea__call_logits(call, &call->views[LOGITS], scratch, row);
    const float cut = topk_cut(scratch, x, n, k);
    keep_from(call, scratch, row, x, cut);
}

void alea__run_minp_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const int32_t n = call->vocab;
    const float *x = alea__call_logits(call, &call->views[LOGITS], scratch, row);
    const float max = alea__row_maxima(scratch, x, n);
    const float cut = max + alea__ln_min_p(alea__f32_at(&call->views[FIRST], row));
    if (!(cut > -INFINITY)) { /* NaN too: a NaN in the row, or +inf under min_p 0 */
        pass_whole(call, row);
        return;
    }
    keep_from(call, scratch, row, x, cut);
}

/* The top-p cut over the scanned row's logits of at least `floor`; NaN keeps none. */
static float topp_cut(alea_row_scratch *scratch, float floor, float p) {
    const alea_mass_rule rule = alea__mass_rule(&scratch->scan, ALEA_LOG2E_F);
    const uint64_t all = alea__mass_ge(&scratch->scan, &rule, floor);
    const uint64_t target = alea__mass_share(p < 1 ? p : 1, all);
    if (!(p > 0) || target == 0) return NAN;
    return alea__row_cut_above(&scratch->scan, &rule, target, floor, all);
}

void alea__run_topp_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const int32_t n = call->vocab;
    const float *x = alea__call_logits(call, &call->views[LOGITS], scratch, row);
    if (!isfinite(alea__row_maxima(scratch, x, n))) {
        pass_whole(call, row);
        return;
    }
    const float cut = topp_cut(scratch, -INFINITY, alea__f32_at(&call->views[FIRST], row));
    keep_from(call, scratch, row, x, cut);
}

void alea__run_topk_topp_mask(const alea_cpu_call *call, alea_row_scratch *scratch, int64_t row) {
    const int32_t n = call->vocab;
    const int32_t k = topk_of(call, row);
    const float p = alea__f32_at(&call->views[SECOND], row);
    const float *x = alea__call_logits(call, &call->views[LOGITS], scratch, row);
    float cut = -INFINITY;
    if (k < n) {
        cut = topk_cut(scratch, x, n, k);
    } else {
        (void)alea__row_maxima(scratch, x, n);
    }
    /* Survivors without a distribution: the top-k mask stands. */
    if (!isnan(cut) && isfinite(scratch->scan.max)) {
        const float nucleus = topp_cut(scratch, cut, p);
        cut = nucleus < cut ? cut : nucleus;
    } else if (k >= n) {
        pass_whole(call, row);
        return;
    }
    keep_from(call, scratch, row, x, cut);
}
