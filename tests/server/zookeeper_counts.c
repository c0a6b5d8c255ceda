/* zookeeper_counts.c: what a ZooKeeper server has to do for us, by its own count.
 *
 *     server-zookeeper [--face blocking|callback|foreign] [--jobs N] [--list] [--verbose]
 *     [CASE...]
 *
 * Each case has a server of its own, on which nobody else does anything. Times are not
 * asserted here but measured by `holdfast bench`. */
#include "zookeeper_counts.h"

#include "zookeeper_fault.h"

#include <holdfast/async.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Long enough for the session's own syncs, one every quarter, to stay few. */
#define LONG_TTL "ttl=10s"

static int64_t number(const char *text, const char *field)
{
    const char *at = strstr(text, field);

    CHECK(at);
    return strtoll(at + strlen(field), NULL, 10);
}

/* The asker is among those connected. What it asks is no request of a session, and is not
 * counted. */
struct counts counts_of(const struct server *server)
{
    static const char *const kinds[] = { "created", "deleted", "changed", "children" };
    const char *text = zk_word(server, "mntr");
    struct counts c = { .reads = number(text, "zk_cnt_readlatency\t"),
                        .writes = number(text, "zk_cnt_updatelatency\t"),
                        .bytes = number(text, "zk_response_bytes\t"),
                        .at_ms = now_ms(),
                        .connections = number(text, "zk_num_alive_connections\t") - 1,
                        .watches = number(text, "zk_watch_count\t") };

    c.requests = c.reads + c.writes;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char field[64];

        snprintf(field, sizeof(field), "zk_sum_node_%s_watch_count\t", kinds[i]);
        c.events += number(text, field);
    }
    return c;
}

static struct counts ask(void)
{
    return counts_of(&servers->servers[0]);
}

/* ---- the free path --------------------------------------------------------------- */

/* The fewest requests of several: beside a pair there may be the session's own, and one
 * that is slow watches its own node. */
static int64_t requests_of_pair(hf_client *c, const char *name, const hf_request *req)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < 20; i++) {
        int64_t before = ask().requests, now;

        given(taken(c, name, req));
        now = ask().requests - before;
        least = now < least ? now : least;
    }
    return least;
}

/* Two where nobody else comes: create and delete. With somebody in between, who uses the
 * same line, the list as well. */
static void free_path(void)
{
    const hf_request permits = {
        .size = sizeof(permits), .mode = HF_PERMITS, .permits = 2, .capacity = 3
    };
    hf_client *a, *b;
    int64_t least = INT64_MAX;

    use_one(LONG_TTL);
    a = opened();
    b = opened();
    CHECK_NUM(requests_of_pair(a, nm("n"), NULL), ==, 2);
    CHECK_NUM(requests_of_pair(a, nm("n"), HF_REQUEST(.mode = HF_READ)), ==, 2);
    CHECK_NUM(requests_of_pair(a, nm("p"), &permits), ==, 2);
    for (int i = 0; i < 20; i++) {
        int64_t before = ask().requests, now;

        given(taken(a, nm("n"), NULL));
        given(taken(b, nm("n"), NULL));
        now = ask().requests - before;
        least = now < least ? now : least;
    }
    CHECK_NUM(least, ==, 6);
    closed(a);
    closed(b);
    done();
}

/* A try that fails reads, and writes nothing. */
static void busy_path(void)
{
    hf_client *a, *b;
    hf_lease *held;
    int64_t least = INT64_MAX, nodes;

    use_one(LONG_TTL);
    a = opened();
    b = opened();
    held = taken(a, nm("n"), NULL);
    nodes = zk_number(&servers->servers[0], "mntr", "zk_znode_count\t");
    for (int i = 0; i < 20; i++) {
        int64_t before = ask().requests, now;

        CHECK_RC(tried(b, nm("n"), NULL), HF_EBUSY);
        now = ask().requests - before;
        least = now < least ? now : least;
    }
    CHECK_NUM(least, <=, 2);
    CHECK_NUM(zk_number(&servers->servers[0], "mntr", "zk_znode_count\t"), ==, nodes);
    given(held);
    closed(a);
    closed(b);
    done();
}

static int64_t requests_of_state(hf_client *c, int state)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < 20; i++) {
        int64_t before = ask().requests, now;

        CHECK_RC(rig.face->state(c, nm("n"), E()), state);
        now = ask().requests - before;
        least = now < least ? now : least;
    }
    return least;
}

/* One list of the children, whether somebody is there or not. */
static void state_path(void)
{
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;

    use_one(LONG_TTL);
    a = opened();
    b = opened();
    CHECK_NUM(requests_of_state(b, HF_FREE), ==, 1);
    held = taken(a, nm("n"), NULL);
    waits = queued(a, nm("n"), 1, NULL);
    CHECK_NUM(requests_of_state(b, HF_TAKEN), ==, 1);
    given(held);
    given(pend_granted(waits));
    closed(a);
    closed(b);
    done();
}

