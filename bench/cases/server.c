/* server.c: how long the server itself is busy with a pair.
 *
 * The library's scripts beside a lock after the scheme of Redisson's RLock, which is
 * neither fair nor fenced: a hash with the owner's count, released with a message to
 * everybody and a latch that makes a repeated release answer alike, which its owner
 * then deletes. Each request comes alone, as those of a blocking caller do. The
 * measure is the processor time of the server's main thread (INFO cpu), which has
 * everything in it; its own count of the time inside scripts (INFO commandstats) is
 * told too. Goes wrong: others who use the server meanwhile are in the figures of
 * both. */
#include "stores/wire.h"

#include <stdlib.h>
#include <string.h>

static const char take_lock[] =
    "if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 "
    "then\n"
    "  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)\n"
    "  redis.call('PEXPIRE', KEYS[1], ARGV[1])\n"
    "  return nil\n"
    "end\n"
    "return redis.call('PTTL', KEYS[1])\n";

static const char give_lock[] =
    "local latch = redis.call('GET', KEYS[3])\n"
    "if latch ~= false then return tonumber(latch) end\n"
    "if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end\n"
    "if redis.call('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then\n"
    "  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"
    "  redis.call('SET', KEYS[3], 0, 'PX', ARGV[5])\n"
    "  return 0\n"
    "end\n"
    "redis.call('DEL', KEYS[1])\n"
    "redis.call(ARGV[4], KEYS[2], ARGV[1])\n"
    "redis.call('SET', KEYS[3], 1, 'PX', ARGV[5])\n"
    "return 1\n";

struct server {
    const struct bench *bench;
    struct wire *wire;
    struct raw_line ours;
    struct wire_text theirs; /* three commands */
    size_t take_len, give_len;
    bool unread; /* the answer to the last of them is not taken yet */
    struct slice *slice;
    struct samples in_scripts[2]; /* us for a pair: ours, theirs */
};

static void put_key(struct wire_text *t, const struct bench *b, const char *kind)
{
    char key[160];

    snprintf(key, sizeof key, "%s:{%s}", kind, b->prefix);
    wire_word(t, key);
}

static int load(struct wire *w, const char *script, char sha[41])
{
    const char *reply;
    size_t len;
    int status;

    wire_command(&w->out, 3);
    wire_word(&w->out, "SCRIPT");
    wire_word(&w->out, "LOAD");
    wire_word(&w->out, script);
    status = wire_flush(w);
    if (status == 0)
        status = wire_take(w, &reply, &len);
    if (status == 0 && len != 5 + 40 + 2) {
        cli_say("bench: the server answered %.*s", (int)strcspn(reply, "\r\n"), reply);
        status = EXIT_REFUSED;
    }
    if (status == 0)
        snprintf(sha, 41, "%.40s", reply + 5);
    return status;
}

static int make_theirs(struct server *s)
{
    static const char owner[] = "5a3c1e52-8f0b-4d27-9c11-6f2f0e7d9a10:1";
    struct wire_text *t = &s->theirs;
    char take_sha[41], give_sha[41];
    int status = load(s->wire, take_lock, take_sha);

    if (status == 0)
        status = load(s->wire, give_lock, give_sha);
    if (status)
        return status;
    wire_command(t, 6);
    wire_word(t, "EVALSHA");
    wire_word(t, take_sha);
    wire_word(t, "1");
    put_key(t, s->bench, "lock");
    wire_word(t, "30000");
    wire_word(t, owner);
    s->take_len = t->len;
    wire_command(t, 11);
    wire_word(t, "EVALSHA");
    wire_word(t, give_sha);
    wire_word(t, "3");
    put_key(t, s->bench, "lock");
    put_key(t, s->bench, "channel");
    put_key(t, s->bench, "latch");
    wire_word(t, "0");
    wire_word(t, "30000");
    wire_word(t, owner);
    wire_word(t, "PUBLISH");
    wire_word(t, "18000");
    s->give_len = t->len - s->take_len;
    wire_command(t, 2);
    wire_word(t, "DEL");
    put_key(t, s->bench, "latch");
    return 0;
}

