/* Log-probability and rank of a token in each of two rows, with the two best beside it. */
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
    float x[2][4] = {{2.0f, 0.0f, 1.0f, 1.0f}, {1000.0f, 999.0f, 0.0f, 998.0f}};
    int32_t asked[] = {2, 1}, rank[2], best[2][2];
    float logprob[2], best_logprob[2][2];
    int64_t matrix[] = {2, 4}, vector[] = {2}, pairs[] = {2, 2};
    DLTensor logits = {x, CPU, 2, F32, matrix, NULL, 0};
    DLTensor tokens = {asked, CPU, 1, I32, vector, NULL, 0};
    DLTensor logprobs = {logprob, CPU, 1, F32, vector, NULL, 0};
    DLTensor ranks = {rank, CPU, 1, I32, vector, NULL, 0};
    DLTensor alternatives = {best, CPU, 2, I32, pairs, NULL, 0};
    DLTensor alternative_logprobs = {best_logprob, CPU, 2, F32, pairs, NULL, 0};

    const alea_op_config config = {.struct_bytes = sizeof config, .max_vocab = 4, .topk = 2};
    const alea_logprobs_tensors tensors = {.struct_bytes = sizeof tensors,
                                           .logprobs = &logprobs,
                                           .ranks = &ranks,
                                           .alternatives = &alternatives,
                                           .alternative_logprobs = &alternative_logprobs,
                                           .logits = &logits,
                                           .tokens = &tokens};
    alea_logprobs *op;
    alea_error error;
    if (alea_logprobs_create(&config, &op, &error) < 0) return fail(&error);
    if (alea_logprobs_run(op, &tensors, NULL, &error) < 0) return fail(&error);
    alea_logprobs_destroy(op);

    for (int row = 0; row < 2; row++) {
        printf("token %d: %.6f, rank %d; best %d: %.6f, %d: %.6f\n", asked[row],
               (double)logprob[row], rank[row], best[row][0], (double)best_logprob[row][0],
               best[row][1], (double)best_logprob[row][1]);
    }
    return 0;
}
