/* etcd_fault.c: starting, and what most fault cases on etcd end with. */
#include "etcd_fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lease_s = TTL_MS / 1000;
void (*before_start)(void);
struct etcd_place *members;
struct proxy *fronts[ETCD_SERVERS];

static char direct[256];

/* The thread sanitizer asks for this. A kid is forked while the proxies have threads. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}

void use_members(size_t n, const char *params)
{
    char hosts[128] = "", tail[128];

    members = etcd_place_new(n);
    rig.place->own = members;
    if (before_start)
        before_start();
    etcd_start_all(members);
    for (size_t i = 0; i < n; i++) {
        size_t at = strlen(hosts);

        fronts[i] = proxy_new(members->servers[i].port);
        snprintf(hosts + at, sizeof(hosts) - at, "%s127.0.0.1:%d", i ? "," : "",
                 proxy_port(fronts[i]));
    }
    snprintf(rig.place->url, sizeof(rig.place->url), "etcd://%s/fault?ttl=%ds%s", hosts,
             lease_s, params);
    snprintf(tail, sizeof(tail), "/fault?ttl=%ds%s", lease_s, params);
    etcd_url(members, direct, sizeof(direct), tail);
}

void use_directly(const char *params)
{
    char tail[128];

    members = etcd_place_new(1);
    rig.place->own = members;
    etcd_start_all(members);
    snprintf(tail, sizeof(tail), "/fault?ttl=%ds%s", lease_s, params);
    etcd_url(members, direct, sizeof(direct), tail);
    snprintf(rig.place->url, sizeof(rig.place->url), "%s", direct);
}

void wait_at(size_t member)
{
    snprintf(direct, sizeof(direct), "etcd://127.0.0.1:%d/fault?ttl=%ds",
             members->servers[member].port, lease_s);
}

void done(void)
{
    for (size_t i = 0; i < ETCD_SERVERS; i++)
        if (fronts[i])
            proxy_free(fronts[i]);
    etcd_place_stop(members);
}

hf_client *opened_past(void)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(direct, HF_OPTIONS(.drive = HF_DRIVE_PROMPT), &c, E()), 0);
    return c;
}

const char *ctl(const char *args, ...)
{
    static char out[65536];
    char command[1024];
    va_list ap;
    size_t n;
    FILE *f;

    n = (size_t)snprintf(
        command, sizeof(command),
        "ETCDCTL_API=3 etcdctl --command-timeout=60s --endpoints=127.0.0.1:%d ",
        members->servers[0].port);
    va_start(ap, args);
    vsnprintf(command + n, sizeof(command) - n, args, ap);
    va_end(ap);
    f = popen(command, "r");
    CHECK(f);
    n = fread(out, 1, sizeof(out) - 1, f);
    out[n] = '\0';
    CHECK_NUM(pclose(f), ==, 0);
    return out;
}

const char *key_of(hf_client *c, size_t i, char key[256])
{
    const char *at;

    (void)c;
    at = ctl("get --prefix --keys-only --sort-by=CREATE fault/n/");
    for (; i > 0 && at; i--) {
        at = strchr(at, '\n');
        while (at && *at == '\n')
            at++;
    }
    CHECK(at && sscanf(at, "%255s", key) == 1);
    return key;
}

long long lease_in(const char *key)
{
    return (long long)strtoull(strrchr(key, '/') + 1, NULL, 16);
}

struct two hold_and_wait(void)
{
    struct two t = { .a = prompted() };

    t.b = opened_past();
    t.held = taken(t.a, "n", NULL);
    t.waits = queued(t.b, "n", 1, NULL);
    return t;
}

/* Asked in this order: whoever holds when the next has been granted, holds too long. */
void two_are_right(struct two *t)
{
    if (pend_done(t->waits))
        CHECK_RC(hf_lease_check(t->held), HF_ELOST);
}

static bool line_empty(hf_client *c)
{
    hf_list *list = NULL;
    bool so;

    if (hf_look(c, "n", &list, NULL) < 0)
        return false;
    so = hf_list_count(list) == 0;
    hf_list_free(list);
    return so;
}

static void finish(struct two *t)
{
    given(pend_granted(t->waits));
    AWAIT(line_empty(t->b));
    closed(t->a);
    closed(t->b);
}

void two_go_on(struct two *t)
{
    int rc;

    CHECK(!pend_done(t->waits));
    CHECK_RC(hf_lease_check(t->held), 0);
    rc = rig.face->release(t->held, E());
    CHECK(rc == 0 || rc == HF_EUNKNOWN);
    finish(t);
}

void two_lost(struct two *t)
{
    AWAIT((two_are_right(t), hf_lease_check(t->held) == HF_ELOST));
    AWAIT((two_are_right(t), pend_done(t->waits)));
    two_ended(t);
}

/* Of the end of one key two connections hear in any order, so the next one may hold first;
 * that is what the manual says of a ticket that is ended by hand. But the one that held is
 * told by the server, not by the end of its ttl: within a moment of the grant. */
void two_ended(struct two *t)
{
    int64_t granted_at = 0;

    AWAIT((granted_at = granted_at == 0 && pend_done(t->waits) ? now_ms() : granted_at,
           hf_lease_check(t->held) == HF_ELOST));
    if (granted_at != 0)
        CHECK_WITHIN(granted_at, TTL_MS / 2);
    AWAIT(pend_done(t->waits));
    CHECK_RC(rig.face->release(t->held, E()), HF_ELOST);
    finish(t);
}
