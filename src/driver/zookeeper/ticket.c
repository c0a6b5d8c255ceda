/* ticket.c: what a seat asks for: create, delete, and the list of a try. What follows from
 * the answers is decided by kit/ordered.h.
 *
 *   join:  create2 and getChildren2 in one go
 *   try:   sync and getChildren2 first; only if it would hold the same as above, and if it
 *          does not hold after all, it withdraws: a failed try leaves nothing
 *   leave: delete of the node by its full name, which has the ticket's token in it (G8)
 *
 * The levels above the line are containers, made when a create finds them missing, again
 * if the server has removed them in between.
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

static void send_create(struct zk_seat *, bool levels);

/* ---- seats ----------------------------------------------------------------------- */

static struct ordered_seat *new_seat(struct ordered *o, struct ticket *t)
{
    struct zk_seat *s = calloc(1, sizeof *s);
    struct zk_line *line = s ? hf__zk_line_get(zk_in(o), t->name, t->name_len) : NULL;

    if (!line) {
        free(s);
        return NULL;
    }
    s->seat.line = &line->line;
    return &s->seat;
}

static void free_seat(struct ordered_seat *s)
{
    free(zk_seat(s)->name);
    free(zk_seat(s)->becomes);
    free(zk_seat(s));
}

static size_t name_of(const struct ordered_seat *seat, char name[ORDERED_NAME_MAX])
{
    const struct zk_seat *s = container_of(seat, struct zk_seat, seat);
    size_t len = strlen(s->name);

    memcpy(name, s->name, len + 1);
    return len;
}

static void answer_seat(struct zk_call *q, struct jute_reply *reply)
{
    if (hf__ordered_unpin(&((struct zk_seat *)q->about)->seat) && reply)
        q->then(q, reply);
}

struct zk_call *hf__zk_seat_request(struct zk_seat *s,
                                    void then(struct zk_call *, struct jute_reply *))
{
    struct zk_call *q = hf__zk_request(zk_in(s->seat.of), answer_seat, s, "", 0);

    if (!q)
        return NULL;
    q->then = then;
    hf__ordered_pin(&s->seat);
    return q;
}

size_t hf__zk_seat_path(const struct zk_seat *s, char path[NODE_PATH_MAX])
{
    return hf__zk_line_path(line_of(s), path, s->name, strlen(s->name));
}

static void explain(const struct ordered_seat *s, int why, hf_error *err)
{
    const struct ordered_entry *head = s->line->n > 0 ? s->line->entries[0] : NULL;
    const char *shown = zk_in(s->of)->open.shown;

    if (why == HF_EMISMATCH)
        hf__mismatch(err, shown, s->t->name, head ? head->kind : LINE_LOCK,
                     head ? head->capacity : HF_FULL);
    else if (why == HF_EFULL)
        hf__fail(err, why, 0, shown,
                 "'%s' has used up its numbers; it begins anew when nobody has stood in it "
                 "for a minute",
                 s->t->name);
    else
        hf__fail(err, why, 0, shown, "%s", hf_strerror(why));
}

/* ---- deleting -------------------------------------------------------------------- */

static void answer_erase(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;
    hf_error err;

    if (reply->err != 0 && reply->err != JUTE_NO_NODE) {
        hf__ordered_step(&s->seat, SEAT_NOT_DELETED, hf__zk_error(q->zk, reply, &err),
                         &err);
        return;
    }
    if (reply->err == 0 && q->flag && s->seat.state == SEAT_DELETING)
        hf__zk_quiet_left(s);
    hf__ordered_step(&s->seat, SEAT_DELETED, 0, NULL);
}

static void erase(struct ordered_seat *seat, bool placed)
{
    struct zk_seat *s = zk_seat(seat);
    char path[NODE_PATH_MAX];
    struct zk_call *q = hf__zk_seat_request(s, answer_erase);

    if (!q)
        return;
    q->flag = placed;
    hf__zk_send_delete(q, path, hf__zk_seat_path(s, path), -1);
}

/* ---- creating -------------------------------------------------------------------- */

/* If a level exists, those above it do, too: ignore earlier errors for them, which may have
 * been for missing rights. */
static void level_made(struct zk_call *q, struct jute_reply *reply)
{
    struct zk *z = q->zk;

    if (!reply || reply->err == 0 || reply->err == JUTE_NODE_EXISTS)
        z->level_error = 0;
    else if (reply->err != JUTE_NO_NODE)
        z->level_error = reply->err;
}

