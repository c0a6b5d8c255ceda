/* seat.c: one ticket of ours, from its first request until the core has heard the last
 * of it: what line.c has decided about it, and its end.
 *
 * A seat lives as long as the core may ask for its ticket or a request of it is under
 * way. Leaving is the delete of its node by the full name, which has the ticket's token
 * in it (G8). A delete that is not answered is told as unknown, and the core repeats it;
 * one that withdraws a ticket by itself (a failed try, a mismatch, a mark) is sent again
 * when the store is back. If the server refuses that (no right to delete, too much to
 * do), the caller is told why, and the seat becomes an orphan: it is deleted again and
 * again, as long as the session lives that keeps its node. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { WATCH_LATER_US = 50000 };

struct seat *hf__zk_seat_new(struct zk *z, struct ticket *t)
{
    struct seat *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->line = hf__zk_line_get(z, t->name, t->name_len);
    if (!s->line) {
        free(s);
        return NULL;
    }
    s->zk = z;
    s->t = t;
    list_init(&s->unwatched);
    list_push(&s->line->seats, &s->in_line);
    t->drv_ptr = s;
    return s;
}

static void free_seat(struct seat *s)
{
    if (s->t || s->pins > 0)
        return;
    free(s->name);
    free(s->becomes);
    free(s);
}

/* A node that may still be there stays in the view, as if it were somebody else's: those
 * behind it go on waiting until it is known to be gone. */
struct ticket *hf__zk_seat_out(struct seat *s, bool known)
{
    struct ticket *t = s->t;
    struct line *line = s->line;

    t->drv_ptr = NULL;
    s->t = NULL;
    list_remove(&s->unwatched);
    list_remove(&s->in_line);
    hf__zk_line_remove_seat(line, s, known);
    line->pins++;
    hf__zk_line_decide(line, false); /* those behind it in this client */
    line->pins--;
    hf__zk_line_drop(line);
    free_seat(s);
    return t;
}

void hf__zk_seat_left(struct seat *s, int rc)
{
    ev_left(hf__zk_seat_out(s, rc == 0), rc);
}

void hf__zk_seat_close(struct seat *s)
{
    s->t->drv_ptr = NULL;
    s->t = NULL;
    list_remove(&s->unwatched);
    list_remove(&s->in_line);
    free_seat(s);
}

void hf__zk_seat_gone(struct seat *s, int why, const hf_error *err)
{
    bool leave = s->leave;
    struct ticket *t = hf__zk_seat_out(s, true);

    if (leave)
        ev_left(t, 0);
    else
        ev_gone(t, why, why == HF_ELOST ? 0 : -1, err);
}

struct request *hf__zk_seat_request(struct seat *s,
                                    void (*answer)(struct zk *, struct request *,
                                                   struct jute_reply *))
{
    struct request *q = hf__zk_request(s->zk, answer, sizeof(struct seat_request));

    if (!q)
        return NULL;
    container_of(q, struct seat_request, q)->seat = s;
    s->pins++;
    return q;
}

/* The first thing to do with an answer; false: nobody cares any more. */
bool hf__zk_seat_answered(struct seat *s)
{
    s->pins--;
    if (s->t && !s->zk->closing)
        return true;
    free_seat(s);
    return false;
}

size_t hf__zk_seat_path(const struct seat *s, char path[NODE_PATH_MAX])
{
    return hf__zk_line_path(s->line, path, s->name, strlen(s->name));
}

/* ---- leaving --------------------------------------------------------------------- */

static void mismatch(const struct seat *s, hf_error *err)
{
    const struct form *head = s->line->n > 0 ? &s->line->entries[0]->form : NULL;

    hf__mismatch(err, s->zk->shown, s->t->name, head ? head->kind : LINE_LOCK,
                 head ? head->capacity : HF_FULL);
}

static void withdrawn(struct seat *s)
{
    hf_error err;

    if (s->why == HF_EMISMATCH)
        mismatch(s, &err);
    else if (s->why == HF_EFULL)
        hf__fail(&err, s->why, 0, s->zk->shown,
                 "'%s' has used up its numbers; it begins anew when nobody has stood in it "
                 "for a minute",
                 s->t->name);
    else
        hf__fail(&err, s->why, 0, s->zk->shown, "%s", hf_strerror(s->why));
    hf__zk_seat_gone(s, s->why, s->why == HF_EBUSY || s->why == HF_ELOST ? NULL : &err);
}

static void orphan(struct seat *s, int rc, const hf_error *err)
{
    struct zk *z = s->zk;
    struct ticket *t;

    s->pins++;
    s->line->pins++;
    t = hf__zk_seat_out(s, false);
    list_push(&z->orphans, &s->in_line);
    ev_gone(t, rc, -1, err);
}

