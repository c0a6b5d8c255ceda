/* look.c: who has a key, and taking it away. There is no line to look at: the holder is
 * what a majority of the nodes may have; a key that is not of our form belongs to somebody
 * else's lock. A follow looks every second, because others do not tell.
 *
 * Every node is asked; those that answer within a tenth of a second decide, if they are a
 * majority. Eviction gives the key back, by its value, wherever it was seen, and ends when
 * that was answered; its holder finds out with its next renewal. */
#include "driver/redis/redlock/redlock.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_US = 1000000, ANSWER_US = 100000 };

struct sight {        /* one look, one following, one eviction: look.drv_ptr */
    struct list node; /* redis.sights */
    struct redis *redis;
    struct look *look; /* NULL: ended, and only answers are awaited */
    bool evict, frees; /* frees: its second part */
    bool rests;        /* a follow, until it asks again */
    unsigned open;     /* requests that still point here */
    unsigned number, awaited, answers, freed;
    struct timer timer;
    struct {
        char *value; /* NULL: it has none */
        int64_t ms;
        bool answered, other; /* other: of another type, which `value` names */
    } seen[ROUND_NODES];
};

struct peek { /* q.bucket: the node */
    struct redis_call q;
    struct sight *s;
    unsigned number;
    size_t key_len, value_len; /* value_len > 0: give it back */
    char text[];               /* key, value */
};

static struct peek *of(struct redis_call *q)
{
    return container_of(q, struct peek, q);
}

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct peek *k = of(q);
    char channel[KEY_MAX + 32];

    (void)r;
    hf__redis_request_script(c, q, k->value_len ? SCRIPT_FREE : SCRIPT_PEEK, 1,
                             k->value_len ? 3 : 0);
    hf__redis_command_arg(c, k->text, k->key_len);
    if (k->value_len == 0)
        return;
    hf__redis_command_arg(c, k->text + k->key_len, k->value_len);
    hf__redis_command_number(c, 0);
    hf__redis_command_arg(c, channel, hf__redlock_channel(channel, k->text, k->key_len));
}

static void clear(struct sight *s)
{
    for (unsigned i = 0; i < ROUND_NODES; i++)
        free(s->seen[i].value);
    memset(s->seen, 0, sizeof s->seen);
    s->answers = 0;
}

static void free_sight(struct sight *s)
{
    struct env *env = s->redis->store.env;

    clear(s);
    env->timer(env, &s->timer, LOOP_NEVER);
    list_remove(&s->node);
    free(s);
}

/* The look is over; requests may still point here. */
static void detach(struct sight *s)
{
    struct env *env = s->redis->store.env;

    s->look->drv_ptr = NULL;
    s->look = NULL;
    env->timer(env, &s->timer, LOOP_NEVER);
    if (s->open == 0)
        free_sight(s);
}

/* A value that a majority has, or may have, counting those that have not answered; -1:
 * none. */
static int agreed(const struct sight *s)
{
    unsigned silent = s->redis->nnodes - s->answers;

    for (unsigned i = 0; i < s->redis->nnodes; i++) {
        unsigned same = 0;

        for (unsigned k = 0; s->seen[i].value && k < s->redis->nnodes; k++)
            same += s->seen[k].value && strcmp(s->seen[i].value, s->seen[k].value) == 0;
        if (same > 0 && same + silent >= hf__redlock_need(s->redis))
            return (int)i;
    }
    return -1;
}

struct holder {
    unsigned char token[HF_TOKEN];
    char host[256];
    int64_t pid;
    struct owner owner;
    const char *note; /* NULL: not one of ours */
};

/* "48 digits host pid owner note" is ours; else the token is made of the value itself. */
static void parse(const char *value, struct holder *h)
{
    char digits[2 * HF_TOKEN + 1];
    int end = 0;

    memset(h, 0, sizeof *h);
    snprintf(digits, sizeof digits, "%s", value);
    if (strlen(value) > VALUE_HEX && hf__unhex(h->token, HF_TOKEN, digits) &&
        value[VALUE_HEX] == ' ' &&
        sscanf(value + VALUE_HEX, " %255s %" SCNd64 " %" SCNx64 "-%" SCNx64 "%n", h->host,
               &h->pid, &h->owner.process, &h->owner.number, &end) == 4 &&
        value[VALUE_HEX + end] == ' ') {
        h->note = value + VALUE_HEX + end + 1;
        return;
    }
    memset(h, 0, sizeof *h);
    for (size_t i = 0; i < HF_TOKEN / 8; i++) {
        uint64_t hash = hf__hash(value, strlen(value)) * (2 * i + 1);

        memcpy(h->token + 8 * i, &hash, 8);
    }
    snprintf(h->host, sizeof h->host, "-");
}

