/* redlock_refused.c: nodes that answer and will not have it: no rights, no room, a
 * replica; and a name that is no lock's. Whoever waits for what cannot come is told
 * why, and soon (G11); a node that is not needed for the majority may refuse as it
 * likes; a refused call leaves nothing (G7). */
#include "redlock_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_guard[] = "?restart_guard=off";

enum { PROMPT_MS = LIMIT_MS / 3, LONG_MS = 30000 };

static const struct refusal {
    const char *begin, *end; /* said to a server */
    int code;
    const char *word; /* of the server's answer */
} refusals[] = {
    { "ACL SETUSER default resetkeys", "ACL SETUSER default allkeys", HF_EAUTH, "NOPERM" },
    { "ACL SETUSER default -evalsha -eval", "ACL SETUSER default +evalsha +eval", HF_EAUTH,
      "NOPERM" },
    { "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", HF_EFULL, "OOM" },
};
enum { REFUSALS = sizeof(refusals) / sizeof(refusals[0]), NO_KEYS = 0, NO_ROOM = 2 };

static void use_plain(const char *params)
{
    redis_start(&servers[0]);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://127.0.0.1:%d?mode=plain%s",
             servers[0].port, params);
}

/* The first `n` nodes. */
static void tell(size_t n, const char *command)
{
    for (size_t i = 0; i < n; i++)
        redis_do(&servers[i], command);
}

static void told_soon(struct pend *p, int code, const char *word)
{
    int64_t start = now_ms();

    CHECK_RC(pend_end(p, NULL), code);
    CHECK_WITHIN(start, PROMPT_MS);
    CHECK(strstr(last_error()->text, word));
}

/* Also whoever would wait for ever. A try may end before slow nodes have answered. */
static void is_refused(hf_client *c, int code, const char *word)
{
    told_soon(begun(c, nm("n"), HF_FOREVER, NULL), code, word);
    AWAIT(tried(c, nm("n"), NULL) == code);
    CHECK(strstr(last_error()->text, word));
}

/* All of `n` nodes refuse, or so many that the others are no majority; then they do
 * not, and nothing of it is left. */
static void by_each_means(size_t n, size_t refusing)
{
    hf_client *c = opened();

    given(taken(c, nm("n"), NULL)); /* it knows all of them */
    for (size_t i = 0; i < REFUSALS; i++) {
        const struct refusal *r = &refusals[i];

        tell(refusing, r->begin);
        is_refused(c, r->code, r->word);
        tell(refusing, r->end);
        for (size_t k = 0; k < n; k++)
            AWAIT(redis_number(&servers[k], "EXISTS %s", nm("n")) == 0);
        given(taken(c, nm("n"), NULL));
    }
    closed(c);
}

static void plain_refused(void)
{
    use_plain("");
    by_each_means(1, 1);
    server_remove(&servers[0]);
}

static void all_refuse(void)
{
    use_nodes(3, no_guard);
    by_each_means(3, 3);
    nodes_done();
}

static void majority_refuses(void)
{
    use_nodes(3, no_guard);
    by_each_means(3, 2);
    nodes_done();
}

/* Two are enough; the third gets what it lacks when it lets itself be given it. */
static void one_refuses(void)
{
    hf_client *c;
    hf_lease *l;

    use_nodes(3, no_guard);
    c = prompted();
    await_marks(c);
    for (size_t i = 0; i < REFUSALS; i++) {
        tell(1, refusals[i].begin);
        l = taken(c, nm("n"), HF_REQUEST(.ttl_ms = LONG_MS));
        given(taken(c, nm("other"), NULL));
        tell(1, refusals[i].end);
        AWAIT(nodes_with(nm("n")) == 3);
        CHECK_RC(hf_lease_check(l), 0);
        given(l);
        await_gone(nm("n"));
    }
    closed(c);
    nodes_done();
}

/* Why there is no majority is what the others say, not that one is not there. */
static void refusing_and_killed(void)
{
    hf_client *c;

    use_nodes(3, no_guard);
    c = opened();
    await_marks(c);
    server_kill(&servers[2]);
    tell(2, refusals[NO_KEYS].begin);
    is_refused(c, HF_EAUTH, "NOPERM");
    closed(c);
    nodes_done();
}

