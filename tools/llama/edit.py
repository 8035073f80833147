"""The edits that Alea makes to libllama and ggml's CPU code before building them.

Stock ggml lets the number of rows in a call choose between kernels whose sums differ, so a row of
logits depends on how its prompt was cut and on who shares the batch. The edits add one run-time
switch, ggml_cpu_alea_set_invariant(bool), on by default, that takes the same kernel for every
number of rows; off gives the stock choice, so that one program can measure both. Edits that change
no bit and only save time have no switch.

Each edit names the text that it expects and how often. Anything else is an error: a new release
must be read again, never patched by luck.
"""
import pathlib

VERSION = 9  # ggml_cpu_alea_version(); raise it whenever an edit changes

CPU = "ggml/src/ggml-cpu/"

HEADER = f"""
    // Alea: one kernel for every number of rows (on, the default) or ggml's own choice (off).
    // Process-wide; change it only while nothing is computing.
#define GGML_CPU_ALEA {VERSION}
    GGML_BACKEND_API int  ggml_cpu_alea_version(void);
    GGML_BACKEND_API void ggml_cpu_alea_set_invariant(bool on);
    GGML_BACKEND_API bool ggml_cpu_alea_invariant(void);
"""

SWITCH = """
static bool ggml_cpu_alea_invariant_on = true;

int ggml_cpu_alea_version(void) {
    return GGML_CPU_ALEA;
}

void ggml_cpu_alea_set_invariant(bool on) {
    ggml_cpu_alea_invariant_on = on;
}

bool ggml_cpu_alea_invariant(void) {
    return ggml_cpu_alea_invariant_on;
}
"""

# A tile of keys, float16 at `stride` bytes from one to the next, turned to `packed`[depth][TILE]:
# exact conversions, eight keys by eight values at a time.
PACK_KEYS = """
// Asks for `count` rows of `bytes` at `stride`: a stride that no hardware prefetcher follows.
static void ggml_alea_prefetch_rows(const char * rows, size_t stride, int count, size_t bytes) {
    for (int i = 0; i < count; i++) {
        for (size_t at = 0; at < bytes; at += CACHE_LINE_SIZE) {
            __builtin_prefetch(rows + i*stride + at);
        }
    }
}

template <int TILE>
static void ggml_alea_pack_keys_f16(float * packed, const char * keys, size_t stride, int count, int64_t depth) {
    int tk = 0;
#if defined(__AVX2__) && defined(__F16C__)
    for (; tk + 8 <= count; tk += 8) {
        for (int64_t dk = 0; dk + 8 <= depth; dk += 8) {
            __m256 row[8];
            for (int i = 0; i < 8; i++) {
                const char * key = keys + (tk + i)*stride + dk*sizeof(ggml_fp16_t);
                row[i] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) key));
            }
            __m256 pair[8];
            for (int i = 0; i < 8; i += 2) {
                pair[i + 0] = _mm256_unpacklo_ps(row[i], row[i + 1]);
                pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
            }
            for (int i = 0; i < 8; i += 4) {
                row[i + 0] = _mm256_shuffle_ps(pair[i + 0], pair[i + 2], 0x44);
                row[i + 1] = _mm256_shuffle_ps(pair[i + 0], pair[i + 2], 0xee);
                row[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
                row[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
            }
            for (int i = 0; i < 4; i++) {
                float * out = packed + (dk + i)*TILE + tk;
                _mm256_storeu_ps(out,          _mm256_permute2f128_ps(row[i], row[i + 4], 0x20));
                _mm256_storeu_ps(out + 4*TILE, _mm256_permute2f128_ps(row[i], row[i + 4], 0x31));
            }
        }
    }
    const int64_t done = depth/8*8;
#else
    const int64_t done = 0;
#endif
    for (int t = 0; t < count; t++) {
        const ggml_fp16_t * key = (const ggml_fp16_t *) (keys + t*stride);
        for (int64_t dk = t < tk ? done : 0; dk < depth; dk++) {
            packed[dk*TILE + t] = GGML_CPU_FP16_TO_FP32(key[dk]);
        }
    }
}

"""

