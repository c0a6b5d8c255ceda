/* redis_format.c: the stored form of a line. Clients of another format and ours leave each
 * other's lines alone: format-1/ has the scripts of holdfast as they were before the format
 * became 2, and they run here against today's lines. And what a renewal writes. */
#include "counts.h"

#include <stdio.h>
#include <string.h>

enum { NOTE = 1000, RENEWALS = 100, ACQUIRES = 4 };

static char old_text[16384];

static const char *old_script(const char *name)
{
    char path[512];
    FILE *f;
    size_t n;

    snprintf(path, sizeof(path), "%s/%s.lua", FORMAT_1, name);
    f = fopen(path, "r");
    CHECK(f);
    n = fread(old_text, 1, sizeof(old_text) - 1, f);
    CHECK(n > 0 && feof(f));
    fclose(f);
    old_text[n] = '\0';
    return old_text;
}

/* "holdfast::{xyz}:" of a line that is there. */
static void prefix_of(const char *name, char prefix[128])
{
    const char *key = redis_text(&server, "KEYS *:l:%s", name);

    CHECK(key[0]);
    snprintf(prefix, 128, "%.*s", (int)(strstr(key, "l:") - key), key);
}

static void content(const char *prefix, const char *name, char text[8192])
{
    snprintf(text, 8192, "%s", redis_text(&server, "HGETALL %sl:%s", prefix, name));
    CHECK(text[0] && strlen(text) < 8191);
}

/* By a client of format 1, with a token that is one letter over and over. */
static redisReply *old_join(const char *prefix, const char *name, char letter)
{
    static const char head[34] = { [0] = 1, [6] = '\x80', [14] = '\x80', [21] = 1 };
    static const char whose[16 + 30] = "client-of-old-01\1";
    char token[17] = "";

    memset(token, letter, 16);
    return redis_ask(&server,
                     "EVAL %s 4 %sl:%s %sw:%s %sq:%s %sm pholdfast::@ %s %b 60000 %b",
                     old_script("join"), prefix, name, prefix, name, prefix, name, prefix,
                     token, head, sizeof(head), whose, sizeof(whose));
}

static void is_format(redisReply *r, int format)
{
    CHECK(r->type == REDIS_REPLY_ARRAY && r->elements == 2);
    CHECK_STR(r->element[0]->str, "f");
    CHECK_NUM(r->element[1]->integer, ==, format);
    freeReplyObject(r);
}

/* ---- an old line, a client of today ---------------------------------------------- */

static void count(const hf_list *list, void *user)
{
    *(size_t *)user = hf_list_count(list);
}

static void old_line(void)
{
    hf_client *c;
    hf_lease *lease, *none = NULL;
    hf_list *list = NULL;
    char prefix[128], before[8192], after[8192];
    redisReply *r;
    hf_error e;
    size_t seen = 0;

    begin();
    c = opened();
    lease = taken(c, "old/line", HF_REQUEST(.ttl_ms = LONG_MS));
    prefix_of("old/line", prefix);
    given(lease);
    r = old_join(prefix, "old/line", 'h');
    CHECK_NUM(r->type, ==, REDIS_REPLY_INTEGER); /* it holds */
    freeReplyObject(r);
    content(prefix, "old/line", before);
    lease = taken(c, "old/other", HF_REQUEST(.ttl_ms = LONG_MS));
    for (int i = 0; i < ACQUIRES; i++) {
        CHECK_RC(rig.face->acquire(c, "old/line", i % 2 ? 0 : 1000, NULL, &none, &e),
                 HF_EVERSION);
        CHECK(strstr(e.text, "format 1"));
    }
    CHECK_RC(hf_look(c, "old/line", &list, E()), HF_EVERSION);
    CHECK_RC(rig.face->state(c, "old/line", E()), HF_EVERSION);
    CHECK_RC(rig.face->ls(c, "old/", 0, count, &seen, E()), 0);
    CHECK_NUM(seen, ==, 1); /* it hides no other */
    content(prefix, "old/line", after);
    CHECK_STR(after, before);
    given(lease);
    closed(c);
    end();
}

/* ---- a line of today, an old client ---------------------------------------------- */

static void new_line(void)
{
    static const char stranger[] = "jjjjjjjjjjjjjjjj";
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    char p[128], before[8192], after[8192];
    redisReply *r;

    begin();
    a = opened();
    b = prompted();
    held = taken(a, "new", HF_REQUEST(.ttl_ms = LONG_MS, .note = "today"));
    waits = queued(b, "new", 1, HF_REQUEST(.ttl_ms = LONG_MS));
    prefix_of("new", p);
    content(p, "new", before);
    is_format(old_join(p, "new", 'j'), 2);
    is_format(redis_ask(&server, "EVAL %s 4 %sl:new %sw:new %sq:new %sm p@ %s",
                        old_script("leave"), p, p, p, p, stranger),
              2);
    is_format(redis_ask(&server,
                        "EVAL %s 5 %sl:new %sw:new %sq:new %sm %se:new p@ %s 60000",
                        old_script("wait"), p, p, p, p, p, "client-of-old-01"),
              2);
    r = redis_ask(&server, "EVAL %s 1 %sl:new %s 60000", old_script("renew"), p, stranger);
    CHECK(r->type == REDIS_REPLY_ARRAY && r->elements == 1);
    CHECK_NUM(r->element[0]->integer, ==, 0); /* it holds nothing there */
    freeReplyObject(r);
    content(p, "new", after);
    CHECK_STR(after, before);
    given(held);
    given(pend_granted(waits));
    closed(a);
    closed(b);
    end();
}

/* ---- what a renewal writes ------------------------------------------------------- */

static int64_t appended(void)
{
    long long bytes = 0;

    CHECK_NUM(sscanf(redis_info(&server, "aof_current_size"), "%lld", &bytes), ==, 1);
    return bytes;
}

/* What stands in the file goes to the replicas, too. The note was written once. */
static void renewal_bytes(void)
{
    hf_client *c;
    hf_lease *lease;
    char note[NOTE + 1], key[128];
    int64_t before;

    begin();
    memset(note, 'n', NOTE);
    note[NOTE] = '\0';
    c = opened();
    lease = taken(c, "n", HF_REQUEST(.ttl_ms = LONG_MS, .note = note));
    before = appended();
    CHECK_NUM(before, >, NOTE);
    for (int i = 0; i < RENEWALS; i++)
        CHECK_RC(hf_lease_renew(lease, 0, E()), 0);
    CHECK_NUM(appended() - before, >, 100 * RENEWALS);
    CHECK_NUM(appended() - before, <, 500 * RENEWALS);
    snprintf(key, sizeof(key), "%s", redis_text(&server, "KEYS *:l:n"));
    CHECK_NUM(redis_number(&server, "HLEN %s", key), ==, 3);
    given(lease);
    CHECK_NUM(redis_number(&server, "EXISTS %s", key), ==, 0);
    closed(c);
    end();
}

const struct test_case format_cases[] = {
    { "old_line", old_line, ON_ALL, 0, 0 },
    { "new_line", new_line, ON_ALL, 0, 0 },
    { "renewal_bytes", renewal_bytes, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
