/* When a client of ZooKeeper comes back (driver/zookeeper/session.c), and what it says
 * then.
 *
 * A server that ends takes leave of all its clients in the same moment, and they must not
 * all come to the next one together: seen by the timers that they set. Servers close a
 * connection on a message of more than 1 MiB, and tell of no change that a client says it
 * has seen: seen by what is written to the stream. Nothing waits here. */
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
    assert_int_equal(state, z.link.state == LINK_UP ? STORE_UP : STORE_DOWN);
}

void __wrap_hf__ev_alive(struct life *, int64_t sent_at, int64_t ttl_ms);
void __wrap_hf__ev_alive(struct life *l, int64_t sent_at, int64_t ttl_ms)
{
    (void)l;
    (void)sent_at;
    (void)ttl_ms;
}

void __wrap_hf__ev_risk(struct life *);
void __wrap_hf__ev_risk(struct life *l)
{
    (void)l;
}

static struct {            /* what was written */
    int64_t seen;          /* of the last greeting: the last change that it has seen */
    size_t data, children; /* watches */
    size_t longest;        /* message with watches */
} said;

int __wrap_hf__stream_write(struct stream *, const void *, size_t);
int __wrap_hf__stream_write(struct stream *stream, const void *bytes, size_t n)
{
    struct jute_in in;

    (void)stream;
    hf__jute_open(&in, bytes, n);
    hf__jute_int(&in); /* its length */
    hf__jute_int(&in); /* version, or xid */
    if (z.link.state == LINK_GREETING) {
        said.seen = hf__jute_long(&in);
    } else if (hf__jute_int(&in) == JUTE_SET_WATCHES) {
        hf__jute_long(&in);
        for (size_t i = hf__jute_count(&in, 4); i > 0; i--, said.data++)
            hf__jute_text(&in);
        assert_int_equal(hf__jute_int(&in), 0);
        for (size_t i = hf__jute_count(&in, 4); i > 0; i--, said.children++)
            hf__jute_text(&in);
        said.longest = n > said.longest ? n : said.longest;
    }
    assert_false(in.bad);
    return 0;
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

/* ---- what it says ---------------------------------------------------------------- */

static void hear(const struct jute_out *out)
{
    z.stream.on->data(&z.stream, (const char *)out->buf, out->len);
    free(out->buf);
}

/* A server takes the connection, and the session on it. */
static void attach(void)
{
    static const char password[JUTE_PASSWORD];
    struct jute_out out = { .len = 0 };

    hf__link_opened(&z.link);
    hf__jute_begin(&out);
    hf__jute_put_int(&out, 0);
    hf__jute_put_int(&out, T_MS);
    hf__jute_put_long(&out, z.session.id);
    hf__jute_put_text(&out, password, sizeof password);
    hf__jute_put_bool(&out, false);
    hf__jute_end(&out, 0);
    hear(&out);
    assert_int_equal(z.link.state, LINK_SETTLING);
}

static void answer(int32_t xid, int64_t zxid)
{
    struct jute_out out = { .len = 0 };

    hf__jute_begin(&out);
    hf__jute_put_int(&out, xid);
    hf__jute_put_long(&out, zxid);
    hf__jute_put_int(&out, 0);
    hf__jute_end(&out, 0);
    hear(&out);
}

static void begin_with_lines(void)
{
    static struct life life; /* nothing is on it */

    begin(1, 1);
    memset(&said, 0, sizeof said);
    z.asked_ms = T_MS;
    z.recent.sent_at = NOW;
    z.life = &life;
    assert_int_equal(hf__map_init(&z.lines), 0);
    hf__zk_conn_init(&z);
    z.link.where = "here";
}

static void end_with_lines(void)
{
    lose(); /* frees lines without seats, too */
    hf__zk_conn_done(&z);
    hf__map_done(&z.lines);
}

static void watches_are_set_again_in_parts(void **state)
{
    enum { LINES = 3000, NAME = 500, TICKETS = 2 };
    static const struct ordered_place place = { 1, LINE_LOCK, HF_FULL, HF_FULL };
    char name[NAME + 1];

    (void)state;
    begin_with_lines();
    for (int i = 0; i < LINES; i++) {
        struct ordered_line *line;

        snprintf(name, sizeof name, "%0*d", NAME, i);
        line = &hf__zk_line_get(&z, name, NAME)->line;
        line->watch = WATCH_SET;
        for (int k = 0; k < TICKETS; k++) {
            struct ordered_entry *e = hf__ordered_entry(&place, k == 0 ? "a" : "b", 1);

            e->watch = WATCH_SET;
            assert_true(hf__ordered_insert(line, e));
        }
    }
    attach();
    assert_int_equal(said.data, LINES * TICKETS);
    assert_int_equal(said.children, LINES);
    assert_in_range(said.longest, 1, 128 << 10);
    end_with_lines();
}

/* The connection is lost between two messages with watches: what the servers did not tell
 * then they must tell on the next one. */
static void what_a_lost_connection_showed_is_not_seen(void **state)
{
    (void)state;
    begin_with_lines();
    z.last_zxid = 100;
    attach();
    answer(JUTE_XID_WATCHES, 200);
    lose();
    attach();
    assert_int_equal(said.seen, 100);
    answer(JUTE_XID_WATCHES, 250);
    answer(z.xid, 300);
    assert_int_equal(z.link.state, LINK_UP);
    lose();
    attach();
    assert_int_equal(said.seen, 300); /* all that came before it was told */
    end_with_lines();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_come_one_after_the_other),
        cmocka_unit_test(then_all_servers_at_once),
        cmocka_unit_test(attaching_again_is_at_once),
        cmocka_unit_test(watches_are_set_again_in_parts),
        cmocka_unit_test(what_a_lost_connection_showed_is_not_seen),
    };

    return cmocka_run_group_tests_name("zk-session", tests, NULL, NULL);
}