# Up to four rows of Q4_1 weights by one column of Q8_1: what ggml computes for each alone, with its
# multiply-adds written out, but four sums at once, and the next rows asked for meanwhile.
FOUR_ROWS = """
#if defined(GGML_ALEA_FOUR_ROWS)
static inline __m128i ggml_alea_scale_and_min(const block_q4_1 * x) {
    int32_t both;
    memcpy(&both, x, sizeof(both));
    return _mm_cvtsi32_si128(both);
}

#define GGML_ALEA_ADD(r) \\
    acc[r] = _mm256_fmadd_ps(_mm256_permutevar8x32_ps(scales, _mm256_set1_epi32(2*r)), \\
                             mul_sum_us8_pairs_float(bytes_from_nibbles_32(x[r][ib].qs), qy), acc[r])

void ggml_alea_dot_four_q4_1_q8_1(int n, float * s, int rows, const void * vx, size_t bx, const void * vy) {
    const block_q4_1 * x[4];
    for (int r = 0; r < 4; r++) {
        x[r] = (const block_q4_1 *)((const char *) vx + (size_t)(r < rows ? r : 0)*bx);
    }
    const block_q8_1 * y = (const block_q8_1 *) vy;
    __m256 acc[4] = { _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps() };
    __m256 mins = _mm256_setzero_ps();

    for (int ib = 0; ib < n/QK8_1; ++ib) {
        for (int r = 0; r < 4; r++) {
            __builtin_prefetch((const void *) ((uintptr_t) &x[r][ib] + 4*bx));
        }
        // scale and minimum of each row, times scale and sum of the column
        const __m128i low  = _mm_unpacklo_epi32(ggml_alea_scale_and_min(&x[0][ib]), ggml_alea_scale_and_min(&x[1][ib]));
        const __m128i high = _mm_unpacklo_epi32(ggml_alea_scale_and_min(&x[2][ib]), ggml_alea_scale_and_min(&x[3][ib]));
        const __m256 dm = _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
        int32_t column;
        memcpy(&column, &y[ib], sizeof(column));
        const __m256 ds = _mm256_cvtph_ps(_mm_set1_epi32(column));
        const __m256 scales = _mm256_mul_ps(dm, ds);
        mins = _mm256_fmadd_ps(dm, ds, mins);

        const __m256i qy = _mm256_loadu_si256((const __m256i *) y[ib].qs);
        GGML_ALEA_ADD(0);
        GGML_ALEA_ADD(1);
        GGML_ALEA_ADD(2);
        GGML_ALEA_ADD(3);
    }

    float min_sums[8];
    _mm256_storeu_ps(min_sums, mins);
    for (int r = 0; r < rows; r++) {
        s[r] = hsum_float_8(acc[r]) + min_sums[2*r + 1];
    }
}
#endif

"""

# hsum of four vectors, each in its own order: halves, then quarters, then lanes 0 + 2 and 1 + 3.
FOUR_SUMS = """
template <typename D> inline void ggml_alea_four_sums(float * c, D a, D b, D d, D e) {
    c[0] = hsum(a);
    c[1] = hsum(b);
    c[2] = hsum(d);
    c[3] = hsum(e);
}

#if defined(__AVX__)
inline void ggml_alea_four_sums(float * c, __m256 a, __m256 b, __m256 d, __m256 e) {
    a = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    d = _mm256_add_ps(_mm256_permute2f128_ps(d, e, 0x20), _mm256_permute2f128_ps(d, e, 0x31));
    a = _mm256_add_ps(_mm256_shuffle_ps(a, d, 0x44), _mm256_shuffle_ps(a, d, 0xee));
    const __m128 low = _mm256_castps256_ps128(a), high = _mm256_extractf128_ps(a, 1);
    const __m128 sums = _mm_add_ps(_mm_shuffle_ps(low, high, 0x88), _mm_shuffle_ps(low, high, 0xdd));
    _mm_storeu_ps(c, _mm_permute_ps(sums, 0xd8));
}
#endif
#if defined(__AVX512F__)
inline void ggml_alea_four_sums(float * c, __m512 a, __m512 b, __m512 d, __m512 e) {
    ggml_alea_four_sums(c,
                        _mm256_add_ps(_mm512_castps512_ps256(a), ggml_alea_upper_half(a)),
                        _mm256_add_ps(_mm512_castps512_ps256(b), ggml_alea_upper_half(b)),
                        _mm256_add_ps(_mm512_castps512_ps256(d), ggml_alea_upper_half(d)),
                        _mm256_add_ps(_mm512_castps512_ps256(e), ggml_alea_upper_half(e)));
}
#endif

#if defined(__GNUC__) && !defined(__clang__)
#define GGML_ALEA_UNROLL _Pragma("GCC unroll 8")
#else
#define GGML_ALEA_UNROLL
#endif
#if defined(__GNUC__) && defined(__AVX__)
#define GGML_ALEA_LOADED(v) __asm__("" : "+v"(v))
#else
#define GGML_ALEA_LOADED(v) (void) (v)
#endif

"""

