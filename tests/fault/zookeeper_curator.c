/* zookeeper_curator.c: beside the distribution's Curator: its mutex and ours on one path
 * exclude each other, first come, first served; so do its read-write lock and ours with
 * names=rw. Levels of names below the line do not stand in its way. */
#include "zookeeper_fault.h"

#include <stdio.h>

static const char jars[] = "/usr/share/java/curator-recipes.jar"
                           ":/usr/share/java/curator-framework.jar"
                           ":/usr/share/java/curator-client.jar:/usr/share/java/guava.jar";

static struct program curator_start(void)
{
    char at[64], class_path[2048];
    const char *argv[] = { "java",
                           "-Xmx128m",
                           "-XX:+UseSerialGC",
                           "-XX:TieredStopAtLevel=1",
                           "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                           "-cp",
                           class_path,
                           SOURCES "/Curator.java",
                           at,
                           NULL };

    snprintf(class_path, sizeof(class_path), "%s:%s", jars, zk_class_path);
    snprintf(at, sizeof(at), "127.0.0.1:%d", servers->servers[0].port);
    return program_start(argv);
}

static void curator_mutex(void)
{
    hf_client *a, *b;
    struct program java;
    hf_lease *l, *none = NULL;
    struct pend *p;

    use_one("ttl=8s");
    java = curator_start();
    a = opened_at(rig.place->url);
    b = opened_at(rig.place->url);
    CHECK_STR(program_say(&java, "mutex take /fault/n 5000"), "yes");
    CHECK(line_is(a, "n", 1, 0));
    CHECK_RC(tried(a, "n", NULL), HF_EBUSY);
    CHECK_RC(rig.face->acquire(a, "n", 200, NULL, &none, E()), HF_ETIMEDOUT);
    CHECK_RC(tried(a, "n", HF_REQUEST(.mode = HF_READ)), HF_EBUSY);
    p = queued(a, "n", 1, NULL);
    CHECK_STR(program_say(&java, "mutex give /fault/n"), "yes");
    l = pend_granted(p);
    CHECK_STR(program_say(&java, "mutex take /fault/n 300"), "no"); /* ours holds */
    AWAIT(line_is(a, "n", 1, 0));
    program_ask(&java, "mutex take /fault/n 10000"); /* it queues, and we behind it */
    AWAIT(line_is(a, "n", 1, 1));
    p = queued(b, "n", 2, NULL);
    given(l);
    CHECK_STR(program_answer(&java), "yes");
    CHECK(!pend_done(p));
    CHECK_STR(program_say(&java, "mutex give /fault/n"), "yes");
    given(pend_granted(p));
    AWAIT(line_is(a, "n", 0, 0));
    l = taken(a, "n",
              HF_REQUEST(.mode = HF_READ)); /* a mutex counts every ticket before it */
    CHECK_STR(program_say(&java, "mutex take /fault/n 300"), "no");
    given(l);
    l = taken(a, "p", HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 3));
    CHECK_STR(program_say(&java, "mutex take /fault/p 300"), "no");
    given(l);
    program_end(&java);
    closed(a);
    closed(b);
    done();
}

/* Names that would sort before its own tickets, or look like one. */
static void curator_beside_levels(void)
{
    static const char *const names[] = { "n/sub",
                                         "n/0",
                                         "n/0000000000",
                                         "n/00000000000",
                                         "n/!",
                                         "n/-",
                                         "n/lock-",
                                         "n/x-lock-0000000000",
                                         "n/_c_a",
                                         "n/",
                                         "n/__READ__0000000000" };
    enum { NAMES = sizeof(names) / sizeof(names[0]) };
    hf_lease *held[NAMES];
    hf_client *c;
    struct program java;

    use_one("ttl=8s");
    java = curator_start();
    c = opened_at(rig.place->url);
    for (size_t i = 0; i < NAMES; i++)
        held[i] = taken(c, names[i], NULL);
    CHECK_STR(program_say(&java, "mutex take /fault/n 5000"), "yes");
    CHECK(line_is(c, "n", 1, 0));
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    CHECK_STR(program_say(&java, "mutex give /fault/n"), "yes");
    CHECK_RC(tried(c, "n", NULL), 0);
    CHECK_STR(program_say(&java, "write take /fault/n 5000"), "yes");
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    CHECK_STR(program_say(&java, "write give /fault/n"), "yes");
    for (size_t i = 0; i < NAMES; i++) {
        CHECK(line_is(c, names[i], 1, 0)); /* and none of them is another */
        given(held[i]);
    }
    program_end(&java);
    closed(c);
    done();
}

static void curator_read_write(void)
{
    const hf_request *read = HF_REQUEST(.mode = HF_READ);
    hf_client *c;
    struct program java;
    hf_lease *l;
    struct pend *p;

    use_one("ttl=8s&names=rw");
    java = curator_start();
    c = opened_at(rig.place->url);
    CHECK_STR(program_say(&java, "read take /fault/n 5000"), "yes");
    l = taken(c, "n", read); /* together */
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    CHECK_STR(program_say(&java, "read give /fault/n"), "yes");
    CHECK_STR(program_say(&java, "write take /fault/n 300"), "no");
    given(l);
    CHECK_STR(program_say(&java, "write take /fault/n 5000"), "yes");
    CHECK_RC(tried(c, "n", read), HF_EBUSY);
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    /* It becomes a reader. Before anybody waits: Curator 5.4 gives the reader a place of
     * its own, at the end, so that a writer in between comes in beside it, one of Curator's
     * no less. */
    CHECK_STR(program_say(&java, "read take /fault/n 5000"), "yes");
    p = queued(c, "n", 2, NULL);
    CHECK_STR(program_say(&java, "write give /fault/n"), "yes");
    AWAIT(line_is(c, "n", 1, 1));
    STAYS(!pend_done(p), 500);
    CHECK_STR(program_say(&java, "read give /fault/n"), "yes");
    l = pend_granted(p);
    CHECK_STR(program_say(&java, "read take /fault/n 300"), "no");
    CHECK_RC(hf_lease_downgrade(l, E()), 0);
    CHECK_STR(program_say(&java, "read take /fault/n 5000"),
              "yes"); /* we have become one */
    CHECK_STR(program_say(&java, "read give /fault/n"), "yes");
    CHECK_STR(program_say(&java, "write take /fault/n 300"), "no");
    given(l);
    AWAIT(line_is(c, "n", 0, 0));
    program_end(&java);
    closed(c);
    done();
}

const struct test_case zookeeper_curator_cases[] = {
    { "curator-mutex", curator_mutex, ON_ALL, 0, 0 },
    { "curator-beside-levels", curator_beside_levels, ON_ALL, 0, 0 },
    { "curator-read-write", curator_read_write, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
