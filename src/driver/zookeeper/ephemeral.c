/* ephemeral.c: ?mode=ephemeral: one node per name, <root>/<name>/_ephemeral, that
 * belongs to the session of its holder. Whoever makes it holds; the others watch it, and
 * all of them try when it is gone: unfair, and a crowd. No shared locks, no permits, no
 * visible waiters.
 *
 *   create, getData with a watch, in one go -> the node that was read says who holds
 *
 * The answer to create only says why there may be none. So a create whose answer was lost
 * needs no more than another getData: the node is ours if it belongs to our session and
 * has the ticket's token in its data. The fence is the czxid of the node.
 *
 * The node has no name of its own, so a release deletes what is there: it is sent only by
 * a holder, of a node that was its own when it was last heard of; that somebody deletes
 * the node by hand and another makes it anew while a release is on the way is the one case
 * that this does not tell apart (docs/guarantees.md), and why the line is the default. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 10 };

enum alone_state {
    ALONE_NEW,
    ALONE_ASKING, /* the node is read, perhaps after a create; or will be, after UP */
    ALONE_WAITING,
    ALONE_HELD,
    ALONE_LEAVING, /* the node is read, or deleted: the answer ends it */
    ALONE_OVER     /* with its session; the core will leave it */
};

struct alone {        /* ticket.drv_ptr */
    struct ticket *t; /* NULL: the core has heard the last of it */
    struct zk *zk;
    struct list all; /* zk.alones */
    enum alone_state state;
    unsigned char tries;
    unsigned pins, reads;     /* requests under way; those that read the node */
    int32_t made;             /* what the last create was answered; NODE_EXISTS: or none */
    size_t dir_len, path_len; /* the path of the line is the beginning */
    char path[];
};

/* ---- coming and going ------------------------------------------------------------ */

static struct alone *new_alone(struct zk *z, struct ticket *t)
{
    char path[NODE_PATH_MAX];
    size_t dir = hf__zk_dir(z, path, t->name, t->name_len);
    size_t n = hf__zk_path(path, path, dir, ALONE_NODE, strlen(ALONE_NODE));
    struct alone *a = calloc(1, sizeof *a + n);

    if (!a)
        return NULL;
    a->t = t;
    a->zk = z;
    a->dir_len = dir;
    a->path_len = n;
    memcpy(a->path, path, n);
    list_push(&z->alones, &a->all);
    t->drv_ptr = a;
    return a;
}

static void free_alone(struct alone *a)
{
    if (!a->t && a->pins == 0)
        free(a);
}

static struct ticket *out(struct alone *a)
{
    struct ticket *t = a->t;

    t->drv_ptr = NULL;
    a->t = NULL;
    list_remove(&a->all);
    free_alone(a);
    return t;
}

static void left(struct alone *a, int rc)
{
    ev_left(out(a), rc);
}

static void gone(struct alone *a, int why, const hf_error *err)
{
    ev_gone(out(a), why, why == HF_ELOST ? 0 : -1, err);
}

static void refuse(struct alone *a, const struct jute_reply *reply)
{
    hf_error err;
    int rc = hf__zk_error(a->zk, reply, &err);

    if (a->state == ALONE_LEAVING)
        left(a, HF_EUNKNOWN);
    else
        gone(a, rc, &err);
}

static void answer(struct zk_call *q, struct jute_reply *reply)
{
    struct alone *a = q->about;

    a->pins--;
    if (a->t && reply)
        q->then(q, reply);
    else
        free_alone(a);
}

static struct zk_call *request(struct alone *a,
                               void then(struct zk_call *, struct jute_reply *))
{
    struct zk_call *q = hf__zk_request(a->zk, answer, a, "", 0);

    if (!q)
        return NULL;
    q->then = then;
    a->pins++;
    return q;
}

/* ---- requests -------------------------------------------------------------------- */

static void answer_delete(struct zk_call *q, struct jute_reply *reply)
{
    left(q->about, reply->err == 0 || reply->err == JUTE_NO_NODE ? 0 : HF_EUNKNOWN);
}

static void send_delete(struct alone *a)
{
    a->state = ALONE_LEAVING;
    hf__zk_send_delete(request(a, answer_delete), a->path, a->path_len, -1);
}

static void answer_read(struct zk_call *, struct jute_reply *);

/* Sets the watch, too. */
static void read_node(struct alone *a)
{
    a->made = JUTE_NODE_EXISTS;
    a->reads++; /* without memory to ask the connection is given up, and this with it */
    hf__zk_send_path(request(a, answer_read), JUTE_GET_DATA, a->path, a->path_len, true);
}

static void answer_create(struct zk_call *q, struct jute_reply *reply)
{
    struct alone *a = q->about;

    hf__zk_no_level(a->zk, reply, a->tries > 0);
    a->made = reply->err;
}

static void create(struct alone *a, bool levels)
{
    if (levels)
        hf__zk_mkdirs(a->zk, a->path, a->dir_len);
    a->state = ALONE_ASKING;
    hf__zk_send_create(request(a, answer_create), a->t, a->path, a->path_len,
                       JUTE_EPHEMERAL);
    read_node(a);
}