# Body of tinyBLAS::gemm_bloc: the same products and sums, each index known when it is compiled.
BLOCK_OF_PRODUCTS = """
        D Cv[RN][RM];
        GGML_ALEA_UNROLL
        for (int64_t j = 0; j < RN; ++j) {
            GGML_ALEA_UNROLL
            for (int64_t i = 0; i < RM; ++i) {
                Cv[j][i] = D{};
            }
        }
        for (int64_t l = 0; l < k; l += KN) {
            if constexpr (RM <= RN) {
                V Av[RM];
                GGML_ALEA_UNROLL
                for (int64_t i = 0; i < RM; ++i) {
                    Av[i] = load<V>(A + lda * (ii + i) + l);
                }
                GGML_ALEA_UNROLL
                for (int64_t j = 0; j < RN; ++j) {
                    V Bv = load<V>(B + ldb * (jj + j) + l);
                    GGML_ALEA_LOADED(Bv);
                    GGML_ALEA_UNROLL
                    for (int64_t i = 0; i < RM; ++i) {
                        Cv[j][i] = madd(Av[i], Bv, Cv[j][i]);
                    }
                }
            } else {
                V Bv[RN];
                GGML_ALEA_UNROLL
                for (int64_t j = 0; j < RN; ++j) {
                    Bv[j] = load<V>(B + ldb * (jj + j) + l);
                }
                GGML_ALEA_UNROLL
                for (int64_t i = 0; i < RM; ++i) {
                    V Av = load<V>(A + lda * (ii + i) + l);
                    GGML_ALEA_LOADED(Av);
                    GGML_ALEA_UNROLL
                    for (int64_t j = 0; j < RN; ++j) {
                        Cv[j][i] = madd(Av, Bv[j], Cv[j][i]);
                    }
                }
            }
        }
        GGML_ALEA_UNROLL
        for (int64_t j = 0; j < RN; ++j) {
            TC * c = C + ldc * (jj + j) + ii;
            if constexpr (RM == 4) {
                ggml_alea_four_sums(c, Cv[j][0], Cv[j][1], Cv[j][2], Cv[j][3]);
            } else {
                GGML_ALEA_UNROLL
                for (int64_t i = 0; i < RM; ++i) {
                    c[i] = hsum(Cv[j][i]);
                }
            }
        }
"""