/* ---- hand-offs ------------------------------------------------------------------- */

enum {
    CLIENTS = 10,
    HANDS = 50,
    SYNCS = 10,
    QUARTER_MS = 2500 /* of LONG_TTL */,
    SOON_MS = 20
};

struct queue {
    hf_client *clients[CLIENTS];
    size_t n;
    hf_lease *granted; /* the last one */
    size_t waiting, joined;
    int64_t slow; /* hand-offs after which who holds may have asked for its own node */
};

static void on_grant(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    struct queue *q = user;

    (void)err;
    hf_op_free(op);
    if (rc == HF_ECLOSED)
        return;
    CHECK_RC(rc, 0);
    q->waiting--;
    q->granted = lease;
}

static bool turn(struct queue *q)
{
    for (size_t i = 0; i < q->n; i++)
        CHECK(hf_client_process(q->clients[i]) >= 0);
    return true;
}

static void queue_open(struct queue *q, size_t clients)
{
    memset(q, 0, sizeof(*q));
    use_one(LONG_TTL);
    for (; q->n < clients; q->n++)
        CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP),
                         &q->clients[q->n], E()),
                 0);
}

/* Until nothing is asked for any more: then all that is to be watched is. */
static void settle(struct queue *q)
{
    struct counts before, after = ask();

    do {
        before = after;
        STAYS(turn(q), 200);
        after = ask();
    } while (after.watches != before.watches ||
             after.requests > before.requests + (int64_t)q->n);
}

/* The clients take turns. */
static void line_up(struct queue *q)
{
    hf_client *c = q->clients[q->joined++ % q->n];
    hf_op *op;

    CHECK_RC(hf_acquire_start(c, nm("n"), HF_FOREVER, NULL, on_grant, q, &op, E()), 0);
    q->waiting++;
}

static void queue_fill(struct queue *q, size_t waiters)
{
    for (size_t i = 0; i <= waiters; i++) {
        line_up(q);
        if (i % 100 == 0) /* not more than a hundred requests at once */
            AWAIT((turn(q), line_is(q->clients[0], nm("n"), 1, i)));
    }
    AWAIT((turn(q), line_is(q->clients[0], nm("n"), 1, waiters)));
    AWAIT((turn(q), q->granted));
    settle(q);
}

static void hand_over(struct queue *q)
{
    hf_lease *lease = q->granted;
    int64_t start = now_ms();

    q->granted = NULL;
    CHECK_RC(hf_release_start(lease, NULL, NULL, NULL, E()), 0);
    AWAIT((turn(q), q->granted));
    q->slow += now_ms() - start > SOON_MS;
}

static void queue_close(struct queue *q)
{
    for (size_t i = 0; i < q->n; i++)
        hf_close(q->clients[i]);
    done();
}

/* What a session asks for by itself between two counts: a proof of life every quarter of
 * its time, a look at what it waits for, its own node where it has held for a moment, and a
 * sync for a grant that comes when the last proof is old; a slow machine makes that more.
 */
static int64_t own_requests(const struct queue *q, const struct counts *before,
                            const struct counts *after)
{
    return SYNCS + q->slow + HANDS + 2 * ((after->at_ms - before->at_ms) / QUARTER_MS);
}

/* One client: whoever releases hears of it, and that is all that is said, whatever the
 * length of the queue. */
static void one_client(size_t waiters)
{
    struct queue q;
    struct counts before, after;

    queue_open(&q, 1);
    queue_fill(&q, waiters);
    before = ask();
    CHECK_NUM(before.watches, ==, waiters + 1);
    CHECK_NUM(before.connections, ==, 1);
    for (int i = 0; i < HANDS; i++)
        hand_over(&q);
    settle(&q);
    after = ask();
    CHECK_NUM(after.events - before.events, ==, HANDS);
    CHECK_NUM(after.reads - before.reads, <=, own_requests(&q, &before, &after));
    CHECK_NUM(after.requests - before.requests, <=,
              HANDS + own_requests(&q, &before, &after));
    CHECK_NUM(after.connections, ==, 1);
    CHECK_NUM(q.waiting, ==, waiters - HANDS);
    queue_close(&q);
}

static void one_client_few(void)
{
    one_client(HANDS + 10);
}

static void one_client_many(void)
{
    one_client(1000);
}

/* Whoever has had it joins again at the end: what is read for that does not grow with the
 * length of the queue either. */
static int64_t bytes_of_round(size_t waiters)
{
    struct queue q;
    struct counts before;
    int64_t bytes;

    queue_open(&q, 1);
    queue_fill(&q, waiters);
    before = ask();
    for (int i = 0; i < HANDS; i++) {
        hand_over(&q);
        line_up(&q);
    }
    settle(&q);
    CHECK_NUM(q.waiting, ==, waiters);
    bytes = ask().bytes - before.bytes;
    queue_close(&q);
    return bytes;
}

