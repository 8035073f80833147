"""The edits that Alea makes to libllama and ggml's CPU code before building them.

Stock ggml lets the number of rows in a call choose between kernels whose sums differ, so a row of
logits depends on how its prompt was cut and on who shares the batch. The edits add one run-time
switch, ggml_cpu_alea_set_invariant(bool), on by default, that takes the same kernel for every
number of rows; off gives the stock choice, so that one program can measure both.

Each edit names the text that it expects and how often. Anything else is an error: a new release
must be read again, never patched by luck.
"""
import pathlib

VERSION = 3  # ggml_cpu_alea_version(); raise it whenever an edit changes

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

    # K-quants: the tiled product from one row on.
    (CPU + "tiled/tiled.cpp",
     "return rows >= 8 || ggml_tiled_matmul_forced();", 1,
     "return rows >= 8 || ggml_tiled_matmul_forced() || ggml_cpu_alea_invariant();"),

    # A thread that waits for another gives its processor away after some 20 us: where other
    # programs run too, the one waited for may need just that processor. Spinning on made a test of
    # 2 seconds take 100 on two busy cores; on idle ones there is nothing to give way to.
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
            sched_yield();
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
