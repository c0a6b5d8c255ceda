/* line.c: a stored line from the client's side: the call of a script about it, and what
 * look.lua gives of it, as rows. The layouts are those of lua/line.lua. What others have
 * written is not trusted: every length is checked, and a line that cannot be read is
 * HF_EDAMAGED. */
#include "driver/redis/redis.h"

#include <stdlib.h>
#include <string.h>

enum {
    FORMAT = 1,
    HEAD =
        /* format 1 kind 1 capacity 8 sum 8 n 4 waiting 4 number 8 soonest 8 till 8 followed
           8 */
    58,
    HOLDER = 57, /* weight 8 fence 8 expiry 8 joined 8 granted 8 flags 1 client 16 */
    WAITER = 48, /* weight 8 number 8 joined 8 ttl 8 client 16 */
    GROUP = 12,  /* till 8 count 4 */
    GROUP_NAME = 1 + CLIENT_ID + 8,
    BROKEN = 1,
    KEPT = 2
};

void hf__redis_line_script(struct redis *r, struct command *c, const struct redis_call *q,
                           enum script_id id, const char *name, size_t name_len,
                           size_t args)
{
    char key[1 + KEY_MAX];

    bool evicted = id == SCRIPT_EVICT || id == SCRIPT_WAIT;

    hf__redis_request_script(c, q, id, evicted ? 5 : 4, 1 + args);
    hf__redis_command_arg(c, key, hf__redis_bucket_key(r, key, 'l', name, name_len));
    hf__redis_command_arg(c, key, hf__redis_bucket_key(r, key, 'w', name, name_len));
    hf__redis_command_arg(c, key, hf__redis_bucket_key(r, key, 'q', name, name_len));
    hf__redis_command_arg(c, key, hf__redis_bucket_mark(r, key, q->bucket));
    if (evicted)
        hf__redis_command_arg(c, key, hf__redis_bucket_key(r, key, 'e', name, name_len));
    key[0] = r->sharded ? 's' : 'p';
    hf__redis_command_arg(c, key, 1 + hf__redis_bucket_wake(r, key + 1, q->bucket));
}

struct redis_seen { /* one ticket */
    const unsigned char *bytes;
    size_t len;
    const char *token;
    bool holds;
    uint64_t order; /* fence, or number of joining */
    int64_t expiry; /* ms */
};

struct reading {
    const char *name;
    size_t name_len;
    int64_t now_us;
    struct redis_seen *seen;
    size_t n, holders, waiters;
    struct row row; /* what is the same in every row */
    int64_t earliest;
};

static uint64_t get(const void *at, size_t bytes)
{
    const unsigned char *p = at;
    uint64_t number = 0;

    for (size_t i = 0; i < bytes; i++)
        number = number << 8 | p[i];
    return number;
}