# (file, text expected, how often, what replaces it)
EDITS = [
    ("ggml/include/ggml-cpu.h",
     "    GGML_BACKEND_API int ggml_cpu_has_llamafile  (void);\n", 1,
     "    GGML_BACKEND_API int ggml_cpu_has_llamafile  (void);\n" + HEADER),
    (CPU + "ggml-cpu.c",
     "int ggml_cpu_has_llamafile(void) {\n", 1,
     SWITCH.lstrip() + "\nint ggml_cpu_has_llamafile(void) {\n"),

    # Attention: the tiled kernel from one row on, and no split of a sum over threads.
    (CPU + "ops.cpp",
     "const bool use_split_kv_path = !use_ref && ", 1,
     "const bool use_split_kv_path = !ggml_cpu_alea_invariant() && !use_ref && "),
    (CPU + "ops.cpp",
     "neq1 >= Q_TILE_SZ);", 1,
     "(neq1 >= Q_TILE_SZ || ggml_cpu_alea_invariant()));"),

    # The tiled kernel works on the rows there are instead of padding to a whole tile. Rows are
    # independent, so this changes no bit; without it one row would cost as much as 64.
    (CPU + "ops.cpp", "memset(VKQ32, 0, Q_TILE_SZ * DV", 1, "memset(VKQ32, 0, tile_rows * DV"),
    (CPU + "ops.cpp", "memset(mask32, 0, Q_TILE_SZ * KV_TILE_SZ", 1,
     "memset(mask32, 0, tile_rows * KV_TILE_SZ"),
    (CPU + "ops.cpp",
     """            for (int tq = tile_rows; tq < Q_TILE_SZ; tq++) {
                memset(Q_f32 + tq * DK, 0, DK * sizeof(float));
            }
""", 1, ""),
    (CPU + "ops.cpp", "memset(KQ, 0, Q_TILE_SZ * KV_TILE_SZ", 1,
     "memset(KQ, 0, tile_rows * KV_TILE_SZ"),
    (CPU + "ops.cpp", "K_f32, Q_TILE_SZ, DK, KV_TILE_SZ);", 1,
     "K_f32, tile_rows, DK, KV_TILE_SZ);"),
    (CPU + "ops.cpp", "V32, Q_TILE_SZ, KV_TILE_SZ, DV);", 1, "V32, tile_rows, KV_TILE_SZ, DV);"),
    (CPU + "ops.cpp", "ggml_vec_scale_f32(Q_TILE_SZ * KV_TILE_SZ, ", 2,
     "ggml_vec_scale_f32(tile_rows * KV_TILE_SZ, "),
    (CPU + "ops.cpp", "ggml_vec_tanh_f32(Q_TILE_SZ * KV_TILE_SZ, ", 1,
     "ggml_vec_tanh_f32(tile_rows * KV_TILE_SZ, "),
    (CPU + "ops.cpp", "for (int tq = 0; tq < Q_TILE_SZ; tq++) {", 3,
     "for (int tq = 0; tq < tile_rows; tq++) {"),

    # Fewer rows than a tile: it takes those of all heads that share keys and values, so that these
    # are converted once for all of them; and a thread takes its heads in one go.
    (CPU + "ops.cpp",
     """        // - limited by head boundary (neq1 - iq1) to avoid crossing into next head
        const int tile_rows = MIN(Q_TILE_SZ, MIN((int)(ir1 - ir), (int)(neq1 - iq1)));
""", 1,
     """        // - limited by the boundary of the heads that share keys and values
        const int64_t shared_heads = neq1 < Q_TILE_SZ && rk2 == rv2 ? rk2 - iq2 % rk2 : 1;
        const int tile_rows = MIN(Q_TILE_SZ, MIN((int)(ir1 - ir), (int)(shared_heads*neq1 - iq1)));
        const auto head_of = [&](int tq) { return iq2 + (int)((iq1 + tq) / neq1); };
        const auto token_of = [&](int tq) { return (int)((iq1 + tq) % neq1); };
"""),
    (CPU + "ops.cpp",
     """        const uint32_t h = iq2; // head index
        const float slope = (max_bias > 0.0f) ? h < n_head_log2 ? powf(m0, h + 1) : powf(m1, 2*(h - n_head_log2) + 1) : 1.0f;

        float S[Q_TILE_SZ];
""", 1,
     """        float slopes[Q_TILE_SZ];
        for (int tq = 0; tq < tile_rows; tq++) {
            const uint32_t h = head_of(tq);
            slopes[tq] = (max_bias > 0.0f) ? h < n_head_log2 ? powf(m0, h + 1) : powf(m1, 2*(h - n_head_log2) + 1) : 1.0f;
        }

        float S[Q_TILE_SZ];
"""),
    (CPU + "ops.cpp", "((iq1 + tq)*nbq1 + iq2*nbq2 + iq3*nbq3));\n                memcpy(Q_f32", 1,
     "(token_of(tq)*nbq1 + head_of(tq)*nbq2 + iq3*nbq3));\n                memcpy(Q_f32"),
    (CPU + "ops.cpp",
     "(iq1 + tq)*mask->nb[1] + (iq2%mask->ne[2])*mask->nb[2] + (iq3%mask->ne[3])*mask->nb[3]);", 1,
     "token_of(tq)*mask->nb[1] + (head_of(tq)%mask->ne[2])*mask->nb[2] + (iq3%mask->ne[3])*mask->nb[3]);"),
    (CPU + "ops.cpp",
     """            const float s = ((float *)((char *) sinks->data))[h];

            for (int tq = 0; tq < tile_rows; tq++) {
""", 1,
     """            for (int tq = 0; tq < tile_rows; tq++) {
                const float s = ((float *)((char *) sinks->data))[head_of(tq)];
"""),
    (CPU + "ops.cpp",
     """            const int i1 = iq1 + tq;
            const int i2 = iq2;
""", 1,
     """            const int i1 = token_of(tq);
            const int i2 = head_of(tq);
"""),
    (CPU + "ops.cpp", "        int nth_scaled = nth * 4;\n        int64_t chunk_size", 1,
     "        int nth_scaled = ggml_cpu_alea_invariant() && neq1 < (int64_t) ggml_fa_tile_config::Q ? nth : nth * 4;\n        int64_t chunk_size"),

    # The tile's operands are converted by vectors and cleared only where a sum could read them: the
    # same bits, but one row no longer waits for 4096 scattered stores.
    (CPU + "ops.cpp", "static void ggml_compute_forward_flash_attn_ext_tiled(\n", 1,
     PACK_KEYS.lstrip() + "static void ggml_compute_forward_flash_attn_ext_tiled(\n"),
    (CPU + "ops.cpp",
     """            for (int tk = 0; tk < kv_tile; tk++) {
                const char * k_data = (const char *)k->data + (ic + tk)*nbk1 + ik2*nbk2 + ik3*nbk3;
                if (kv_type == GGML_TYPE_F16) {
                    const ggml_fp16_t * k_f16 = (const ggml_fp16_t *)k_data;
                    for (int64_t dk = 0; dk < DK; dk++) {
                        K_f32[dk * KV_TILE_SZ + tk] = GGML_CPU_FP16_TO_FP32(k_f16[dk]);
                    }
                } else {
""", 1,
     """            if (kv_type == GGML_TYPE_F16) {
                const char * k_tile = (const char *)k->data + ic*nbk1 + ik2*nbk2 + ik3*nbk3;
                const char * v_tile = (const char *)v->data + ic*nbv1 + iv2*nbv2 + iv3*nbv3;
                ggml_alea_prefetch_rows(v_tile, nbv1, kv_tile, DV*sizeof(ggml_fp16_t));
                ggml_alea_pack_keys_f16<KV_TILE_SZ>(K_f32, k_tile, nbk1, kv_tile, DK);
                const int next = (int)std::min((int64_t)KV_TILE_SZ, nek1 - ic - kv_tile);
                ggml_alea_prefetch_rows(k_tile + kv_tile*nbk1, nbk1, next, DK*sizeof(ggml_fp16_t));
            } else {
                for (int tk = 0; tk < kv_tile; tk++) {
                    const char * k_data = (const char *)k->data + (ic + tk)*nbk1 + ik2*nbk2 + ik3*nbk3;
"""),
    (CPU + "ops.cpp",
     """        memset(K_f32, 0, DK * KV_TILE_SZ * sizeof(float));
        memset(V32,   0, KV_TILE_SZ * DV * sizeof(float));
""", 1,
     """        if (kv_type == GGML_TYPE_F16) {
            const int first = (int)std::min((int64_t)KV_TILE_SZ, nek1);
            ggml_alea_prefetch_rows((const char *)k->data + ik2*nbk2 + ik3*nbk3, nbk1, first, DK*sizeof(ggml_fp16_t));
        }
        if (nek1 % KV_TILE_SZ != 0) {
            memset(K_f32, 0, DK * KV_TILE_SZ * sizeof(float));
            memset(V32,   0, KV_TILE_SZ * DV * sizeof(float));
        }
"""),
    (CPU + "ops.cpp",
     """                    for (int tk = 0; tk < kv_tile; tk++) {
                        mask32[tq * KV_TILE_SZ + tk] = slope * GGML_CPU_FP16_TO_FP32(mp_row[ic + tk]);
                        if (mask32[tq * KV_TILE_SZ + tk] != -INFINITY) {
                            can_skip = false;
                        }
                    }
""", 1,
     """                    float * mask_row = mask32 + tq * KV_TILE_SZ;
                    ggml_cpu_fp16_to_fp32(mp_row + ic, mask_row, kv_tile);
                    int open = 0;
                    for (int tk = 0; tk < kv_tile; tk++) {
                        mask_row[tk] *= slopes[tq];
                        open |= mask_row[tk] != -INFINITY;
                    }
                    can_skip = can_skip && !open;
"""),

    # F32, F16 and BF16 weights: llamafile's kernel for one row too; ggml's one-row product sums in
    # another order. The quantized kernels of that file agree with ggml's bit for bit.
    (CPU + "llamafile/sgemm.cpp", '#include "ggml-impl.h"\n', 1,
     '#include "ggml-impl.h"\n#include "ggml-cpu.h"\n'),
    (CPU + "llamafile/sgemm.cpp",
     "    if (n < 2)\n        return false;\n", 1,
     """    if (n < 2 && !(ggml_cpu_alea_invariant() &&
                   (Atype == GGML_TYPE_F32 || Atype == GGML_TYPE_F16 || Atype == GGML_TYPE_BF16)))
        return false;
"""),

    # And for matrices whose rows are no multiple of four, as of a vocabulary that nobody padded: the
    # rest by itself. ggml's product, one row with one token at a time, takes 1.7 times as long.
    (CPU + "llamafile/sgemm.cpp",
     """            mnpack<4, 3, 1>(m, n, SIZE_N, 24);
            return true;
        }
#endif
        return false;
""", 1,
     """            mnpack<4, 3, 1>(m, n, SIZE_N, 24);
            return true;
        }
#endif
        const int64_t whole = m - m % 4;
        if (whole == 0 || !ggml_cpu_alea_invariant())
            return false;
        matmul(whole, n);
        tinyBLAS rest(params, k, A + lda * whole, lda, B, ldb, C + whole, ldc);
        rest.template mnpack<1, 3, 1>(m - whole, n, BLOCK_SIZE<3>(n), 24);
        return true;
"""),

    # The block of its products, in registers: gcc kept the sums in memory around the loop and loaded
    # each input once for every row, which made loads, not multiplications, the bound. And four sums
    # end together, in the order in which each would end alone: F32 takes a sixth less time.
    (CPU + "llamafile/sgemm.cpp", "    return _mm512_reduce_add_ps(x);\n", 1,
     "    return hsum(_mm256_add_ps(_mm512_castps512_ps256(x), ggml_alea_upper_half(x)));\n"),
    (CPU + "llamafile/sgemm.cpp",
     "#if defined(__AVX512F__)\ninline float hsum(__m512 x) {\n", 1,
     """#if defined(__AVX512F__)
inline __m256 ggml_alea_upper_half(__m512 x) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}

inline float hsum(__m512 x) {
"""),
    (CPU + "llamafile/sgemm.cpp",
     "#if defined(__riscv_v_intrinsic)\ninline float hsum(vfloat32m1_t x) {\n", 1,
     FOUR_SUMS.lstrip() +
     "#if defined(__riscv_v_intrinsic)\ninline float hsum(vfloat32m1_t x) {\n"),
    (CPU + "llamafile/sgemm.cpp",
     ("        D Cv[RN][RM] = {};\n", "C[ldc * (jj + j) + (ii + i)] = hsum(Cv[j][i]);\n"), 1,
     BLOCK_OF_PRODUCTS.lstrip("\n")),

    # And its blocks in an order in which the inputs of one stay near for all the weights of a job.
    (CPU + "llamafile/sgemm.cpp",
     """            for (int64_t bi = 0; bi < BM * RM; bi += RM) {
                int64_t jj = jj0;
                for (; jj < jj1; jj += RN) {
                    gemm_bloc<RM, RN>(ii + bi, jj);
                }
                if constexpr (RN > 1) {
                    for (; jj < jj2; jj += RN - 1) {
                        gemm_bloc<RM, RN-1>(ii + bi, jj);
                    }
                }
                GGML_ASSERT(jj == jj2);
            }
""", 2,
     """            int64_t jj = jj0;
            for (; jj < jj1; jj += RN) {
                for (int64_t bi = 0; bi < BM * RM; bi += RM) {
                    gemm_bloc<RM, RN>(ii + bi, jj);
                }
            }
            if constexpr (RN > 1) {
                for (; jj < jj2; jj += RN - 1) {
                    for (int64_t bi = 0; bi < BM * RM; bi += RM) {
                        gemm_bloc<RM, RN-1>(ii + bi, jj);
                    }
                }
            }
            GGML_ASSERT(jj == jj2);
"""),

    # Q4_1, which no kernel of llamafile or tiled.cpp covers: four rows of weights at a time. One row
    # alone waits for its own sum and for memory; decoding takes a fifth less, prompts a third.
    (CPU + "quants.h", "#ifdef __cplusplus\nextern \"C\" {\n#endif\n", 1,
     """#ifdef __cplusplus
extern "C" {
#endif

#if defined(__AVX2__) && defined(__F16C__)
#define GGML_ALEA_FOUR_ROWS 1
void ggml_alea_dot_four_q4_1_q8_1(int n, float * s, int rows, const void * vx, size_t bx, const void * vy);
#endif
"""),
    (CPU + "arch/x86/quants.c", "void ggml_vec_dot_mxfp4_q8_0(", 1,
     FOUR_ROWS.lstrip() + "void ggml_vec_dot_mxfp4_q8_0("),
    (CPU + "ggml-cpu.c",
     """                for (int64_t ir0 = iir0; ir0 < iir0 + blck_0 && ir0 < ir0_end; ir0 += num_rows_per_vec_dot) {
                    vec_dot(""", 1,
     """                int64_t ir0 = iir0;
#if defined(GGML_ALEA_FOUR_ROWS)
                if (type == GGML_TYPE_Q4_1) {
                    for (; ir0 < iir0 + blck_0 && ir0 < ir0_end; ir0 += 4) {
                        const int rows = (int) MIN(4, ir0_end - ir0);
                        ggml_alea_dot_four_q4_1_q8_1(ne00, &tmp[ir0 - iir0], rows, src0_row + ir0 * nb01, nb01, src1_col);
                    }
                }
#endif
                for (; ir0 < iir0 + blck_0 && ir0 < ir0_end; ir0 += num_rows_per_vec_dot) {
                    vec_dot("""),

    # K-quants: the tiled product from one row on.
    (CPU + "tiled/tiled.cpp",
     "return rows >= 8 || ggml_tiled_matmul_forced();", 1,
     "return rows >= 8 || ggml_tiled_matmul_forced() || ggml_cpu_alea_invariant();"),

    # A thread that waits for another gives its processor away after some 20 us: where other
    # programs run too, the one waited for may need just that processor. Spinning on made a test of
    # 2 seconds take 100 on two busy cores; on idle ones there is nothing to give way to. Yielding
    # alone never leaves a processor, so two threads that the scheduler put on one stayed there
    # while another idled, at a third of the speed; who wakes from a sleep is placed anew.
    (CPU + "ggml-cpu.c", "void ggml_barrier(struct ggml_threadpool * tp) {\n", 1,
     """static void ggml_alea_give_way(void) {
    static __thread unsigned times;
    if (++times % 16 != 0) {
        sched_yield();
    } else {
        const struct timespec shortest = { 0, 1 };
        nanosleep(&shortest, NULL);
    }
}

void ggml_barrier(struct ggml_threadpool * tp) {
"""),
    (CPU + "ggml-cpu.c",
     """    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        ggml_thread_cpu_relax();
    }
""", 1,
     """    int spins = 0;
    while (atomic_load_explicit(&tp->n_barrier_passed, memory_order_relaxed) == n_passed) {
        if (spins < 1000) {
            spins++;
            ggml_thread_cpu_relax();
        } else {
            ggml_alea_give_way();
        }
    }
"""),

    # SPM: room for one byte token at a time copies all those before it, each time.
    ("src/llama-vocab.cpp", "            output.reserve(output.size() + symbol.n);\n", 1, ""),

    # gcc 12 may move the stores that fill the tile configuration behind the instruction that
    # loads it, which then faults: the first prompt ended in an illegal instruction.
    (CPU + "amx/mmq.cpp",
     "    _tile_loadconfig(&tc);\n", 1,
     '    __asm__ volatile("" : : "r"(&tc) : "memory");\n    _tile_loadconfig(&tc);\n'),
]


class EditError(Exception):
    """The source is not the one that the edits were written for."""


def whole(text, first, last):
    """The text from the one `first` to the next `last`, both with it; "" where there is none."""
    start = text.find(first)
    end = text.find(last, start + len(first))
    found = text.count(first) == 1 and end >= 0
    return text[start:end + len(last)] if found else ""


def apply(tree, edits):
    """Edit the llama.cpp source tree in place; raises EditError before anything is half done.

    Where the expected text is long, a pair names its first and its last line.
    """
    tree = pathlib.Path(tree)
    texts = {}
    for name, old, count, new in edits:
        if name not in texts:
            texts[name] = (tree / name).read_text(encoding="utf-8")
        if isinstance(old, tuple):
            old = whole(texts[name], *old) or old[0] + old[1]
        found = texts[name].count(old)
        if found != count:
            first = old.strip().splitlines()[0]
            raise EditError(f"{name}: expected {count} x '{first}', found {found}; "
                            "the edits fit another release")
        texts[name] = texts[name].replace(old, new)
    for name, text in texts.items():
        (tree / name).write_text(text, encoding="utf-8")
