/* What drivers share: names in order, as a list of lines collects them; a renewal that must
 * be sent again. */
#include "unit.h"

#include "kit/listing.h"
#include "kit/scripted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 400, NAMES = 300 };

static unsigned seed;

static unsigned below(unsigned n)
{
    return (unsigned)rand_r(&seed) % n;
}

/* Beside a table that says which names are there. Some are added twice, some are taken, and
 * what is taken is always the least. */
static void names_are_in_order_and_once(void **state)
{
    (void)state;
    for (unsigned round = 1; round < 50; round++) {
        struct name_set s = { 0 };
        bool there[NAMES] = { false };
        size_t count = 0;

        seed = round;
        for (int i = 0; i < ROUNDS; i++) {
            unsigned few = below(4) == 0 ? below(100) : below(3);
            char name[16], *least;
            unsigned expected = 0;

            for (unsigned k = 0; k < few; k++) {
                unsigned n = below(NAMES);

                snprintf(name, sizeof name, "%03u", n);
                assert_true(hf__names_add(&s, name, 3));
                count += !there[n];
                there[n] = true;
            }
            hf__names_settle(&s);
            assert_int_equal(s.n - s.first, count);
            if (below(3) == 0)
                continue;
            least = hf__names_take(&s);
            while (expected < NAMES && !there[expected])
                expected++;
            assert_int_equal(least != NULL, count > 0);
            if (!least)
                continue;
            assert_int_equal(strtoul(least, NULL, 10), expected);
            there[expected] = false;
            count--;
            free(least);
        }
        hf__names_done(&s);
    }
}

static void only_the_least_are_kept(void **state)
{
    struct name_set s = { .most = 10 };
    char name[16];

    (void)state;
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "%04d", i * 7919 % 5000);
        assert_true(hf__names_add(&s, name, 4));
        assert_true(s.n <= 1021);
        if (i == 8)
            hf__names_settle(&s);
        assert_true(i > 8 || !s.cut);
    }
    hf__names_settle(&s);
    assert_true(s.cut);
    assert_int_equal(s.n, 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(strtoul(s.at[i], NULL, 10), i);
    hf__names_done(&s);
    assert_null(hf__names_take(&s));
}

/* ---- renewals --------------------------------------------------------------------- */

static struct scripted_renewal *sent;

static void draw(struct env *env, void *to, size_t n)
{
    (void)env;
    memset(to, 1, n);
}

static void send_renewal(struct scripted *s, struct scripted_renewal *k)
{
    (void)s;
    sent = k;
    assert_int_equal(hf__scripted_trim(s, k), 1);
}

/* It may come behind another one, by hand, with a longer ttl: the store must not give it
 * the shorter one that was asked for first. */
static void a_renewal_sent_again_asks_for_the_present_ttl(void **state)
{
    static const struct scripted_ops ops = { .renew = send_renewal };
    struct env env = { .random = draw };
    struct store store = { .env = &env };
    struct ticket t = { .token = { 7 }, .own = { .kind = LIFE_OWN, .ttl_ms = 100 } };
    struct life *own = &t.own;
    struct scripted s;

    (void)state;
    assert_int_equal(hf__scripted_init(&s, &ops, &store), 0);
    t.life = own;
    hf__seat_in(&s.seats, &t);
    hf__scripted_renew(&s, &own, 1);
    assert_int_equal(sent->holds[0].ttl_ms, 100);
    own->ttl_ms = 1000;
    assert_int_equal(hf__scripted_trim(&s, sent), 1);
    assert_int_equal(sent->holds[0].ttl_ms, 1000);
    hf__scripted_ask(&s, &t); /* asks, and goes on asking */
    assert_int_equal(hf__scripted_trim(&s, sent), 1);
    assert_int_equal(sent->holds[0].ttl_ms, 0);
    hf__scripted_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_in_order_and_once),
        cmocka_unit_test(only_the_least_are_kept),
        cmocka_unit_test(a_renewal_sent_again_asks_for_the_present_ttl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