/* As its owner does: the latch is deleted without waiting for the answer. */
static int their_pair(struct server *s)
{
    const char *bytes = s->theirs.bytes;
    int status = wire_send(s->wire, bytes, s->take_len);

    if (status == 0 && s->unread)
        status = wire_expect(s->wire, ":1");
    s->unread = false;
    if (status == 0)
        status = wire_expect(s->wire, "$-1");
    if (status == 0)
        status = wire_send(s->wire, bytes + s->take_len, s->give_len);
    if (status == 0)
        status = wire_expect(s->wire, ":1");
    if (status == 0)
        status = wire_send(s->wire, bytes + s->take_len + s->give_len,
                           s->theirs.len - s->take_len - s->give_len);
    s->unread = status == 0;
    return status;
}

static int pairs(struct server *s, bool raw, int64_t until)
{
    int status = 0;

    while (status == 0 && bench_now() < until) {
        status = raw ? their_pair(s) : raw_line_pair(&s->ours, s->wire);
        s->slice->pairs++;
    }
    if (status == 0 && s->unread)
        status = wire_expect(s->wire, ":1");
    s->unread = false;
    return status;
}

static int slice(void *ctx, bool raw, int64_t ns, struct tally *t)
{
    struct server *s = ctx;
    struct wire_spent before, after;
    double script_us;
    int status = wire_spent(s->wire, &before);

    memset(s->slice, 0, sizeof *s->slice);
    if (status == 0)
        status = pairs(s, raw, bench_now() + ns);
    if (status == 0)
        status = wire_spent(s->wire, &after);
    if (status)
        return status;
    script_us = after.script_us - before.script_us;
    if (raw) /* every second DEL is inside a script, and in its time already */
        script_us += (after.del_us - before.del_us) / 2;
    samples_add(&s->in_scripts[raw], script_us / (double)s->slice->pairs);
    s->slice->ns = (int64_t)((after.cpu_us - before.cpu_us) * 1e3);
    samples_add(&s->slice->samples,
                (after.cpu_us - before.cpu_us) / (double)s->slice->pairs);
    tally_add(t, s->slice, 1);
    return 0;
}

static int measure(const struct bench *b, struct server *s, struct tally *t)
{
    struct bench_row row = { .threads = 1, .processes = 1, .setup = "CPU of a pair" };
    int status = wire_open(&s->wire, b->url);

    if (status == 0)
        status = raw_scripts(s->wire);
    if (status == 0)
        status = make_theirs(s);
    if (status == 0) {
        raw_line_make(&s->ours, s->wire, b, 0, 0);
        status = bench_alternate(b, "server", slice, s, &t[0], &t[1]);
        raw_line_forget(s->wire, b, 0);
    }
    wire_close(s->wire);
    if (status)
        return status;
    bench_fill(&row, "server", &t[0], &t[1]);
    bench_limit(&row, 1);
    row.extra[0].key = "cpu_us";
    row.extra[0].value = row.p50;
    row.extra[1].key = "raw_cpu_us";
    row.extra[1].value = row.raw_p50;
    row.extra[2].key = "script_us";
    row.extra[2].value = samples_at(&s->in_scripts[0], 0.5);
    row.extra[3].key = "raw_script_us";
    row.extra[3].value = samples_at(&s->in_scripts[1], 0.5);
    bench_print(b, &row);
    return 0;
}

int bench_server(const struct bench *b)
{
    struct tally *t = calloc(2, sizeof *t);
    struct server *s = calloc(1, sizeof *s);
    int status = EXIT_SYSTEM;

    if (s) {
        s->bench = b;
        s->slice = calloc(1, sizeof *s->slice);
    }
    if (!t || !s || !s->slice) {
        cli_say("out of memory");
    } else if (!wire_possible(b->url)) {
        if (b->named)
            cli_say("bench: server: only for redis: and redis+unix:");
        status = 0;
    } else {
        status = measure(b, s, t);
    }
    if (s)
        free(s->slice);
    free(s);
    free(t);
    return status;
}
