/* redis.c: the least that a Redis server could do for the same, on plain
 * sockets.
 *
 *   a pair      two EVALSHA ping-pongs: the library's own scripts of join and leave, by a
 *               client that sleeps and by one that polls
 *   in flight   the same scripts by one connection, so many commands under way at once
 *   a hand-off  one EVALSHA ping-pong, and one PUBLISH to the other's subscriber
 *
 * Commands are put together once and replies are only looked at for success, so that
 * nothing but the store is in these figures. Lines, marks and channels are outside the
 * library's own keys; the marks, which a script leaves behind, are removed in the end. */
#include "stores/link.h"
#include "stores/wire.h"

#include "driver/redis/script.h" /* data alone: what EVALSHA runs */

#include <stdlib.h>
#include <string.h>

enum { FLIGHT_MOST = 256 };

struct raw {
    struct wire *commands, *messages;
    struct raw_line line;
    struct wire_text go, stop; /* PUBLISH to the peer */
    bool unread;               /* the answer to a PUBLISH is not taken yet */
    bool holds;
};

/* ---- one line -------------------------------------------------------------------- */

int raw_scripts(struct wire *w)
{
    int status = 0;

    for (int id = SCRIPT_JOIN; id <= SCRIPT_LEAVE && status == 0; id++) {
        wire_command(&w->out, 3);
        wire_word(&w->out, "SCRIPT");
        wire_word(&w->out, "LOAD");
        wire_arg(&w->out, hf__redis_scripts[id].text, hf__redis_scripts[id].len);
        status = wire_flush(w);
        if (status == 0)
            status = wire_expect(w, "$40\r\n");
    }
    return status;
}

static void put_key(struct wire_text *t, const struct bench *b, int worker, char kind,
                    int slot)
{
    char key[256];

    if (kind == 'm')
        snprintf(key, sizeof key, "holdfast-bench:{%d}:m:%s", worker, b->prefix);
    else
        snprintf(key, sizeof key, "holdfast-bench:{%d}:%c:%s/%d", worker, kind, b->prefix,
                 slot);
    wire_word(t, key);
}

static void put_script(struct wire_text *t, enum script_id id, const struct bench *b,
                       int worker, int slot, size_t args)
{
    char token[17];

    snprintf(token, sizeof token, "%08x%08x", (unsigned)worker, (unsigned)slot);
    wire_command(t, 3 + 4 + 2 + args);
    wire_word(t, "EVALSHA");
    wire_word(t, hf__redis_scripts[id].sha);
    wire_word(t, "4");
    for (const char *kind = "lwqm"; *kind; kind++)
        put_key(t, b, worker, *kind, slot);
    wire_word(t, "pholdfast-bench:@");
    wire_word(t, token);
}

void raw_line_make(struct raw_line *l, struct wire *w, const struct bench *b, int worker,
                   int slot)
{
    /* format, a lock, capacity, weight, one holder: as join.lua wants it */
    static const char head[34] = { [0] = 2, [6] = '\x80', [14] = '\x80', [21] = 1 };
    /* as long as the library's record of an owner without a note */
    static const char whose[16 + 48] = "raw-client-00000\1";
    struct wire_text *t = &w->out;

    put_script(t, SCRIPT_JOIN, b, worker, slot, 3);
    wire_arg(t, head, sizeof head);
    wire_word(t, "30000");
    wire_arg(t, whose, sizeof whose);
    l->join_len = t->len;
    memcpy(l->join, t->bytes, t->len);
    t->len = 0;
    put_script(t, SCRIPT_LEAVE, b, worker, slot, 0);
    l->leave_len = t->len;
    memcpy(l->leave, t->bytes, t->len);
    t->len = 0;
}

/* What join and leave answer if all went well: join the fence, alone or in a list. */
static bool is_good(const char *reply, size_t len, bool join)
{
    static const char held[] = "*3\r\n$1\r\nh\r\n";

    if (!join)
        return len == 4 && memcmp(reply, ":1\r\n", 4) == 0;
    return *reply == ':' || (len > strlen(held) && memcmp(reply, held, strlen(held)) == 0);
}

