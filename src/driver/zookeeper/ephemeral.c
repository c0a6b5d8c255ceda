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
 * (docs/guarantees.md), and why the line is the default. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

static const char node[] = "_ephemeral";

static void create(struct seat *, bool levels);
static void look(struct seat *);

static size_t path_of(const struct seat *s, char path[NODE_PATH_MAX])
{
    return hf__zk_line_path(s->line, path, node, sizeof node - 1);
}

static void refuse(struct seat *s, const struct jute_reply *reply)
{
    hf_error err;
    int rc = hf__zk_error(s->zk, reply, &err);

    hf__zk_seat_gone(s, rc, &err);
}

/* ---- leaving --------------------------------------------------------------------- */

static void answer_delete(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    (void)z;
    if (!hf__zk_seat_answered(s))
        return;
    hf__zk_seat_left(
        s, reply && (reply->err == 0 || reply->err == JUTE_NO_NODE) ? 0 : HF_EUNKNOWN);
}

static void send_delete(struct seat *s)
{
    char path[NODE_PATH_MAX];
    struct request *q = hf__zk_seat_request(s, answer_delete);
    struct jute_out *o;

    if (!q)
        return;
    q->renews = true;
    s->state = SEAT_DELETING;
    o = hf__zk_begin(s->zk, q, JUTE_DELETE);
    hf__jute_put_text(o, path, path_of(s, path));
    hf__jute_put_int(o, -1);
    hf__zk_send(s->zk, q);
}

/* ---- looking at the node --------------------------------------------------------- */

static void is_mine(struct seat *s, const struct jute_stat *stat)
{
    free(s->name);
    s->name = strdup(node);
    s->fence = (uint64_t)stat->czxid;
    if (!s->name) {
        hf__zk_break(s->zk, HF_ENOMEM, "no memory for a name");
        return;
    }
    if (s->leave)
        send_delete(s);
    else if (s->state != SEAT_HELD)
        hf__zk_seat_granted(s);
}

static void is_anothers(struct seat *s)
{
    bool held = s->state == SEAT_HELD;

    if (s->leave) {
        hf__zk_seat_left(s, 0);
    } else if (held) {
        hf__zk_seat_gone(s, HF_ELOST, NULL);
    } else if (s->t->try_only) {
        hf__zk_seat_gone(s, HF_EBUSY, NULL);
    } else {
        s->state = SEAT_WAITING;
        hf__zk_seat_waits(s, 0);
    }
}

static void answer_look(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    struct jute_text data;
    struct jute_stat stat;
    struct record rec;

    if (!hf__zk_seat_answered(s))
        return;
    s->asking = false;
    if (s->state == SEAT_CREATING || s->state == SEAT_DELETING)
        return; /* the answer to that says more */
    if (!reply) {
        s->state = s->state == SEAT_FINDING ? SEAT_NEW : s->state;
        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
        return;
    }
    if (reply->err == JUTE_NO_NODE) {
        s->unsure = false;
        if (s->state == SEAT_HELD || s->leave)
            is_anothers(s); /* nobody's: not ours either */
        else
            create(s, false);
        return;
    }
    data = hf__jute_text(&reply->body);
    if (reply->err != 0 || !hf__jute_stat(&reply->body, &stat)) {
        refuse(s, reply);
        return;
    }
    hf__zk_record_read(&rec, data.at, data.len);
    if (stat.owner == z->session.id && rec.has_token &&
        memcmp(rec.token, s->t->token, HF_TOKEN) == 0)
        is_mine(s, &stat);
    else
        is_anothers(s);
}

/* Sets the watch, too. */
static void look(struct seat *s)
{
    char path[NODE_PATH_MAX];
    struct request *q;

    if (s->asking)
        return;
    if (s->t->try_only && s->state == SEAT_NEW)
        hf__zk_sync(s->zk, s->line->dir, s->line->dir_len, hf__zk_ignore);
    q = hf__zk_seat_request(s, answer_look);
    if (!q)
        return;
    s->asking = true;
    if (s->state == SEAT_NEW)
        s->state = SEAT_FINDING;
    hf__zk_send_watch(s->zk, q, JUTE_GET_DATA, path, path_of(s, path));
}

/* ---- making it ------------------------------------------------------------------- */

static void answer_create(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    struct jute_stat stat;

    if (!hf__zk_seat_answered(s))
        return;
    s->state = SEAT_NEW;
    if (reply)
        hf__zk_no_level(z, reply, s->tries > 0);
    if (!reply) {
        s->unsure = true;
        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
    } else if (reply->err == JUTE_NODE_EXISTS) {
        if (s->leave)
            hf__zk_seat_left(s, 0);
        else
            look(s);
    } else if (reply->err == JUTE_NO_NODE && s->tries++ < 10 && !s->leave) {
        create(s, true);
    } else if (reply->err != 0) {
        refuse(s, reply);
    } else {
        hf__jute_text(&reply->body);
        if (!hf__jute_stat(&reply->body, &stat) || stat.owner != z->session.id) {
            s->unsure = true;
            hf__zk_break(z, HF_EPROTO, "a node of another session than ours");
            return;
        }
        is_mine(s, &stat);
    }
}

static void create(struct seat *s, bool levels)
{
    hf__zk_seat_send_create(s, node, sizeof node - 1, JUTE_EPHEMERAL, levels,
                            answer_create);
}

void hf__zk_alone_start(struct seat *s)
{
    if (s->leave && s->state == SEAT_WAITING && !s->asking)
        hf__zk_seat_left(s, 0); /* nothing of it is in the store */
    else if (s->leave && s->state == SEAT_HELD)
        send_delete(s);
    else if (s->unsure || s->leave || (s->t->try_only && s->state == SEAT_NEW))
        look(s);
    else if (s->state == SEAT_NEW)
        create(s, false);
    else if (s->state == SEAT_HELD)
        look(s);
}

/* ---- news ------------------------------------------------------------------------ */

void hf__zk_alone_event(struct line *line, enum jute_event type)
{
    list_for_safe(n, &line->seats) {
        struct seat *s = container_of(n, struct seat, in_line);

        if (s->dead)
            continue;
        if (s->state == SEAT_HELD)
            look(s);
        else if (s->state == SEAT_WAITING && type == JUTE_DELETED)
            create(s, false);
        else if (s->state == SEAT_WAITING)
            look(s); /* its data has changed, and the watch is used up */
    }
}

void hf__zk_alone_up(struct line *line)
{
    list_for_safe(n, &line->seats) {
        struct seat *s = container_of(n, struct seat, in_line);

        if (s->dead)
            continue;
        if (s->state == SEAT_HELD || s->state == SEAT_WAITING)
            look(s);
        else if (s->state == SEAT_NEW && s->told)
            hf__zk_alone_start(s); /* for the core it waits: that is not asked for again */
    }
}
