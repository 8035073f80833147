/* Known answers of the generator, and of the layout of keys and counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel/philox.h"

static void expect_block(alea_philox_block counter, uint32_t key0, uint32_t key1,
                         alea_philox_block want) {
    const alea_philox_block got = alea__philox(counter, key0, key1);
    assert_memory_equal(&got, &want, sizeof got);
}

static void test_published_answers(void **state) {
    (void)state;
    expect_block((alea_philox_block){{0, 0, 0, 0}}, 0, 0,
                 (alea_philox_block){{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
    expect_block((alea_philox_block){{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u,
                 (alea_philox_block){{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
    expect_block((alea_philox_block){{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822,
                 0x299f31d0, (alea_philox_block){{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

static void test_layout_of_seed_draw_row_and_offset(void **state) {
    (void)state;
    static const uint32_t want[3][3] = {{0x56e604f4, 0x324cbeba, 0xeddab463},
                                        {0xdfdb8d6c, 0xaf011d60, 0x8b6dc491},
                                        {0x3974ec34, 0xadb63b3e, 0x3951168d}};
    for (uint32_t row = 0; row < 3; row++) {
        for (uint32_t draw = 0; draw < 3; draw++) {
            assert_int_equal(alea__draw_bits(1234, draw, row, 7), want[row][draw] >> 8);
        }
    }
    assert_int_equal(alea__draw_bits(UINT64_MAX, 0, 0, (1ull << 32) + 5), 0x536485a5 >> 8);
    assert_true((float)alea__draw_bits(1234, 0, 0, 7) * 0x1p-24f == 0.3394472599029541f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_answers),
        cmocka_unit_test(test_layout_of_seed_draw_row_and_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