/* In the middle of waiting for a lock that somebody holds. */
static void refused_while_waiting(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *a, *b;
    struct pend *p;
    hf_lease *l;

    use_nodes(3, no_guard);
    a = prompted();
    b = opened();
    await_marks(a);
    l = taken(a, nm("n"), req);
    AWAIT(nodes_with(nm("n")) == 3);
    p = begun(b, nm("n"), HF_FOREVER, req);
    STAYS(!pend_done(p), 300); /* a few rounds */
    tell(2, refusals[NO_KEYS].begin);
    told_soon(p, HF_EAUTH, "NOPERM");
    tell(2, refusals[NO_KEYS].end);
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    await_gone(nm("n"));
    closed(a);
    closed(b);
    nodes_done();
}

/* A round is refused, and its answer comes when the next one will not be. */
static bool refused_once(void)
{
    int64_t until = now_ms() + 3000; /* a node that is silent for longer is given up */
    bool seen;

    proxy_freeze(proxies[0], PROXY_PRESENT, PROXY_DOWN);
    tell(1, refusals[NO_ROOM].begin);
    while (!(seen = redis_info(&servers[0], "errorstat_OOM")[0]) && now_ms() < until)
        nap();
    tell(1, refusals[NO_ROOM].end);
    proxy_freeze(proxies[0], PROXY_PRESENT, 0);
    return seen;
}

/* One round finds no room, and the next one does: that passes, and so the waiting goes
 * on. */
static void short_of_room_for_a_moment(void)
{
    const hf_request *req = HF_REQUEST(.ttl_ms = LONG_MS);
    hf_client *a, *b;
    struct pend *p;
    hf_lease *l;

    use_plain("");
    a = prompted();
    proxies[0] = proxy_new(servers[0].port);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://127.0.0.1:%d?mode=plain",
             proxy_port(proxies[0]));
    b = opened();
    l = taken(a, nm("n"), req);
    p = begun(b, nm("n"), HF_FOREVER, req);
    STAYS(!pend_done(p), 300); /* a few rounds */
    /* if one was on its way before, once more */
    while (!refused_once())
        ;
    STAYS(!pend_done(p), 300);
    given(l);
    given(pend_granted(p));
    closed(a);
    closed(b);
    proxy_free(proxies[0]);
    server_remove(&servers[0]);
}

/* ---- the key of the fences ------------------------------------------------------- */

static const char marks[] = "holdfast:redlock:marks";

static void is_no_lock(hf_client *c, const char *name)
{
    static const char id[] = "0123456789abcdef0123456789abcdef";
    hf_list *list = NULL;
    hf_lease *l = NULL;
    char before[128];

    given(taken(c, nm("n"), NULL));
    snprintf(before, sizeof(before), "%s", redis_text(&servers[0], "HGET %s top", marks));
    CHECK(strtoll(before, NULL, 10) > 0);
    CHECK_RC(rig.face->acquire(c, name, 0, NULL, &l, E()), HF_EINVAL);
    CHECK_RC(rig.face->acquire(c, name, HF_FOREVER, NULL, &l, E()), HF_EINVAL);
    CHECK(strstr(last_error()->text, name));
    CHECK_RC(hf_look(c, name, &list, E()), HF_EINVAL);
    CHECK(strstr(last_error()->text, name));
    CHECK_RC(hf_evict(c, name, id, HF_EVICT_NOW, E()), HF_EINVAL);
    CHECK(strstr(last_error()->text, name));
    CHECK_RC(hf_evict(c, name, id, 0, E()), HF_EINVAL);
    CHECK_STR(redis_text(&servers[0], "HGET %s top", marks), before);
    closed(c);
}

static void fences_are_no_lock(void)
{
    use_plain("");
    is_no_lock(opened(), marks);
    strcat(rig.place->url, "&namespace=holdfast"); /* with a colon, the start of its keys */
    is_no_lock(opened(), strchr(marks, ':') + 1);
    server_remove(&servers[0]);
    use_nodes(3, no_guard);
    is_no_lock(opened(), marks);
    nodes_done();
}

