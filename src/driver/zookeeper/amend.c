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

static void send(struct seat *);

/* ---- what somebody else has written ---------------------------------------------- */

static void answer_read(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    struct jute_text data;
    struct jute_stat stat;
    struct record rec;

    if (!hf__zk_seat_answered(s) || !reply || s->state != SEAT_HELD)
        return; /* the core repeats it, or gives the ticket up */
    data = hf__jute_text(&reply->body);
    if (reply->err != 0 || !hf__jute_stat(&reply->body, &stat) ||
        stat.owner != z->session.id) {
        ev_amended(s->t, HF_ELOST); /* that it is, its watch tells */
        return;
    }
    hf__zk_record_read(&rec, data.at, data.len);
    s->version = stat.version;
    if (rec.broken)
        hf__zk_seat_marked(s);
    send(s);
}

/* Its data is not what we have written: that must not be lost if it is the mark. */
static void read_first(struct seat *s)
{
    char path[NODE_PATH_MAX];
    struct request *q = hf__zk_seat_request(s, answer_read);

    if (q)
        hf__zk_send_path(s->zk, q, JUTE_GET_DATA, path, hf__zk_seat_path(s, path));
}

/* ---- a note, an owner ------------------------------------------------------------ */

static void answer_note(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    struct jute_stat stat;
    hf_error err;

    if (!hf__zk_seat_answered(s) || !reply)
        return; /* the core repeats it */
    if (reply->err == JUTE_BAD_VERSION) {
        read_first(s);
    } else if (reply->err == JUTE_NO_NODE) {
        ev_amended(s->t, HF_ELOST);
    } else if (reply->err != 0) {
        ev_amended(s->t, hf__zk_error(z, reply, &err));
    } else {
        if (hf__jute_stat(&reply->body, &stat))
            s->version = stat.version;
        ev_amended(s->t, 0);
    }
}

static size_t record(const struct seat *s, char data[RECORD_MAX], uint64_t fence)
{
    return hf__zk_record_write(data, s->zk, s->t, fence, s->marked);
}

static void send_note(struct seat *s)
{
    struct zk *z = s->zk;
    char path[NODE_PATH_MAX], data[RECORD_MAX];
    struct request *q = hf__zk_seat_request(s, answer_note);
    struct jute_out *o;

    if (!q)
        return;
    q->renews = true;
    o = hf__zk_begin(z, q, JUTE_SET_DATA);
    hf__jute_put_text(o, path, hf__zk_seat_path(s, path));
    hf__jute_put_text(o, data, record(s, data, s->shared ? s->fence : 0));
    hf__jute_put_int(o, s->version);
    hf__zk_send(z, q);
}

/* ---- becoming shared ------------------------------------------------------------- */

/* The name as a shared ticket of the same number. */
static bool shared_name(const struct seat *s, char name[NODE_MAX])
{
    struct form form;
    size_t n = hf__zk_node(s->zk, name, s->t), len = strlen(s->name);

    if (!hf__zk_form(&form, s->name, len) || n + len - form.digits >= NODE_MAX)
        return false;
    memcpy(name + n, s->name + form.digits, len - form.digits + 1);
    return true;
}

/* Renamed in the view in the same breath: those behind it in this client see a shared
 * ticket. For the name there was memory before anything was sent. */
static void rename_seat(struct seat *s)
{
    if (!s->becomes)
        return; /* known already */
    hf__zk_line_remove_seat(s->line, s, true);
    free(s->name);
    s->name = s->becomes;
    s->becomes = NULL;
    s->shared = true;
    s->version = 0;
    if (!hf__zk_line_add(s->line, s)) {
        s->line->stale = true;
        hf__zk_break(s->zk, HF_ENOMEM, "no memory for a name");
    }
    hf__zk_seat_watch_later(s);
    hf__zk_line_decide(s->line, false);
}

static bool is_ours(const struct zk *z, struct jute_reply *reply)
{
    struct jute_stat stat;

    return reply->err == 0 && hf__jute_stat(&reply->body, &stat) &&
           stat.owner == z->session.id;
}

/* The first thing to do with an answer about it; false: nothing follows from it. */
static bool answered(struct seat *s, const struct jute_reply *reply)
{
    if (!hf__zk_seat_answered(s))
        return false;
    s->shares--;
    return reply != NULL;
}

/* The node's name is known. */
static void settled(struct seat *s, int rc)
{
    s->amending = false;
    if (s->leave)
        hf__zk_seat_delete(s);
    else
        ev_amended(s->t, rc);
}

