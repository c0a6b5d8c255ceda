/* list.c: which lines there are.
 *
 *   SCAN of every server -> names, each once -> one script for some fifty of them -> rows
 *
 * With a limit only the least names are kept while scanning, and some to spare, because a
 * key may turn out to be a line without anybody. If that is not enough, and names were
 * dropped, all is scanned again for names behind the last one. Names of one script share a
 * bucket in a cluster, and where a proxy says CROSSSLOT. A line that is damaged or of
 * another version is told to the log and hides no other. An unanswered request ends the
 * list with HF_EUNREACHABLE. */
#include "driver/redis/redis.h"
#include "kit/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCAN_COUNT = 1000, BATCH = 50, BATCHES = 4, SPARE = 50 };

struct redis_listing {
    struct listing l;
    struct node *node; /* being scanned */
    char cursor[24];
    char *after; /* names up to this one are done with; NULL: none */
    size_t next; /* of the names: not asked for yet */
};

struct list_batch { /* q.about: the listing */
    struct redis_call q;
    size_t from, n; /* of the names */
};

static struct list_batch *batch_of(struct redis_call *q)
{
    return container_of(q, struct list_batch, q);
}

static void go_on(struct redis *, struct redis_listing *);

static void failed(struct redis *r, struct redis_listing *l, const redisReply *reply)
{
    hf_error err;

    hf__listing_fail(&l->l, hf__redis_reply_error(r, reply, &err), &err);
}

/* ---- names ----------------------------------------------------------------------- */

static size_t glob(char *to, const char *name, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (strchr("*?[]\\^-", name[i]))
            to[n++] = '\\';
        to[n++] = name[i];
    }
    return n;
}

static void build_scan(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct redis_listing *l = q->about;
    char pattern[KEY_MAX + HF_NAME_MAX];
    size_t n = r->prefix_len;

    memcpy(pattern, r->prefix, n);
    memcpy(pattern + n, "{???}:l:", 8);
    n += 8;
    n += glob(pattern + n, l->l.prefix, l->l.prefix_len);
    pattern[n++] = '*';
    hf__redis_command_words(c, "SCAN", 5);
    hf__redis_command_text(c, l->cursor);
    hf__redis_command_text(c, "MATCH");
    hf__redis_command_arg(c, pattern, n);
    hf__redis_command_text(c, "COUNT");
    hf__redis_command_number(c, SCAN_COUNT);
}

static void keep_names(struct redis *r, struct redis_listing *l, const redisReply *keys)
{
    for (size_t i = 0; i < keys->elements && l->l.rc == 0; i++) {
        size_t len;
        const redisReply *key = keys->element[i];
        const char *name = key->type == REDIS_REPLY_STRING
                               ? hf__redis_bucket_name(r, key->str, key->len, &len)
                               : NULL;

        if (!name || !hf__listing_names(&l->l, name, len) || memchr(name, '\0', len) ||
            (l->after && strcmp(name, l->after) <= 0))
            continue;
        if (!hf__names_add(&l->l.names, name, len))
            hf__listing_no_memory(&l->l);
    }
}

static struct node *node_after(struct redis *r, const struct node *n)
{
    struct list *at = n ? n->in_redis.next : r->nodes.next;

    for (; at != &r->nodes; at = at->next) {
        struct node *next = container_of(at, struct node, in_redis);

        if (next == r->one || (r->topology == TOPOLOGY_CLUSTER && next->wanted))
            return next;
    }
    return NULL;
}

static int by_bucket(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    unsigned one = hf__redis_bucket(x, strlen(x)), other = hf__redis_bucket(y, strlen(y));

    return one < other ? -1 : one > other;
}

/* All names are known. The last of them is where another scan would go on. */
static void scanned(struct redis *r, struct redis_listing *l)
{
    struct name_set *s = &l->l.names;

    hf__names_settle(s);
    free(l->after);
    l->after = s->n > 0 && s->cut ? strdup(s->at[s->n - 1]) : NULL;
    if (s->n > 0 && s->cut && !l->after)
        hf__listing_no_memory(&l->l);
    if (r->apart && s->n > 1)
        qsort(s->at, s->n, sizeof *s->at, by_bucket);
}

static void answer_scan(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct redis_listing *l = q->about;

    hf__listing_answered(&l->l);
    if (hf__redis_query_failed(reply) || reply->type != REDIS_REPLY_ARRAY ||
        reply->elements != 2 || !hf__redis_reply_text(reply, 0) ||
        reply->element[1]->type != REDIS_REPLY_ARRAY) {
        failed(r, l, reply);
    } else {
        keep_names(r, l, reply->element[1]);
        snprintf(l->cursor, sizeof l->cursor, "%s", reply->element[0]->str);
        if (strcmp(l->cursor, "0") == 0)
            l->node = node_after(r, l->node);
        if (!l->node)
            scanned(r, l);
    }
    go_on(r, l);
}

static void scan(struct redis_listing *l)
{
    static const struct request_type type = { .build = build_scan, .answer = answer_scan };

    if (hf__redis_ask_on(&l->node->commands, &type, l))
        l->l.open++;
    else
        hf__listing_no_memory(&l->l);
}

