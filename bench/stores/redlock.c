/* redlock.c: the least that several Redis servers could do for the same, on plain
 * sockets, twice. As Redlock has to do it: the driver's own scripts of a vote and of giving
 * back go to all of them at once, and the answers of a majority are waited for. And what no
 * lock can do with less: PING there and back, to a bare majority. The key is outside the
 * library's own; it goes in the end, and the marks are those of the library, which only
 * grow. */
#include "stores/wire.h"

#include "driver/redis/script.h" /* data alone: what EVALSHA runs */

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MOST = 15 };

struct raw {
    unsigned n;     /* of those that are asked */
    unsigned await; /* so many answers are waited for */
    struct wire *wires[NODES_MOST];
    unsigned owed[NODES_MOST]; /* answers to come */
    size_t lock_len, free_len;
    char lock[1024], free[1024];
};

static void put_script(struct wire_text *t, enum script_id id, const struct worker *w,
                       const char *keys, size_t args)
{
    char key[200];

    snprintf(key, sizeof key, "holdfast-bench:%s/%d", w->bench->prefix, w->index);
    wire_command(t, (keys[0] == '2' ? (size_t)5 : 4) + args);
    wire_word(t, "EVALSHA");
    wire_word(t, hf__redis_scripts[id].sha);
    wire_word(t, keys);
    wire_word(t, key);
    if (keys[0] == '2')
        wire_word(t, "holdfast:redlock:marks");
    /* as long as the value of a holder without a note */
    wire_word(t, "0123456789abcdef0123456789abcdef0123456789abcdef");
}

static void make_commands(struct raw *r, const struct worker *w)
{
    struct wire_text *t = &r->wires[0]->out;

    put_script(t, SCRIPT_LOCK, w, "2", 6);
    wire_word(t, "30000");
    wire_word(t, "0"); /* no fence */
    wire_word(t, "raw");
    wire_word(t, "000");
    wire_word(t, "");
    r->lock_len = t->len;
    memcpy(r->lock, t->bytes, t->len);
    t->len = 0;
    put_script(t, SCRIPT_FREE, w, "1", 3);
    wire_word(t, "0");
    wire_word(t, "");
    r->free_len = t->len;
    memcpy(r->free, t->bytes, t->len);
    t->len = 0;
}

static int load(struct wire *w, enum script_id id)
{
    int status;

    wire_command(&w->out, 3);
    wire_word(&w->out, "SCRIPT");
    wire_word(&w->out, "LOAD");
    wire_arg(&w->out, hf__redis_scripts[id].text, hf__redis_scripts[id].len);
    status = wire_flush(w);
    return status ? status : wire_expect(w, "$40\r\n");
}

/* "redlock://user:pw@h1:1,h2:2/0?x" as one URL of redis: per host. */
static int open_one(struct raw *r, const char *url, const char *host, size_t len)
{
    const char *start = strstr(url, "://") + 3, *end = start + strcspn(start, "/?");
    const char *at = memchr(start, '@', (size_t)(end - start));
    char one[1024];
    int status;

    snprintf(one, sizeof one, "redis://%.*s%.*s%.*s", at ? (int)(at + 1 - start) : 0, start,
             (int)len, host, (int)strcspn(end, "?"), end);
    status = wire_open(&r->wires[r->n], one);
    if (status == 0)
        status = load(r->wires[r->n], SCRIPT_LOCK);
    if (status == 0)
        status = load(r->wires[r->n], SCRIPT_FREE);
    r->n += r->wires[r->n] != NULL;
    return status;
}

static int raw_open(struct worker *w)
{
    const char *url = w->bench->url, *host = strstr(url, "://") + 3;
    const char *end = host + strcspn(host, "/?"), *at;
    struct raw *r = w->raw = calloc(1, sizeof *r);
    int status = 0;

    if (!r) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    if ((at = memchr(host, '@', (size_t)(end - host))) != NULL)
        host = at + 1;
    while (host < end && r->n < NODES_MOST && status == 0) {
        size_t len = strcspn(host, ",/?");

        status = open_one(r, url, host, len);
        host += len + 1;
    }
    r->await = r->n / 2 + 1;
    if (status == 0)
        make_commands(r, w);
    return status;
}

/* The others are let go: a majority is enough to be asked. */
static int ping_open(struct worker *w)
{
    static const char ping[] = "*1\r\n$4\r\nPING\r\n";
    int status = raw_open(w);
    struct raw *r = w->raw;

    while (status == 0 && r->n > r->await)
        wire_close(r->wires[--r->n]);
    if (status == 0) {
        r->lock_len = r->free_len = sizeof ping - 1;
        memcpy(r->lock, ping, sizeof ping);
        memcpy(r->free, ping, sizeof ping);
    }
    return status;
}

static void raw_close(struct worker *w)
{
    struct raw *r = w->raw;

    for (unsigned i = 0; r && i < r->n; i++)
        wire_close(r->wires[i]);
    free(r);
    w->raw = NULL;
}

/* Takes what has come from one of them. */
static int take(struct raw *r, unsigned i)
{
    struct wire *w = r->wires[i];
    int status = 0;

    do {
        const char *reply;
        size_t len;

        status = wire_take(w, &reply, &len);
        if (status == 0 && *reply == '-') {
            cli_say("bench: the server answered %.*s", (int)strcspn(reply, "\r\n"), reply);
            status = EXIT_UNREACHABLE;
        }
        r->owed[i]--;
    } while (status == 0 && r->owed[i] > 0 &&
             wire_reply(w->in + w->at, w->len - w->at) > 0);
    return status;
}

static int exchange(struct raw *r, const char *command, size_t len)
{
    struct pollfd p[NODES_MOST];
    unsigned answered = 0;
    int status = 0;

    for (unsigned i = 0; i < r->n && status == 0; i++) {
        status = wire_send(r->wires[i], command, len);
        r->owed[i]++;
        p[i] = (struct pollfd){ .fd = r->wires[i]->fd, .events = POLLIN };
    }
    while (status == 0 && answered < r->await) {
        if (poll(p, r->n, bench_polls ? 0 : -1) < 0 && errno != EINTR)
            return EXIT_SYSTEM;
        for (unsigned i = 0; i < r->n && status == 0; i++) {
            if (r->owed[i] == 0 || !p[i].revents)
                continue;
            status = take(r, i);
            answered += r->owed[i] == 0;
        }
    }
    return status;
}

static int raw_pair(struct worker *w)
{
    struct raw *r = w->raw;
    int status = exchange(r, r->lock, r->lock_len);

    return status ? status : exchange(r, r->free, r->free_len);
}

static const struct bench_raw scripts = {
    .open = raw_open, .close = raw_close, .pair = raw_pair, .polls = true, .is = "EVAL"
};

static bool serves(const char *url)
{
    return strncmp(url, "redlock:", 8) == 0;
}

const struct bench_raw bench_raw_redlock = { .serves = serves,
                                             .open = ping_open,
                                             .close = raw_close,
                                             .pair = raw_pair,
                                             .pair_most = 2.4,
                                             .is = "PING",
                                             .too = &scripts };
