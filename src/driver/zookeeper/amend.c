/* amend.c: a new note or owner in a held ticket's node; an exclusive ticket that becomes
 * shared.
 *
 * Written under the version of the data that we know, so that the mark of `break` is
 * never overwritten: if it is another one, the node is read first.
 *
 * It becomes shared by one multi: a node of the shared form with the same number, which
 * keeps the place, with the first node's czxid in its data, which stays its fence; and
 * the end of the exclusive node. Until the answer is known the end of that node means
 * nothing: it may be our own doing. If the answer is lost, the shared node is looked for
 * when the store is back. A leave that comes meanwhile goes on when the node's name is
 * known. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

static void send(struct zk_seat *);

/* ---- what somebody else has written ---------------------------------------------- */

static void answer_read(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;

    if (s->seat.state != SEAT_HELD)
        return; /* the core repeats it, or gives the ticket up */
    if (reply->err != 0 || hf__zk_seat_read(s, reply) == SEEN_FOREIGN)
        ev_amended(s->seat.t, HF_ELOST); /* that it is, its watch tells */
    else
        send(s); /* that it is marked, too */
}

/* Its data is not what we have written: that must not be lost if it is the mark. */
static void read_first(struct zk_seat *s)
{
    char path[NODE_PATH_MAX];

    hf__zk_send_path(hf__zk_seat_request(s, answer_read), JUTE_GET_DATA, path,
                     hf__zk_seat_path(s, path), false);
}

/* ---- a note, an owner ------------------------------------------------------------ */

static void answer_note(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;
    struct jute_stat stat;
    hf_error err;

    if (reply->err == JUTE_BAD_VERSION) {
        read_first(s);
    } else if (reply->err == JUTE_NO_NODE) {
        ev_amended(s->seat.t, HF_ELOST);
    } else if (reply->err != 0) {
        ev_amended(s->seat.t, hf__zk_error(q->zk, reply, &err));
    } else {
        if (hf__jute_stat(&reply->body, &stat))
            s->version = stat.version;
        ev_amended(s->seat.t, 0);
    }
}

static size_t record(const struct zk_seat *s, char data[RECORD_MAX], uint64_t fence)
{
    return hf__zk_record(data, zk_in(s->seat.of), s->seat.t, fence, s->marked);
}

static void send_note(struct zk_seat *s)
{
    char path[NODE_PATH_MAX], data[RECORD_MAX];
    struct zk_call *q = hf__zk_seat_request(s, answer_note);

    if (!q)
        return;
    hf__jute_put_set(hf__zk_begin(q, JUTE_SET_DATA), path, hf__zk_seat_path(s, path), data,
                     record(s, data, s->renamed ? s->seat.fence : 0), s->version);
    hf__zk_send(q);
}

/* ---- becoming shared ------------------------------------------------------------- */

/* The name as a shared ticket of the same number. */
static bool shared_name(const struct zk_seat *s, char name[NODE_MAX])
{
    struct form form;
    size_t n = hf__zk_node(zk_in(s->seat.of), name, s->seat.t), len = strlen(s->name);

    if (!hf__zk_form(&form, s->name, len) || n + len - form.digits >= NODE_MAX)
        return false;
    memcpy(name + n, s->name + form.digits, len - form.digits + 1);
    return true;
}

/* Which of the two nodes is there is known. */
static void settled(struct zk_seat *s, bool is_shared)
{
    struct form form;

    if (is_shared && s->becomes) {
        free(s->name);
        s->name = s->becomes;
        s->becomes = NULL;
        s->renamed = true;
        s->version = 0;
    }
    if (hf__zk_form(&form, s->name, strlen(s->name)))
        hf__ordered_renamed(&s->seat, &form.place);
}

/* The same, and the core hears of it unless it leaves. */
static void amended(struct zk_seat *s, bool is_shared, int rc)
{
    bool leaves = s->seat.state == SEAT_PARTING;

    settled(s, is_shared);
    if (!leaves)
        ev_amended(s->seat.t, rc);
}

static bool is_ours(const struct zk_call *q, struct jute_reply *reply)
{
    struct jute_stat stat;

    return reply->err == 0 && hf__jute_stat(&reply->body, &stat) &&
           stat.owner == q->zk->session.id;
}

