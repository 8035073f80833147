/* Draw a token from each of three rows of weights, which need not sum to 1. */
#include <stdio.h>

#include "alea/ops.h"

#define CPU                                                                                        \
    { kDLCPU, 0 }
#define F32                                                                                        \
    { kDLFloat, 32, 1 }
#define I32                                                                                        \
    { kDLInt, 32, 1 }
#define I64                                                                                        \
    { kDLInt, 64, 1 }

static int fail(const alea_error *error) {
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

int main(void) {
    float w[3][4] = {{0, 2, 1, 1}, {0, 0, 5, 0}, {0.1f, 0.2f, 0.3f, 0.4f}};
    int64_t seed_value = 1234, offset_value = 7;
    int32_t out[3];
    int64_t matrix[] = {3, 4}, vector[] = {3}, one[] = {1};
    DLTensor probs = {w, CPU, 2, F32, matrix, NULL, 0};
    DLTensor seed = {&seed_value, CPU, 1, I64, one, NULL, 0};
    DLTensor offset = {&offset_value, CPU, 1, I64, one, NULL, 0};
    DLTensor tokens = {out, CPU, 1, I32, vector, NULL, 0};

    const alea_op_config config = {.struct_bytes = sizeof config, .max_vocab = 4};
    alea_sample_probs *op;
    alea_error error;
    if (alea_sample_probs_create(&config, &op, &error) < 0) return fail(&error);
    if (alea_sample_probs_run(op, &tokens, &probs, &seed, &offset, NULL, NULL, &error) < 0) {
        return fail(&error);
    }
    alea_sample_probs_destroy(op);
    printf("%d %d %d\n", out[0], out[1], out[2]); /* the same on every machine */
    return 0;
}
