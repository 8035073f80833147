/* Keep the most probable tokens of each row until they hold 90 % of it. */
#include <stdio.h>

#include "alea/ops.h"

#define CPU                                                                                        \
    { kDLCPU, 0 }
#define F32                                                                                        \
    { kDLFloat, 32, 1 }

static int fail(const alea_error *error) {
    fprintf(stderr, "%s\n", error->message);
    return 1;
}

int main(void) {
    float x[2][5] = {{1.0f, 3.0f, 2.0f, 3.0f, -1.0f}, {0.5f, 0.25f, 4.0f, -2.0f, 3.5f}};
    float y[2][5];
    float masses[] = {0.9f, 0.9f};
    int64_t matrix[] = {2, 5}, vector[] = {2};
    DLTensor logits = {x, CPU, 2, F32, matrix, NULL, 0};
    DLTensor masked = {y, CPU, 2, F32, matrix, NULL, 0};
    DLTensor p = {masses, CPU, 1, F32, vector, NULL, 0};
    const alea_op_config config = {.struct_bytes = sizeof config, .max_vocab = 5};
    alea_topp_mask *op;
    alea_error error;
    if (alea_topp_mask_create(&config, &op, &error) < 0) return fail(&error);
    if (alea_topp_mask_run(op, &masked, &logits, &p, NULL, &error) < 0) return fail(&error);
    alea_topp_mask_destroy(op);

    for (int row = 0; row < 2; row++) {
        for (int i = 0; i < 5; i++)
            printf("%6.2f", (double)y[row][i]);
        printf("\n");
    }
    return 0;
}