static int judge(const char *reply, size_t len, bool join)
{
    if (is_good(reply, len, join))
        return 0;
    cli_say("bench: the server answered %.*s", (int)strcspn(reply, "\r\n"), reply);
    return EXIT_UNREACHABLE;
}

static int answer(struct wire *w, bool join)
{
    const char *reply;
    size_t len;
    int status = wire_take(w, &reply, &len);

    return status ? status : judge(reply, len, join);
}

int raw_line_pair(struct raw_line *l, struct wire *w)
{
    int status = wire_send(w, l->join, l->join_len);

    if (status == 0)
        status = answer(w, true);
    if (status == 0)
        status = wire_send(w, l->leave, l->leave_len);
    return status ? status : answer(w, false);
}

void raw_line_forget(struct wire *w, const struct bench *b, int worker)
{
    wire_command(&w->out, 2);
    wire_word(&w->out, "DEL");
    put_key(&w->out, b, worker, 'm', 0);
    if (wire_flush(w) == 0)
        wire_expect(w, ":");
}

/* ---- opening --------------------------------------------------------------------- */

static void put_channel(struct wire_text *t, const struct bench *b, int index)
{
    char channel[128];

    snprintf(channel, sizeof channel, "holdfast-bench:%s/%d", b->prefix, index);
    wire_word(t, channel);
}

static void put_publish(struct wire_text *t, const struct worker *w, const char *message)
{
    wire_command(t, 3);
    wire_word(t, "PUBLISH");
    put_channel(t, w->bench, 1 - w->index);
    wire_word(t, message);
}

static void raw_close(struct worker *w)
{
    struct raw *r = w->raw;

    if (!r)
        return;
    if (r->commands)
        raw_line_forget(r->commands, w->bench, w->index);
    wire_close(r->commands);
    wire_close(r->messages);
    free(r);
    w->raw = NULL;
}

static int raw_open(struct worker *w)
{
    struct raw *r = w->raw = calloc(1, sizeof *r);
    int status = EXIT_SYSTEM;

    if (r)
        status = wire_open(&r->commands, w->bench->url);
    else
        cli_say("out of memory");
    if (status == 0)
        status = raw_scripts(r->commands);
    if (status == 0)
        status = wire_open(&r->messages, w->bench->url);
    if (status == 0) {
        raw_line_make(&r->line, r->commands, w->bench, w->index, 0);
        put_publish(&r->go, w, "p");
        put_publish(&r->stop, w, "q");
        wire_command(&r->messages->out, 2);
        wire_word(&r->messages->out, "SUBSCRIBE");
        put_channel(&r->messages->out, w->bench, w->index);
        status = wire_flush(r->messages);
    }
    if (status == 0)
        status = wire_expect(r->messages, "*3\r\n$9\r\nsubscribe");
    return status;
}

static int raw_pair(struct worker *w)
{
    struct raw *r = w->raw;

    return raw_line_pair(&r->line, r->commands);
}

static int raw_spent(struct worker *w, double *us, double *calls)
{
    struct raw *r = w->raw;
    struct wire_spent spent;
    int status = wire_spent(r->commands, &spent);

    if (status == 0) {
        *us = spent.script_us;
        *calls = spent.scripts;
    }
    return status;
}

/* ---- hand-off -------------------------------------------------------------------- */

/* One EVALSHA there and back; join and leave take turns. */
static int step(struct raw *r)
{
    const struct raw_line *l = &r->line;
    int status = wire_send(r->commands, r->holds ? l->leave : l->join,
                           r->holds ? l->leave_len : l->join_len);

    if (status == 0 && r->unread)
        status = wire_expect(r->commands, ":1"); /* one has heard it */
    r->unread = false;
    if (status == 0)
        status = answer(r->commands, !r->holds);
    r->holds = !r->holds;
    return status;
}

static int pass_on(struct raw *r, char message)
{
    const struct wire_text *t = message == 'p' ? &r->go : &r->stop;
    int status = step(r);

    if (status == 0)
        status = wire_send(r->commands, t->bytes, t->len);
    r->unread = status == 0;
    return status;
}

static int hear(struct raw *r, char *ret)
{
    const char *reply;
    size_t len;
    int status = wire_take(r->messages, &reply, &len);

    if (status == 0)
        *ret = reply[len - 3];
    return status;
}

