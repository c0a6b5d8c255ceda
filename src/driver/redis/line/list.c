/* list.c: which lines there are. Every server is asked for the keys of lines (SCAN, which
 * may name a key twice), then each line is looked at once, in the order of names, some at a
 * time. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_A_TIME = 32, SCAN_COUNT = 1000 };

struct redis_listing;

struct list_request {
    struct request q;
    struct redis_listing *listing;
    size_t name_len;
    char name[];
};

static struct list_request *of(struct request *q)
{
    return container_of(q, struct list_request, q);
}

static struct list_request *new_request(const struct request_type *type, const char *name,
                                        size_t name_len)
{
    struct request *q = hf__redis_request_new(
        type, sizeof(struct list_request) + name_len + 1, hf__redis_bucket(name, name_len));

    if (!q)
        return NULL;
    of(q)->name_len = name_len;
    memcpy(of(q)->name, name, name_len);
    return of(q);
}

static void build_look(struct redis *r, struct request *q, struct command *c)
{
    hf__redis_line_script(r, c, q, SCRIPT_LOOK, of(q)->name, of(q)->name_len, 1);
    hf__redis_command_number(c, 0);
}

struct redis_listing {
    struct query query;
    char **names;
    size_t n, room, next, shown, open;
    struct node *node; /* being scanned */
    char cursor[24];
    int rc;
    hf_error err;
};

static void end_listing(struct redis_listing *l)
{
    if (l->open > 0)
        return;
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    hf__query_end(&l->query, l->rc, &l->err);
    free(l);
}

static void listing_failed(struct redis *r, struct redis_listing *l,
                           const redisReply *reply)
{
    if (l->rc == 0)
        l->rc = hf__redis_reply_error(r, reply, &l->err);
}

/* One that is damaged, or of another version, does not hide the others. */
static void line_failed(struct redis *r, const struct list_request *a,
                        const redisReply *reply)
{
    struct env *env = r->store.env;
    hf_error err;
    int code = hf__redis_reply_error(r, reply, &err);

    if (code == HF_EDAMAGED || code == HF_EVERSION)
        env->log(env, HF_LOG_WARN, a->name, err.text);
    else
        listing_failed(r, a->listing, reply);
}

static void go_on(struct redis *, struct redis_listing *);

static void answer_line(struct redis *r, struct request *q, const redisReply *reply)
{
    struct list_request *a = of(q);
    struct redis_listing *l = a->listing;
    hf_error err;
    int rc;

    l->open--;
    if (hf__redis_query_failed(reply)) {
        line_failed(r, a, reply);
    } else if (l->query.look && l->rc == 0 &&
               (l->query.look->limit == 0 || l->shown < l->query.look->limit)) {
        rc = hf__redis_line_rows(a->name, a->name_len, reply, l->query.look, true, NULL,
                                 &err);
        l->shown++;
        if (rc < 0) {
            l->rc = rc;
            l->err = err;
        }
    }
    go_on(r, l);
}

/* The first so many names, not the first so many answers. */
static size_t at_a_time(const struct look *look)
{
    return look->limit > 0 ? 1 : AT_A_TIME;
}

static void look_at_more(struct redis *r, struct redis_listing *l)
{
    static const struct request_type type = { build_look, answer_line, true };

    while (l->query.look && l->rc == 0 && l->next < l->n &&
           l->open <= at_a_time(l->query.look)) {
        const char *name = l->names[l->next++];
        struct list_request *a = new_request(&type, name, strlen(name));

        if (!a) {
            l->rc = hf__fail(&l->err, HF_ENOMEM, 0, NULL, "no memory for a look");
            break;
        }
        a->listing = l;
        l->open++;
        hf__redis_request_send(r, &a->q);
    }
}

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

