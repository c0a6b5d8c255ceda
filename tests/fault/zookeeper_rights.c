/* zookeeper_rights.c: rights that are taken away while somebody waits, levels that the
 * server removes when nobody needs them, and nodes that look like ours and belong to
 * another session.
 *
 * Whoever waits for news that cannot come is told so (G4, G11). Nothing is left behind
 * (G7). A node counts as ours only if the session that keeps it is ours: another's may
 * end at any moment while we believe that we hold (G1). */
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALL = 31, NO_READ = 30 };

static void first_ticket(struct hand *h, char path[1024])
{
    const char *children = hand_children(h, "/fault/n");

    CHECK_NUM(count_lines(children), ==, 1);
    snprintf(path, 1024, "/fault/n/%.*s", (int)strcspn(children, "\n"), children);
}

/* ---- rights ---------------------------------------------------------------------- */

enum { HOLDERS_MOST = 70 };

/* Two wait; one that stands before them goes, and who is next is not to be seen any more.
 */
static void list_refused(const char *params, const hf_request *req, size_t holders)
{
    struct pend *first, *second;
    struct hand h;
    hf_client *a, *b;
    hf_lease *l[HOLDERS_MOST];

    use_one(params);
    h = hand_open(servers->servers[0].port, 60000);
    a = opened_at(rig.place->url);
    b = opened_at(rig.place->url);
    for (size_t i = 0; i < holders; i++)
        l[i] = taken(a, "n", req);
    first = queued(b, "n", 1, req);
    second = queued(b, "n", 2, req);
    CHECK_NUM(hand_allow(&h, "/fault/n", NO_READ), ==, 0);
    given(l[0]);
    CHECK_RC(pend_end(first, NULL), HF_EAUTH);
    CHECK_RC(pend_end(second, NULL), HF_EAUTH);
    CHECK_NUM(hand_allow(&h, "/fault/n", ALL), ==, 0);
    for (size_t i = 1; i < holders; i++)
        given(l[i]);
    CHECK_STR(hand_children(&h, "/fault/n"), ""); /* they have left */
    given(taken(b, "n", req));
    hand_close(&h);
    closed(a);
    closed(b);
    done();
}

static void list_refused_to_writers(void)
{
    list_refused("names=rw&ttl=12s", NULL, 1);
}

/* So many hold that the line itself is watched: who may not read it is told nothing, and
 * learns it by looking again. */
static void list_refused_to_permits(void)
{
    list_refused("ttl=12s",
                 HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = HOLDERS_MOST),
                 HOLDERS_MOST);
}

/* A few are watched by themselves: their ends are told, and no list is needed. */
static void no_list_for_permits(void)
{
    const hf_request *req = HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 2);
    struct pend *first;
    struct hand h;
    hf_client *a, *b;
    hf_lease *l[2];

    use_one("ttl=12s");
    h = hand_open(servers->servers[0].port, 60000);
    a = opened_at(rig.place->url);
    b = opened_at(rig.place->url);
    for (int i = 0; i < 2; i++)
        l[i] = taken(a, "n", req);
    first = queued(b, "n", 1, req);
    CHECK_NUM(hand_allow(&h, "/fault/n", NO_READ), ==, 0);
    given(l[0]);
    given(pend_granted(first));
    given(l[1]);
    hand_close(&h);
    closed(a);
    closed(b);
    done();
}

/* Of the end of a node that may not be read at that moment nobody is told. */
static void event_kept_back(void)
{
    struct hand h;
    struct two t;
    char path[1024];

    use_one("ttl=12s");
    h = hand_open(servers->servers[0].port, 60000);
    t.a = opened_at(rig.place->url);
    t.b = opened_at(rig.place->url);
    t.held = taken(t.a, "n", NULL);
    t.fence = hf_lease_fence(t.held);
    first_ticket(&h, path);
    t.waits = queued(t.b, "n", 1, NULL);
    CHECK_NUM(hand_allow(&h, path, NO_READ), ==, 0);
    two_go_on(&t);
    hand_close(&h);
    done();
}

/* ---- levels ---------------------------------------------------------------------- */

static bool has(struct hand *h, const char *path, const char *child)
{
    char children[4096] = "\n", line[64];

    snprintf(children + 1, sizeof(children) - 1, "%s", hand_children(h, path));
    snprintf(line, sizeof(line), "\n%s\n", child);
    return strstr(children, line) != NULL;
}

/* The server looks for containers without children more often than once a minute. */
static void levels_removed(void)
{
    static const char often[] = "-Dznode.container.checkIntervalMs=100";
    struct hand h;
    hf_client *c;
    hf_lease *l;

    CHECK(setenv("JAVA_TOOL_OPTIONS", often, 1) == 0);
    use_one("ttl=12s");
    CHECK(unsetenv("JAVA_TOOL_OPTIONS") == 0);
    h = hand_open(servers->servers[0].port, 60000);
    c = opened();
    for (int i = 0; i < 3; i++) { /* and they are made again, under the same client */
        l = taken(c, "job/night", NULL);
        CHECK_NUM(count_lines(hand_children(&h, "/fault/job/night")), ==, 1);
        STAYS(hf_lease_check(l) == 0 && has(&h, "/fault/job", "night"), 300);
        given(l);
        AWAIT(!has(&h, "/fault/job", "night"));
        AWAIT(!has(&h, "/fault", "job"));
        AWAIT(!has(&h, "/", "fault"));
    }
    closed(c);
    hand_close(&h);
    done();
}

/* ---- nodes of another session ---------------------------------------------------- */

/* Our ticket is made, the answer is on its way, and in its place is one of another
 * session now. */