static void show(struct sight *s, int i)
{
    struct look *look = s->look;
    char note[HF_NOTE_MAX + 1];
    struct holder h;
    struct row row = { .name = look->name,
                       .name_len = look->name_len,
                       .kind = LINE_LOCK,
                       .capacity = HF_FULL,
                       .holders = 1,
                       .oldest_ms = -1,
                       .has_ticket = !look->brief,
                       .weight = HF_FULL,
                       .age_ms = -1,
                       .expires_ms = s->seen[i].ms };

    parse(s->seen[i].value, &h);
    if (s->seen[i].other)
        snprintf(note, sizeof note, "a key of type %s, not a lock", s->seen[i].value);
    else
        snprintf(note, sizeof note, "%s", h.note ? h.note : "a lock of another program");
    memcpy(row.token, h.token, HF_TOKEN);
    row.host = h.host;
    row.pid = h.pid;
    row.owner = h.owner;
    row.note = note;
    row.hints = "";
    ev_row(look, &row);
}

/* ---- asking ---------------------------------------------------------------------- */

static void answer(struct redis *, struct redis_call *, const redisReply *);

static void send(struct sight *s, unsigned i, const char *value)
{
    static const struct request_type type = { build, answer, .line = true };
    struct redis *r = s->redis;
    struct node *n = hf__redis_node_of(r, i);
    char key[KEY_MAX];
    size_t key_len = hf__redlock_key(r, key, s->look->name, s->look->name_len);
    size_t value_len = strlen(value);
    struct redis_call *q =
        n ? hf__redis_request_new(&type, sizeof(struct peek) + key_len + value_len, i)
          : NULL;

    if (!q)
        return;
    of(q)->s = s;
    of(q)->number = s->number;
    of(q)->key_len = key_len;
    of(q)->value_len = value_len;
    memcpy(of(q)->text, key, key_len);
    memcpy(of(q)->text + key_len, value, value_len);
    s->open++;
    s->awaited++;
    hf__redis_conn_send(&n->commands, q);
}

static void ended(struct sight *);

static void begin(struct sight *s)
{
    struct env *env = s->redis->store.env;

    s->number++;
    s->awaited = 0;
    s->rests = false;
    env->timer(env, &s->timer, env->now(env) + ANSWER_US);
}

static void begun(struct sight *s)
{
    if (s->awaited == 0)
        ended(s); /* there is no way to any of them */
}

static void ask(struct sight *s)
{
    clear(s);
    begin(s);
    for (unsigned i = 0; i < s->redis->nnodes; i++)
        send(s, i, "");
    begun(s);
}

/* The ticket with that token goes, wherever it is. */
static void take_away(struct sight *s)
{
    struct holder h;

    s->frees = true;
    begin(s);
    for (unsigned i = 0; i < s->redis->nnodes; i++) {
        if (!s->seen[i].value || s->seen[i].other)
            continue;
        parse(s->seen[i].value, &h);
        if (memcmp(h.token, s->look->token, HF_TOKEN) == 0)
            send(s, i, s->seen[i].value);
    }
    begun(s);
}

/* ---- answers --------------------------------------------------------------------- */

static void finish(struct sight *s, int rc, const hf_error *err)
{
    struct look *look = s->look;

    detach(s);
    ev_done(look, NULL, rc, rc < 0 ? err : NULL);
}

static void follow_on(struct sight *s, bool known)
{
    struct look *look = s->look;
    struct env *env = s->redis->store.env;

    s->rests = true;
    s->number++; /* late answers belong to no look */
    env->timer(env, &s->timer, env->now(env) + AGAIN_US);
    if (known)
        ev_done(look, NULL, 0, NULL);
}