static void answer_shared_there(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;

    s->shares--;
    if (is_ours(q, reply)) {
        amended(s, true, 0);
        return;
    }
    if (s->seat.state != SEAT_PARTING)
        ev_amended(s->seat.t, HF_ELOST);
    hf__ordered_step(&s->seat, SEAT_RENAME_GONE, HF_ELOST, NULL);
}

static void answer_has_shared(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;

    s->shares--;
    if (is_ours(q, reply))
        settled(s, true);
    else if (s->shares == 0)
        settled(s, false);
}

static void ask_shared(struct zk_seat *s,
                       void answer(struct zk_call *, struct jute_reply *))
{
    const char *name = s->becomes ? s->becomes : s->name;
    char path[NODE_PATH_MAX];

    s->shares++; /* without memory to ask hf__zk_seat_check counts anew */
    hf__zk_send_path(hf__zk_seat_request(s, answer), JUTE_EXISTS, path,
                     hf__zk_line_path(line_of(s), path, name, strlen(name)), false);
}

/* The connection was lost, and with it all answers. Until this is known, the end of the
 * exclusive node means nothing. */
void hf__zk_seat_check(struct ordered_seat *s)
{
    zk_seat(s)->shares = 0;
    ask_shared(zk_seat(s), answer_has_shared);
}

static void answer_share(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;
    hf_error err;

    s->shares--;
    if (reply->err == 0) {
        amended(s, true, 0);
    } else if (reply->err == JUTE_NO_NODE || reply->err == JUTE_NODE_EXISTS) {
        /* an earlier one whose answer was lost had done it, or the node is gone */
        ask_shared(s, answer_shared_there);
    } else if (reply->err == JUTE_BAD_VERSION && s->seat.state == SEAT_RENAMING) {
        settled(s, false);
        read_first(s);
    } else {
        amended(s, false, hf__zk_error(q->zk, reply, &err));
    }
}

/* One step: the shared node with the same number, which keeps the place, and the fence
 * of the first in its data; and the end of the exclusive one. */
static void send_share(struct zk_seat *s)
{
    struct zk *z = zk_in(s->seat.of);
    char name[NODE_MAX], path[NODE_PATH_MAX], data[RECORD_MAX];
    struct zk_call *q;
    struct jute_out *o;

    if (!s->becomes && shared_name(s, name))
        s->becomes = strdup(name);
    q = s->becomes ? hf__zk_seat_request(s, answer_share) : NULL;
    if (!q) {
        ev_amended(s->seat.t, HF_ENOMEM);
        return;
    }
    s->shares++;
    hf__ordered_step(&s->seat, SEAT_RENAME, 0, NULL);
    o = hf__zk_begin(q, JUTE_MULTI);
    hf__jute_put_part(o, JUTE_CREATE);
    hf__jute_put_create(
        o, path, hf__zk_line_path(line_of(s), path, s->becomes, strlen(s->becomes)), data,
        record(s, data, s->seat.fence), z->login != NULL, JUTE_EPHEMERAL);
    hf__jute_put_part(o, JUTE_DELETE);
    hf__jute_put_delete(o, path, hf__zk_seat_path(s, path), s->version);
    hf__zk_send(q);
}

static void send(struct zk_seat *s)
{
    const struct ticket *t = s->seat.t;
    struct form form;

    if (t->kind == LINE_LOCK && t->weight < HF_FULL &&
        hf__zk_form(&form, s->name, strlen(s->name)) && form.place.weight == HF_FULL)
        send_share(s);
    else
        send_note(s);
}

void hf__zk_amend(struct store *store, struct ticket *t)
{
    struct ordered_seat *s = t->drv_ptr;

    if (zk_of(store)->alone)
        ev_amended(t, HF_ENOTSUP);
    else if (s && s->state == SEAT_RENAMING)
        send_share(zk_seat(s)); /* again: the answer was lost */
    else if (s && s->state == SEAT_HELD)
        send(zk_seat(s));
    else
        ev_amended(t, HF_ELOST);
}
