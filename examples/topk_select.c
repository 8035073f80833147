/* The three best positions of two queries, each among the keys of its own window. */
#include <stdio.h>

#include "alea/ops.h"

#define CPU                                                                                        \
    { kDLCPU, 0 }
#define F32                                                                                        \
    { kDLFloat, 32, 1 }
#define I32                                                                                        \
    { kDLInt, 32, 1 }

static int fail(const alea_error *error) {
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

int main(void) {
    float s[2][6] = {{0.1f, 0.9f, 0.5f, 0.7f, 0.3f, 0.8f}, {0.2f, 0.4f, 0.6f, 0.1f, 0.9f, 0.5f}};
    int32_t first[] = {0, 2}, last[] = {6, 4}, out[2][3];
    int64_t score_shape[] = {1, 2, 6, 1}, window_shape[] = {1, 2}, out_shape[] = {1, 2, 1, 3};
    DLTensor scores = {s, CPU, 4, F32, score_shape, NULL, 0};
    DLTensor starts = {first, CPU, 2, I32, window_shape, NULL, 0};
    DLTensor ends = {last, CPU, 2, I32, window_shape, NULL, 0};
    DLTensor indices = {out, CPU, 4, I32, out_shape, NULL, 0};

    const alea_op_config config = {.struct_bytes = sizeof config, .max_vocab = 6, .topk = 3};
    alea_topk_select *op;
    alea_error error;
    if (alea_topk_select_create(&config, &op, &error) < 0) return fail(&error);
    if (alea_topk_select_run(op, &indices, &scores, &starts, &ends, NULL, &error) < 0) {
        return fail(&error);
    }
    alea_topk_select_destroy(op);

    /* The second window holds two positions; 6, one past the last key, fills the third slot. */
    for (int row = 0; row < 2; row++)
        printf("%d %d %d\n", out[row][0], out[row][1], out[row][2]);
    return 0;
}