/* All have answered, or those that did not were waited for long enough. */
static void ended(struct sight *s)
{
    const struct redis *r = s->redis;
    bool known = s->answers >= hf__redlock_need(r);
    int holder = agreed(s);
    hf_error err;

    if (s->frees && s->freed == 0) {
        hf__fail(&err, HF_ENOENT, 0, r->open.shown, "no such ticket of '%s'",
                 s->look->name);
        finish(s, HF_ENOENT, &err);
    } else if (s->frees) {
        finish(s, 0, NULL);
    } else if (!known && !s->look->follow) {
        finish(s, hf__redlock_too_few(r, NULL, &err), &err);
    } else if (s->evict) {
        take_away(s);
    } else {
        if (known && holder >= 0)
            show(s, holder);
        if (s->look->follow)
            follow_on(s, known);
        else
            finish(s, 0, NULL);
    }
}

static void learn(struct sight *s, unsigned i, const redisReply *reply)
{
    bool text = hf__redis_reply_is(reply, 0, "string");

    if (reply->type == REDIS_REPLY_INTEGER) {
        s->freed += reply->integer == 1;
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
               reply->element[0]->type == REDIS_REPLY_STRING &&
               reply->element[1]->type == REDIS_REPLY_STRING) {
        s->answers++;
        s->seen[i].answered = true;
        s->seen[i].ms = hf__redis_reply_number(reply, 2);
        s->seen[i].other = !text && !hf__redis_reply_is(reply, 0, "none");
        if (text || s->seen[i].other)
            s->seen[i].value = strdup(reply->element[text ? 1 : 0]->str);
    }
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct sight *s = of(q)->s;

    (void)r;
    s->open--;
    if (!s->look) {
        if (s->open == 0)
            free_sight(s);
        return;
    }
    if (of(q)->number != s->number)
        return;
    if (reply)
        learn(s, q->bucket, reply);
    if (--s->awaited == 0)
        ended(s);
}

static void fired(struct timer *t)
{
    struct sight *s = container_of(t, struct sight, timer);
    struct redis *r = s->redis;

    if (s->rests)
        ask(s);
    else if (s->frees ? s->freed > 0 : s->look->follow || s->answers >= hf__redlock_need(r))
        ended(s); /* else the connections' own limits end it */
    hf__redis_conn_flush(r);
}

/* ---- verbs ----------------------------------------------------------------------- */

static void start(struct store *store, struct look *look, bool evicts)
{
    struct redis *r = redis_of(store);
    struct sight *s = NULL;
    hf_error err;
    int rc = 0;

    if (look->list)
        rc = hf__fail(&err, HF_ENOTSUP, 0, r->open.shown,
                      "this store cannot list its locks");
    else if (hf__redlock_reserved(r, look->name, look->name_len))
        rc = hf__fail(&err, HF_EINVAL, 0, r->open.shown, "'%s' is the key of the fences",
                      look->name);
    else if (evicts && !look->now)
        rc = hf__fail(&err, HF_ENOTSUP, 0, r->open.shown,
                      "this store cannot end a renewal; only break --now");
    else if (!(s = calloc(1, sizeof *s)))
        rc = hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a look");
    if (rc < 0) {
        ev_done(look, NULL, rc, &err);
        return;
    }
    list_init(&s->node);
    timer_init(&s->timer, fired);
    s->redis = r;
    s->look = look;
    s->evict = evicts;
    look->drv_ptr = s;
    list_push(&r->sights, &s->node);
    ask(s);
}

void hf__redlock_look(struct store *store, struct look *look)
{
    start(store, look, false);
}

void hf__redlock_evict(struct store *store, struct look *look)
{
    start(store, look, true);
}

void hf__redlock_stop(struct store *store, struct look *look, struct cell *cell)
{
    (void)store;
    (void)cell;
    if (look && look->drv_ptr)
        detach(look->drv_ptr);
}

/* The requests are gone with their connections, or go now. */
void hf__redlock_looks_end(struct redis *r)
{
    list_for_safe(n, &r->sights) {
        struct sight *s = container_of(n, struct sight, node);

        if (s->look)
            s->look->drv_ptr = NULL;
        free_sight(s);
    }
}
