/* ephemeral.c: ?mode=ephemeral: one node per name, <root>/<name>/_ephemeral, that
 * belongs to the session of its holder. Whoever makes it holds; the others watch it, and
 * all of them try when it is gone: unfair, and a crowd. No shared locks, no permits, no
 * visible waiters.
 *
 * The fence is the czxid of the node. A create whose answer was lost is known by the
 * token in the node's data. The node has no name of its own, so a release deletes what
 * is there: it is sent only by a holder, of a node that was its own when it was last
 * heard of; that somebody deletes the node by hand and another makes it anew while a
 * release is on the way is the one case that this does not tell apart
 * (docs/guarantees.md), and why the line is the default.
 *
 * LEAVING is every place that is left: what is under way of it ends it. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

static const char node[] = "_ephemeral";

enum alone_state {
    ALONE_NEW,
    ALONE_UNSURE,  /* a create was not answered */
    ALONE_LOOKING, /* the node is read: is it ours, or is there none? */
    ALONE_CREATING,
    ALONE_WAITING,
    ALONE_HELD,
    ALONE_LEAVING, /* the node is read, or deleted, or its create awaited */
    ALONE_OVER     /* with its session; the core will leave it */
};

struct alone {        /* ticket.drv_ptr */
    struct ticket *t; /* NULL: the core has heard the last of it */
    struct zk *zk;
    struct list all; /* zk.alones */
    enum alone_state state;
    unsigned char tries, looks; /* looks: reads under way */
    unsigned pins;
    size_t dir_len, path_len; /* the path of the line is the beginning */
    char path[];
};

struct alone_request {
    struct request q;
    struct alone *of; /* pinned */
};

static void create(struct alone *, bool levels);
static void look(struct alone *);

/* ---- coming and going ------------------------------------------------------------ */

static struct alone *new_alone(struct zk *z, struct ticket *t)
{
    char dir[DIR_MAX];
    size_t n = hf__zk_dir(z, dir, t->name, t->name_len);
    struct alone *a = calloc(1, sizeof *a + n + sizeof node + 1);

    if (!a)
        return NULL;
    a->t = t;
    a->zk = z;
    a->dir_len = n;
    memcpy(a->path, dir, n);
    a->path[n] = '/';
    memcpy(a->path + n + 1, node, sizeof node - 1);
    a->path_len = n + sizeof node;
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
    bool leaves = a->state == ALONE_LEAVING;
    struct ticket *t = out(a);

    if (leaves)
        ev_left(t, 0);
    else
        ev_gone(t, why, why == HF_ELOST ? 0 : -1, err);
}

static void refuse(struct alone *a, const struct jute_reply *reply)
{
    hf_error err;
    int rc = hf__zk_error(a->zk, reply, &err);

    gone(a, rc, &err);
}

static struct request *
request(struct alone *a, void (*answer)(struct zk *, struct request *, struct jute_reply *))
{
    struct request *q = hf__zk_request(a->zk, answer, sizeof(struct alone_request));

    if (!q)
        return NULL;
    container_of(q, struct alone_request, q)->of = a;
    a->pins++;
    return q;
}

/* NULL: nobody cares, or the connection was lost. */
static struct alone *answered(struct request *q, const struct jute_reply *reply)
{
    struct alone *a = container_of(q, struct alone_request, q)->of;

    a->pins--;
    if (a->t && reply)
        return a;
    free_alone(a);
    return NULL;
}

/* ---- leaving --------------------------------------------------------------------- */

static void answer_delete(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct alone *a = answered(q, reply);

    (void)z;
    if (a)
        left(a, reply->err == 0 || reply->err == JUTE_NO_NODE ? 0 : HF_EUNKNOWN);
}

static void send_delete(struct alone *a)
{
    struct request *q = request(a, answer_delete);
    struct jute_out *o;

    a->state = ALONE_LEAVING;
    if (!q)
        return;
    q->renews = true;
    o = hf__zk_begin(a->zk, q, JUTE_DELETE);
    hf__jute_put_text(o, a->path, a->path_len);
    hf__jute_put_int(o, -1);
    hf__zk_send(a->zk, q);
}

/* ---- looking at the node --------------------------------------------------------- */

