/* ticket.c: joining and leaving.
 *
 *   join:  create2 and getChildren2 in one go -> line.c decides from the list
 *   try:   sync and getChildren2 first; only if it would hold the same as above, and if it
 *          does not hold after all, it withdraws: a failed try leaves nothing
 *   leave: delete of the node by its full name, which has the ticket's token in it (G8)
 *
 * The levels above the line are containers, made when a create finds them missing, again
 * if the server has removed them in between.
 *
 * Connection lost while a create is unanswered: the seat is unsure, and its node is looked
 * for when the store is back (find.c). A ticket that the core asks to leave and that we
 * have forgotten is looked for in the same way. Nothing is created twice (G7).
 *
 * ephemeralOwner is compared with the session before a node counts as ours.
 *
 * Numbers end at 2^31 - 1. There the servers begin to give the same one to several, or
 * negative ones, so nothing follows from their order: such a ticket is withdrawn, and
 * whoever wanted it is told that the line is used up (G1). It begins anew when its node
 * has been made anew, which needs a moment without tickets: servers remove empty
 * containers once a minute. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 10 };

/* ---- joining --------------------------------------------------------------------- */

/* A level that is there makes good for those above it: they are there, too, and may have
 * been refused for want of rights. */
static void level_made(struct zk *z, struct request *q, struct jute_reply *reply)
{
    (void)q;
    if (!reply || reply->err == 0 || reply->err == JUTE_NODE_EXISTS)
        z->level_error = 0;
    else if (reply->err != JUTE_NO_NODE)
        z->level_error = reply->err;
}

/* Answers come in order: when that to what was sent next comes, level_error is of these. */
void hf__zk_mkdirs(struct zk *z, const char *dir, size_t len)
{
    for (size_t n = 1; n <= len; n++) {
        struct request *q;

        if (n < len && dir[n] != '/')
            continue;
        q = hf__zk_request(z, level_made, sizeof *q);
        if (!q)
            return;
        hf__jute_put_create(hf__zk_begin(z, q, JUTE_CREATE_CONTAINER), dir, n, "", 0,
                            z->login != NULL, JUTE_CONTAINER);
        hf__zk_send(z, q);
    }
}

void hf__zk_no_level(const struct zk *z, struct jute_reply *reply, bool tried)
{
    if (tried && reply->err == JUTE_NO_NODE && z->level_error != 0)
        reply->err = z->level_error;
}

/* What follows at once upon the last ticket of a complete view is known to have nothing
 * in between: numbers are given out without gaps, to every child. They begin anew only
 * in a node that was made anew; then that last one, ours, has ended, and since it is
 * watched we would have heard of it before. */
static bool follows(const struct line *line, const struct seat *s)
{
    const struct entry *last, *before;

    if (line->stale || line->n < 2)
        return false;
    last = line->entries[line->n - 1];
    before = line->entries[line->n - 2];
    return last->seat == s && before->form.seq + 1 == last->form.seq && before->seat &&
           before->seat->placed && before->watched;
}

/* So that it is watched when the answer to a create comes: else the whole line must be
 * listed for every one that joins behind it soon. */
static void watch_last(struct line *line)
{
    struct entry *last = line->n > 0 ? line->entries[line->n - 1] : NULL;

    if (last && last->seat && last->seat->state == SEAT_WAITING)
        hf__zk_line_watch(line, last);
}

static bool numbers_used_up(const struct seat *s)
{
    struct form form;

    return hf__zk_form(&form, s->name, strlen(s->name)) &&
           (form.seq < 0 || form.seq >= INT32_MAX);
}

void hf__zk_seat_created(struct seat *s)
{
    s->state = SEAT_CREATED;
    s->unsure = false;
    if (!hf__zk_line_add(s->line, s)) {
        hf__zk_break(s->zk, HF_EPROTO, "a node of a form that was not asked for");
        s->unsure = true;
        s->state = SEAT_NEW;
        return;
    }
    if (numbers_used_up(s))
        hf__zk_seat_withdraw(s, HF_EFULL);
    else
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

    hf__zk_no_level(s->zk, reply, s->tries > 0);
    if (s->leave) {
        hf__zk_seat_left(s, 0); /* it was not made */
    } else if (reply->err == JUTE_NO_NODE && s->tries++ < TRIES) {
        hf__zk_seat_create(s, true);
    } else {
        rc = hf__zk_error(s->zk, reply, &err);
        hf__zk_seat_gone(s, rc, &err);
    }
}