static void one_client_round(void)
{
    int64_t few = bytes_of_round(50), many = bytes_of_round(500);

    CHECK_NUM(few, >, 0);
    CHECK_NUM(many, <, 2 * few);
}

/* Ten clients: besides, the owner of the next hears of it, and reads once more. */
static void many_clients(void)
{
    struct queue q;
    struct counts before, after;

    queue_open(&q, CLIENTS);
    queue_fill(&q, 500);
    before = ask();
    CHECK_NUM(before.connections, ==, CLIENTS);
    for (int i = 0; i < HANDS; i++)
        hand_over(&q);
    settle(&q);
    after = ask();
    CHECK_NUM(after.events - before.events, >=, HANDS);
    CHECK_NUM(after.events - before.events, <=, 2 * HANDS);
    CHECK_NUM(after.requests - before.requests, <=,
              2 * HANDS + CLIENTS * own_requests(&q, &before, &after));
    queue_close(&q);
}

/* --------------------------------------------------------------------------------- */

struct names_seen {
    size_t n;
    char last[64];
};

static void look_at(const hf_list *list, void *user)
{
    struct names_seen *s = user;

    s->n = hf_list_count(list);
    for (size_t i = 0; i < s->n; i++) {
        CHECK_NUM(hf_line_holders(hf_list_at(list, i)), ==, 1);
        CHECK_NUM(hf_line_oldest_ms(hf_list_at(list, i)), >=, 0);
    }
    snprintf(s->last, sizeof s->last, "%s",
             s->n ? hf_line_name(hf_list_at(list, s->n - 1)) : "");
}

static int64_t requests_of_list(hf_client *c, size_t limit, struct names_seen *s)
{
    int64_t least = INT64_MAX;

    for (int i = 0; i < 5; i++) {
        int64_t before = ask().requests, now;

        CHECK_RC(rig.face->ls(c, "ls/", limit, look_at, s, E()), 0);
        now = ask().requests - before;
        least = now < least ? now : least;
    }
    return least;
}

/* A list with a limit does not read the rest of the tree, and shows the first by name:
 * "ls/a-b" comes before "ls/a/b", which stands in another folder. */
static void listing(void)
{
    enum { NAMES = 300 };
    static const char *const first[] = { "ls/a", "ls/a-b", "ls/a/b", "ls/b/c/d/e" };
    hf_lease *l[NAMES], *leases[4];
    struct names_seen s;
    char name[64];
    hf_client *a, *b;

    use_one(LONG_TTL);
    a = opened();
    b = opened();
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "ls/x%03d/%d", i / 3, i);
        l[i] = taken(a, name, NULL);
    }
    for (size_t i = 0; i < 4; i++)
        leases[i] = taken(a, first[i], NULL);
    for (size_t i = 0; i < 4; i++) {
        int64_t most = 3 + 2 * 2 * ((int64_t)i + 1) + 5;

        CHECK_NUM(requests_of_list(b, i + 1, &s), <=, most);
        CHECK_NUM(s.n, ==, i + 1);
        CHECK_STR(s.last, first[i]);
    }
    CHECK_NUM(requests_of_list(b, 100, &s), <=, 400);
    CHECK_NUM(s.n, ==, 100);
    CHECK_STR(s.last, "ls/x031/95");
    CHECK_NUM(requests_of_list(b, 0, &s), <=, 3 + 100 + 2 * (NAMES + 8));
    CHECK_NUM(s.n, ==, NAMES + 4);
    for (int i = 0; i < NAMES; i++)
        given(l[i]);
    for (size_t i = 0; i < 4; i++)
        given(leases[i]);
    closed(a);
    closed(b);
    done();
}

static const struct test_case counts_cases[] = {
    { "free_path", free_path, ON_ALL, 0, 0 },
    { "busy_path", busy_path, ON_ALL, 0, 0 },
    { "state_path", state_path, ON_ALL, 0, 0 },
    { "listing", listing, ON_ALL, 0, 0 },
    { "one_client_few", one_client_few, ON_BLOCKING, 0, 0 },
    { "one_client_many", one_client_many, ON_BLOCKING, 0, CASE_LONG },
    { "one_client_round", one_client_round, ON_BLOCKING, 0, CASE_LONG },
    { "many_clients", many_clients, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
extern const struct test_case crowd_cases[], idle_cases[];
#ifdef HOLDFAST
extern const struct test_case bench_cases[], run_cases_of_zookeeper[];
#endif

const struct test_case *const tables[] = { counts_cases, crowd_cases,
                                           idle_cases,
#ifdef HOLDFAST
                                           bench_cases,  run_cases_of_zookeeper,
#endif
                                           NULL };
