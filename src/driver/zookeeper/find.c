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

static void not_known(struct seat *s)
{
    s->state = SEAT_NEW;
    if (s->leave)
        hf__zk_seat_left(s, HF_EUNKNOWN);
}

static void refused(struct seat *s, const struct jute_reply *reply)
{
    hf_error err;
    int rc = hf__zk_error(s->zk, reply, &err);

    if (s->leave)
        hf__zk_seat_left(s, HF_EUNKNOWN);
    else
        hf__zk_seat_gone(s, rc, &err);
}

static void answer_found(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct seat *s = seat_of(q);
    struct jute_stat stat;

    if (!hf__zk_seat_answered(s))
        return;
    s->state = SEAT_NEW;
    if (!reply) {
        not_known(s);
    } else if (reply->err == JUTE_NO_NODE) { /* it went meanwhile */
        hf__zk_seat_gone(s, HF_ELOST, NULL);
    } else if (reply->err != 0 || !hf__jute_stat(&reply->body, &stat)) {
        refused(s, reply);
    } else if (stat.owner != z->session.id || s->leave) {
        s->why = s->leave ? 0 : HF_ELOST; /* of a session before this one: in no line */
        hf__zk_seat_delete(s);
    } else {
        s->fence = (uint64_t)stat.czxid;
        s->version = stat.version;
        hf__zk_seat_created(s);
        if (s->state == SEAT_CREATED && s->line->lists == 0)
            hf__zk_line_list(s->line, false);
    }
}

static void look_at(struct seat *s)
{
    char path[NODE_PATH_MAX];
    struct request *q = hf__zk_seat_request(s, answer_found);

    if (q)
        hf__zk_send_path(s->zk, q, JUTE_EXISTS, path, hf__zk_seat_path(s, path));
    else
        s->state = SEAT_NEW;
}

/* ---- all of a line --------------------------------------------------------------- */

struct child {
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

static void found(struct seat *s, const struct child *child, bool levels)
{
    if (child) {
        free(s->name);
        s->name = strndup(child->name.at, child->name.len);
        if (s->name) {
            look_at(s); /* unsure until that is answered: it must not be made again */
        } else {
            hf__zk_break(s->zk, HF_ENOMEM, "no memory for a name");
            s->state = SEAT_NEW;
        }
    } else if (s->leave) {
        hf__zk_seat_left(s, 0);
    } else {
        s->unsure = false;
        hf__zk_seat_create(s, levels);
    }
}

static void answer_find(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct line *line = container_of(q, struct line_request, q)->line;
    bool none = reply && reply->err == JUTE_NO_NODE;
    struct child *all = NULL;
    size_t n = 0;

    line->finding = false;
    if (reply && reply->err == 0) {
        all = by_tokens(&reply->body, &n);
        if (!all) {
            hf__zk_break(z, HF_ENOMEM, "no memory for a line");
            reply = NULL;
        }
    }
    list_for_safe(k, &line->seats) {
        struct seat *s = seat_in(k);

        if (s->state != SEAT_FINDING || !s->sought || z->closing)
            continue;
        s->sought = false;
        if (!reply)
            not_known(s);
        else if (reply->err != 0 && !none)
            refused(s, reply);
        else
            found(s, n > 0 ? bsearch(s->t->token, all, n, sizeof *all, by_token) : NULL,
                  none);
    }
    free(all);
    line->pins--;
    hf__zk_line_drop(line);
}

void hf__zk_seat_find(struct seat *s)
{
    struct line *line = s->line;
    struct request *q;

    s->state = SEAT_FINDING;
    s->sought = true;
    if (line->finding)
        return;
    q = hf__zk_request(s->zk, answer_find, sizeof(struct line_request));
    if (!q) {
        s->state = SEAT_NEW;
        return;
    }
    container_of(q, struct line_request, q)->line = line;
    line->finding = true;
    line->pins++;
    hf__zk_send_path(s->zk, q, JUTE_GET_CHILDREN2, line->dir, line->dir_len);
}
