/* look.c: who holds, who waits, which lines there are.
 *
 * One line is one script. A list asks every server for the keys of lines (SCAN, which may
 * name a key twice), then looks at each line once, in the order of names, some at a time.
 * Nothing is changed by looking, and no expiry moves (rule 7). An unanswered look ends with
 * HF_EUNREACHABLE; a follow is taken up again by itself (follow.c). */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_A_TIME = 32, SCAN_COUNT = 1000 };

bool hf__redis_asking_failed(const redisReply *reply)
{
    return !reply || reply->type == REDIS_REPLY_ERROR || hf__redis_reply_is(reply, 0, "f");
}

/* ---- one line -------------------------------------------------------------------- */

static void build_look(struct redis *r, struct request *q, struct command *c)
{
    const struct asking *a = asking_of(q);

    hf__redis_line_script(r, c, q, SCRIPT_LOOK, a->name, a->name_len, a->bare ? 2 : 1);
    hf__redis_command_number(c, a->follow_ms);
    if (a->bare)
        hf__redis_command_arg(c, a->token, a->front ? HF_TOKEN : 0);
}

static void answer_look(struct redis *r, struct request *q, const redisReply *reply)
{
    struct asking *a = asking_of(q);
    struct look *look = a->look;
    struct follow *f = look && look->follow ? look->drv_ptr : NULL;
    int64_t next_ms = -1;
    hf_error err;
    int rc;

    if (!look)
        return; /* stopped */
    if (f)
        f->asking = NULL;
    else
        look->drv_ptr = NULL;
    if (f && !reply)
        return;
    rc = hf__redis_asking_failed(reply) ? hf__redis_reply_error(r, reply, &err)
                                        : hf__redis_line_rows(a->name, a->name_len, reply,
                                                              look, false, &next_ms, &err);
    if (f && rc == 0)
        hf__redis_follow_next(f, next_ms);
    if (rc < 0)
        hf__redis_follow_end(r, f);
    ev_done(look, NULL, rc, rc < 0 ? &err : NULL);
}

static const struct request_type look_type = { build_look, answer_look, true };

struct asking *hf__redis_asking_new(const struct request_type *type, struct look *look,
                                    const char *name, size_t name_len)
{
    struct request *q = hf__redis_request_new(type, sizeof(struct asking) + name_len + 1,
                                              hf__redis_bucket(name, name_len));
    struct asking *a = q ? asking_of(q) : NULL;

    if (a) {
        a->look = look;
        a->name_len = name_len;
        memcpy(a->name, name, name_len);
    }
    return a;
}

void hf__redis_asking_no_memory(struct look *look)
{
    hf_error err;

    hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a look");
    ev_done(look, NULL, HF_ENOMEM, &err);
}

void hf__redis_look_send(struct redis *r, struct look *look, int64_t follow_ms)
{
    struct asking *a = hf__redis_asking_new(&look_type, look, look->name, look->name_len);
    struct follow *f = look->follow ? look->drv_ptr : NULL;

    if (!a) {
        hf__redis_follow_end(r, f);
        hf__redis_asking_no_memory(look);
        return;
    }
    a->follow_ms = follow_ms;
    a->bare = look->no_notes;
    a->front = look->front;
    memcpy(a->token, look->token, HF_TOKEN);
    if (f)
        f->asking = a;
    else
        look->drv_ptr = a;
    hf__redis_request_send(r, &a->q);
}

/* ---- a list of lines ------------------------------------------------------------- */

struct listing {
    struct asking *self; /* what the look knows of it */
    struct look *look;   /* NULL: stopped */
    char **names;
    size_t n, room, next, shown, open;
    struct node *node; /* being scanned */
    char cursor[24];
    int rc;
    hf_error err;
};

static void end_listing(struct listing *l)
{
    struct look *look = l->look;
    int rc = l->rc;
    hf_error err = l->err;

    if (l->open > 0)
        return;
    for (size_t i = 0; i < l->n; i++)
        free(l->names[i]);
    free(l->names);
    free(l);
    if (look) {
        look->drv_ptr = NULL;
        ev_done(look, NULL, rc, rc < 0 ? &err : NULL);
    }
}

static void listing_failed(struct redis *r, struct listing *l, const redisReply *reply)
{
    if (l->rc == 0)
        l->rc = hf__redis_reply_error(r, reply, &l->err);
}

/* One that is damaged, or of another version, does not hide the others. */
static void line_failed(struct redis *r, const struct asking *a, const redisReply *reply)
{
    struct env *env = r->store.env;
    hf_error err;
    int code = hf__redis_reply_error(r, reply, &err);

    if (code == HF_EDAMAGED || code == HF_EVERSION)
        env->log(env, HF_LOG_WARN, a->name, err.text);
    else
        listing_failed(r, a->listing, reply);
}

