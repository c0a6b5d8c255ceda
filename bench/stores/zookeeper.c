/* zookeeper.c: the least that a ZooKeeper server could do for the same, on plain
 * sockets.
 *
 *   a pair      create2 of a ticket's node, ephemeral and sequential, and its delete, each
 *               awaited
 *   in flight   the same by one connection, so many under way at once
 *   a hand-off  a delete, the event that tells the other of it, and one read by the other;
 *               nodes and watches are made in advance, HAND of them, outside of the time
 *
 * Nodes are like the library's, with as much in them and the same rights. They stand in a
 * folder of each worker's that no name of a lock leads to, which goes in the end; what is
 * left after a kill goes with the session, and the folder, a container, by itself. */
#include "stores/jute.h"
#include "stores/link.h"

#include <stdlib.h>
#include <string.h>

enum { HAND = 32, FLIGHT_MOST = 256, ROOT_MOST = 1100, PATH_MOST = 1200 };

struct raw {
    struct jute_link *link;
    struct jute_out create;  /* ready to be sent again and again */
    char folders[ROOT_MOST]; /* without the number of the worker */
};

/* ---- opening --------------------------------------------------------------------- */

static size_t folder(const struct raw *r, char path[PATH_MOST], int index)
{
    return (size_t)snprintf(path, PATH_MOST, "%s.%d", r->folders, index);
}

/* A node for as long as the session lasts: empty containers are removed by the server. */
static size_t keeper(const struct raw *r, char path[PATH_MOST], int index)
{
    size_t n = folder(r, path, index);

    return n + (size_t)snprintf(path + n, PATH_MOST - n, "/open");
}

static int make_folder(struct raw *r, const struct worker *w, const char *root)
{
    char path[PATH_MOST];
    size_t n = strlen(root), len;

    while (n > 0 && root[n - 1] == '/')
        n--;
    if (n == 0) {
        root = "/holdfast"; /* as the library does */
        n = strlen(root);
    }
    snprintf(r->folders, ROOT_MOST, "%.*s/_bench.%s", (int)n, root,
             strrchr(w->bench->prefix, '/') + 1);
    len = folder(r, path, w->index);
    for (n = 1; n <= len; n++)
        if (n == len || path[n] == '/')
            jute_create(r->link, path, n, JUTE_CONTAINER);
    jute_create(r->link, path, keeper(r, path, w->index), JUTE_EPHEMERAL);
    return jute_answers(r->link, JUTE_NODE_EXISTS);
}

/* A node of that worker's; number -1: the server gives it one. */
static size_t node(const struct raw *r, char path[PATH_MOST], int index, int number)
{
    size_t n = folder(r, path, index);

    n += (size_t)snprintf(path + n, PATH_MOST - n,
                          "/_c_%08x-0123-4567-89ab-0123456789ab-lock-", (unsigned)index);
    if (number >= 0)
        n += (size_t)snprintf(path + n, PATH_MOST - n, "%010d", number);
    return n;
}

static int raw_open(struct worker *w)
{
    struct raw *r = w->raw = calloc(1, sizeof *r);
    char path[PATH_MOST], root[1024];
    int status;

    if (!r) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    status = jute_open(&r->link, w->bench->url, root, sizeof root);
    if (status == 0)
        status = make_folder(r, w, root);
    if (status)
        return status;
    jute_create(r->link, path, node(r, path, w->index, -1), JUTE_EPHEMERAL_SEQUENTIAL);
    r->create = r->link->out;
    r->link->out = (struct jute_out){ 0 };
    r->link->owed = 0;
    if (!r->create.failed)
        return 0;
    cli_say("out of memory");
    return EXIT_SYSTEM;
}

static void raw_close(struct worker *w)
{
    struct raw *r = w->raw;
    char path[PATH_MOST];

    if (!r)
        return;
    if (r->create.len > 0) {
        jute_delete(r->link, path, keeper(r, path, w->index));
        jute_delete(r->link, path, folder(r, path, w->index));
        jute_answers(r->link, JUTE_NOT_EMPTY); /* after a failure */
    }
    jute_close(r->link);
    if (r->create.buf) /* the password was in this room */
        explicit_bzero(r->create.buf, r->create.room);
    free(r->create.buf);
    free(r);
    w->raw = NULL;
}

/* ---- pairs ----------------------------------------------------------------------- */

static int raw_pair(struct worker *w)
{
    struct raw *r = w->raw;
    struct jute_reply reply;
    struct jute_text path;
    int status = link_send(r->link->fd, r->create.buf, r->create.len);

    r->link->owed++;
    if (status == 0)
        status = jute_answer(r->link, &reply, 0);
    if (status)
        return status;
    path = hf__jute_text(&reply.body);
    jute_delete(r->link, path.at, path.len);
    return jute_answers(r->link, 0);
}

/* ---- hand-off -------------------------------------------------------------------- */

