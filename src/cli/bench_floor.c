/*
 * Eight accumulators and one instruction per vector: as fast as the data comes in. Each function
 * carries its own instruction set, so that this file is compiled like every other.
 */
#include "cli/bench_floor.h"

#include <math.h>

#include "base/cpu.h"

static float scan_rest(const float *x, int64_t n, float most) {
    for (int64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static float scan_avx512(const float *x, int64_t n) {
    __m512 m[8];
    for (int j = 0; j < 8; j++)
        m[j] = _mm512_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + 128 <= n; i += 128) {
        for (int j = 0; j < 8; j++)
            m[j] = _mm512_max_ps(m[j], _mm512_loadu_ps(x + i + 16 * j));
    }
    float lanes[128];
    for (int j = 0; j < 8; j++)
        _mm512_storeu_ps(lanes + 16 * j, m[j]);
    return scan_rest(x + i, n - i, scan_rest(lanes, 128, -INFINITY));
}

__attribute__((target("avx2"))) static float scan_avx2(const float *x, int64_t n) {
    __m256 m[8];
    for (int j = 0; j < 8; j++)
        m[j] = _mm256_set1_ps(-INFINITY);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int j = 0; j < 8; j++)
            m[j] = _mm256_max_ps(m[j], _mm256_loadu_ps(x + i + 8 * j));
    }
    float lanes[64];
    for (int j = 0; j < 8; j++)
        _mm256_storeu_ps(lanes + 8 * j, m[j]);
    return scan_rest(x + i, n - i, scan_rest(lanes, 64, -INFINITY));
}

float alea__bench_scan(const float *x, int64_t n) {
    const uint32_t caps = alea__cpu_detected();
    if (caps & ALEA_CAP_AVX512) return scan_avx512(x, n);
    if (caps & ALEA_CAP_AVX2) return scan_avx2(x, n);
    return scan_rest(x, n, -INFINITY);
}

#elif defined(__aarch64__)
#include <arm_neon.h>

float alea__bench_scan(const float *x, int64_t n) {
    float32x4_t m[8];
    for (int j = 0; j < 8; j++)
        m[j] = vdupq_n_f32(-INFINITY);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (int j = 0; j < 8; j++)
            m[j] = vmaxq_f32(m[j], vld1q_f32(x + i + 4 * j));
    }
    float most = -INFINITY;
    for (int j = 0; j < 8; j++)
        most = fmaxf(most, vmaxvq_f32(m[j]));
    return scan_rest(x + i, n - i, most);
}

#else
float alea__bench_scan(const float *x, int64_t n) {
    return scan_rest(x, n, -INFINITY);
}
#endif
