/* look.c: what others see of a line: hf_look, hf_ls, notes, hf_watch_start. Looking moves
 * nothing and shows what is there, in order.
 */
#include "rig.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void show_lock(void)
{
    struct kid k = kid_new();
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.note = "why\ta \"note\" é", .owner = 7));
    struct pend *w;
    struct seen s, s1, s2;
    hf_list *list = NULL;
    const hf_line *line;
    char host[256];

    kid_begin(&k, 0, nm("n"), HF_FOREVER, HF_REQUEST(.mode = HF_READ, .note = "reader"));
    await_line(b, nm("n"), 1, 1);
    w = queued(a, nm("n"), 2, HF_REQUEST(.mode = HF_WRITE));
    CHECK(see(b, nm("n"), 0, &s) && see(b, nm("n"), 1, &s1) && see(b, nm("n"), 2, &s2));
    CHECK(gethostname(host, sizeof(host)) == 0);
    CHECK(s.fence == hf_lease_fence(l) && s.position == 0 && s.mode == HF_WRITE);
    CHECK_STR(s.note, "why\ta \"note\" é");
    CHECK_STR(s.host, host);
    CHECK(s.pid == getpid() && s.permits == 0 && !s.broken && s.owner[0]);
    CHECK(s.age_ms >= 0 && s.age_ms < LIMIT_MS && s.expires_ms > 0);
    CHECK(s1.fence == 0 && s1.position == 1 && s1.mode == HF_READ && s1.pid == k.pid);
    CHECK_STR(s1.note, "reader");
    CHECK(s2.fence == 0 && s2.position == 2 && s2.mode == HF_WRITE && s2.pid == getpid());
    CHECK_STR(s2.note, "");
    CHECK(strcmp(s.id, s1.id) && strcmp(s1.id, s2.id) && strcmp(s.id, s2.id));
    CHECK_RC(hf_look(b, nm("n"), &list, E()), 0);
    CHECK_NUM(hf_list_count(list), ==, 1);
    line = hf_list_at(list, 0);
    CHECK(line && !hf_list_at(list, 1) && !hf_line_ticket(line, 3));
    CHECK_STR(hf_line_name(line), nm("n"));
    CHECK(hf_line_mode(line) == HF_WRITE && hf_line_capacity(line) == 0);
    CHECK(hf_line_holders(line) == 1 && hf_line_waiters(line) == 2);
    CHECK(hf_line_tickets(line) == 3 && hf_line_oldest_ms(line) >= 0);
    hf_list_free(list);
    given(l);
    CHECK_RC(kid_answer(&k).rc, 0);
    CHECK_RC(kid_release(&k, 0).rc, 0);
    given(pend_granted(w));
    CHECK_RC(hf_look(b, nm("n"), &list, E()), 0);
    CHECK_NUM(hf_list_count(list), ==, 0);
    hf_list_free(list);
    kid_end(&k);
    closed(a);
    closed(b);
}

static void show_permits(void)
{
    hf_client *c = opened();
    const hf_request *two = HF_REQUEST(.mode = HF_PERMITS, .permits = 2, .capacity = 7);
    hf_lease *a = taken(c, nm("n"), two), *b = taken(c, nm("n"), two);
    hf_list *list = NULL;
    const hf_line *line;
    struct seen s;

    CHECK_RC(hf_look(c, nm("n"), &list, E()), 0);
    line = hf_list_at(list, 0);
    CHECK(line && hf_line_mode(line) == HF_PERMITS && hf_line_capacity(line) == 7);
    CHECK(hf_line_holders(line) == 2 && hf_line_waiters(line) == 0);
    hf_list_free(list);
    for (size_t i = 0; i < 2; i++) {
        CHECK(see(c, nm("n"), i, &s) && s.mode == HF_PERMITS && s.permits == 2);
        CHECK(s.fence == hf_lease_fence(i ? b : a));
    }
    given(a);
    given(b);
    closed(c);
}

enum { LINES = 8 };

struct lines {
    size_t n;
    struct {
        char name[640];
        size_t holders, waiters, tickets;
        int mode;
        int64_t oldest_ms;
    } at[LINES];
};

static void copy_lines(const hf_list *list, void *user)
{
    struct lines *l = user;

    l->n = hf_list_count(list);
    CHECK_NUM(l->n, <=, LINES);
    for (size_t i = 0; i < l->n; i++) {
        const hf_line *line = hf_list_at(list, i);

        snprintf(l->at[i].name, sizeof(l->at[i].name), "%s", hf_line_name(line));
        l->at[i].holders = hf_line_holders(line);
        l->at[i].waiters = hf_line_waiters(line);
        l->at[i].mode = hf_line_mode(line);
        l->at[i].oldest_ms = hf_line_oldest_ms(line);
        l->at[i].tickets = hf_line_tickets(line) + (hf_line_ticket(line, 0) != NULL);
    }
}

/* Also those of other cases are in order. */
static void count_mine(const hf_list *list, void *user)
{
    size_t *found = user;

    *found = 0;
    for (size_t i = 0; i < hf_list_count(list); i++) {
        const char *name = hf_line_name(hf_list_at(list, i));

        *found += strncmp(name, rig.base, strlen(rig.base)) == 0;
        CHECK(i == 0 || strcmp(hf_line_name(hf_list_at(list, i - 1)), name) < 0);
    }
}

