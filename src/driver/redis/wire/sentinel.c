/* sentinel.c: where the master is, and hearing that it has moved.
 *
 *   ask one sentinel for the master -> connect there (node.c) -> hear +switch-master
 *
 * The sentinels are asked in turn; one that does not answer, or does not know the name, is
 * followed by the next (link.h: choices). Whenever the master is lost the question is asked
 * again; the same answer changes nothing, because its link keeps trying by itself. What a
 * sentinel says may be old: a server that turns out to be a replica is refused when it is
 * greeted. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sentinel {
    struct redis *redis;
    struct node *talker; /* the sentinel that we talk to */
    size_t next;         /* of the hosts of the URL */
    bool asked;
    struct timer again;
};

enum { PAUSE_US = 50000 };

static void next_sentinel(struct sentinel *s)
{
    const struct opening *o = &s->redis->open;
    const struct opening_host *h = &o->hosts[s->next++ % o->nhosts];

    hf__redis_node_aim(s->talker, h->host, h->port);
}

static void fired(struct timer *t)
{
    struct sentinel *s = container_of(t, struct sentinel, again);

    hf__redis_sentinel_lost(s->redis);
    hf__redis_conn_flush(s->redis);
}

static void ask_again(struct sentinel *s)
{
    struct env *env = s->redis->store.env;

    env->timer(env, &s->again, env->now(env) + PAUSE_US);
}

/* ---- the question ---------------------------------------------------------------- */

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    (void)q;
    hf__redis_command_words(c, "SENTINEL GET-MASTER-ADDR-BY-NAME", 1);
    hf__redis_command_text(c, r->master);
}

static void go_to(struct redis *r, const char *host, const char *port)
{
    unsigned long number = strtoul(port, NULL, 10);

    if (number == 0 || number > 65535)
        return;
    if (r->one->host && strcmp(r->one->host, host) == 0 && r->one->port == number)
        return;
    hf__redis_node_move(r->one, host, (uint16_t)number);
}

/* The URL of the servers is right, as far as we know: it is the sentinel that says so. */
static void refused(const struct sentinel *s, const redisReply *reply, hf_error *err)
{
    int code = hf__redis_reply_error(s->redis, reply, err);

    hf__fail(err, code, 0, s->talker->shown, "this sentinel refuses us%s: %s",
             code == HF_EAUTH ? " (sentinel_password= or sentinel_password_file= is for it)"
                              : "",
             reply->str);
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    const char *host = hf__redis_reply_text(reply, 0);
    const char *port = hf__redis_reply_text(reply, 1);
    struct sentinel *s = r->sentinel;
    hf_error err;

    (void)q;
    s->asked = false;
    if (!reply)
        return;
    if (host && port) {
        hf__link_up(&s->talker->commands.link);
        /* without messages, a master is asked for when it is lost */
        hf__link_start(&s->talker->messages.link);
        go_to(r, host, port);
        if (!node_up(r->one))
            ask_again(s); /* it may be old news */
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR)
        refused(s, reply, &err);
    else
        hf__fail(&err, HF_EUNREACHABLE, 0, s->talker->shown,
                 "this sentinel knows no master '%s'", r->master);
    hf__link_break(&s->talker->commands.link, &err);
}

void hf__redis_sentinel_lost(struct redis *r)
{
    static const struct request_type type = { .build = build, .answer = answer };
    struct sentinel *s = r->sentinel;

    if (!s || s->asked || !link_open(&s->talker->commands.link))
        return;
    s->asked = hf__redis_ask_on(&s->talker->commands, &type, NULL);
    if (!s->asked)
        ask_again(s);
}

/* ---- the connections to it ------------------------------------------------------- */

/* It is up when it has named the master: one that cannot is followed by the next. */
static void talker_greets(struct conn *conn)
{
    hf__redis_sentinel_lost(conn->node->redis);
}

static void talker_lost(struct conn *conn)
{
    struct sentinel *s = conn->node->redis->sentinel;
    hf_error err;

    s->asked = false;
    s->talker->messages.link.wanted = false;
    hf__fail(&err, HF_EUNREACHABLE, 0, s->talker->shown, "another sentinel is asked");
    hf__link_drop(&s->talker->messages.link, &err);
    next_sentinel(s);
}

static void hears_greets(struct conn *conn)
{
    static const char channel[] = "+switch-master";

    hf__redis_wake_say(conn, "SUBSCRIBE", channel, sizeof channel - 1);
}

/* "NAME OLD-IP OLD-PORT NEW-IP NEW-PORT" */
static void hears(struct conn *conn, const redisReply *reply)
{
    struct redis *r = conn->node->redis;
    const char *text = hf__redis_reply_text(reply, 2);
    char name[256], host[256], port[8];

    if (hf__redis_reply_is(reply, 0, "message") && text &&
        sscanf(text, "%255s %*s %*s %255s %7s", name, host, port) == 3 &&
        strcmp(name, r->master) == 0)
        go_to(r, host, port);
}

int hf__redis_sentinel_start(struct redis *r, hf_error *err)
{
    struct env *env = r->store.env;
    struct sentinel *s = calloc(1, sizeof *s);
    uint32_t dice;

    if (!s)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    r->sentinel = s;
    s->redis = r;
    timer_init(&s->again, fired);
    s->talker = hf__redis_node_new(r, NULL, 0, NULL);
    if (!s->talker)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a connection");
    s->talker->commands.login = s->talker->messages.login = &r->sentinel_login;
    s->talker->commands.greet = talker_greets;
    s->talker->commands.lost = talker_lost;
    s->talker->commands.link.choices = r->open.nhosts;
    s->talker->messages.greet = hears_greets;
    s->talker->messages.message = hears;
    env->random(env, &dice, sizeof dice);
    s->next = dice % r->open.nhosts; /* many clients do not all ask the first */
    next_sentinel(s);
    hf__link_start(&s->talker->commands.link);
    return 0;
}

void hf__redis_sentinel_done(struct redis *r)
{
    struct sentinel *s = r->sentinel;

    if (!s)
        return;
    r->sentinel = NULL;
    r->store.env->timer(r->store.env, &s->again, LOOP_NEVER);
    free(s);
}
