/* line.c: a stored line from the client's side: the call of a script about it, and what
 * look.lua gives of it, as rows. The layouts are those of lua/line.lua. What others have
 * written is not trusted: every length is checked, and a line that cannot be read is
 * HF_EDAMAGED. */
#include "driver/redis/redis.h"
#include "util/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
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
    bool evicted = id == SCRIPT_EVICT || id == SCRIPT_WAIT;
    char key[KEY_MAX], other[1 + KEY_MAX];
    size_t len = hf__redis_bucket_key(r, key, 'l', name, name_len);
    char *kind = key + len - name_len - 2; /* all that the keys of a line differ in */

    hf__redis_request_script(c, q, id, evicted ? 5 : 4, 1 + args);
    hf__redis_command_arg(c, key, len);
    *kind = 'w';
    hf__redis_command_arg(c, key, len);
    *kind = 'q';
    hf__redis_command_arg(c, key, len);
    hf__redis_command_arg(c, other, hf__redis_bucket_mark(r, other, q->bucket));
    if (evicted) {
        *kind = 'e';
        hf__redis_command_arg(c, key, len);
    }
    other[0] = hf__redis_node_sharded(q->at) ? 's' : 'p';
    hf__redis_command_arg(c, other, 1 + hf__redis_bucket_wake(r, other + 1, q->bucket));
}

struct redis_seen { /* one ticket */
    const unsigned char *bytes;
    const unsigned char *whose; /* who it is: kit/owner_record.h */
    size_t whose_len;
    const char *token;
    bool holds;
    uint64_t order; /* fence, or number of joining */
    int64_t expiry; /* ms */
};

struct reading {
    int64_t now_us;
    struct redis_seen *seen;
    const redisReply *holding, *waiting; /* the hashes L and W */
    size_t n;
    struct row row; /* what is the same in every row */
    int64_t earliest;
};

static bool strings(const redisReply *a)
{
    if (!a || a->type != REDIS_REPLY_ARRAY || a->elements % 2 != 0)
        return false;
    for (size_t i = 0; i < a->elements; i++)
        if (a->element[i]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}

/* In a hash fields and values alternate. It is sorted by field before anything is looked
 * for in it: a line may have as many groups as it has waiters. */
static int by_field(const void *a, const void *b)
{
    const redisReply *x = *(redisReply *const *)a, *y = *(redisReply *const *)b;

    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->str, y->str, x->len);
}

static void sort_fields(const redisReply *hash)
{
    if (hash->elements > 0)
        qsort(hash->element, hash->elements / 2, 2 * sizeof hash->element[0], by_field);
}

/* NULL: there is no such field. */
static const redisReply *value_of(const redisReply *hash, char *field, size_t len)
{
    redisReply key = { .str = field, .len = len };
    const redisReply *wanted = &key;
    redisReply **pair = NULL;

    if (hash->elements > 0)
        pair = bsearch(&wanted, hash->element, hash->elements / 2,
                       2 * sizeof hash->element[0], by_field);
    return pair ? pair[1] : NULL;
}

/* Until when the group of a waiter lives; 0: no such group. */
static int64_t group_till(const redisReply *waiters, const unsigned char *record)
{
    char name[GROUP_NAME] = "g";
    const redisReply *group;

    memcpy(name + 1, record + 32, CLIENT_ID);
    memcpy(name + 1 + CLIENT_ID, record + 24, 8);
    group = value_of(waiters, name, sizeof name);
    return group && group->len == GROUP ? (int64_t)bytes_get(group->str, 8) : 0;
}

/* NULL: it is not there. */
static const redisReply *whose_of(const redisReply *holders, const redisReply *token)
{
    char name[1 + HF_TOKEN] = "r";

    memcpy(name + 1, token->str, HF_TOKEN);
    return value_of(holders, name, sizeof name);
}

static int read_header(struct reading *k, const redisReply *value, hf_error *err)
{
    const unsigned char *p = (const unsigned char *)value->str;

    if (value->len > 0 && p[0] != LINE_FORMAT)
        return hf__fail(err, HF_EVERSION, 0, NULL,
                        "the line was written in format %u by another version of holdfast",
                        p[0]);
    if (value->len != HEAD)
        return hf__fail(err, HF_EDAMAGED, 0, NULL, "a damaged line");
    k->row.kind = p[1] == LINE_PERMITS ? LINE_PERMITS : LINE_LOCK;
    k->row.capacity = (int64_t)bytes_get(p + 2, 8);
    return 0;
}