/* ---- the login ------------------------------------------------------------------- */

/* A server that does not know the command says what came with it, or the start of it. */
static void login_said_back(void)
{
    char secret[301];
    hf_client *c;

    redis_init(&servers[0]);
    redis_config(&servers[0], "rename-command AUTH \"\"");
    redis_run(&servers[0]);
    memset(secret, 'S', sizeof(secret) - 1);
    for (size_t len = 30; len < sizeof(secret); len *= 10) {
        secret[len] = 0;
        snprintf(rig.place->url, sizeof(rig.place->url),
                 "redis://:%s@127.0.0.1:%d?mode=plain", secret, servers[0].port);
        secret[len] = 'S';
        c = opened();
        told_soon(begun(c, nm("n"), HF_FOREVER, NULL), HF_EAUTH, "");
        CHECK(!strstr(last_error()->text, "SSSS") && !strstr(last_error()->where, "SSSS"));
        closed(c);
    }
    server_remove(&servers[0]);
}

/* ---- replicas -------------------------------------------------------------------- */

static void make_replica(size_t i, size_t of)
{
    redis_do(&servers[i], "REPLICAOF 127.0.0.1 %d", servers[of].port);
    AWAIT(strcmp(redis_info(&servers[i], "role"), "slave") == 0);
}

static void is_said_to_be_replica(hf_client *c)
{
    is_refused(c, HF_ENOTSUP, "read-only replica");
    CHECK_NUM(last_error()->retry, ==, 0);
}

static void is_unreachable_replica(hf_client *c)
{
    AWAIT(tried(c, nm("n"), NULL) == HF_EUNREACHABLE);
    CHECK(strstr(last_error()->text, "read-only replica"));
}

static void plain_on_replica(void)
{
    hf_client *before, *c;

    redis_start(&servers[1]);
    use_plain("");
    before = opened();
    given(taken(before, nm("n"), NULL));
    make_replica(0, 1);
    c = opened();
    is_said_to_be_replica(c);
    is_unreachable_replica(before); /* it was the master of it: there may be another now */
    redis_do(&servers[0], "REPLICAOF NO ONE");
    AWAIT(tried(c, nm("n"), NULL) == 0);
    AWAIT(tried(before, nm("n"), NULL) == 0);
    closed(c);
    closed(before);
    server_remove(&servers[0]);
    server_remove(&servers[1]);
}

static void replicas_among_nodes(void)
{
    hf_client *c;

    use_nodes(3, no_guard);
    make_replica(1, 0);
    c = opened();
    given(taken(c, nm("n"), NULL)); /* of two */
    closed(c);
    server_kill(&servers[2]);
    c = opened();
    is_said_to_be_replica(c);
    closed(c);
    redis_run(&servers[2]);
    make_replica(2, 0);
    c = opened();
    is_said_to_be_replica(c);
    closed(c);
    nodes_done();
}

const struct test_case redlock_refused_cases[] = {
    { "plain-refused", plain_refused, ON_ALL, 0, 0 },
    { "all-nodes-refuse", all_refuse, ON_ALL, 0, 0 },
    { "majority-refuses", majority_refuses, ON_ALL, 0, 0 },
    { "one-node-refuses", one_refuses, ON_ALL, 0, 0 },
    { "refusing-and-killed", refusing_and_killed, ON_ALL, 0, 0 },
    { "refused-while-waiting", refused_while_waiting, ON_ALL, 0, 0 },
    { "short-of-room-for-a-moment", short_of_room_for_a_moment, ON_ALL, 0, 0 },
    { "fences-are-no-lock", fences_are_no_lock, ON_ALL, 0, 0 },
    { "login-said-back", login_said_back, ON_ALL, 0, 0 },
    { "plain-on-replica", plain_on_replica, ON_ALL, 0, 0 },
    { "replicas-among-nodes", replicas_among_nodes, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
