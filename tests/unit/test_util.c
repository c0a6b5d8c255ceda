/* The heap, the map and the text helpers. */
#include "unit.h"

#include "util/heap.h"
#include "util/list.h"
#include "util/map.h"
#include "util/pool.h"
#include "util/secret.h"
#include "util/text.h"

#include <time.h>

static void heap_keeps_order_under_random_changes(void **state)
{
    enum { N = 500, STEPS = 20000 };
    unsigned seed = (unsigned)time(NULL);
    static struct heap_node nodes[N];
    struct heap h = { 0 };

    (void)state;
    print_message("seed %u\n", seed);
    srand(seed);
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < STEPS; i++) {
        struct heap_node *n = &nodes[rand() % N];
        int64_t least = INT64_MAX;

        if (rand() % 3 == 0)
            hf__heap_remove(&h, n);
        else
            hf__heap_set(&h, n, rand() % 1000);
        for (int k = 0; k < N; k++)
            if (heap_has(&nodes[k]) && nodes[k].key < least)
                least = nodes[k].key;
        assert_int_equal(heap_first(&h) ? heap_first(&h)->key : INT64_MAX, least);
    }
}

/* A hundred thousand timers of one time, then each earlier than the one before: the first
 * node has all others as children, or the tree is one long branch. */
static void heap_of_any_shape_needs_no_stack(void **state)
{
    enum { N = 100000 };
    struct heap_node *nodes = calloc(N, sizeof *nodes);
    struct heap h = { 0 };

    (void)state;
    assert_non_null(nodes);
    for (int sorted = 0; sorted < 2; sorted++) {
        int64_t last = 0;
        int n = 0;

        for (int i = 0; i < N; i++)
            hf__heap_set(&h, &nodes[i], sorted ? N - i : 7);
        for (; heap_first(&h); n++) {
            assert_true(heap_first(&h)->key >= last);
            last = heap_first(&h)->key;
            hf__heap_remove(&h, heap_first(&h));
        }
        assert_int_equal(n, N);
    }
    free(nodes);
}

static void map_finds_what_was_put_in(void **state)
{
    enum { N = 5000 };
    static struct map_node nodes[N];
    struct map m;

    (void)state;
    assert_int_equal(hf__map_init(&m), 0);
    for (int i = 0; i < N; i++)
        hf__map_insert(&m, &nodes[i], hf__hash(&i, sizeof i));
    for (int i = 0; i < N; i += 2)
        hf__map_remove(&m, &nodes[i]);
    for (int i = 0; i < N; i++) {
        uint64_t hash = hf__hash(&i, sizeof i);
        bool found = false;

        for (struct map_node *n = map_chain(&m, hash); n; n = n->next)
            found = found || n == &nodes[i];
        assert_int_equal(found, i % 2);
    }
    assert_int_equal(m.count, N / 2);
    hf__map_done(&m);
}

/* One owner's holds have one hash. With a search through the chain this would take minutes.
 */
static void map_removes_one_of_many_alike_at_once(void **state)
{
    enum { N = 400000 };
    struct map_node *nodes = calloc(N, sizeof *nodes);
    struct map m;

    (void)state;
    assert_int_equal(hf__map_init(&m), 0);
    for (int i = 0; i < N; i++)
        hf__map_insert(&m, &nodes[i], 42);
    for (int i = 0; i < N; i++)
        hf__map_remove(&m, &nodes[i]);
    assert_int_equal(m.count, 0);
    assert_null(map_chain(&m, 42));
    hf__map_done(&m);
    free(nodes);
}

/* SipHash-1-3 with a key of zeros, as other programs compute it. */
static void keyed_hash_is_siphash(void **state)
{
    static const struct {
        const char *text;
        uint64_t hash;
    } t[] = { { "a", 0x407448d2b89b1813 },
              { "hello", 0xe2e77b41cb4e1f9e },
              { "hello world, 16b", 0x63d41cb6c612ae01 },
              { "a name that is longer than two words", 0x685f3206b8be925c } };
    const uint64_t zero[2] = { 0, 0 }, other[2] = { 0, 1 };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        assert_true(hf__hash_keyed(zero, t[i].text, strlen(t[i].text)) == t[i].hash);
        assert_true(hf__hash_keyed(other, t[i].text, strlen(t[i].text)) != t[i].hash);
    }
}

