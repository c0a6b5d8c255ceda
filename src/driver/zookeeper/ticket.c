/* ticket.c: joining and leaving.
 *
 *   join:  create2 and getChildren2 in one go -> line.c decides from the list
 *   try:   sync and getChildren2 first; only if it would hold the same as above, and if it does not
 *          hold after all, it withdraws: a failed try leaves nothing
 *   leave: delete of the node by its full name, which has the ticket's token in it (G8)
 *
 * The levels above the line are containers, made when a create finds them missing, again
 * if the server has removed them in between.
 *
 * Connection lost while a create is unanswered: the seat is unsure. The store is up
 * again only when the session has been attached again and a sync was answered, so the
 * create has happened by then or never will (session.c): the list of the line shows it
 * by the token, and it is adopted if it belongs to this session, or deleted, or made
 * (G7). A ticket that the core asks to leave and that we have forgotten is looked for in
 * the same way. Nothing is created twice.
 *
 * ephemeralOwner is compared with the session before a node counts as ours. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 10 };

/* ---- finding --------------------------------------------------------------------- */

static void create(struct seat *, bool levels);
static void created(struct seat *);

static void answer_found(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    struct jute_stat stat;
    hf_error err;

    if (!hf__zk_seat_answered(s))
        return;
    s->state = SEAT_NEW;
    if (!reply) {
        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
    } else if (reply->err == JUTE_NO_NODE) { /* it went meanwhile */
        hf__zk_seat_gone(s, HF_ELOST, NULL);
    } else if (reply->err != 0 || !hf__jute_stat(&reply->body, &stat)) {
        int rc = hf__zk_error(z, reply, &err);

        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
        else
            hf__zk_seat_gone(s, rc, &err);
    } else if (stat.owner != z->session.id || s->leave) {
        s->why = s->leave
                     ? 0
                     : HF_ELOST; /* of a session before this one: it stands in no line */
        hf__zk_seat_delete(s);
    } else {
        s->fence = (uint64_t)stat.czxid;
        created(s);
        if (s->line->lists == 0)
            hf__zk_line_list(s->line, false);
    }
}

static void look_at(struct seat *s)
{
    char path[NODE_PATH_MAX];
    struct request *q = hf__zk_seat_request(s, answer_found);

    if (!q)
        return;
    s->state = SEAT_FINDING;
    hf__zk_send_path(s->zk, q, JUTE_EXISTS, path, hf__zk_seat_path(s, path));
}

static bool find_name(struct seat *s, struct jute_in *children)
{
    size_t n = hf__jute_count(children, 4);

    for (size_t i = 0; i < n; i++) {
        struct jute_text name = hf__jute_text(children);

        if (hf__zk_uuid_in(name.at, name.len, s->t->token) && name.len < NODE_MAX) {
            free(s->name);
            s->name = strndup(name.at, name.len);
            return true;
        }
    }
    return false;
}

static void answer_find(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    hf_error err;
    bool there;

    if (!hf__zk_seat_answered(s))
        return;
    s->state = SEAT_NEW;
    if (!reply) {
        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
        return;
    }
    if (reply->err != 0 && reply->err != JUTE_NO_NODE) {
        int rc = hf__zk_error(z, reply, &err);

        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
        else
            hf__zk_seat_gone(s, rc, &err);
        return;
    }
    there = reply->err == 0 && find_name(s, &reply->body);
    if (reply->body.bad || (there && !s->name)) {
        hf__zk_break(z, HF_ENOMEM, "no memory for a name");
    } else if (there) {
        look_at(s); /* unsure until that is answered: it must not be made again */
    } else if (s->leave) {
        hf__zk_seat_left(s, 0);
    } else {
        s->unsure = false;
        create(s, reply->err == JUTE_NO_NODE);
    }
}

static void find(struct seat *s)
{
    struct request *q = hf__zk_seat_request(s, answer_find);

    if (!q)
        return;
    s->state = SEAT_FINDING;
    hf__zk_send_path(s->zk, q, JUTE_GET_CHILDREN2, s->line->dir, s->line->dir_len);
}

/* ---- joining --------------------------------------------------------------------- */

static void level_made(struct zk *z, struct request *q, struct jute_reply *reply)
{
    (void)z; /* whether it is there now is said by what is made below it */
    (void)q;
    (void)reply;
}