static int64_t since(int64_t now_us, const unsigned char *at)
{
    uint64_t then = bytes_get(at, 8);

    return now_us > 0 && then < (uint64_t)now_us ? (now_us - (int64_t)then) / 1000 : 0;
}

static int add(struct reading *k, const redisReply *token, const redisReply *value,
               bool holds, hf_error *err)
{
    struct redis_seen *s = &k->seen[k->n];
    bool apart = holds && value->len == HOLDER; /* in a field of its own */
    const redisReply *whose = apart ? whose_of(k->holding, token) : value;
    size_t fixed = apart ? 0 : holds ? HOLDER : WAITER;

    if (!whose || whose->len < fixed)
        return hf__fail(err, HF_EDAMAGED, 0, NULL, "a damaged ticket");
    s->bytes = (const unsigned char *)value->str;
    s->whose = (const unsigned char *)whose->str + fixed;
    s->whose_len = whose->len - fixed;
    s->token = token->str;
    s->holds = holds;
    s->order = bytes_get(s->bytes + 8, 8);
    s->expiry =
        holds ? (int64_t)bytes_get(s->bytes + 16, 8) : group_till(k->waiting, s->bytes);
    if (s->expiry <= k->now_us / 1000)
        return 0; /* over: whoever changes the line next drops it */
    k->n++;
    k->row.holders += holds;
    k->row.waiters += !holds;
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

static int read_all(struct reading *k, hf_error *err)
{
    const redisReply *holders = k->holding, *waiters = k->waiting;
    int rc = 0;

    for (size_t i = 0; i < holders->elements && rc == 0; i += 2) {
        if (holders->element[i]->len == 0)
            rc = read_header(k, holders->element[i + 1], err);
        else if (holders->element[i]->len == HF_TOKEN)
            rc = add(k, holders->element[i], holders->element[i + 1], true, err);
    }
    for (size_t i = 0; i < waiters->elements && rc == 0; i += 2)
        if (waiters->element[i]->len == HF_TOKEN)
            rc = add(k, waiters->element[i], waiters->element[i + 1], false, err);
    if (rc == 0)
        qsort(k->seen, k->n, sizeof *k->seen, in_order);
    return rc;
}

static int show(struct look *look, const struct reading *k, size_t i, hf_error *err)
{
    const struct redis_seen *s = &k->seen[i];
    char host[256], note[HF_NOTE_MAX + 1];
    struct owner_record rec;
    struct row row = k->row;

    if (hf__owner_record_read(&rec, s->whose, s->whose_len) < 0)
        return hf__fail(err, HF_EDAMAGED, 0, NULL, "a damaged ticket");
    snprintf(host, sizeof host, "%.*s", (int)rec.host_len, rec.host);
    snprintf(note, sizeof note, "%.*s", (int)rec.note_len, rec.note);
    row.has_ticket = true;
    memcpy(row.token, s->token, HF_TOKEN);
    row.fence = s->holds ? s->order : 0;
    row.position = s->holds ? 0 : (uint32_t)(i - k->row.holders + 1);
    row.weight = (int64_t)bytes_get(s->bytes, 8);
    row.owner = rec.owner;
    row.host = host;
    row.pid = rec.pid;
    row.age_ms = since(k->now_us, s->bytes + (s->holds ? 32 : 16));
    row.expires_ms = s->expiry - k->now_us / 1000;
    row.joined = (int64_t)bytes_get(s->bytes + (s->holds ? 24 : 16), 8);
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
    struct reading k = { .row = { .name = name, .name_len = name_len, .oldest_ms = -1 } };
    int rc;

    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        !strings(reply->element[1]) || !strings(reply->element[2]))
        return hf__fail(err, HF_EPROTO, 0, NULL, "an answer of an unexpected form");
    k.holding = reply->element[1];
    k.waiting = reply->element[2];
    sort_fields(k.holding);
    sort_fields(k.waiting);
    k.now_us = hf__redis_reply_number(reply, 0);
    k.seen = calloc((k.holding->elements + k.waiting->elements) / 2 + 1, sizeof *k.seen);
    if (!k.seen)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory");
    rc = read_all(&k, err);
    for (size_t i = 0; i < k.n && rc == 0; i++)
        rc = show(look, &k, i, err);
    *ret_next_ms = k.earliest > 0 ? k.earliest - k.now_us / 1000 : -1;
    free(k.seen);
    return rc;
}