/* Nodes of our own, and watches on those of the other, in its folder. */
static int deal(struct worker *w)
{
    struct raw *r = w->raw;
    char path[PATH_MOST], go = 'p';
    size_t len;
    int status;

    for (int i = 0; i < HAND; i++) {
        len = node(r, path, w->index, i);
        jute_create(r->link, path, len, JUTE_EPHEMERAL);
    }
    status = jute_answers(r->link, 0);
    if (status == 0)
        status = bench_meet(w, &go);
    for (int i = 0; i < HAND; i++) {
        len = node(r, path, 1 - w->index, i);
        jute_read(r->link, path, len, true);
    }
    if (status == 0)
        status = jute_answers(r->link, 0);
    return status ? status : bench_meet(w, &go);
}

static int give(struct worker *w, int i)
{
    struct raw *r = w->raw;
    char path[PATH_MOST];

    jute_delete(r->link, path, node(r, path, w->index, i));
    return jute_flush(r->link);
}

/* Waits to be told, then reads; what is still owed for the delete comes before that. */
static int get(struct worker *w, int i)
{
    struct raw *r = w->raw;
    struct jute_reply reply;
    char path[PATH_MOST];
    int status = 0;

    while (status == 0 && r->link->events == 0)
        status = jute_hear(r->link, &reply);
    r->link->events--;
    jute_read(r->link, path, node(r, path, w->index, i), false);
    return status ? status : jute_answers(r->link, JUTE_NO_NODE);
}

/* The second answers what it hears. */
static int play(struct worker *w)
{
    struct raw *r = w->raw;
    int64_t start = bench_now(), now = start;
    int status = 0;

    for (int i = 0; i < HAND && status == 0; i++) {
        int64_t begun = now;

        status = w->index == 0 ? give(w, i) : get(w, i);
        if (status == 0)
            status = w->index == 0 ? get(w, i) : give(w, i);
        now = bench_now();
        if (w->index == 0) {
            w->slice->pairs++;
            samples_add(&w->slice->samples, (double)(now - begun) / 1e3);
        }
    }
    if (w->index == 0)
        w->slice->ns += now - start;
    return status ? status : jute_answers(r->link, 0);
}

static int raw_turns(struct worker *w, int64_t until)
{
    char go = 'p';
    int status = 0;

    while (status == 0 && go == 'p') {
        status = deal(w);
        if (status == 0)
            status = play(w);
        go = bench_now() < until ? 'p' : 'q';
        if (status == 0)
            status = bench_meet(w, &go);
    }
    return status;
}

/* ---- many in flight -------------------------------------------------------------- */

struct flight {
    struct worker *worker;
    struct {
        int64_t since;
        bool holds, over;
    } slot[FLIGHT_MOST];
    int n, next, flying;
    int64_t until;
};

static void take_off(struct flight *f, int i, int64_t now)
{
    char path[PATH_MOST];
    struct raw *r = f->worker->raw;

    f->slot[i].since = now;
    jute_create(r->link, path, node(r, path, f->worker->index, -1),
                JUTE_EPHEMERAL_SEQUENTIAL);
}

/* Answers come in the order of the requests, so the slots take turns for ever. */
static int landed(struct flight *f)
{
    struct raw *r = f->worker->raw;
    struct slice *slice = f->worker->slice;
    struct jute_reply reply;
    int i = f->next, status = jute_answer(r->link, &reply, 0);
    int64_t now;

    if (status)
        return status;
    if (!f->slot[i].holds) {
        struct jute_text path = hf__jute_text(&reply.body);

        jute_delete(r->link, path.at, path.len);
    } else {
        now = bench_now();
        slice->pairs++;
        samples_add(&slice->samples, (double)(now - f->slot[i].since) / 1e3);
        f->slot[i].over = now >= f->until;
        f->flying -= f->slot[i].over;
        if (!f->slot[i].over)
            take_off(f, i, now);
    }
    f->slot[i].holds = !f->slot[i].holds;
    do
        f->next = (f->next + 1) % f->n;
    while (f->flying > 0 && f->slot[f->next].over);
    return 0;
}

static int raw_flight(struct worker *w, int n, int64_t until)
{
    struct raw *r = w->raw;
    struct flight f = { .worker = w, .until = until };
    int64_t start = bench_now();
    int status = 0;

    f.n = f.flying = n < FLIGHT_MOST ? n : FLIGHT_MOST;
    for (int i = 0; i < f.n; i++)
        take_off(&f, i, start);
    while (status == 0 && f.flying > 0) {
        status = jute_flush(r->link);
        if (status == 0)
            status = landed(&f);
        /* everything that has come is answered in one go */
        while (status == 0 && f.flying > 0 && jute_has_more(r->link))
            status = landed(&f);
    }
    w->slice->ns = bench_now() - start;
    return status;
}

/* Of several servers the library chooses one, and the limit must be that of the same one.
 */
static bool serves(const char *url)
{
    return strncmp(url, "zk://", 5) == 0 && !memchr(url + 5, ',', strcspn(url + 5, "/?"));
}

const struct bench_raw bench_raw_zookeeper = { .serves = serves,
                                               .open = raw_open,
                                               .close = raw_close,
                                               .pair = raw_pair,
                                               .turns = raw_turns,
                                               .flight = raw_flight,
                                               .pair_most = 1.2,
                                               .turns_most = 1.3,
                                               .flight_most = 1 / 0.8,
                                               .polls = true,
                                               .is = "sleeping" };