struct changeling {
    struct hand h;
    hf_client *c, *direct;
    struct pend *p;
    struct seen first;
};

static struct changeling changeling_put(void)
{
    struct changeling k;
    char path[1024];

    use_one_by_proxy("ttl=12s");
    k.h = hand_open(servers->servers[0].port, 60000);
    k.c = prompted();
    k.direct = opened_past();
    given(taken(k.c, "n", NULL));
    proxy_freeze(proxy, PROXY_PRESENT, PROXY_DOWN);
    k.p = begun(k.c, "n", HF_FOREVER, NULL);
    AWAIT(see(k.direct, "n", 0, &k.first));
    first_ticket(&k.h, path);
    CHECK_NUM(hand_delete(&k.h, path), ==, 0);
    CHECK_NUM(hand_create(&k.h, path, JUTE_EPHEMERAL), ==, 0);
    return k;
}

static void changeling_end(struct changeling *k)
{
    AWAIT(line_is(k->direct, "n", 0, 0));
    closed(k->c);
    closed(k->direct);
    done();
}

/* Looked for by its token, and found: it is not the one that was made, and another is
 * made. */
static void found_of_another_session(void)
{
    struct changeling k = changeling_put();
    struct seen s;
    hf_lease *l;

    proxy_drop(proxy);
    proxy_freeze(proxy, PROXY_PRESENT, 0);
    l = pend_granted(k.p);
    CHECK(see(k.direct, "n", 0, &s));
    CHECK(strcmp(s.id, k.first.id) != 0);
    CHECK(hf_lease_fence(l) == s.fence);
    hand_close(&k.h); /* nothing of ours goes with it */
    CHECK(line_is(k.direct, "n", 1, 0));
    CHECK_RC(hf_lease_check(l), 0);
    given(l);
    changeling_end(&k);
}

/* The answer comes, and all seems well; but a look at the node itself shows whose it
 * is. */
static void held_by_another_session(void)
{
    struct changeling k = changeling_put();
    hf_lease *l;

    proxy_freeze(proxy, PROXY_PRESENT, 0);
    l = pend_granted(k.p);
    AWAIT(hf_lease_state(l) == HF_LOST);
    CHECK(line_is(k.direct, "n", 1, 0)); /* the other's is not touched */
    CHECK_RC(rig.face->release(l, E()), HF_ELOST);
    CHECK(line_is(k.direct, "n", 1, 0));
    hand_close(&k.h);
    changeling_end(&k);
}

/* ---- an administrator ------------------------------------------------------------ */

/* Does what the library tells an administrator to run in zkCli.sh. */
static void run_as_told(struct hand *h, const char *url)
{
    static const char letters[] = "rwcda"; /* the bits of rights, from the lowest */
    char *text = NULL, path[1024], who[64];

    CHECK_RC(hf_admin_text(url, &text, E()), 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (sscanf(line, "create %1023s", path) == 1) {
            int rc = hand_create(h, path, JUTE_PERSISTENT);

            CHECK(rc == 0 || rc == JUTE_NODE_EXISTS);
        } else {
            int rights = 0;

            CHECK(sscanf(line, "setAcl %1023s world:anyone:%63s", path, who) == 2);
            for (const char *p = who; *p; p++) {
                CHECK(strchr(letters, *p));
                rights |= 1 << (strchr(letters, *p) - letters);
            }
            CHECK_NUM(hand_allow(h, path, rights), ==, 0);
        }
    free(text);
}

/* Clients may not make a root of their own; with the one that an administrator has made
 * they can do everything. */
static void root_as_told(void)
{
    struct hand h;
    hf_client *a, *b;
    struct pend *p;
    hf_lease *l = NULL;
    char url[256], *text = NULL;

    use_one("");
    h = hand_open(servers->servers[0].port, 60000);
    CHECK_NUM(hand_create(&h, "/closed", JUTE_PERSISTENT), ==, 0);
    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/closed/app?namespace=ns&ttl=4s",
             servers->servers[0].port);
    CHECK_NUM(hand_allow(&h, "/closed", ALL & ~4), ==, 0); /* not to create */
    a = opened_at(url);
    CHECK_RC(rig.face->acquire(a, "n", 0, NULL, &l, E()), HF_EAUTH);
    CHECK_NUM(hand_allow(&h, "/closed", ALL), ==, 0);
    run_as_told(&h, url);
    CHECK_NUM(hand_allow(&h, "/closed", ALL & ~4), ==, 0);
    b = opened_at(url);
    l = taken(a, "n", NULL);
    p = queued(b, "n", 1, NULL);
    given(l);
    given(pend_granted(p));
    hand_close(&h);
    closed(a);
    closed(b);
    CHECK_RC(hf_admin_text("zks://jobs:Tops3cret@h/a%20b", &text, E()), 0);
    CHECK_STR(text,
              "addauth digest jobs:PASSWORD\ncreate '/a b'\nsetAcl '/a b' auth::cra\n");
    free(text);
    done();
}

const struct test_case zookeeper_rights_cases[] = {
    { "list-refused-to-writers", list_refused_to_writers, ON_ALL, 0, 0 },
    { "list-refused-to-permits", list_refused_to_permits, ON_ALL, 0, 0 },
    { "no-list-for-permits", no_list_for_permits, ON_ALL, 0, 0 },
    { "event-kept-back", event_kept_back, ON_ALL, 0, 0 },
    { "levels-removed", levels_removed, ON_ALL, 0, 0 },
    { "found-of-another-session", found_of_another_session, ON_ALL, 0, 0 },
    { "root-as-told", root_as_told, ON_ALL, 0, 0 },
    { "held-by-another-session", held_by_another_session, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
