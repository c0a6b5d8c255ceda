/* find.c: is there a node of this ticket? Asked after a create whose answer was lost, and
 * by a leave of a ticket that the driver has forgotten.
 *
 *   getChildren2, once for all of a line that are looked for -> exists -> it is adopted if
 *   it belongs to this session, deleted, or made
 *
 * The store is up again only when the session has been attached again and a write was
 * answered, so a create of before has happened by then or never will (session.c). Any
 * list of this connection therefore serves: many may be looked for at once, and a list
 * for each would be more than a server can bear. */
#include "driver/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

/* ---- one ------------------------------------------------------------------------- */

static void refused(struct zk_seat *s, const struct jute_reply *reply)
{
    hf_error err;
    int rc = hf__zk_error(zk_in(s->seat.of), reply, &err);

    hf__ordered_step(&s->seat, SEAT_NOT_FOUND, rc, &err);
}

static void answer_found(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_seat *s = q->about;
    struct form form;
    struct jute_stat stat;

    if (reply->err == JUTE_NO_NODE) { /* it went meanwhile */
        hf__ordered_step(&s->seat, SEAT_GONE, HF_ELOST, NULL);
    } else if (reply->err != 0 || !hf__jute_stat(&reply->body, &stat) ||
               !hf__zk_form(&form, s->name, strlen(s->name))) {
        refused(s, reply);
    } else if (stat.owner !=
               q->zk->session.id) { /* of a session before this one: in no line */
        hf__ordered_step(&s->seat, SEAT_FOUND_OLD, HF_ELOST, NULL);
    } else {
        s->seat.fence = (uint64_t)stat.czxid;
        s->version = stat.version;
        hf__ordered_there(&s->seat, SEAT_FOUND, &form.place, false, false);
    }
}

static void look_at(struct zk_seat *s)
{
    char path[NODE_PATH_MAX];

    hf__zk_send_path(hf__zk_seat_request(s, answer_found), JUTE_EXISTS, path,
                     hf__zk_seat_path(s, path), false);
}

/* ---- all of a line --------------------------------------------------------------- */

struct child { /* of a line */
    unsigned char token[HF_TOKEN];
    struct jute_text name;
};

static int by_token(const void *a, const void *b)
{
    return memcmp(a, b, HF_TOKEN);
}

/* The children by their tokens; NULL: no memory, or a cut answer. */
static struct child *by_tokens(struct jute_in *in, size_t *ret)
{
    size_t n = hf__jute_count(in, 4), k = 0;
    struct child *all = calloc(n + 1, sizeof *all);

    for (size_t i = 0; all && i < n; i++) {
        struct jute_text name = hf__jute_text(in);

        if (in->bad || name.len >= NODE_MAX)
            continue;
        hf__zk_form_token(all[k].token, name.at, name.len);
        all[k++].name = name;
    }
    if (in->bad) {
        free(all);
        return NULL;
    }
    if (all && k > 1)
        qsort(all, k, sizeof *all, by_token);
    *ret = k;
    return all;
}

static void found(struct zk_seat *s, const struct child *child, bool levels)
{
    if (!child) {
        s->tries = levels;
        hf__ordered_step(&s->seat, SEAT_FOUND_NONE, 0, NULL);
        return;
    }
    free(s->name);
    s->name = strndup(child->name.at, child->name.len);
    if (s->name)
        look_at(s);
    else
        hf__zk_break(zk_in(s->seat.of), HF_ENOMEM, "no memory for a name");
}

static void answer_find(struct zk_call *q, struct jute_reply *reply)
{
    struct zk_line *line = zk_line(q->about);
    bool none = reply->err == JUTE_NO_NODE;
    struct child *all = NULL;
    size_t n = 0;

    line->finding = false;
    if (reply->err == 0 && (all = by_tokens(&reply->body, &n)) == NULL) {
        hf__zk_break(q->zk, HF_ENOMEM, "no memory for a line");
        return;
    }
    list_for_safe(k, &line->line.seats) {
        struct zk_seat *s = container_of(k, struct zk_seat, seat.in_line);

        if (!s->sought || (s->seat.state != SEAT_FINDING && s->seat.state != SEAT_SEEKING))
            continue;
        s->sought = false;
        if (reply->err != 0 && !none)
            refused(s, reply);
        else
            found(s,
                  n > 0 ? bsearch(s->seat.t->token, all, n, sizeof *all, by_token) : NULL,
                  none);
    }
    free(all);
}

void hf__zk_seat_find(struct ordered_seat *seat)
{
    struct zk_seat *s = zk_seat(seat);
    struct zk_line *line = line_of(s);

    s->sought = true;
    if (line->finding)
        return;
    line->finding = true; /* without memory to ask hf__zk_line_down ends it */
    hf__zk_send_path(hf__zk_line_request(&line->line, answer_find, "", 0),
                     JUTE_GET_CHILDREN2, line->dir, line->dir_len, false);
}
