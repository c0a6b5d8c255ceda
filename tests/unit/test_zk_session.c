/* When a client of ZooKeeper comes back (driver/zookeeper/session.c): a server that ends
 * takes leave of all its clients in the same moment, and they must not all come to the next
 * one together. Seen by the timers that they set; nothing waits here. */
#include "unit.h"

#include "driver/zookeeper/zookeeper.h"

enum { CLIENTS = 1000, T_MS = 30000, NOW = 5000000 };

static struct zk z;
static int64_t retry_at;
static uint64_t seed;

void __wrap_hf__ev_store(struct store *, int state, const hf_error *);
void __wrap_hf__ev_store(struct store *s, int state, const hf_error *err)
{
    (void)s;
    (void)err;
    assert_int_equal(state, STORE_DOWN);
}

static int64_t now(struct env *env)
{
    (void)env;
    return NOW;
}

static void draw(struct env *env, void *to, size_t n)
{
    (void)env;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005 + 1442695040888963407;
        ((unsigned char *)to)[i] = (unsigned char)(seed >> 56);
    }
}

static void set_timer(struct env *env, struct timer *t, int64_t at)
{
    static struct heap_node *anchor;

    (void)env;
    t->node.link = at == LOOP_NEVER ? NULL : &anchor; /* armed or not */
    if (t == &z.link.retry && at != LOOP_NEVER)
        retry_at = at;
}

static struct env env = { .now = now, .random = draw, .timer = set_timer };
static const struct link_events events = { .down = hf__zk_session_down,
                                           .lost = hf__zk_session_lost };

/* A client that was up. */
static void begin(uint64_t number, size_t servers)
{
    memset(&z, 0, sizeof z);
    z.store.env = &env;
    z.open.connect_ms = 10000;
    z.open.nhosts = servers;
    list_init(&z.dirty);
    hf__link_init(&z.link, &env, NULL, &events, &z.dirty, z.open.connect_ms);
    z.link.choices = servers;
    z.link.wanted = true;
    z.session.id = 1;
    z.session.timeout_ms = T_MS;
    hf__ordered_init(&z.ordered, &hf__zk_ordered, &z.store);
    list_init(&z.alones);
    list_init(&z.quiets);
    seed = number;
    retry_at = -1;
}

static int64_t lose(void)
{
    hf_error err;

    hf__fail(&err, HF_EUNREACHABLE, 0, NULL, "lost");
    z.link.retry.node.link = NULL; /* it has fired */
    hf__link_lost(&z.link, &err);
    return retry_at;
}

static void clients_come_one_after_the_other(void **state)
{
    enum { PARTS = 20, MOST = T_MS * 1000 / 32 };
    int in_part[PARTS] = { 0 };

    (void)state;
    for (size_t servers = 1; servers <= 3; servers += 2) {
        memset(in_part, 0, sizeof in_part);
        for (uint64_t i = 0; i < CLIENTS; i++) {
            int64_t us;

            begin(i, servers);
            us = lose() - NOW;
            assert_in_range(us, 0, MOST);
            in_part[us * PARTS / (MOST + 1)]++;
        }
        for (int i = 0; i < PARTS; i++)
            assert_in_range(in_part[i], CLIENTS / PARTS / 2, CLIENTS / PARTS * 2);
    }
}

/* The others are tried at once; when nobody has taken it, with pauses that grow. */
static void then_all_servers_at_once(void **state)
{
    int64_t most = 20000;

    (void)state;
    begin(1, 3);
    assert_true(lose() >= NOW);
    assert_int_equal(lose(), NOW); /* at once */
    for (int i = 0; i < 10; i++) {
        int64_t us = lose() - NOW;

        assert_in_range(us, most / 2, most);
        most = 2 * most < 1000000 ? 2 * most : 1000000;
    }
}

/* A connection that is given up for a new one is no fault of a server. */
static void attaching_again_is_at_once(void **state)
{
    (void)state;
    begin(1, 1);
    z.attach_now = true;
    assert_int_equal(lose(), 0);
    assert_false(z.attach_now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_come_one_after_the_other),
        cmocka_unit_test(then_all_servers_at_once),
        cmocka_unit_test(attaching_again_is_at_once),
    };

    return cmocka_run_group_tests_name("zk-session", tests, NULL, NULL);
}