static void utf8_is_checked_strictly(void **state)
{
    static const struct {
        const char *text;
        bool valid;
    } t[] = {
        { "", true },
        { "plain", true },
        { "\xc3\xa9", true },
        { "\xe2\x82\xac", true },
        { "\xf0\x9f\x94\x92", true },
        { "\xf4\x8f\xbf\xbf", true },
        { "\x80", false },
        { "\xc3", false },
        { "\xc0\x80", false },
        { "\xc1\xbf", false },
        { "\xe0\x80\x80", false },
        { "\xed\xa0\x80", false },
        { "\xf4\x90\x80\x80", false },
        { "\xf8\x88\x80\x80\x80", false },
        { "a\xff", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        assert_int_equal(hf__utf8_valid(t[i].text, strlen(t[i].text)), t[i].valid);
}

/* Of any text, also of what is no URL; shows_no_secrets in test_url.c has the URLs. */
static void secrets_are_taken_out_of_any_text(void **state)
{
    static const char *const t[][2] = {
        { "", "" },
        { "/tmp", "/tmp" },
        { "a:b@c", "a:b@c" },
        { "://u:x@", "://u@" },
        { "x://h:1?y@z", "x://h:1?y@z" },
        { "?pwd=x", "?pwd=***" },
        { "?pwd=", "?pwd=" },
        { "?&pwd&=x&", "?&pwd&=x&" },
        { "?pwd=x&a=b&pwd=x&pwd=x", "?pwd=***&a=b&pwd=***&pwd=***" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char *shown = hf__without_secrets(t[i][0]);

        assert_string_equal(shown, t[i][1]);
        free(shown);
    }
}

static void escape_makes_one_safe_line(void **state)
{
    static const struct {
        const char *in, *out;
    } t[] = {
        { "plain \xc3\xa9", "plain \xc3\xa9" },
        { "a\nb\x1b[31m", "a\\x0ab\\x1b[31m" },
        { "\x7f\xc2\x85\xff", "\\x7f\\xc2\\x85\\xff" },
    };
    char buf[64], small[8];

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        assert_string_equal(hf__escape(buf, sizeof buf, t[i].in, strlen(t[i].in)),
                            t[i].out);
    assert_string_equal(hf__escape(small, sizeof small, "1234567", 7), "1234567");
    assert_string_equal(hf__escape(small, sizeof small, "12345678", 8), "1234...");
    assert_string_equal(hf__escape(small, sizeof small, "123456\n", 7), "1234...");
    assert_string_equal(hf__escape(small, sizeof small, "123\xe2\x82\xac\xe2\x82\xac", 9),
                        "123...");
    assert_string_equal(hf__escape(small, 1, "x", 1), "");
}

static void hex_goes_both_ways(void **state)
{
    unsigned char in[4] = { 0, 1, 0xab, 0xff }, out[4];
    char text[9];

    (void)state;
    hf__hex(text, in, 4);
    assert_string_equal(text, "0001abff");
    assert_true(hf__unhex(out, 4, text));
    assert_memory_equal(in, out, 4);
    assert_false(hf__unhex(out, 4, "0001abf"));
    assert_false(hf__unhex(out, 4, "0001abff0"));
    assert_false(hf__unhex(out, 4, "0001abfG"));
    assert_false(hf__unhex(out, 4, ""));
}

static void list_removes_twice(void **state)
{
    struct list l, other, a, b;

    (void)state;
    list_init(&l);
    list_init(&other);
    list_push(&l, &a);
    list_push(&l, &b);
    list_remove(&a);
    list_remove(&a);
    assert_ptr_equal(list_first(&l), &b);
    list_splice(&other, &l);
    assert_true(list_empty(&l));
    assert_ptr_equal(list_pop(&other), &b);
    assert_null(list_pop(&other));
}

static void text_grows(void **state)
{
    struct text t = { 0 };
    char *made;

    (void)state;
    assert_null(hf__text_take(&t)); /* nothing was put in */
    for (int i = 0; i < 1000; i++)
        hf__text_add(&t, "%03d,%s", i, i % 2 ? "" : "even,");
    made = hf__text_take(&t);
    assert_non_null(made);
    assert_int_equal(strlen(made), 1000 * 4 + 500 * 5);
    assert_memory_equal(made, "000,even,001,002,even,", 22);
    free(made);
}

static void decimal_writes_every_number(void **state)
{
    static const uint64_t numbers[] = { 0, 9, 10, 99, 100, 1000000, UINT64_MAX };
    char text[21], want[24];

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        size_t n = hf__decimal(text, numbers[i]);

        text[n] = '\0';
        snprintf(want, sizeof want, "%llu", (unsigned long long)numbers[i]);
        assert_string_equal(text, want);
    }
}

/* Zeroed, whatever it held before; large enough for what is asked for; and after the end
 * nothing is kept. Blocks that are lost or freed twice are seen by the sanitizer. */
static void pool_gives_clean_blocks(void **state)
{
    enum { SIZE = 48, LARGE = 4096, BLOCKS = 200 };
    static const char zeros[LARGE];
    char *blocks[BLOCKS];
    struct pool p;

    (void)state;
    hf__pool_init(&p);
    hf__pool_put(&p, NULL, SIZE);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            size_t size = i % 10 == 0 ? LARGE : SIZE - i % 8;

            blocks[i] = hf__pool_get(&p, size);
            assert_non_null(blocks[i]);
            assert_memory_equal(blocks[i], zeros, size);
            memset(blocks[i], 0xa5, size);
        }
        for (size_t i = 0; i < BLOCKS; i++)
            hf__pool_put(&p, blocks[i], i % 10 == 0 ? LARGE : SIZE - i % 8);
        assert_true(p.n <= p.most);
    }
    blocks[0] = hf__pool_get(&p, SIZE);
    hf__pool_done(&p);
    hf__pool_put(&p, blocks[0], SIZE);
    assert_int_equal(p.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heap_keeps_order_under_random_changes),
        cmocka_unit_test(heap_of_any_shape_needs_no_stack),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(decimal_writes_every_number),
        cmocka_unit_test(pool_gives_clean_blocks),
        cmocka_unit_test(map_finds_what_was_put_in),
        cmocka_unit_test(map_removes_one_of_many_alike_at_once),
        cmocka_unit_test(keyed_hash_is_siphash),
        cmocka_unit_test(utf8_is_checked_strictly),
        cmocka_unit_test(secrets_are_taken_out_of_any_text),
        cmocka_unit_test(escape_makes_one_safe_line),
        cmocka_unit_test(hex_goes_both_ways),
        cmocka_unit_test(list_removes_twice),
    };

    return cmocka_run_group_tests_name("util", tests, NULL, NULL);
}
