/*
 * What every kernel of this folder stands on: the project's arithmetic on the device, the three
 * dtypes, and loads. The arithmetic is not written a second time: the C headers of src/kernel are
 * compiled for both sides.
 */
#ifndef ALEA_KERNEL_CUDA_DEVICE_CUH
#define ALEA_KERNEL_CUDA_DEVICE_CUH

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#ifndef _Bool
#define _Bool bool
#endif
/* From here each `static inline` function of the C headers is one of the device too. */
#define inline __host__ __device__ inline
#include "base/half.h"
#include "kernel/exp2_poly.h"
#include "kernel/ln.h"
#include "kernel/philox.h"
#include "kernel/prob_weight.h"
#undef inline

#include "kernel/cuda/cuda_api.h"

typedef unsigned long long u64; /* what atomics and shuffles take */
static_assert(sizeof(u64) == sizeof(uint64_t), "masses are 64 bits");

constexpr unsigned whole_warp = 0xffffffffu;
constexpr int warp_lanes = 32;

/* docs/numerics.md, "Weights and masses": beyond it logits count from the row's maximum. */
constexpr float plain_limit = 0x1.8p20f;

/* A segment's mass is below 2^51, so a shift by 51 leaves nothing: with 1024 weights, of at most
 * 1.5 times the weight of the exponent alone, shifted by ALEA_MASS_SHIFT. */
constexpr int deepest_shift = 50;
static_assert(10 + ALEA_WEIGHT_BITS + 1 + ALEA_MASS_SHIFT <= deepest_shift + 1, "masses fit");
static_assert(1.5 * ALEA_EXP2_C0 * ALEA_WEIGHTS_PER_U32 < 4294967296.0, "weights fit 32 bits");

/* ---- float32 in the order of integers ---------------------------------------------------- */

/* Unsigned, NaN 0x7fffffff above +inf; -0 below +0. */
__device__ __forceinline__ uint32_t order_key(float x) {
    const int32_t bits = __float_as_int(x);
    return (uint32_t)(bits ^ ((bits >> 31) | (int32_t)0x80000000));
}

__device__ __forceinline__ float key_value(uint32_t key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

/* Signed, equal zeros equal: what a bisection walks. For anything but NaN. */
__device__ __forceinline__ int32_t walk_key(float x) {
    const int32_t bits = __float_as_int(x);
    return bits < 0 ? -(bits & 0x7fffffff) : bits;
}

__device__ __forceinline__ float walk_value(int32_t key) {
    return __int_as_float(key < 0 ? (-key) | (int32_t)0x80000000 : key);
}

/* The larger of two, or NaN where either is. */
__device__ __forceinline__ float max_or_nan(float a, float b) {
    float most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
}

/* ---- dtypes ------------------------------------------------------------------------------ */

/* Sixteen bytes of a row as values. `dropped` is -inf. A clamp raises what is below a weight floor,
 * where the exponent is at most clamp_exponent_max: beyond it the bound could round to a value that
 * is not sure to weigh nothing. */
struct f32_row {
    typedef uint32_t word;
    static constexpr int clamp_exponent_max = 1 << 22;
    static constexpr int per_vector = 4;
    static constexpr word dropped = 0xff800000u;
    static __device__ __forceinline__ float widen(word w) {
        return __uint_as_float(w);
    }
    static __device__ __forceinline__ float get(const uint4 &v, int e) {
        return __uint_as_float(e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w);
    }
    static __device__ __forceinline__ float most(const uint4 &v) {
        return max_or_nan(max_or_nan(__uint_as_float(v.x), __uint_as_float(v.y)),
                          max_or_nan(__uint_as_float(v.z), __uint_as_float(v.w)));
    }
    static __device__ __forceinline__ uint4 clamp(const uint4 &v, float low) {
        return make_uint4(__float_as_uint(fmaxf(__uint_as_float(v.x), low)),
                          __float_as_uint(fmaxf(__uint_as_float(v.y), low)),
                          __float_as_uint(fmaxf(__uint_as_float(v.z), low)),
                          __float_as_uint(fmaxf(__uint_as_float(v.w), low)));
    }
};

template <class Pair> __device__ __forceinline__ Pair pair_of(uint32_t bits) {
    return *reinterpret_cast<Pair *>(&bits);
}

template <class Pair> __device__ __forceinline__ uint32_t bits_of(Pair pair) {
    return *reinterpret_cast<uint32_t *>(&pair);
}

__device__ __forceinline__ uint32_t half_word(const uint4 &v, int e) {
    const uint32_t pair = e < 2 ? v.x : e < 4 ? v.y : e < 6 ? v.z : v.w;
    return e & 1 ? pair >> 16 : pair & 0xffffu;
}

struct bf16_row {
    typedef uint16_t word;
    static constexpr int clamp_exponent_max = 1 << 13; /* off by 2^13 * 2^-9 = 16 at most */
    static constexpr int per_vector = 8;
    static constexpr word dropped = 0xff80;
    static __device__ __forceinline__ float widen(word w) {
        return __uint_as_float((uint32_t)w << 16);
    }
    static __device__ __forceinline__ float get(const uint4 &v, int e) {
        const uint32_t pair = e < 2 ? v.x : e < 4 ? v.y : e < 6 ? v.z : v.w;
        return __uint_as_float(e & 1 ? pair & 0xffff0000u : pair << 16);
    }
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        return bits_of(__hmax2_nan(pair_of<__nv_bfloat162>(a), pair_of<__nv_bfloat162>(b)));
    }
    static __device__ __forceinline__ float most(const uint4 &v) {
        const uint32_t pair = larger(larger(v.x, v.y), larger(v.z, v.w));
        return max_or_nan(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    }
    /* In pairs. NaN is dropped. */
    static __device__ __forceinline__ uint4 clamp(const uint4 &v, float low) {
        const __nv_bfloat162 bound = __float2bfloat162_rn(low);
        return make_uint4(bits_of(__hmax2(pair_of<__nv_bfloat162>(v.x), bound)),
                          bits_of(__hmax2(pair_of<__nv_bfloat162>(v.y), bound)),
                          bits_of(__hmax2(pair_of<__nv_bfloat162>(v.z), bound)),
                          bits_of(__hmax2(pair_of<__nv_bfloat162>(v.w), bound)));
    }
};

struct f16_row {
    typedef uint16_t word;
    static constexpr int clamp_exponent_max = 1 << 22;
    static constexpr int per_vector = 8;
    static constexpr word dropped = 0xfc00;
    static __device__ __forceinline__ float widen(word w) {
        return __half2float(__ushort_as_half(w));
    }
    static __device__ __forceinline__ float get(const uint4 &v, int e) {
        return widen((word)half_word(v, e));
    }
    static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
        return bits_of(__hmax2_nan(pair_of<__half2>(a), pair_of<__half2>(b)));
    }
    static __device__ __forceinline__ float most(const uint4 &v) {
        const uint32_t pair = larger(larger(v.x, v.y), larger(v.z, v.w));
        return max_or_nan(widen((word)(pair & 0xffffu)), widen((word)(pair >> 16)));
    }
    /* A bound below the smallest float16 would round to -inf, so values are clamped one by one. */
    static __device__ __forceinline__ uint4 clamp(const uint4 &v, float) {
        return v;
    }
};

