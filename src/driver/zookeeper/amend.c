/* amend.c: a new note or owner in a held ticket's node; an exclusive ticket that becomes
 * shared.
 *
 * It becomes shared by one multi: a node of the shared form with the same number, which
 * keeps the place, with the first node's czxid in its data, which stays its fence; and
 * the end of the exclusive node. Until the answer is known the end of that node means
 * nothing: it may be our own doing. If the answer is lost, the shared node is looked for
 * when the store is back. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

static void amended(struct seat *s, const struct jute_reply *reply)
{
    hf_error err;

    if (reply->err == 0)
        ev_amended(s->t, 0);
    else if (reply->err == JUTE_NO_NODE)
        ev_amended(s->t, HF_ELOST);
    else
        ev_amended(s->t, hf__zk_error(s->zk, reply, &err));
}

static void answer_note(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    (void)z;
    if (hf__zk_seat_answered(s) && reply) /* else the core repeats it */
        amended(s, reply);
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
    hf__jute_put_text(o, data,
                      hf__zk_record_write(data, z, s->t, s->shared ? s->fence : 0));
    hf__jute_put_int(o, -1);
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
 * ticket. */
static void rename_seat(struct seat *s)
{
    char name[NODE_MAX];
    char *copy = shared_name(s, name) ? strdup(name) : NULL;

    hf__zk_line_remove_seat(s->line, s, true);
    if (!copy) {
        s->line->stale = true;
        hf__zk_break(s->zk, HF_ENOMEM, "no memory for a name");
        s->zk->dirty = true;
        return;
    }
    free(s->name);
    s->name = copy;
    s->shared = true;
    if (!hf__zk_line_add(s->line, s)) {
        s->line->stale = true;
        hf__zk_break(s->zk, HF_ENOMEM, "no memory for a name");
        s->zk->dirty = true;
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

static void answer_shared_there(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    if (!hf__zk_seat_answered(s))
        return;
    s->shares--;
    if (!reply)
        return;
    s->amending = false;
    if (is_ours(z, reply)) {
        rename_seat(s);
        ev_amended(s->t, 0);
        return;
    }
    ev_amended(s->t, HF_ELOST);
    hf__zk_seat_gone(s, HF_ELOST, NULL);
}

static void answer_has_shared(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    if (!hf__zk_seat_answered(s))
        return;
    s->shares--;
    if (!reply)
        return;
    if (is_ours(z, reply))
        rename_seat(s);
    if (s->shares == 0) {
        s->amending = false;
        hf__zk_line_watch_own(s->line, s);
    }
}

static void ask_shared(struct seat *s,
                       void (*answer)(struct zk *, struct request *, struct jute_reply *))
{
    char name[NODE_MAX], path[NODE_PATH_MAX];
    struct request *q = shared_name(s, name) ? hf__zk_seat_request(s, answer) : NULL;

    if (!q)
        return;
    s->shares++;
    s->amending = true;
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

    if (!hf__zk_seat_answered(s))
        return;
    s->shares--;
    if (!reply)
        return; /* amending, until it is known */
    s->amending = false;
    failed = reply->err != 0 ? reply->err : hf__jute_multi_error(&reply->body);
    if (failed == 0) {
        rename_seat(s);
        ev_amended(s->t, 0);
    } else if (failed == JUTE_NO_NODE || failed == JUTE_NODE_EXISTS) {
        is_it_shared(s);
    } else {
        struct jute_reply part = { .err = failed };

        ev_amended(s->t, hf__zk_error(z, &part, &err));
    }
}

/* One step: the shared node with the same number, which keeps the place, and the fence
 * of the first in its data; and the end of the exclusive one. */
static void send_share(struct seat *s)
{
    struct zk *z = s->zk;
    char name[NODE_MAX], path[NODE_PATH_MAX], data[RECORD_MAX];
    struct request *q = shared_name(s, name) ? hf__zk_seat_request(s, answer_share) : NULL;
    struct jute_out *o;

    if (!q) {
        ev_amended(s->t, HF_ENOMEM);
        return;
    }
    q->renews = true;
    s->shares++;
    s->amending = true;
    o = hf__zk_begin(z, q, JUTE_MULTI);
    hf__jute_put_part(o, JUTE_CREATE);
    hf__jute_put_create(o, path, hf__zk_line_path(s->line, path, name, strlen(name)), data,
                        hf__zk_record_write(data, z, s->t, s->fence), z->login != NULL,
                        JUTE_EPHEMERAL);
    hf__jute_put_part(o, JUTE_DELETE);
    hf__jute_put_text(o, path, hf__zk_seat_path(s, path));
    hf__jute_put_int(o, -1);
    hf__jute_put_part(o, 0);
    hf__zk_send(z, q);
}

void hf__zk_amend(struct store *store, struct ticket *t)
{
    struct seat *s = t->drv_ptr;
    struct form form;

    if (zk_of(store)->alone) {
        ev_amended(t, HF_ENOTSUP);
        return;
    }
    if (!s || s->state != SEAT_HELD || !s->name) {
        ev_amended(t, HF_ELOST);
        return;
    }
    if (t->kind == LINE_LOCK && t->weight < HF_FULL &&
        hf__zk_form(&form, s->name, strlen(s->name)) && form.weight == HF_FULL)
        send_share(s);
    else
        send_note(s);
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
