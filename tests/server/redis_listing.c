/* redis_listing.c: what a list of lines costs: some fifty names by one script, and with a
 * limit not more of them than it needs, in the order of names. Lines without anybody and
 * keys that are no lines are left out, and keep nobody else out. */
#include "counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 2000, EMPTY = 120, BATCH = 50 };

static redisContext *way;

static void do_args(int argc, const char **argv, const size_t *len)
{
    redisReply *r = redisCommandArgv(way, argc, argv, len);

    CHECK(r && r->type != REDIS_REPLY_ERROR);
    freeReplyObject(r);
}

/* The key of a line, as lua/line.lua and bucket.c name it. */
static size_t key_of(char key[64], const char *name)
{
    uint32_t h = 2166136261u;

    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 16777619u;
    return (size_t)snprintf(key, 64, "holdfast::{%03x}:l:%s",
                            (h ^ h >> 10 ^ h >> 20) % 1024, name);
}

/* As a line that was followed, and in which nobody is. */
static void empty_line(const char *name)
{
    char key[64], header[58] = { 2 };
    const char *argv[] = { "HSET", key, "", header };
    size_t len[] = { 4, key_of(key, name), 0, sizeof header };

    do_args(4, argv, len);
}

static void no_line(const char *name)
{
    char key[64];
    const char *argv[] = { "SET", key, "x" };
    size_t len[] = { 3, key_of(key, name), 1 };

    do_args(3, argv, len);
}

struct lines_seen {
    size_t n;
    char first[32], last[32];
    bool right; /* all as they were taken */
};

static void look_at(const hf_list *list, void *user)
{
    struct lines_seen *s = user;

    s->n = hf_list_count(list);
    s->right = true;
    for (size_t i = 0; i < s->n; i++) {
        const hf_line *l = hf_list_at(list, i);

        s->right = s->right && hf_line_holders(l) == 1 && hf_line_waiters(l) == 0 &&
                   hf_line_mode(l) == HF_WRITE && hf_line_oldest_ms(l) >= 0;
        snprintf(i == 0 ? s->first : s->last, sizeof s->last, "%s", hf_line_name(l));
    }
}

static int64_t scripts_of(hf_client *c, size_t limit, struct lines_seen *s)
{
    int64_t before = calls("evalsha") + calls("eval");

    memset(s, 0, sizeof *s);
    CHECK_RC(rig.face->ls(c, "ls/", limit, look_at, s, E()), 0);
    CHECK(s->right);
    return calls("evalsha") + calls("eval") - before;
}

static void listing(void)
{
    hf_lease **leases = calloc(NAMES, sizeof *leases);
    struct lines_seen s;
    char name[32];
    hf_client *a, *b;

    CHECK(leases);
    begin();
    way = redisConnectUnix(server.socket);
    CHECK(way && !way->err);
    a = opened();
    b = opened();
    for (int i = NAMES - 1; i >= 0; i--) {
        snprintf(name, sizeof name, "ls/%04d", i);
        leases[i] = taken(a, name, HF_REQUEST(.ttl_ms = LONG_MS));
    }
    CHECK_NUM(scripts_of(b, 0, &s), <=, 2 * (NAMES / BATCH));
    CHECK_NUM(s.n, ==, NAMES);
    CHECK_NUM(scripts_of(b, 10, &s), <=, 3);
    CHECK_NUM(s.n, ==, 10);
    CHECK_STR(s.first, "ls/0000");
    CHECK_STR(s.last, "ls/0009");
    for (int i = 0; i < EMPTY; i++) {
        snprintf(name, sizeof name, "ls/!%04d", i);
        empty_line(name);
    }
    no_line("ls/!");
    no_line("ls/00");
    CHECK_NUM(scripts_of(b, 10, &s), <=, 6);
    CHECK_NUM(s.n, ==, 10);
    CHECK_STR(s.first, "ls/0000");
    CHECK_STR(s.last, "ls/0009");
    CHECK_NUM(scripts_of(b, 0, &s), <=, 2 * (NAMES / BATCH));
    CHECK_NUM(s.n, ==, NAMES);
    CHECK_NUM(scripts_of(b, NAMES, &s), <=, 2 * (NAMES / BATCH));
    CHECK_NUM(s.n, ==, NAMES);
    for (int i = 0; i < NAMES; i++)
        given(leases[i]);
    redisFree(way);
    free(leases);
    closed(a);
    closed(b);
    end();
}

const struct test_case listing_cases[] = {
    { "listing", listing, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