/* ---- loads ------------------------------------------------------------------------------- */

/* Read once: past the first cache, through the read-only path. */
__device__ __forceinline__ uint4 load_once(const void *at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

template <class T>
__device__ __forceinline__ uint32_t load_word(const typename T::word *x, int n, int at) {
    return at < n ? (uint32_t)__ldg(x + at) : (uint32_t)T::dropped;
}

/* Entries at .. at + per_vector of x[n], -inf beyond the end. aligned: x is, to 16 bytes. */
template <class T>
__device__ __forceinline__ uint4 load_vector(const typename T::word *x, int n, int at,
                                             bool aligned) {
    if (aligned && at + T::per_vector <= n) return load_once(x + at);
    uint4 v;
    if (sizeof(typename T::word) == 4) {
        v = make_uint4(load_word<T>(x, n, at), load_word<T>(x, n, at + 1),
                       load_word<T>(x, n, at + 2), load_word<T>(x, n, at + 3));
    } else {
        v = make_uint4(load_word<T>(x, n, at) | load_word<T>(x, n, at + 1) << 16,
                       load_word<T>(x, n, at + 2) | load_word<T>(x, n, at + 3) << 16,
                       load_word<T>(x, n, at + 4) | load_word<T>(x, n, at + 5) << 16,
                       load_word<T>(x, n, at + 6) | load_word<T>(x, n, at + 7) << 16);
    }
    return v;
}

/* ---- weights ----------------------------------------------------------------------------- */

struct weight_parts {
    uint32_t weight;
    float t, fraction;
};

/* exp2_poly.h, for x above the weight floor; magic = ALEA_EXP2_MAGIC - exponent. */
__device__ __forceinline__ weight_parts weigh_parts(float x, float scale, float magic) {
    const float t = __fmaf_rn(x, scale, magic);
    const float f = __fmaf_rn(x, scale, -(t - magic));
    float w = __fmaf_rn(ALEA_EXP2_C5, f, ALEA_EXP2_C4);
    w = __fmaf_rn(w, f, ALEA_EXP2_C3);
    w = __fmaf_rn(w, f, ALEA_EXP2_C2);
    w = __fmaf_rn(w, f, ALEA_EXP2_C1);
    w = __fmaf_rn(w, f, ALEA_EXP2_C0);
    w = __uint_as_float(__float_as_uint(w) + (__float_as_uint(t) << 23));
    return {__float2uint_rn(w), t, f};
}

__device__ __forceinline__ uint32_t weigh(float x, float scale, float magic) {
    return weigh_parts(x, scale, magic).weight;
}

/* The same for any x: 0 at or below the floor, and for NaN. */
__device__ __forceinline__ uint32_t weigh_above(float x, float scale, float magic, float floor) {
    const uint32_t weight = weigh(x, scale, magic);
    return x > floor ? weight : 0;
}

/* How a row is weighed under one scale; see kernel/mass.h. */
struct mass_rule {
    float scale, max;
    bool shifted;
    int32_t exponent;
    double slope;
};

__device__ __forceinline__ mass_rule rule_of(float max, float scale) {
    const float top = max * scale;
    mass_rule rule;
    rule.scale = scale;
    rule.max = max;
    rule.shifted = !(fabsf(top) <= plain_limit);
    rule.exponent = rule.shifted ? 0 : (int32_t)rintf(top);
    rule.slope = (double)scale * ALEA_LN2;
    return rule;
}

/* The exponent of a segment by its maximum; false: its mass shifts to nothing. */
__device__ __forceinline__ bool segment_exponent(const mass_rule &rule, float max,
                                                 int32_t *exponent) {
    const float top = rintf((rule.shifted ? max - rule.max : max) * rule.scale);
    if (!(top >= (float)(rule.exponent - deepest_shift))) return false;
    *exponent = (int32_t)top;
    return true;
}

__device__ __forceinline__ u64 align_mass(u64 sum, int32_t depth) {
    return (sum << ALEA_MASS_SHIFT) >> depth;
}

__device__ __forceinline__ double lse_of(const mass_rule &rule, u64 mass) {
    return fma((double)rule.exponent, ALEA_LN2, alea__ln((double)mass * 0x1p-40));
}

/* The reported log-probability. A compiler may make a minimum of the comparison, which would let -0
 * through; the sum makes +0 of it. */
__device__ __forceinline__ float report_of(const mass_rule &rule, float x, double lse) {
    const double offset = rule.shifted ? (double)rule.max : 0.0;
    const float logprob = (float)fma((double)x - offset, rule.slope, -lse);
    return __fadd_rn(logprob < 0.0f ? logprob : 0.0f, 0.0f);
}

/* floor(bits * total / 2^24). */
__device__ __forceinline__ u64 drawn_point(uint32_t bits, u64 total) {
    return __umul64hi(total, bits) << 40 | (total * bits) >> 24;
}

/* ceil(p * mass), p the exact value of its float32; kernel/mass.h. */
__device__ inline u64 share_of(float p, u64 mass) {
    if (!(p > 0.0f)) return 0;
    const uint32_t bits = __float_as_uint(p), biased = bits >> 23;
    const uint32_t m = biased ? (bits & 0x7fffffu) | 0x800000u : bits;
    const uint32_t e = 150 - (biased ? biased : 1);
    if (e >= 88) return mass ? 1 : 0;
    const unsigned __int128 product = (unsigned __int128)mass * m;
    return (u64)((product + (((unsigned __int128)1 << e) - 1)) >> e);
}

/* ---- warps ------------------------------------------------------------------------------- */

/* Sum over the warp of values below 2^52, in two instructions that add 32 lanes. */
__device__ __forceinline__ u64 warp_sum(u64 value) {
    const uint32_t low = __reduce_add_sync(whole_warp, (uint32_t)value & 0x3ffffffu);
    const uint32_t high = __reduce_add_sync(whole_warp, (uint32_t)(value >> 26));
    return ((u64)high << 26) + low;
}

/* Of any values, modulo 2^64: three parts, each of which sums without overflow. */
__device__ __forceinline__ u64 warp_sum_any(u64 value) {
    const uint32_t low = __reduce_add_sync(whole_warp, (uint32_t)value & 0x3ffffffu);
    const uint32_t middle = __reduce_add_sync(whole_warp, (uint32_t)(value >> 26) & 0x3ffffffu);
    const uint32_t high = __reduce_add_sync(whole_warp, (uint32_t)(value >> 52));
    return ((u64)high << 52) + ((u64)middle << 26) + low;
}

__device__ __forceinline__ u64 warp_prefix(u64 value, int lane) {
    for (int d = 1; d < warp_lanes; d <<= 1) {
        const u64 before = __shfl_up_sync(whole_warp, value, d);
        if (lane >= d) value += before;
    }
    return value;
}

#endif
