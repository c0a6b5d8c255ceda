/* zookeeper_kazoo.c: beside the distribution's kazoo (package python3-kazoo): its Lock that
 * was told of our tickets (extra_lock_patterns) and ours on one path exclude each other,
 * first come, first served, whoever comes first. So do its ReadLock and WriteLock, and
 * those of them that can go together do. A Lock that was told nothing is waited for.
 *
 * Not tested: a writer that comes while a reader of kazoo's waits. Releases before 2.9 let
 * that reader wait for the writer behind it, also among themselves. */
#include "zookeeper_fault.h"

#include <stdio.h>

static struct program kazoo;

static void kazoo_start(const char *params)
{
    char at[64];
    const char *argv[] = { "/usr/bin/python3", SOURCES "/zookeeper_kazoo.py", at, NULL };

    use_one(params);
    snprintf(at, sizeof(at), "127.0.0.1:%d", servers->servers[0].port);
    kazoo = program_start(argv);
}

static void kazoo_end(void)
{
    program_end(&kazoo);
    done();
}

#define ASK(...)                                                                           \
    do {                                                                                   \
        char order_[512];                                                                  \
        snprintf(order_, sizeof(order_), __VA_ARGS__);                                     \
        program_ask(&kazoo, order_);                                                       \
    } while (0)

#define HEARS(text) CHECK_STR(program_answer(&kazoo), text)
#define SAYS(text, ...)                                                                    \
    do {                                                                                   \
        ASK(__VA_ARGS__);                                                                  \
        HEARS(text);                                                                       \
    } while (0)

#define READING HF_REQUEST(.mode = HF_READ)
#define PERMIT HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = 3)

/* ---- in turn --------------------------------------------------------------------- */

enum { MEMBERS = 6 };

/* They come one after the other, ours and kazoo's alternately, and get it so. */
static void in_turn(hf_client *const clients[2], bool kazoo_first)
{
    struct pend *ours[MEMBERS] = { NULL };
    hf_lease *held = NULL;
    char yes[32];

    for (int i = 0; i < MEMBERS; i++) {
        if ((i % 2 == 0) == kazoo_first)
            ASK("take k%d", i);
        else
            ours[i] = begun(clients[i / 2 % 2], "n", HF_FOREVER, NULL);
        await_line(clients[0], "n", 1, (size_t)i);
    }
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(yes, sizeof(yes), "k%d True", i);
        if (ours[i])
            held = pend_granted(ours[i]);
        else
            HEARS(yes);
        CHECK(line_is(clients[0], "n", 1, (size_t)(MEMBERS - 1 - i)));
        for (int k = i + 1; k < MEMBERS; k++)
            CHECK(!ours[k] || !pend_done(ours[k]));
        CHECK(!program_answered(&kazoo));
        if (ours[i])
            given(held);
        else
            SAYS(yes, "give k%d", i);
    }
    await_line(clients[0], "n", 0, 0);
}

static void kazoo_in_turn(void)
{
    hf_client *clients[2];
    char made[32];

    kazoo_start("ttl=24s");
    clients[0] = opened_at(rig.place->url);
    clients[1] = opened_at(rig.place->url);
    for (int i = 0; i < MEMBERS; i++) {
        snprintf(made, sizeof(made), "k%d None", i);
        SAYS(made, "new k%d Lock /fault/n -lock-", i);
    }
    in_turn(clients, false);
    in_turn(clients, true);
    closed(clients[0]);
    closed(clients[1]);
    kazoo_end();
}

/* ---- exclusion ------------------------------------------------------------------- */

/* What we hold, in whatever mode, its Lock that was told of us does not get. */
static void ours_excludes(hf_client *c, const hf_request *req)
{
    hf_lease *l = taken(c, "n", req);

    SAYS("k False", "take k 0");
    CHECK(line_is(c, "n", 1, 0)); /* and its ticket is gone */
    SAYS("k LockTimeout", "take k 0.2");
    CHECK(line_is(c, "n", 1, 0));
    ASK("take k");
    await_line(c, "n", 1, 1);
    CHECK_RC(hf_lease_check(l), 0);
    CHECK(!program_answered(&kazoo));
    given(l);
    HEARS("k True");
    SAYS("k True", "give k");
}

/* And what one of its holds, told or not, we do not get. */
static void theirs_excludes(hf_client *c, const char *id)
{
    char yes[32];
    hf_lease *l = NULL;
    struct pend *p;

    snprintf(yes, sizeof(yes), "%s True", id);
    SAYS(yes, "take %s 0", id);
    CHECK(line_is(c, "n", 1, 0));
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    CHECK_RC(tried(c, "n", READING), HF_EBUSY);
    CHECK_RC(rig.face->acquire(c, "n", 200, NULL, &l, E()), HF_ETIMEDOUT);
    await_line(c, "n", 1, 0);
    p = queued(c, "n", 1, READING);
    CHECK(!pend_done(p));
    SAYS(yes, "give %s", id);
    given(pend_granted(p));
}