static int raw_turns(struct worker *w, int64_t until)
{
    struct raw *r = w->raw;
    int64_t start = bench_now(), now = start;
    char message = 'p';
    int status = 0;

    while (status == 0 && message == 'p') {
        int64_t begin = now;

        /* the second answers what it hears; the first ends the game */
        if (w->index == 1)
            status = hear(r, &message);
        else if (now >= until)
            message = 'q';
        if (status == 0)
            status = pass_on(r, message);
        if (status == 0 && w->index == 0)
            status = hear(r, &message);
        now = bench_now();
        if (w->index == 0) {
            w->slice->pairs++;
            samples_add(&w->slice->samples, (double)(now - begin) / 1e3);
        }
    }
    w->slice->ns = w->index == 0 ? now - start : 0;
    return status || !r->holds ? status : step(r);
}

/* ---- many in flight -------------------------------------------------------------- */

struct flight {
    struct wire *wire;
    struct slice *slice;
    struct {
        struct raw_line line;
        int64_t since;
        bool holds, over;
    } slot[FLIGHT_MOST];
    int n, next, flying;
    int64_t now, until;
};

/* Replies come in the order of the commands, so the slots take turns for ever. */
static int landed(struct flight *f, const char *reply, size_t len)
{
    int i = f->next;
    const struct raw_line *l = &f->slot[i].line;
    int status = judge(reply, len, !f->slot[i].holds);

    if (status)
        return status;
    if (!f->slot[i].holds) {
        wire_put(&f->wire->out, l->leave, l->leave_len);
    } else {
        f->slice->pairs++;
        samples_add(&f->slice->samples, (double)(f->now - f->slot[i].since) / 1e3);
        f->slot[i].since = f->now;
        f->slot[i].over = f->now >= f->until;
        f->flying -= f->slot[i].over;
        if (!f->slot[i].over)
            wire_put(&f->wire->out, l->join, l->join_len);
    }
    f->slot[i].holds = !f->slot[i].holds;
    do
        f->next = (f->next + 1) % f->n;
    while (f->flying > 0 && f->slot[f->next].over);
    return 0;
}

static int fly(struct flight *f)
{
    int status = wire_flush(f->wire);

    while (status == 0 && f->flying > 0) {
        const char *reply;
        size_t len;

        status = wire_take(f->wire, &reply, &len);
        f->now = bench_now();
        if (status == 0)
            status = landed(f, reply, len);
        /* everything that has come is answered in one go */
        while (status == 0 && f->flying > 0 &&
               wire_reply(f->wire->in + f->wire->at, f->wire->len - f->wire->at) > 0) {
            status = wire_take(f->wire, &reply, &len);
            if (status == 0)
                status = landed(f, reply, len);
        }
        if (status == 0)
            status = wire_flush(f->wire);
    }
    return status;
}

static int raw_flight(struct worker *w, int n, int64_t until)
{
    struct raw *r = w->raw;
    struct flight *f = calloc(1, sizeof *f);
    int64_t start = bench_now();
    int status;

    if (!f) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    f->wire = r->commands;
    f->slice = w->slice;
    f->n = f->flying = n < FLIGHT_MOST ? n : FLIGHT_MOST;
    f->until = until;
    for (int i = 0; i < f->n; i++)
        raw_line_make(&f->slot[i].line, f->wire, w->bench, w->index, i);
    for (int i = 0; i < f->n; i++) {
        f->slot[i].since = start;
        wire_put(&f->wire->out, f->slot[i].line.join, f->slot[i].line.join_len);
    }
    status = fly(f);
    w->slice->ns = bench_now() - start;
    free(f);
    return status;
}

const struct bench_raw bench_raw_redis = { .serves = wire_possible,
                                           .open = raw_open,
                                           .close = raw_close,
                                           .pair = raw_pair,
                                           .turns = raw_turns,
                                           .flight = raw_flight,
                                           .spent = raw_spent,
                                           .pair_most = 1.25,
                                           .turns_most = 1.5,
                                           .flight_most = 1 / 0.7,
                                           .polls = true,
                                           .is = "sleeping" };