static void list_names(void)
{
    static const char *const names[] = { "ls/a", "ls/b", "ls/b/c", "ls/c", "other" };
    enum { N = sizeof(names) / sizeof(names[0]) };
    hf_client *a = opened(), *b = opened();
    hf_lease *l[N];
    struct pend *p;
    struct lines seen;
    size_t found = 0;

    for (int i = N - 1; i >= 0; i--)
        l[i] = taken(a, nm(names[i]), NULL);
    p = queued(a, nm("ls/b"), 1, NULL);
    CHECK_RC(rig.face->ls(b, nm("ls/"), 0, copy_lines, &seen, E()), 0);
    CHECK_NUM(seen.n, ==, 4);
    for (size_t i = 0; i < 4; i++) {
        CHECK_STR(seen.at[i].name, nm(names[i]));
        CHECK(seen.at[i].holders == 1 && seen.at[i].waiters == (i == 1));
        CHECK(seen.at[i].mode == HF_WRITE && seen.at[i].oldest_ms >= 0);
        CHECK_NUM(seen.at[i].tickets, ==, 0);
    }
    CHECK_RC(rig.face->ls(b, nm("ls/"), 2, copy_lines, &seen, E()), 0);
    CHECK_NUM(seen.n, ==, 2);
    CHECK_STR(seen.at[1].name, nm("ls/b"));
    CHECK_RC(rig.face->ls(b, nm("nobody"), 0, copy_lines, &seen, E()), 0);
    CHECK_NUM(seen.n, ==, 0);
    CHECK_RC(rig.face->ls(b, NULL, 0, count_mine, &found, E()), 0);
    CHECK_NUM(found, ==, N);
    for (int i = 0; i < N; i++)
        given(l[i]);
    given(pend_granted(p));
    closed(a);
    closed(b);
}

static void note_amended(void)
{
    hf_client *a = opened(), *b = opened();
    hf_lease *l = taken(a, nm("n"), HF_REQUEST(.note = "first"));
    uint64_t fence = hf_lease_fence(l);
    char note[1100];
    struct seen s;

    CHECK_RC(rig.face->note(l, "second", E()), 0);
    CHECK(see(b, nm("n"), 0, &s));
    CHECK_STR(s.note, "second");
    memset(note, 'x', sizeof(note));
    note[1025] = '\0';
    CHECK_RC(rig.face->note(l, note, E()), HF_EINVAL);
    CHECK_RC(rig.face->note(l, "bad \xff", E()), HF_EINVAL);
    CHECK(see(b, nm("n"), 0, &s));
    CHECK_STR(s.note, "second");
    note[1024] = '\0';
    CHECK_RC(rig.face->note(l, note, E()), 0);
    CHECK(see(b, nm("n"), 0, &s));
    CHECK_STR(s.note, note);
    CHECK(s.fence == fence && hf_lease_fence(l) == fence && hf_lease_check(l) == 0);
    given(l);
    closed(a);
    closed(b);
}

struct follower {
    atomic_int calls, holders, waiters;
};

static void on_seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    struct follower *f = user;
    const hf_line *line;

    (void)op;
    (void)err;
    CHECK_RC(rc, 0);
    line = hf_list_at(list, 0);
    atomic_store(&f->holders, line ? (int)hf_line_holders(line) : 0);
    atomic_store(&f->waiters, line ? (int)hf_line_waiters(line) : 0);
    atomic_fetch_add(&f->calls, 1);
}

/* Told by whom it concerns: another process, another client, the same client. */
static void watch_told(void)
{
    struct kid k = kid_new();
    hf_client *a = opened(), *b = opened();
    struct follower f = { 0 };
    struct pend *p;
    hf_lease *l;
    hf_op *op = NULL;
    int calls;

    CHECK_RC(hf_watch_start(a, nm("n"), on_seen, &f, &op, E()), 0);
    AWAIT(f.calls >= 1);
    CHECK(f.holders == 0 && f.waiters == 0);
    CHECK_RC(kid_acquire(&k, 0, nm("n"), LIMIT_MS, NULL, NULL), 0);
    AWAIT(f.holders == 1 && f.waiters == 0);
    p = begun(b, nm("n"), HF_FOREVER, NULL);
    AWAIT(f.holders == 1 && f.waiters == 1);
    CHECK_RC(kid_release(&k, 0).rc, 0);
    l = pend_granted(p);
    AWAIT(f.holders == 1 && f.waiters == 0);
    given(l);
    AWAIT(f.holders == 0 && f.waiters == 0);
    l = taken(a, nm("n"), NULL);
    AWAIT(f.holders == 1);
    hf_op_free(op);
    calls = f.calls;
    given(l);
    given(taken(b, nm("n"), NULL));
    STAYS(f.calls == calls, 200);
    kid_end(&k);
    closed(a);
    closed(b);
}

const struct test_case look_cases[] = {
    { "show-lock", show_lock, ON_ALL, HF_CAP_LINE | HF_CAP_SHARED, CASE_TOPOLOGY },
    { "show-permits", show_permits, ON_ALL, HF_CAP_LINE | HF_CAP_PERMITS, 0 },
    { "list-names", list_names, ON_ALL, HF_CAP_LINE, CASE_TOPOLOGY },
    { "note-amended", note_amended, ON_ALL, HF_CAP_LINE, 0 },
    { "watch-told", watch_told, ON_ASYNC, HF_CAP_LINE, CASE_TOPOLOGY },
    { NULL, NULL, 0, 0, 0 },
};