static void scan_all(struct redis *r, struct redis_listing *l)
{
    const struct look *look = l->l.query.look;

    hf__names_done(&l->l.names);
    l->next = 0;
    l->l.names.most = look->limit > 0 ? look->limit + SPARE : 0;
    l->node = node_after(r, NULL);
    snprintf(l->cursor, sizeof l->cursor, "0");
    if (!l->node)
        failed(r, l, NULL);
}

/* ---- lines ----------------------------------------------------------------------- */

static void build_batch(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct redis_listing *l = q->about;
    const struct list_batch *k = batch_of(q);
    char key[KEY_MAX];

    if (!listing_goes_on(&l->l)) {
        c->nothing = true;
        return;
    }
    hf__redis_request_script(c, q, SCRIPT_LIST, 2 * k->n, 0);
    for (size_t i = 0; i < k->n; i++) {
        const char *name = l->l.names.at[k->from + i];
        size_t len = strlen(name);

        hf__redis_command_arg(c, key, hf__redis_bucket_key(r, key, 'l', name, len));
        hf__redis_command_arg(c, key, hf__redis_bucket_key(r, key, 'w', name, len));
    }
}

static void show(struct redis *r, struct redis_listing *l, const char *name,
                 const redisReply *reply)
{
    struct env *env = r->store.env;
    struct row row = { .name = name, .name_len = strlen(name) };

    if (hf__redis_reply_is(reply, 0, "f")) {
        env->log(env, HF_LOG_WARN, name, "the line was written by another version");
    } else if (hf__redis_reply_is(reply, 0, "e")) {
        env->log(env, HF_LOG_WARN, name, "the key is not a line, or damaged");
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 5) {
        row.kind = reply_kind(reply);
        row.capacity = hf__redis_reply_number(reply, 1);
        row.holders = (uint64_t)hf__redis_reply_number(reply, 2);
        row.waiters = (uint64_t)hf__redis_reply_number(reply, 3);
        row.oldest_ms = hf__redis_reply_number(reply, 4);
        hf__listing_row(&l->l, &row);
    }
}

static void ask_batch(struct redis *, struct redis_listing *, size_t from, size_t n);

static void answer_batch(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    const struct list_batch *k = batch_of(q);
    struct redis_listing *l = q->about;

    hf__listing_answered(&l->l);
    if (k->n > 1 && hf__redis_reply_apart(r, reply)) {
        for (size_t i = 0; i < k->n && listing_goes_on(&l->l); i++)
            ask_batch(r, l, k->from + i, 1);
    } else if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 ||
               reply->elements > k->n) {
        failed(r, l, reply);
    } else {
        for (size_t i = 0; i < reply->elements; i++)
            show(r, l, l->l.names.at[k->from + i], reply->element[i]);
        if (reply->elements < k->n && listing_goes_on(&l->l))
            ask_batch(r, l, k->from + reply->elements, k->n - reply->elements);
    }
    go_on(r, l);
}

static void ask_batch(struct redis *r, struct redis_listing *l, size_t from, size_t n)
{
    static const struct request_type type = { build_batch, answer_batch, .line = true };
    const char *name = l->l.names.at[from];
    struct redis_call *q = hf__redis_request_new(&type, sizeof(struct list_batch),
                                                 hf__redis_bucket(name, strlen(name)));

    if (!q) {
        hf__listing_no_memory(&l->l);
        return;
    }
    q->about = l;
    batch_of(q)->from = from;
    batch_of(q)->n = n;
    l->l.open++;
    hf__redis_request_send(r, q);
}

static void ask_next(struct redis *r, struct redis_listing *l)
{
    const struct name_set *s = &l->l.names;
    size_t from = l->next, n = 1;

    while (n < BATCH && from + n < s->n &&
           (!r->apart || by_bucket(&s->at[from], &s->at[from + n]) == 0))
        n++;
    l->next += n;
    ask_batch(r, l, from, n);
}

/* ---- the whole ------------------------------------------------------------------- */

static void go_on(struct redis *r, struct redis_listing *l)
{
    bool idle =
        l->l.open++ == 0; /* an answer may come inside a request, and must not end it */

    if (listing_goes_on(&l->l) && idle && !l->node && l->next == l->l.names.n && l->after &&
        l->l.shown < l->l.query.look->limit)
        scan_all(r, l); /* too many of the names were no lines */
    if (listing_goes_on(&l->l) && idle && l->node)
        scan(l);
    while (listing_goes_on(&l->l) && !l->node && l->next < l->l.names.n &&
           l->l.open <= BATCHES)
        ask_next(r, l);
    if (--l->l.open > 0)
        return;
    hf__listing_end(&l->l);
    free(l->after);
    free(l);
}

void hf__redis_list(struct redis *r, struct look *look)
{
    struct redis_listing *l = hf__listing_new(sizeof *l, look);

    if (!l)
        return;
    scan_all(r, l);
    go_on(r, l);
}