void hf__zk_mkdirs(struct zk *z, const char *dir, size_t len)
{
    for (size_t n = 1; n <= len; n++) {
        struct request *q;

        if (n < len && dir[n] != '/')
            continue;
        q = hf__zk_request(level_made, sizeof *q);
        if (!q) {
            hf__zk_break(z, HF_ENOMEM, "no memory for a request");
            z->dirty = true;
            return;
        }
        hf__jute_put_create(hf__zk_begin(z, q, JUTE_CREATE_CONTAINER), dir, n, "", 0,
                            z->login != NULL, JUTE_CONTAINER);
        hf__zk_send(z, q);
    }
}

/* What follows at once upon the last ticket of a complete view is known to have nothing
 * in between: numbers are given out without gaps, to every child. */
static bool follows(const struct line *line, const struct seat *s)
{
    const struct entry *last, *before;

    if (line->stale || line->n < 2)
        return false;
    last = line->entries[line->n - 1];
    before = line->entries[line->n - 2];
    return last->seat == s && before->form.seq + 1 == last->form.seq && before->seat &&
           before->seat->placed;
}

static void created(struct seat *s)
{
    s->state = SEAT_CREATED;
    s->unsure = false;
    if (!hf__zk_line_add(s->line, s)) {
        hf__zk_break(s->zk, HF_EPROTO, "a node of a form that was not asked for");
        s->unsure = true;
        s->state = SEAT_NEW;
        return;
    }
    hf__zk_seat_watch_later(s);
}

static bool take_created(struct seat *s, struct jute_reply *reply)
{
    struct jute_text path = hf__jute_text(&reply->body);
    struct jute_stat stat;
    size_t at = path.len;

    if (!hf__jute_stat(&reply->body, &stat) || stat.owner != s->zk->session.id)
        return false;
    while (at > 0 && path.at[at - 1] != '/')
        at--;
    free(s->name);
    s->name = strndup(path.at + at, path.len - at);
    s->fence = (uint64_t)stat.czxid;
    return s->name && strlen(s->name) < NODE_MAX;
}

static void create_failed(struct seat *s, struct jute_reply *reply)
{
    hf_error err;
    int rc;

    if (s->leave) {
        hf__zk_seat_left(s, 0); /* it was not made */
    } else if (reply->err == JUTE_NO_NODE && s->tries++ < TRIES) {
        create(s, true);
    } else {
        rc = hf__zk_error(s->zk, reply, &err);
        hf__zk_seat_gone(s, rc, &err);
    }
}

static void answer_create(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);

    if (!hf__zk_seat_answered(s))
        return;
    s->state = SEAT_NEW;
    if (!reply) {
        s->unsure = true;
        if (s->leave)
            hf__zk_seat_left(s, HF_EUNKNOWN);
    } else if (reply->err != 0) {
        create_failed(s, reply);
    } else if (!take_created(s, reply)) {
        s->unsure = true;
        hf__zk_break(z, HF_EPROTO, "a node of another session than ours");
    } else {
        created(s);
        if (s->state != SEAT_CREATED)
            return;
        if (s->leave) {
            hf__zk_seat_delete(s);
        } else if (s->line->lists > 0) {
            return; /* answers come in order: that list has it, and all before it */
        } else if (follows(s->line, s)) {
            s->placed = true;
            s->state = SEAT_WAITING;
            hf__zk_line_decide(s->line, false);
        } else {
            hf__zk_line_list(s->line, false);
        }
    }
}

static void create(struct seat *s, bool levels)
{
    struct zk *z = s->zk;
    char node[NODE_MAX], path[NODE_PATH_MAX], data[RECORD_MAX];
    struct request *q;
    bool queue = hf__zk_line_waits(s->line) && !s->line->stale;

    if (levels)
        hf__zk_mkdirs(z, s->line->dir, s->line->dir_len);
    q = hf__zk_seat_request(s, answer_create);
    if (!q)
        return;
    q->renews = true;
    s->state = SEAT_CREATING;
    hf__jute_put_create(hf__zk_begin(z, q, JUTE_CREATE2), path,
                        hf__zk_line_path(s->line, path, node, hf__zk_node(z, node, s->t)),
                        data, hf__zk_record_write(data, z, s->t, 0), z->login != NULL,
                        JUTE_EPHEMERAL_SEQUENTIAL);
    hf__zk_send(z, q);
    if (!queue) /* else others of ours wait there: what is before it is known but for the newest */
        hf__zk_line_list(s->line, false);
}

