/* Verify two drafted tokens by the target model's raw logits; nobody computes a softmax. */
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
    float p[1][3][3] = {{{6, 1, 1}, {-1, 3, 1}, {1, 2, 3}}}; /* the target's logits */
    int32_t drafted[1][2] = {{0, 0}}, out[1][3], n[1];
    int64_t seed_value = 1234, offset_value = 7;
    int64_t target_shape[] = {1, 3, 3}, ids_shape[] = {1, 2}, out_shape[] = {1, 3}, one[] = {1};
    DLTensor target_logits = {p, CPU, 3, F32, target_shape, NULL, 0};
    DLTensor draft_tokens = {drafted, CPU, 2, I32, ids_shape, NULL, 0};
    DLTensor seed = {&seed_value, CPU, 1, I64, one, NULL, 0};
    DLTensor offset = {&offset_value, CPU, 1, I64, one, NULL, 0};
    DLTensor tokens = {out, CPU, 2, I32, out_shape, NULL, 0};
    DLTensor accepted = {n, CPU, 1, I32, one, NULL, 0};
    /* No draft_logits: the drafts come from a lookup, which is certain of each. */
    const alea_chain_logits_tensors tensors = {.struct_bytes = sizeof tensors,
                                               .tokens = &tokens,
                                               .accepted = &accepted,
                                               .draft_tokens = &draft_tokens,
                                               .target_logits = &target_logits,
                                               .seed = &seed,
                                               .offset = &offset};

    const alea_op_config config = {.struct_bytes = sizeof config, .max_vocab = 3};
    alea_chain_logits *op;
    alea_error error;
    if (alea_chain_logits_create(&config, &op, &error) < 0) return fail(&error);
    if (alea_chain_logits_run(op, &tensors, NULL, &error) < 0) return fail(&error);
    alea_chain_logits_destroy(op);

    /* Draft 0 is nearly sure under the target; draft 1 has a chance in sixty there. */
    printf("accepted %d: %d %d %d\n", n[0], out[0][0], out[0][1], out[0][2]);
    return 0;
}