/* Answers come in order: when that to what was sent next comes, level_error is of these. */
void hf__zk_mkdirs(struct zk *z, const char *dir, size_t len)
{
    for (size_t n = 1; n <= len; n++) {
        struct zk_call *q;

        if (n < len && dir[n] != '/')
            continue;
        q = hf__zk_request(z, level_made, NULL, "", 0);
        if (!q)
            return;
        hf__jute_put_create(hf__zk_begin(q, JUTE_CREATE_CONTAINER), dir, n, "", 0,
                            z->login != NULL, JUTE_CONTAINER);
        hf__zk_send(q);
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
static bool follows(const struct ordered_line *line, int64_t seq)
{
    const struct ordered_entry *last = line->n > 0 ? line->entries[line->n - 1] : NULL;

    return last && !line->stale && last->seq + 1 == seq && last->seat &&
           (last->seat->state == SEAT_WAITING || last->seat->state == SEAT_HELD) &&
           last->watch == WATCH_SET;
}

/* So that it is watched when the answer to a create comes: else the whole line must be
 * listed for every one that joins behind it soon. */
static void watch_last(struct ordered_line *line)
{
    struct ordered_entry *last = line->n > 0 ? line->entries[line->n - 1] : NULL;

    if (last && last->seat && last->seat->state == SEAT_WAITING &&
        last->watch == WATCH_NONE && hf__zk_line_watch(line, last))
        last->watch = WATCH_ASKED;
}

static bool take_created(struct zk *z, struct zk_seat *s, struct jute_reply *reply,
                         struct form *ret)
{
    struct jute_text path = hf__jute_text(&reply->body);
    const char *slash = memrchr(path.at, '/', path.len);
    struct jute_stat stat;

    if (!hf__jute_stat(&reply->body, &stat) || stat.owner != z->session.id || !slash)
        return false;
    free(s->name);
    s->name = strndup(slash + 1, path.len - (size_t)(slash + 1 - path.at));
    s->seat.fence = (uint64_t)stat.czxid;
    return s->name && strlen(s->name) < NODE_MAX &&
           hf__zk_form(ret, s->name, strlen(s->name));
}

static void create_failed(struct zk_seat *s, struct jute_reply *reply)
{
    struct zk *z = zk_in(s->seat.of);
    hf_error err;
    int rc;

    hf__zk_no_level(z, reply, s->tries > 0);
    if (s->seat.state == SEAT_CREATING && reply->err == JUTE_NO_NODE &&
        s->tries++ < TRIES) {
        send_create(s, true);
    } else {
        rc = hf__zk_error(z, reply, &err);
        hf__ordered_step(&s->seat, SEAT_NOT_MADE, rc, &err);
    }
}

static void answer_create(struct zk_call *q, struct jute_reply *reply)
{
    struct zk *z = q->zk;
    struct zk_seat *s = q->about;
    struct form form;
    bool quiet, used_up;

    if (reply->err != 0) {
        create_failed(s, reply);
    } else if (!take_created(z, s, reply, &form)) {
        hf__zk_break(z, HF_EPROTO,
                     "a node of another session than ours, or of another form");
    } else {
        quiet = hf__zk_quiet_created(s);
        used_up = form.place.seq < 0 || form.place.seq >= INT32_MAX;
        hf__ordered_pin(&s->seat);
        hf__ordered_there(&s->seat, SEAT_MADE, &form.place,
                          !used_up && (quiet || follows(s->seat.line, form.place.seq)),
                          quiet);
        if (hf__ordered_unpin(&s->seat) && used_up)
            hf__ordered_step(&s->seat, SEAT_WITHDRAW, HF_EFULL, NULL);
    }
}

/* Nodes with mode=ephemeral have no name of their own. */
size_t hf__zk_record(char to[RECORD_MAX], const struct zk *z, const struct ticket *t,
                     uint64_t fence, bool broken)
{
    const struct ticket_facts facts = { .host = z->open.host,
                                        .pid = z->open.pid,
                                        .since_ms = z->store.env->wall(z->store.env) / 1000,
                                        .ttl_ms = z->session.timeout_ms,
                                        .token = z->alone,
                                        .broken = broken,
                                        .fence = fence };

    return hf__record_write(to, t, &facts);
}

void hf__zk_send_create(struct zk_call *q, const struct ticket *t, const char *path,
                        size_t len, enum jute_mode mode)
{
    char data[RECORD_MAX];

    if (!q)
        return;
    hf__jute_put_create(hf__zk_begin(q, JUTE_CREATE2), path, len, data,
                        hf__zk_record(data, q->zk, t, 0, false), q->zk->login != NULL,
                        mode);
    hf__zk_send(q);
}

static void send_create(struct zk_seat *s, bool levels)
{
    struct zk_line *line = line_of(s);
    struct zk *z = zk_in(s->seat.of);
    char node[NODE_MAX], path[NODE_PATH_MAX];
    size_t n = hf__zk_node(z, node, s->seat.t);

    if (levels)
        hf__zk_mkdirs(z, line->dir, line->dir_len);
    hf__zk_send_create(hf__zk_seat_request(s, answer_create), s->seat.t, path,
                       hf__zk_line_path(line, path, node, n), JUTE_EPHEMERAL_SEQUENTIAL);
}

static void create(struct ordered_seat *s)
{
    struct ordered_line *line = s->line;
    /* what stands before it is known, as a rule, but for the newest */
    bool known = hf__zk_quiet_expected(zk_line(line)) ||
                 (hf__ordered_line_waits(line) && !line->stale);

    if (known)
        watch_last(line);
    send_create(zk_seat(s), zk_seat(s)->tries > 0);
    if (!known)
        hf__ordered_list(line);
}

/* ---- trying ---------------------------------------------------------------------- */

static int would_hold(struct zk *z, const struct ticket *t, struct jute_reply *reply,
                      hf_error *err)
{
    struct ordered_entry **entries;
    size_t n;
    int rc;

    if (reply->err == JUTE_NO_NODE)
        return 0;
    if (reply->err != 0)
        return hf__zk_error(z, reply, err);
    if (!hf__zk_line_read(&reply->body, &entries, &n))
        return hf__fail(err, HF_ENOMEM, 0, z->open.shown, "no memory for a line");
    rc = hf__ordered_would_hold(entries, n, t);
    if (rc == HF_EMISMATCH)
        hf__mismatch(err, z->open.shown, t->name, entries[0]->kind, entries[0]->capacity);
    hf__ordered_entries_free(entries, n);
    return rc;
}

static void answer_try(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;
    hf_error err;
    int rc;

    if (s->seat.state != SEAT_TRYING)
        return;
    s->tries = reply->err == JUTE_NO_NODE; /* no levels: they are made first */
    rc = would_hold(q->zk, s->seat.t, reply, &err);
    hf__ordered_step(&s->seat, rc == 0 ? SEAT_ROOM : SEAT_NO_ROOM, rc,
                     rc == HF_EBUSY ? NULL : &err);
}

static void try(struct ordered_seat *seat)
{
    struct zk_line *line = zk_line(seat->line);

    /* what others have done through other servers counts */
    hf__zk_sync(zk_in(seat->of), line->dir, line->dir_len);
    hf__zk_send_path(hf__zk_seat_request(zk_seat(seat), answer_try), JUTE_GET_CHILDREN2,
                     line->dir, line->dir_len, false);
}

/* ---- verbs ----------------------------------------------------------------------- */

static int64_t sent_at(struct ordered *o)
{
    return zk_in(o)->base_at;
}

static void no_memory(struct ordered *o)
{
    hf__zk_break(zk_in(o), HF_ENOMEM, "no memory for a line");
}

const struct ordered_ops hf__zk_ordered = {
    .in_order = true,
    .seat = new_seat,
    .seat_free = free_seat,
    .line_free = hf__zk_line_free_ops,
    .name = name_of,
    .try = try,
    .find = hf__zk_seat_find,
    .create = create,
    .erase = erase,
    .check = hf__zk_seat_check,
    .list = hf__zk_line_list,
    .watch = hf__zk_line_watch,
    .other = hf__zk_line_other,
    .sent_at = sent_at,
    .explain = explain,
    .no_memory = no_memory,
};

void hf__zk_join(struct store *store, struct ticket *t)
{
    struct zk *z = zk_of(store);

    if (t->life != z->life)
        hf__hang(t, z->life);
    if (hf__zk_session_attach_if_stale(z))
        return; /* the core joins again */
    if (z->alone)
        hf__zk_alone_join(z, t);
    else
        hf__ordered_join(&z->ordered, t);
}

void hf__zk_leave(struct store *store, struct ticket *t)
{
    struct zk *z = zk_of(store);

    if (z->alone)
        hf__zk_alone_leave(z, t);
    else
        hf__ordered_leave(&z->ordered, t);
}

/* ---- renewing -------------------------------------------------------------------- */

void hf__zk_renew(struct store *store, struct life *const *lives, size_t n)
{
    struct zk *z = zk_of(store);

    for (size_t i = 0; i < n; i++)
        if (lives[i] == z->life)
            hf__zk_session_renew(z);
}
