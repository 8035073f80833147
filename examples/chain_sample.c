/* Verify two drafted tokens against the target model, and draw the one that follows. */
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
    float q[1][2][3] = {{{0.5f, 0.25f, 0.25f}, {0.8f, 0.1f, 0.1f}}};
    float p[1][3][3] = {{{0.6f, 0.2f, 0.2f}, {0.0f, 0.9f, 0.1f}, {0.2f, 0.3f, 0.5f}}};
    int32_t drafted[1][2] = {{0, 0}}, out[1][3], n[1];
    int64_t seed_value = 1234, offset_value = 7;
    int64_t draft_shape[] = {1, 2, 3}, target_shape[] = {1, 3, 3};
    int64_t ids_shape[] = {1, 2}, out_shape[] = {1, 3}, one[] = {1};
    DLTensor draft_probs = {q, CPU, 3, F32, draft_shape, NULL, 0};
    DLTensor target_probs = {p, CPU, 3, F32, target_shape, NULL, 0};
    DLTensor draft_tokens = {drafted, CPU, 2, I32, ids_shape, NULL, 0};
    DLTensor seed = {&seed_value, CPU, 1, I64, one, NULL, 0};
    DLTensor offset = {&offset_value, CPU, 1, I64, one, NULL, 0};
    DLTensor tokens = {out, CPU, 2, I32, out_shape, NULL, 0};
    DLTensor accepted = {n, CPU, 1, I32, one, NULL, 0};

    const alea_op_config config = {.struct_bytes = sizeof config, .max_vocab = 3};
    alea_chain_sample *op;
    alea_error error;
    if (alea_chain_sample_create(&config, &op, &error) < 0) return fail(&error);
    if (alea_chain_sample_run(op, &tokens, &accepted, &draft_probs, &draft_tokens, &target_probs,
                              &seed, &offset, NULL, NULL, &error) < 0) {
        return fail(&error);
    }
    alea_chain_sample_destroy(op);

    /* Draft 0 is likelier under the target, so it stands; draft 1 is impossible there. */
    printf("accepted %d: %d %d %d\n", n[0], out[0][0], out[0][1], out[0][2]);
    return 0;
}