static void answer_shared_there(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    if (!answered(s, reply))
        return;
    if (is_ours(z, reply)) {
        rename_seat(s);
        settled(s, 0);
        return;
    }
    s->amending = false;
    if (!s->leave)
        ev_amended(s->t, HF_ELOST);
    hf__zk_seat_gone(s, HF_ELOST, NULL);
}

static void answer_has_shared(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    if (!answered(s, reply))
        return;
    if (is_ours(z, reply))
        rename_seat(s);
    if (s->shares > 0)
        return;
    s->amending = false;
    if (s->leave)
        hf__zk_seat_delete(s);
    else
        hf__zk_line_watch_own(s->line, s);
}

static void ask_shared(struct seat *s,
                       void (*answer)(struct zk *, struct request *, struct jute_reply *))
{
    const char *name = s->becomes ? s->becomes : s->name;
    char path[NODE_PATH_MAX];
    struct request *q = hf__zk_seat_request(s, answer);

    s->amending = true;
    if (!q)
        return;
    s->shares++;
    hf__zk_send_path(s->zk, q, JUTE_EXISTS, path,
                     hf__zk_line_path(s->line, path, name, strlen(name)));
}

/* It failed: because an earlier one whose answer was lost had done it, or the node is
 * gone. */
static void is_it_shared(struct seat *s)
{
    ask_shared(s, answer_shared_there);
}

/* The answer to it was lost. Until this is known, the end of the exclusive node means
 * nothing. */
static void has_it_shared(struct seat *s)
{
    ask_shared(s, answer_has_shared);
}

static void answer_share(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    int32_t failed;
    hf_error err;

    if (!answered(s, reply))
        return; /* amending, until it is known */
    failed = reply->err != 0 ? reply->err : hf__jute_multi_error(&reply->body);
    if (failed == 0) {
        rename_seat(s);
        settled(s, 0);
    } else if (failed == JUTE_NO_NODE || failed == JUTE_NODE_EXISTS) {
        is_it_shared(s);
    } else if (failed == JUTE_BAD_VERSION && !s->leave) {
        s->amending = false;
        read_first(s);
    } else {
        struct jute_reply part = { .err = failed };

        settled(s, hf__zk_error(z, &part, &err));
    }
}

/* One step: the shared node with the same number, which keeps the place, and the fence
 * of the first in its data; and the end of the exclusive one. */
static void send_share(struct seat *s)
{
    struct zk *z = s->zk;
    char name[NODE_MAX], path[NODE_PATH_MAX], data[RECORD_MAX];
    struct request *q;
    struct jute_out *o;

    if (!s->becomes && shared_name(s, name))
        s->becomes = strdup(name);
    q = s->becomes ? hf__zk_seat_request(s, answer_share) : NULL;
    if (!q) {
        ev_amended(s->t, HF_ENOMEM);
        return;
    }
    q->renews = true;
    s->shares++;
    s->amending = true;
    o = hf__zk_begin(z, q, JUTE_MULTI);
    hf__jute_put_part(o, JUTE_CREATE);
    hf__jute_put_create(o, path,
                        hf__zk_line_path(s->line, path, s->becomes, strlen(s->becomes)),
                        data, record(s, data, s->fence), z->login != NULL, JUTE_EPHEMERAL);
    hf__jute_put_part(o, JUTE_DELETE);
    hf__jute_put_text(o, path, hf__zk_seat_path(s, path));
    hf__jute_put_int(o, s->version);
    hf__jute_put_part(o, 0);
    hf__zk_send(z, q);
}

static void send(struct seat *s)
{
    const struct ticket *t = s->t;
    struct form form;

    if (t->kind == LINE_LOCK && t->weight < HF_FULL &&
        hf__zk_form(&form, s->name, strlen(s->name)) && form.weight == HF_FULL)
        send_share(s);
    else
        send_note(s);
}

void hf__zk_amend(struct store *store, struct ticket *t)
{
    struct seat *s = t->drv_ptr;

    if (zk_of(store)->alone) {
        ev_amended(t, HF_ENOTSUP);
        return;
    }
    if (!s || s->state != SEAT_HELD || !s->name) {
        ev_amended(t, HF_ELOST);
        return;
    }
    send(s);
}

/* After the connection was lost: what the core does not repeat. */
void hf__zk_seat_resume(struct seat *s)
{
    if (s->dead || !s->t)
        return;
    if (s->why != 0 && s->name && s->state != SEAT_DELETING)
        hf__zk_seat_delete(s);
    else if (s->amending)
        has_it_shared(s);
    else if (s->state == SEAT_WAITING || s->state == SEAT_HELD)
        hf__zk_line_watch_own(s->line, s);
}
