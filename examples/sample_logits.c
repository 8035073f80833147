/* Choose a token from raw logits with parameters of each row's own: greedy, and a nucleus. */
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
    float x[2][4] = {{1.0f, 3.0f, 2.0f, 0.0f}, {1.0f, 3.0f, 2.0f, 0.0f}};
    float heat[] = {0.0f, 0.8f}, nucleus[] = {1.0f, 0.9f}, raw[2], share[2];
    int64_t seeds[] = {1234, 1234}, offsets[] = {7, 7};
    int32_t out[2];
    int64_t matrix[] = {2, 4}, vector[] = {2};
    DLTensor logits = {x, CPU, 2, F32, matrix, NULL, 0};
    DLTensor temperature = {heat, CPU, 1, F32, vector, NULL, 0};
    DLTensor top_p = {nucleus, CPU, 1, F32, vector, NULL, 0};
    DLTensor seed = {seeds, CPU, 1, I64, vector, NULL, 0};
    DLTensor offset = {offsets, CPU, 1, I64, vector, NULL, 0};
    DLTensor tokens = {out, CPU, 1, I32, vector, NULL, 0};
    DLTensor logprobs = {raw, CPU, 1, F32, vector, NULL, 0};
    DLTensor kept_mass = {share, CPU, 1, F32, vector, NULL, 0};

    const alea_op_config config = {.struct_bytes = sizeof config, .max_vocab = 4};
    const alea_sample_logits_tensors tensors = {.struct_bytes = sizeof tensors,
                                                .tokens = &tokens,
                                                .logprobs = &logprobs,
                                                .kept_mass = &kept_mass,
                                                .logits = &logits,
                                                .temperature = &temperature,
                                                .top_p = &top_p,
                                                .seed = &seed,
                                                .offset = &offset};
    alea_sample_logits *op;
    alea_error error;
    if (alea_sample_logits_create(&config, &op, &error) < 0) return fail(&error);
    if (alea_sample_logits_run(op, &tensors, NULL, &error) < 0) return fail(&error);
    alea_sample_logits_destroy(op);

    for (int row = 0; row < 2; row++) {
        printf("token %d, logprob %.6f, kept mass %.6f\n", out[row], (double)raw[row],
               (double)share[row]);
    }
    return 0;
}