static bool strings(const redisReply *a)
{
    if (!a || a->type != REDIS_REPLY_ARRAY || a->elements % 2 != 0)
        return false;
    for (size_t i = 0; i < a->elements; i++)
        if (a->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}

/* Until when the group of a waiter lives; 0: no such group. */
static int64_t group_till(const redisReply *waiters, const unsigned char *record)
{
    char name[GROUP_NAME];

    name[0] = 'g';
    memcpy(name + 1, record + 32, CLIENT_ID);
    memcpy(name + 1 + CLIENT_ID, record + 24, 8);
    for (size_t i = 0; i < waiters->elements; i += 2)
        if (waiters->element[i]->len == GROUP_NAME &&
            waiters->element[i + 1]->len == GROUP &&
            memcmp(waiters->element[i]->str, name, GROUP_NAME) == 0)
            return (int64_t)get(waiters->element[i + 1]->str, 8);
    return 0;
}

static int read_header(struct reading *k, const redisReply *value, hf_error *err)
{
    const unsigned char *p = (const unsigned char *)value->str;

    if (value->len > 0 && p[0] != FORMAT)
        return hf__fail(err, HF_EVERSION, 0, NULL,
                        "the line was written in format %u by another version of holdfast",
                        p[0]);
    if (value->len != HEAD)
        return hf__fail(err, HF_EDAMAGED, 0, NULL, "a damaged line");
    k->row.kind = p[1] == LINE_PERMITS ? LINE_PERMITS : LINE_LOCK;
    k->row.capacity = (int64_t)get(p + 2, 8);
    return 0;
}

static int64_t since(int64_t now_us, const unsigned char *at)
{
    uint64_t then = get(at, 8);

    return now_us > 0 && then < (uint64_t)now_us ? (now_us - (int64_t)then) / 1000 : 0;
}

static int add(struct reading *k, const redisReply *token, const redisReply *value,
               bool holds, const redisReply *waiters, hf_error *err)
{
    struct redis_seen *s = &k->seen[k->n];

    s->bytes = (const unsigned char *)value->str;
    s->len = value->len;
    s->token = token->str;
    s->holds = holds;
    if (s->len < (size_t)(holds ? HOLDER : WAITER))
        return hf__fail(err, HF_EDAMAGED, 0, NULL, "a damaged ticket");
    s->order = get(s->bytes + 8, 8);
    s->expiry = holds ? (int64_t)get(s->bytes + 16, 8) : group_till(waiters, s->bytes);
    if (s->expiry <= k->now_us / 1000)
        return 0; /* over: whoever changes the line next drops it */
    k->n++;
    k->holders += holds;
    k->waiters += !holds;
    if (holds && (k->earliest == 0 || s->expiry < k->earliest))
        k->earliest = s->expiry;
    if (holds && since(k->now_us, s->bytes + 32) > k->row.oldest_ms)
        k->row.oldest_ms = since(k->now_us, s->bytes + 32);
    return 0;
}

static int in_order(const void *a, const void *b)
{
    const struct redis_seen *x = a, *y = b;

    if (x->holds != y->holds)
        return x->holds ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int read_all(struct reading *k, const redisReply *holders, const redisReply *waiters,
                    hf_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < holders->elements && rc == 0; i += 2) {
        if (holders->element[i]->len == 0)
            rc = read_header(k, holders->element[i + 1], err);
        else if (holders->element[i]->len == HF_TOKEN)
            rc = add(k, holders->element[i], holders->element[i + 1], true, waiters, err);
    }
    for (size_t i = 0; i < waiters->elements && rc == 0; i += 2)
        if (waiters->element[i]->len == HF_TOKEN)
            rc = add(k, waiters->element[i], waiters->element[i + 1], false, waiters, err);
    if (rc == 0)
        qsort(k->seen, k->n, sizeof *k->seen, in_order);
    return rc;
}

static int show(struct look *look, const struct reading *k, size_t i, hf_error *err)
{
    const struct redis_seen *s = &k->seen[i];
    size_t fixed = s->holds ? HOLDER : WAITER;
    char host[256], note[HF_NOTE_MAX + 1];
    struct redis_record rec;
    struct row row = k->row;

    if (hf__redis_record_read(&rec, s->bytes + fixed, s->len - fixed) < 0)
        return hf__fail(err, HF_EDAMAGED, 0, NULL, "a damaged ticket");
    memcpy(host, rec.host, rec.host_len);
    host[rec.host_len] = '\0';
    memcpy(note, rec.note, rec.note_len);
    note[rec.note_len] = '\0';
    row.has_ticket = true;
    memcpy(row.token, s->token, HF_TOKEN);
    row.fence = s->holds ? s->order : 0;
    row.position = s->holds ? 0 : (uint32_t)(i - k->holders + 1);
    row.weight = (int64_t)get(s->bytes, 8);
    row.owner = rec.owner;
    row.host = host;
    row.pid = rec.pid;
    row.age_ms = since(k->now_us, s->bytes + (s->holds ? 32 : 16));
    row.expires_ms = s->expiry - k->now_us / 1000;
    row.joined = (int64_t)get(s->bytes + (s->holds ? 24 : 16), 8);
    row.broken = s->holds && (s->bytes[40] & BROKEN);
    row.kept = s->holds && (s->bytes[40] & KEPT);
    row.note = note;
    row.hints = rec.hints;
    row.hints_len = rec.hints_len;
    ev_row(look, &row);
    return 0;
}

int hf__redis_line_rows(const char *name, size_t name_len, const redisReply *reply,
                        struct look *look, int64_t *ret_next_ms, hf_error *err)
{
    struct reading k = { .name = name, .name_len = name_len };
    const redisReply *holders, *waiters;
    int rc;

    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        !strings(reply->element[1]) || !strings(reply->element[2]))
        return hf__fail(err, HF_EPROTO, 0, NULL, "an answer of an unexpected form");
    holders = reply->element[1];
    waiters = reply->element[2];
    k.now_us = hf__redis_reply_number(reply, 0);
    k.row.name = name;
    k.row.name_len = name_len;
    k.row.oldest_ms = -1;
    k.seen = calloc((holders->elements + waiters->elements) / 2 + 1, sizeof *k.seen);
    if (!k.seen)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory");
    rc = read_all(&k, holders, waiters, err);
    k.row.holders = k.holders;
    k.row.waiters = k.waiters;
    for (size_t i = 0; i < k.n && rc == 0; i++)
        rc = show(look, &k, i, err);
    *ret_next_ms = k.earliest > 0 ? k.earliest - k.now_us / 1000 : -1;
    free(k.seen);
    return rc;
}
