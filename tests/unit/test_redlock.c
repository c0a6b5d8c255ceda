/* Redlock's times (driver/redis/redlock/bid.c): how long one node of several may take.
 *
 * A silent node must cost little of the ttl, or nothing of the lease is left when the
 * others have voted: 5 to 50 ms for a ttl of 10 s, and never more than a twentieth of any.
 */
#include "unit.h"

#include "driver/redis/redlock/redlock.h"

static int64_t node_us(unsigned nodes, int64_t ttl_ms, int64_t connect_ms)
{
    static struct redis r;
    static struct ticket t;
    static struct bid b;

    r.nnodes = nodes;
    r.open.connect_ms = connect_ms;
    t.ttl_ms = ttl_ms;
    b.redis = &r;
    b.t = &t;
    return hf__redlock_node_us(&b);
}

static void one_of_several_is_short(void **state)
{
    static const int64_t connects_ms[] = { 1, 100, 5000, 600000 };

    (void)state;
    for (unsigned nodes = 2; nodes < ROUND_NODES; nodes++)
        for (size_t i = 0; i < sizeof connects_ms / sizeof connects_ms[0]; i++) {
            int64_t us = node_us(nodes, 10000, connects_ms[i]);

            assert_in_range(us, 5000, 50000);
            for (int64_t ttl = 100; ttl < 100000; ttl += 7) {
                us = node_us(nodes, ttl, connects_ms[i]);
                assert_true(us > 0 && us * 20 <= ttl * 1000);
                assert_true(us <= 50000);
            }
        }
}

/* There are no others to go on with; but half of the ttl must be left. */
static void the_only_one_has_longer(void **state)
{
    (void)state;
    assert_int_equal(node_us(1, 10000, 60000), 5000000);
    assert_int_equal(node_us(1, 10000, 3000), 3000000);
    for (int64_t ttl = 100; ttl < 100000; ttl += 7)
        assert_true(node_us(1, ttl, 60000) * 2 <= ttl * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_several_is_short),
        cmocka_unit_test(the_only_one_has_longer),
    };

    return cmocka_run_group_tests_name("redlock", tests, NULL, NULL);
}