static void go_on(struct redis *, struct listing *);

static void answer_line(struct redis *r, struct request *q, const redisReply *reply)
{
    struct asking *a = asking_of(q);
    struct listing *l = a->listing;
    hf_error err;
    int rc;

    l->open--;
    if (hf__redis_asking_failed(reply)) {
        line_failed(r, a, reply);
    } else if (l->look && l->rc == 0 &&
               (l->look->limit == 0 || l->shown < l->look->limit)) {
        rc = hf__redis_line_rows(a->name, a->name_len, reply, l->look, true, NULL, &err);
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

static void look_at_more(struct redis *r, struct listing *l)
{
    static const struct request_type type = { build_look, answer_line, true };

    while (l->look && l->rc == 0 && l->next < l->n && l->open < at_a_time(l->look)) {
        const char *name = l->names[l->next++];
        struct asking *a = hf__redis_asking_new(&type, NULL, name, strlen(name));

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
    const struct listing *l = asking_of(q)->listing;
    char pattern[KEY_MAX + HF_NAME_MAX];
    size_t n = r->prefix_len;

    memcpy(pattern, r->prefix, n);
    memcpy(pattern + n, "{???}:l:", 8);
    n += 8;
    n += glob(pattern + n, asking_of(q)->name, asking_of(q)->name_len);
    pattern[n++] = '*';
    hf__redis_command_begin(c, 6);
    hf__redis_command_text(c, "SCAN");
    hf__redis_command_text(c, l->cursor);
    hf__redis_command_text(c, "MATCH");
    hf__redis_command_arg(c, pattern, n);
    hf__redis_command_text(c, "COUNT");
    hf__redis_command_number(c, SCAN_COUNT);
}

static bool keep(struct listing *l, const char *name, size_t len)
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

static void keep_names(struct redis *r, struct listing *l, const struct asking *a,
                       const redisReply *keys)
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

static void sort_names(struct listing *l)
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

static void scan(struct listing *l, const char *prefix, size_t len);

static void answer_scan(struct redis *r, struct request *q, const redisReply *reply)
{
    struct asking *a = asking_of(q);
    struct listing *l = a->listing;

    l->open--;
    if (!l->look || hf__redis_asking_failed(reply) || reply->type != REDIS_REPLY_ARRAY ||
        reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
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

static void scan(struct listing *l, const char *prefix, size_t len)
{
    static const struct request_type type = { build_scan, answer_scan, false };
    struct asking *a = hf__redis_asking_new(&type, NULL, prefix, len);

    if (!a) {
        l->rc = hf__fail(&l->err, HF_ENOMEM, 0, NULL, "no memory for a list");
        end_listing(l);
        return;
    }
    a->listing = l;
    l->open++;
    hf__redis_conn_send(&l->node->commands, &a->q);
}

static void go_on(struct redis *r, struct listing *l)
{
    look_at_more(r, l);
    if (l->open == 0 && (l->next == l->n || l->rc < 0 || !l->look))
        end_listing(l);
}

static void start_listing(struct redis *r, struct look *look)
{
    struct listing *l = calloc(1, sizeof *l);

    if (!l) {
        hf__redis_asking_no_memory(look);
        return;
    }
    l->look = look;
    l->node = node_after(r, NULL);
    snprintf(l->cursor, sizeof l->cursor, "0");
    look->drv_ptr = l;
    if (!l->node) {
        listing_failed(r, l, NULL);
        end_listing(l);
        return;
    }
    scan(l, look->name, look->name_len);
}

void hf__redis_look(struct store *s, struct look *look)
{
    struct redis *r = redis_of(s);

    if (look->follow)
        hf__redis_follow_start(r, look, NULL);
    else if (look->list)
        start_listing(r, look);
    else if (look->brief)
        hf__redis_brief(r, look);
    else
        hf__redis_look_send(r, look, 0);
}

/* ---- stopping -------------------------------------------------------------------- */

void hf__redis_stop(struct store *s, struct look *look, struct cell *cell)
{
    struct redis *r = redis_of(s);

    if ((look && look->follow) || (cell && cell->follow)) {
        hf__redis_follow_end(r, look ? look->drv_ptr : cell->drv_ptr);
    } else if (look && look->list && look->drv_ptr) {
        ((struct listing *)look->drv_ptr)->look = NULL;
        look->drv_ptr = NULL;
    } else if (look && look->drv_ptr) {
        ((struct asking *)look->drv_ptr)->look = NULL;
        look->drv_ptr = NULL;
    } else if (cell && cell->drv_ptr) {
        ((struct asking *)cell->drv_ptr)->cell = NULL;
        cell->drv_ptr = NULL;
    }
}