static void answer_create(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    bool quiet;

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
        hf__zk_seat_created(s);
        if (s->state != SEAT_CREATED)
            return;
        quiet = hf__zk_quiet_created(s);
        if (s->leave) {
            hf__zk_seat_delete(s);
        } else if (s->line->lists > 0) {
            return; /* answers come in order: that list has it, and all before it */
        } else if (quiet || follows(s->line, s)) {
            s->placed = true;
            s->state = SEAT_WAITING;
            hf__zk_line_decide(s->line, quiet);
        } else {
            hf__zk_line_list(s->line, false);
        }
    }
}

void hf__zk_seat_send_create(struct seat *s, const char *node, size_t len,
                             enum jute_mode mode, bool levels,
                             void (*answer)(struct zk *, struct request *,
                                            struct jute_reply *))
{
    struct zk *z = s->zk;
    char path[NODE_PATH_MAX], data[RECORD_MAX];
    struct request *q;

    if (levels)
        hf__zk_mkdirs(z, s->line->dir, s->line->dir_len);
    q = hf__zk_seat_request(s, answer);
    if (!q)
        return;
    q->renews = true;
    s->state = SEAT_CREATING;
    hf__jute_put_create(
        hf__zk_begin(z, q, JUTE_CREATE2), path, hf__zk_line_path(s->line, path, node, len),
        data, hf__zk_record_write(data, z, s->t, 0, false), z->login != NULL, mode);
    hf__zk_send(z, q);
}

void hf__zk_seat_create(struct seat *s, bool levels)
{
    char node[NODE_MAX];
    /* what stands before it is known, as a rule, but for the newest */
    bool known =
        hf__zk_quiet_expected(s->line) || (hf__zk_line_waits(s->line) && !s->line->stale);

    if (known)
        watch_last(s->line);
    hf__zk_seat_send_create(s, node, hf__zk_node(s->zk, node, s->t),
                            JUTE_EPHEMERAL_SEQUENTIAL, levels, answer_create);
    /* one under way is late enough for those whose creates are not answered yet; for this
     * one, answer_create sees to it */
    if (!known && s->state == SEAT_CREATING && s->line->lists == 0)
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
        hf__zk_seat_create(s, true);
        return;
    }
    rc = reply->err == 0 ? hf__zk_line_would_hold(&reply->body, s->t, &head)
                         : hf__zk_error(z, reply, &err);
    if (rc == 0) {
        hf__zk_seat_create(s, false);
        return;
    }
    if (rc == HF_EMISMATCH)
        hf__mismatch(&err, z->shown, s->t->name, head.kind, head.capacity);
    else if (rc == HF_ENOMEM)
        hf__fail(&err, rc, 0, z->shown, "no memory for a line");
    hf__zk_seat_gone(s, rc, rc == HF_EBUSY ? NULL : &err);
}

static void try_first(struct seat *s)
{
    struct request *q;

    /* what others have done through other servers counts */
    hf__zk_sync(s->zk, s->line->dir, s->line->dir_len, hf__zk_ignore);
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
        hf__zk_seat_find(s);
    else if (s->t->try_only)
        try_first(s);
    else
        hf__zk_seat_create(s, false);
}

void hf__zk_join(struct store *store, struct ticket *t)
{
    struct zk *z = zk_of(store);
    struct seat *s = t->drv_ptr ? t->drv_ptr : hf__zk_seat_new(z, t);
    hf_error err;

    if (!s) {
        hf__fail(&err, HF_ENOMEM, 0, NULL, "no memory for a request");
        ev_gone(t, HF_ENOMEM, -1, &err);
        return;
    }
    if (t->life != z->life)
        hf__hang(t, z->life);
    if (t->ttl_ms != z->asked_ms) { /* of the client: the same for all its tickets */
        z->asked_ms = t->ttl_ms;
        z->asked_anew = true;
        hf__zk_break(z, HF_EUNREACHABLE, "another time-out is asked for");
    } else if (s->state == SEAT_NEW) {
        if (!hf__zk_session_attach_if_stale(z))
            start(s);
    } else if (s->state == SEAT_HELD) {
        ev_granted(t, s->fence, z->base_at);
    } else if (s->state == SEAT_CREATED && s->line->lists == 0) {
        hf__zk_line_list(s->line, false); /* its list was lost */
    } else if (s->state == SEAT_WAITING) {
        ev_waiting(t, s->position, -1);
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
    if (!s && zk_up(z))
        s = hf__zk_seat_new(z, t);
    if (!s || !zk_up(z)) {
        if (s)
            hf__zk_seat_out(s, false);
        ev_left(t, HF_EUNKNOWN);
        return;
    }
    s->leave = true;
    if (s->amending)
        return; /* which name its node has will be known then */
    if (s->state == SEAT_NEW && z->alone)
        hf__zk_alone_start(s);
    else if (s->state == SEAT_NEW)
        hf__zk_seat_find(s); /* forgotten, or its create was not answered */
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