static void kazoo_excludes(void)
{
    hf_client *c;
    hf_lease *l;
    struct pend *p;

    kazoo_start("ttl=24s");
    c = opened_at(rig.place->url);
    SAYS("k None", "new k Lock /fault/n -lock-");
    SAYS("deaf None", "new deaf Lock /fault/n");
    ours_excludes(c, NULL);
    ours_excludes(c, READING);
    theirs_excludes(c, "k");
    theirs_excludes(c, "deaf");
    l = taken(c, "n", NULL);
    SAYS("deaf True", "take deaf 0"); /* that is why it must be told */
    SAYS("deaf True", "give deaf");
    ASK("take k"); /* ours becomes shared, and still stands before it */
    await_line(c, "n", 1, 1);
    CHECK_RC(hf_lease_downgrade(l, E()), 0);
    p = queued(c, "n", 2, READING);
    CHECK(!program_answered(&kazoo));
    given(l);
    HEARS("k True");
    CHECK(!pend_done(p));
    SAYS("k True", "give k");
    given(pend_granted(p));
    SAYS("k None", "new k Lock /fault/p -lock-");
    l = taken(c, "p", PERMIT);
    SAYS("k False", "take k 0");
    given(l);
    SAYS("k True", "take k 0");
    CHECK_RC(tried(c, "p", PERMIT), HF_EMISMATCH);
    closed(c);
    kazoo_end();
}

enum { COUNTS = 60 };

static int number_in(const char *path, int add)
{
    FILE *f = fopen(path, "r+");
    int number = 0;

    CHECK(f && fscanf(f, "%d", &number) == 1);
    rewind(f);
    if (add)
        fprintf(f, "%d", number + add);
    CHECK(fclose(f) == 0);
    return number;
}

/* What is read and written back is never written by two. */
static void kazoo_counts(void)
{
    hf_client *c;
    char path[256];

    kazoo_start("ttl=24s");
    c = opened_at(rig.place->url);
    file_put(servers->servers[0].dir, "number", "w", "0");
    snprintf(path, sizeof(path), "%s/number", servers->servers[0].dir);
    SAYS("k None", "new k Lock /fault/n -lock-");
    SAYS("m None", "new m Lock /fault/n -lock-");
    ASK("count k %d %s", COUNTS, path);
    ASK("count m %d %s", COUNTS, path);
    for (int i = 0; i < COUNTS; i++) {
        hf_lease *l = taken(c, "n", NULL);

        number_in(path, 1);
        given(l);
    }
    program_answer(&kazoo); /* whichever is first */
    program_answer(&kazoo);
    CHECK_NUM(number_in(path, 0), ==, 3 * COUNTS);
    closed(c);
    kazoo_end();
}

/* ---- reading and writing --------------------------------------------------------- */

static void readers_together(hf_client *c)
{
    hf_lease *l;

    SAYS("r True", "take r 0");
    l = taken(c, "n", READING);
    CHECK(line_is(c, "n", 2, 0));
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    SAYS("s True", "take s 0");
    CHECK(line_is(c, "n", 3, 0));
    SAYS("r True", "give r");
    SAYS("s True", "give s");
    SAYS("w False", "take w 0");
    given(l);
}

static void writers_alone(hf_client *c)
{
    hf_lease *l = taken(c, "n", NULL);
    struct pend *p;

    SAYS("w False", "take w 0");
    SAYS("r False", "take r 0");
    ASK("take r");
    await_line(c, "n", 1, 1);
    CHECK(!program_answered(&kazoo));
    CHECK_RC(hf_lease_downgrade(l, E()), 0); /* which lets it in */
    HEARS("r True");
    CHECK(line_is(c, "n", 2, 0));
    SAYS("r True", "give r");
    ASK("take w"); /* in between two of our readers */
    await_line(c, "n", 1, 1);
    p = queued(c, "n", 2, READING);
    CHECK(!program_answered(&kazoo));
    given(l);
    HEARS("w True");
    CHECK(line_is(c, "n", 1, 1));
    CHECK(!pend_done(p));
    CHECK_RC(tried(c, "n", NULL), HF_EBUSY);
    SAYS("w True", "give w");
    l = pend_granted(p);
    SAYS("r True", "take r 0");
    SAYS("r True", "give r");
    given(l);
}

/* patterns: those by which it sees our exclusive tickets, and the shared ones. */
static void read_write(const char *params, const char *exclusive, const char *shared)
{
    hf_client *c;

    kazoo_start(params);
    c = opened_at(rig.place->url);
    SAYS("r None", "new r ReadLock /fault/n %s", exclusive);
    SAYS("s None", "new s ReadLock /fault/n %s", exclusive);
    SAYS("w None", "new w WriteLock /fault/n %s %s", exclusive, shared);
    readers_together(c);
    writers_alone(c);
    await_line(c, "n", 0, 0);
    closed(c);
    kazoo_end();
}

static void kazoo_read_write(void)
{
    read_write("ttl=24s", "(?<!-read)-lock-", "-read-lock-");
}

static void kazoo_read_write_rw(void)
{
    read_write("ttl=24s&names=rw", "__WRIT__", "__READ__");
}

const struct test_case zookeeper_kazoo_cases[] = {
    { "kazoo-in-turn", kazoo_in_turn, ON_ALL, 0, 0 },
    { "kazoo-excludes", kazoo_excludes, ON_ALL, 0, 0 },
    { "kazoo-counts", kazoo_counts, ON_ALL, 0, 0 },
    { "kazoo-read-write", kazoo_read_write, ON_ALL, 0, 0 },
    { "kazoo-read-write-rw", kazoo_read_write_rw, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