/* ---- what was read --------------------------------------------------------------- */

static void is_mine(struct alone *a, const struct jute_stat *stat)
{
    if (a->state == ALONE_LEAVING) {
        send_delete(a);
    } else if (a->state != ALONE_HELD) {
        a->state = ALONE_HELD;
        ev_granted(a->t, (uint64_t)stat->czxid, a->zk->base_at);
    }
}

static void is_anothers(struct alone *a)
{
    if (a->state == ALONE_LEAVING) {
        left(a, 0);
    } else if (a->state == ALONE_HELD) {
        gone(a, HF_ELOST, NULL);
    } else if (a->t->try_only) {
        gone(a, HF_EBUSY, NULL);
    } else if (a->state != ALONE_WAITING) {
        a->state = ALONE_WAITING;
        ev_waiting(a->t, 0, -1);
    }
}

static void is_nobodys(struct alone *a)
{
    bool levels = a->made == JUTE_NO_NODE;

    if (a->state == ALONE_HELD || a->state == ALONE_LEAVING)
        is_anothers(a);
    else if (levels ? a->tries++ < TRIES : a->made == 0 || a->made == JUTE_NODE_EXISTS)
        create(a, levels); /* it went meanwhile, or there was no line */
    else
        refuse(a, &(struct jute_reply){ .err = a->made });
}

static void answer_read(struct zk_call *q, struct jute_reply *reply)
{
    struct alone *a = q->about;
    struct jute_text data;
    struct jute_stat stat;
    struct ticket_record rec;

    if (--a->reads > 0 || (a->state == ALONE_LEAVING && a->pins > 0))
        return; /* the answer to that says more */
    if (reply->err == JUTE_NO_NODE) {
        is_nobodys(a);
        return;
    }
    if (!hf__jute_node(reply, &data, &stat)) {
        refuse(a, reply);
        return;
    }
    hf__record_read(&rec, data.at, data.len);
    if (stat.owner == a->zk->session.id && rec.has_token &&
        memcmp(rec.token, a->t->token, HF_TOKEN) == 0)
        is_mine(a, &stat);
    else
        is_anothers(a);
}

/* ---- verbs ----------------------------------------------------------------------- */

void hf__zk_alone_join(struct zk *z, struct ticket *t)
{
    struct alone *a = t->drv_ptr ? t->drv_ptr : new_alone(z, t);
    hf_error err;

    if (!a) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
        ev_gone(t, HF_ENOMEM, -1, &err);
    } else if (a->state == ALONE_NEW) {
        create(a, false);
    } else if (a->state == ALONE_WAITING) {
        ev_waiting(t, 0, -1);
    }
}

void hf__zk_alone_leave(struct zk *z, struct ticket *t)
{
    struct alone *a = t->drv_ptr;
    enum alone_state was;

    if (!a && zk_up(z))
        a = new_alone(z, t); /* forgotten: the node is read */
    if (!a) {
        ev_left(t, HF_EUNKNOWN);
        return;
    }
    was = a->state;
    a->state = ALONE_LEAVING;
    if (was == ALONE_OVER || (was == ALONE_WAITING && a->reads == 0 && zk_up(z)))
        left(a, 0); /* nothing of it is in the store */
    else if (!zk_up(z))
        left(a, HF_EUNKNOWN);
    else if (was == ALONE_HELD)
        send_delete(a);
    else if (was != ALONE_LEAVING && a->reads == 0)
        read_node(a);
}

/* ---- events ---------------------------------------------------------------------- */

void hf__zk_alone_event(struct zk *z, enum jute_event type, const char *path, size_t len)
{
    list_for_safe(n, &z->alones) {
        struct alone *a = container_of(n, struct alone, all);

        if (a->path_len != len || memcmp(a->path, path, len) != 0)
            continue;
        if (a->state == ALONE_WAITING && type == JUTE_DELETED)
            create(a, false);
        else if (a->state == ALONE_WAITING || a->state == ALONE_HELD)
            read_node(a); /* its data has changed, and the watch is used up */
    }
}

void hf__zk_alone_down(struct zk *z)
{
    list_for_safe(n, &z->alones) {
        struct alone *a = container_of(n, struct alone, all);

        a->reads = 0;
        if (a->state == ALONE_LEAVING)
            left(a, HF_EUNKNOWN);
    }
}

/* Also those that the core does not ask for again, because they wait. */
void hf__zk_alone_up(struct zk *z)
{
    list_for_safe(n, &z->alones) {
        struct alone *a = container_of(n, struct alone, all);

        if (a->state >= ALONE_ASKING && a->state <= ALONE_HELD)
            read_node(a);
    }
}

void hf__zk_alone_over(struct zk *z)
{
    list_for(n, &z->alones)
        container_of(n, struct alone, all)->state = ALONE_OVER;
}

void hf__zk_alone_close(struct zk *z)
{
    struct list *n;

    while ((n = list_first(&z->alones)) != NULL)
        out(container_of(n, struct alone, all));
}