static void answer_try(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    struct form head;
    hf_error err;
    int rc;

    if (!hf__zk_seat_answered(s))
        return;
    s->state = SEAT_NEW;
    if (s->leave) {
        hf__zk_seat_left(s, 0); /* nothing was written */
        return;
    }
    if (!reply)
        return; /* the core repeats it */
    if (reply->err == JUTE_NO_NODE) {
        create(s, true);
        return;
    }
    rc = reply->err == 0 ? hf__zk_line_would_hold(&reply->body, s->t, &head)
                         : hf__zk_error(z, reply, &err);
    if (rc == 0) {
        create(s, false);
        return;
    }
    if (rc == HF_EMISMATCH)
        hf__fail(&err, rc, 0, z->shown, "'%s' is in use with another kind or capacity",
                 s->t->name);
    else if (rc == HF_ENOMEM)
        hf__fail(&err, rc, 0, z->shown, "no memory for a line");
    hf__zk_seat_gone(s, rc, rc == HF_EBUSY ? NULL : &err);
}

static void try_first(struct seat *s)
{
    struct request *q;

    /* what others have done through other servers counts */
    hf__zk_sync(s->zk, s->line->dir, s->line->dir_len);
    q = hf__zk_seat_request(s, answer_try);
    if (!q)
        return;
    s->state = SEAT_TRYING;
    hf__zk_send_path(s->zk, q, JUTE_GET_CHILDREN2, s->line->dir, s->line->dir_len);
}

static void start(struct seat *s)
{
    if (s->zk->alone)
        hf__zk_alone_start(s);
    else if (s->why != 0)
        hf__zk_seat_delete(s);
    else if (s->unsure)
        find(s);
    else if (s->t->try_only)
        try_first(s);
    else
        create(s, false);
}

void hf__zk_join(struct store *store, struct ticket *t)
{
    struct zk *z = zk_of(store);
    struct seat *s = t->drv_ptr ? t->drv_ptr : hf__zk_seat_new(z, t);
    hf_error err;

    if (!s) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
        ev_gone(t, HF_ENOMEM, &err);
        return;
    }
    if (t->life != z->life)
        hf__hang(t, z->life);
    if (t->ttl_ms != z->asked_ms) { /* of the client: the same for all its tickets */
        z->asked_ms = t->ttl_ms;
        hf__zk_break(z, HF_EUNREACHABLE, "another time-out is asked for");
        z->dirty = true;
    } else if (s->state == SEAT_NEW) {
        start(s);
    } else if (s->state == SEAT_HELD) {
        ev_granted(t, s->fence, z->base_at);
    } else if (s->state == SEAT_CREATED && s->line->lists == 0) {
        hf__zk_line_list(s->line, false); /* its list was lost */
    } else if (s->state == SEAT_WAITING) {
        ev_waiting(t, 1, -1);
    }
}

void hf__zk_leave(struct store *store, struct ticket *t)
{
    struct zk *z = zk_of(store);
    struct seat *s = t->drv_ptr;

    if (s && s->dead) {
        hf__zk_seat_left(s, 0); /* the session has taken it along */
        return;
    }
    if (!s && z->link == LINK_UP)
        s = hf__zk_seat_new(z, t);
    if (!s || z->link != LINK_UP) {
        if (s)
            hf__zk_seat_out(s, false);
        ev_left(t, HF_EUNKNOWN);
        return;
    }
    s->leave = true;
    if (s->state == SEAT_NEW && z->alone)
        hf__zk_alone_start(s);
    else if (s->state == SEAT_NEW)
        find(s); /* forgotten, or its create was not answered */
    else if (s->state == SEAT_CREATED || s->state == SEAT_WAITING || s->state == SEAT_HELD)
        z->alone ? hf__zk_alone_start(s) : hf__zk_seat_delete(s);
    /* else what is under way sees it */
}

/* ---- renewing -------------------------------------------------------------------- */

void hf__zk_renew(struct store *store, struct life *const *lives, size_t n)
{
    struct zk *z = zk_of(store);

    for (size_t i = 0; i < n; i++)
        if (lives[i] == z->life)
            hf__zk_session_renew(z);
}