static void orphan_end(struct seat *s)
{
    list_remove(&s->in_line);
    s->line->pins--;
    hf__zk_line_drop(s->line);
    s->pins--;
    free_seat(s);
}

void hf__zk_orphans_end(struct zk *z)
{
    struct list *n;

    while ((n = list_first(&z->orphans)) != NULL)
        orphan_end(seat_in(n));
}

static void answer_orphan(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    (void)z;
    s->pins--;
    s->asking = false;
    if (list_empty(&s->in_line)) /* the session has taken it along */
        free_seat(s);
    else if (reply && (reply->err == 0 || reply->err == JUTE_NO_NODE))
        orphan_end(s);
}

static void answer_delete(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    (void)z;
    if (!hf__zk_seat_answered(s))
        return;
    s->state = SEAT_WAITING;
    if (!reply) {
        if (s->leave)
            hf__zk_seat_left(
                s, HF_EUNKNOWN); /* else it goes on withdrawing when the store is back */
        return;
    }
    if (reply->err != 0 && reply->err != JUTE_NO_NODE) {
        hf_error err;
        int rc = hf__zk_error(s->zk, reply, &err);

        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
        else
            orphan(s, rc, &err);
    } else if (s->why != 0 && !s->leave) {
        withdrawn(s);
    } else {
        if (reply->err == 0)
            hf__zk_quiet_left(s);
        hf__zk_seat_left(s, 0);
    }
}

static bool send_delete(struct seat *s,
                        void (*answer)(struct zk *, struct request *, struct jute_reply *))
{
    char path[NODE_PATH_MAX];
    struct request *q = hf__zk_seat_request(s, answer);
    struct jute_out *o;

    if (!q)
        return false;
    q->renews = true;
    o = hf__zk_begin(s->zk, q, JUTE_DELETE);
    hf__jute_put_text(o, path, hf__zk_seat_path(s, path));
    hf__jute_put_int(o, -1);
    hf__zk_send(s->zk, q);
    return true;
}

void hf__zk_seat_delete(struct seat *s)
{
    if (send_delete(s, answer_delete))
        s->state = SEAT_DELETING;
}

void hf__zk_orphans_delete(struct zk *z)
{
    list_for(n, &z->orphans)
        if (!seat_in(n)->asking)
            seat_in(n)->asking = send_delete(seat_in(n), answer_orphan);
}

void hf__zk_seat_withdraw(struct seat *s, int why)
{
    if (s->why == 0)
        s->why = why;
    if (s->state != SEAT_DELETING)
        hf__zk_seat_delete(s);
}

/* The mark of `break`: a holder keeps its place until its time is over and is not
 * renewed. */
void hf__zk_seat_marked(struct seat *s)
{
    s->marked = true;
    if (s->state == SEAT_WAITING || s->state == SEAT_CREATED)
        hf__zk_seat_withdraw(s, HF_EEVICTED);
    else if (s->state == SEAT_HELD && s->t->life && s->t->life->kind == LIFE_WIDE)
        ev_marked(s->t);
}

/* ---- what line.c has decided ----------------------------------------------------- */

void hf__zk_seat_granted(struct seat *s)
{
    s->state = SEAT_HELD;
    hf__zk_seat_watch_later(s);
    ev_granted(s->t, s->fence, s->zk->base_at);
}

/* Again when its place in the queue is another by a tenth: not for each of ten thousand at
 * every hand-off. */
void hf__zk_seat_waits(struct seat *s, uint32_t position)
{
    if (!s->told || position > s->position || position + s->position / 10 < s->position ||
        (position < 10 && position != s->position)) {
        s->told = true;
        s->position = position;
        ev_waiting(s->t, position, -1);
    }
}

/* The node of one's own is watched when it has been there for a moment: most are gone by
 * then. */
void hf__zk_seat_watch_later(struct seat *s)
{
    struct zk *z = s->zk;

    if (!list_empty(&s->unwatched))
        return;
    s->watch_at = zk_now(z) + WATCH_LATER_US;
    if (list_empty(&z->unwatched))
        z->store.env->timer(z->store.env, &z->later, s->watch_at);
    list_push(&z->unwatched, &s->unwatched);
}

void hf__zk_seat_later(struct timer *t)
{
    struct zk *z = container_of(t, struct zk, later);
    struct list *n;

    while ((n = list_first(&z->unwatched)) != NULL) {
        struct seat *s = container_of(n, struct seat, unwatched);

        if (s->watch_at > zk_now(z))
            break;
        list_remove(n);
        if (!z->alone)
            hf__zk_line_watch_own(s->line, s);
        else if (zk_up(z))
            hf__zk_alone_start(s);
    }
    if (n)
        z->store.env->timer(z->store.env, &z->later,
                            container_of(n, struct seat, unwatched)->watch_at);
    hf__zk_flush(z);
}