static void build_scan(struct redis *r, struct request *q, struct command *c)
{
    const struct redis_listing *l = of(q)->listing;
    char pattern[KEY_MAX + HF_NAME_MAX];
    size_t n = r->prefix_len;

    memcpy(pattern, r->prefix, n);
    memcpy(pattern + n, "{???}:l:", 8);
    n += 8;
    n += glob(pattern + n, of(q)->name, of(q)->name_len);
    pattern[n++] = '*';
    hf__redis_command_begin(c, 6);
    hf__redis_command_text(c, "SCAN");
    hf__redis_command_text(c, l->cursor);
    hf__redis_command_text(c, "MATCH");
    hf__redis_command_arg(c, pattern, n);
    hf__redis_command_text(c, "COUNT");
    hf__redis_command_number(c, SCAN_COUNT);
}

static bool keep(struct redis_listing *l, const char *name, size_t len)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        char **names = realloc(l->names, room * sizeof *names);

        if (!names)
            return false;
        l->names = names;
        l->room = room;
    }
    l->names[l->n] = strndup(name, len);
    return l->names[l->n] && ++l->n;
}

static void keep_names(struct redis *r, struct redis_listing *l,
                       const struct list_request *a, const redisReply *keys)
{
    for (size_t i = 0; i < keys->elements && l->rc == 0; i++) {
        size_t len;
        const redisReply *key = keys->element[i];
        const char *name = key->type == REDIS_REPLY_STRING
                               ? hf__redis_bucket_name(r, key->str, key->len, &len)
                               : NULL;

        if (!name || len < a->name_len || memcmp(name, a->name, a->name_len) != 0 ||
            memchr(name, '\0', len))
            continue;
        if (!keep(l, name, len))
            l->rc = hf__fail(&l->err, HF_ENOMEM, 0, NULL, "no memory for a list");
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_names(struct redis_listing *l)
{
    size_t n = 0;

    if (l->n > 1)
        qsort(l->names, l->n, sizeof *l->names, by_name);
    for (size_t i = 0; i < l->n; i++) {
        if (n > 0 && strcmp(l->names[n - 1], l->names[i]) == 0)
            free(l->names[i]);
        else
            l->names[n++] = l->names[i];
    }
    l->n = n;
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

static void scan(struct redis_listing *l, const char *prefix, size_t len);

static void answer_scan(struct redis *r, struct request *q, const redisReply *reply)
{
    struct list_request *a = of(q);
    struct redis_listing *l = a->listing;

    l->open--;
    if (!l->query.look || hf__redis_query_failed(reply) ||
        reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_ARRAY) {
        listing_failed(r, l, reply);
        end_listing(l);
        return;
    }
    keep_names(r, l, a, reply->element[1]);
    snprintf(l->cursor, sizeof l->cursor, "%s", reply->element[0]->str);
    if (strcmp(l->cursor, "0") == 0)
        l->node = node_after(r, l->node);
    if (l->node && l->rc == 0) {
        scan(l, a->name, a->name_len);
        return;
    }
    sort_names(l);
    go_on(r, l);
}

static void scan(struct redis_listing *l, const char *prefix, size_t len)
{
    static const struct request_type type = { build_scan, answer_scan, false };
    struct list_request *a = new_request(&type, prefix, len);

    if (!a) {
        l->rc = hf__fail(&l->err, HF_ENOMEM, 0, NULL, "no memory for a list");
        end_listing(l);
        return;
    }
    a->listing = l;
    l->open++;
    hf__redis_conn_send(&l->node->commands, &a->q);
}

static void go_on(struct redis *r, struct redis_listing *l)
{
    l->open++; /* an answer may come inside, and must not end it */
    look_at_more(r, l);
    l->open--;
    if (l->open == 0 && (l->next == l->n || l->rc < 0 || !l->query.look))
        end_listing(l);
}

void hf__redis_list(struct redis *r, struct look *look)
{
    struct redis_listing *l = calloc(1, sizeof *l);

    if (!l) {
        hf__query_refuse(look, NULL, HF_ENOMEM, NULL, "no memory for a list");
        return;
    }
    hf__query_begin(&l->query, look, NULL);
    l->node = node_after(r, NULL);
    snprintf(l->cursor, sizeof l->cursor, "0");
    if (!l->node) {
        listing_failed(r, l, NULL);
        end_listing(l);
        return;
    }
    scan(l, look->name, look->name_len);
}