static void is_mine(struct alone *a, const struct jute_stat *stat)
{
    if (a->state == ALONE_LEAVING) {
        send_delete(a);
    } else if (a->state != ALONE_HELD) {
        a->state = ALONE_HELD;
        look(a); /* unless that which was sent with the create is under way */
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

static void answer_look(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct alone *a;
    struct jute_text data;
    struct jute_stat stat;
    struct record rec;

    container_of(q, struct alone_request, q)->of->looks--;
    a = answered(q, reply);
    if (!a || a->state == ALONE_CREATING || (a->state == ALONE_LEAVING && a->pins > 0))
        return; /* the answer to that says more */
    if (reply->err == JUTE_NO_NODE) {
        if (a->state == ALONE_HELD || a->state == ALONE_LEAVING)
            is_anothers(a); /* nobody's: not ours either */
        else
            create(a, false);
        return;
    }
    data = hf__jute_text(&reply->body);
    if (reply->err != 0 || !hf__jute_stat(&reply->body, &stat)) {
        refuse(a, reply);
        return;
    }
    hf__zk_record_read(&rec, data.at, data.len);
    if (stat.owner == z->session.id && rec.has_token &&
        memcmp(rec.token, a->t->token, HF_TOKEN) == 0)
        is_mine(a, &stat);
    else
        is_anothers(a);
}

/* Sets the watch, too. */
static void look(struct alone *a)
{
    struct request *q;

    if (a->looks > 0)
        return;
    if (a->t->try_only && a->state == ALONE_NEW)
        hf__zk_sync(a->zk, a->path, a->dir_len, hf__zk_ignore);
    q = request(a, answer_look);
    if (a->state == ALONE_NEW || a->state == ALONE_UNSURE)
        a->state = ALONE_LOOKING;
    if (!q)
        return;
    a->looks++;
    hf__zk_send_watch(a->zk, q, JUTE_GET_DATA, a->path, a->path_len);
}

/* ---- making it ------------------------------------------------------------------- */

static void answer_create(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct alone *a = answered(q, reply);
    struct jute_stat stat;

    if (!a)
        return;
    hf__zk_no_level(z, reply, a->tries > 0);
    if (reply->err == JUTE_NODE_EXISTS) {
        if (a->state == ALONE_CREATING)
            a->state = ALONE_LOOKING;
        look(a);
    } else if (reply->err == JUTE_NO_NODE && a->state == ALONE_CREATING &&
               a->tries++ < 10) {
        create(a, true);
    } else if (reply->err != 0) {
        refuse(a, reply);
    } else {
        hf__jute_text(&reply->body);
        if (!hf__jute_stat(&reply->body, &stat) || stat.owner != z->session.id)
            hf__zk_break(z, HF_EPROTO, "a node of another session than ours");
        else
            is_mine(a, &stat);
    }
}

static void create(struct alone *a, bool levels)
{
    struct zk *z = a->zk;
    char data[RECORD_MAX];
    struct request *q;

    if (levels)
        hf__zk_mkdirs(z, a->path, a->dir_len);
    a->state = ALONE_CREATING;
    q = request(a, answer_create);
    if (!q)
        return;
    q->renews = true;
    hf__jute_put_create(hf__zk_begin(z, q, JUTE_CREATE2), a->path, a->path_len, data,
                        hf__zk_record_write(data, z, a->t, 0, false), z->login != NULL,
                        JUTE_EPHEMERAL);
    hf__zk_send(z, q);
    look(a); /* sets the watch, and says whose it is if it was there */
}

/* ---- verbs ----------------------------------------------------------------------- */

void hf__zk_alone_join(struct zk *z, struct ticket *t)
{
    struct alone *a = t->drv_ptr ? t->drv_ptr : new_alone(z, t);
    hf_error err;

    if (!a) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
        ev_gone(t, HF_ENOMEM, -1, &err);
    } else if (a->state == ALONE_UNSURE || (a->state == ALONE_NEW && t->try_only)) {
        look(a);
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

    if (a && a->state == ALONE_OVER) {
        left(a, 0); /* the session has taken it along */
        return;
    }
    if (!a && zk_up(z))
        a = new_alone(z, t);
    if (!a || !zk_up(z)) {
        if (a)
            out(a);
        ev_left(t, HF_EUNKNOWN);
        return;
    }
    was = a->state;
    a->state = ALONE_LEAVING;
    if (was == ALONE_WAITING && a->looks == 0)
        left(a, 0); /* nothing of it is in the store */
    else if (was == ALONE_HELD)
        send_delete(a);
    else if (was != ALONE_CREATING && was != ALONE_LEAVING)
        look(a); /* unless one is under way, which sees it */
}

/* ---- news ------------------------------------------------------------------------ */

void hf__zk_alone_event(struct zk *z, enum jute_event type, const char *path, size_t len)
{
    list_for_safe(n, &z->alones) {
        struct alone *a = container_of(n, struct alone, all);

        if (a->path_len != len || memcmp(a->path, path, len) != 0)
            continue;
        if (a->state == ALONE_WAITING && type == JUTE_DELETED)
            create(a, false);
        else if (a->state == ALONE_WAITING || a->state == ALONE_HELD)
            look(a); /* its data has changed, and the watch is used up */
    }
}

void hf__zk_alone_down(struct zk *z)
{
    list_for_safe(n, &z->alones) {
        struct alone *a = container_of(n, struct alone, all);

        if (a->state == ALONE_LEAVING)
            left(a, HF_EUNKNOWN);
        else if (a->state == ALONE_CREATING || a->state == ALONE_LOOKING)
            a->state = ALONE_UNSURE;
    }
}

/* Those that wait are not asked for again by the core: UNSURE ones may be among them. */
void hf__zk_alone_up(struct zk *z)
{
    list_for_safe(n, &z->alones) {
        struct alone *a = container_of(n, struct alone, all);

        if (a->state == ALONE_HELD || a->state == ALONE_WAITING || a->state == ALONE_UNSURE)
            look(a);
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
