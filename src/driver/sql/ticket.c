/* ticket.c: what is asked about tickets: join, wait (the safety look), leave, renew, amend.
 * Here is only how a call is built and its answer read; what follows from it is
 * kit/scripted.c. ticket.drv[2] is the number of the line's row, for renewing: it is known
 * from the answer to the join, and a ticket never moves to another row. */
#include "driver/sql/sql.h"

#include <string.h>

enum joined { JOINED_HOLDS, JOINED_WAITS, JOINED_BUSY, JOINED_REVOKED, JOINED_MISMATCH };
enum { LOST = 0, REVOKED = 1 }; /* of wait */

static void name_args(const struct sql *s, struct sql_args *a, const char *name,
                      size_t name_len)
{
    sql_bytes(a, s->ns, s->ns_len);
    sql_bytes(a, name, name_len);
}

/* ---- joining --------------------------------------------------------------------- */

static void build_join(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct ticket *t = q->about; /* it stays until the call is answered */

    name_args(s, a, t->name, t->name_len);
    sql_bytes(a, t->token, HF_TOKEN);
    sql_int(a, t->kind);
    sql_int(a, t->capacity);
    sql_int(a, t->weight);
    sql_int(a, t->ttl_ms);
    sql_int(a, s->join_flags | (t->try_only ? 1 : 0) | (t->barge ? 2 : 0));
    sql_bytes(a, s->client, SQL_CLIENT);
    sql_int(a, (int64_t)t->owner.process);
    sql_int(a, (int64_t)t->owner.number);
    sql_int(a, s->open.pid);
    sql_bytes(a, s->open.host, strlen(s->open.host));
    sql_bytes(a, t->note, strlen(t->note));
    sql_bytes(a, t->hints, t->hints_len);
}

static void read_join(const struct sql *s, struct ticket *t, const struct sql_reply *reply,
                      struct scripted_place *p, hf_error *err)
{
    const int64_t *n;

    p->kind = PLACE_REFUSED;
    if (!reply) {
        p->kind = PLACE_NOTHING;
    } else if ((n = hf__sql_numbers(reply, 6)) != NULL && n[0] == JOINED_HOLDS) {
        p->kind = PLACE_HELD;
        p->fence = (uint64_t)n[1];
        t->drv[2] = (uint64_t)n[5];
    } else if (n && n[0] == JOINED_WAITS) {
        p->kind = PLACE_WAITS;
        p->stamp = n[1];
        p->recheck_ms = hf__sql_recheck(s, n[2]);
        p->number = (uint64_t)n[3];
        p->position = (uint32_t)n[4];
        t->drv[2] = (uint64_t)n[5];
    } else if ((n = hf__sql_numbers(reply, 1)) != NULL) {
        p->code = n[0] == JOINED_REVOKED ? HF_EEVICTED : HF_EBUSY;
    } else if ((n = hf__sql_numbers(reply, 3)) != NULL) {
        p->err = err;
        p->code = hf__mismatch(err, s->shown, t->name, (enum line_kind)n[1], n[2]);
    } else {
        p->err = err;
        p->code = hf__sql_refusal(s, reply, err);
    }
}

static void answer_join(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct scripted_place p = { .kind = PLACE_REFUSED };
    struct ticket *t = q->about;
    hf_error err;

    read_join(s, t, reply, &p, &err);
    if (!reply)
        echo_lost(&s->echo, t->ttl_ms);
    /* The message that it is free may have overtaken this answer (G4). */
    if (s->mode == SQL_OPTIMISTIC && s->freed_at >= q->call.sent_at)
        seat_of(t)->woken = true;
    hf__scripted_joined(&s->scripted, t, q->call.sent_at, &p);
    if (p.kind == PLACE_HELD || p.kind == PLACE_WAITS)
        hf__sql_joined(s, p.kind == PLACE_WAITS);
}

static void send_join(struct scripted *k, struct ticket *t)
{
    static const struct sql_type type = { SQL_JOIN, build_join, answer_join };
    struct scripted_place p = { .kind = PLACE_REFUSED, .code = HF_ENOMEM };

    if (!hf__sql_ask(sql_at(k), &type, t))
        hf__scripted_joined(k, t, 0, &p);
}

/* ---- leaving --------------------------------------------------------------------- */

static void build_leave(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct ticket *t = q->about; /* it stays until the call is answered */

    name_args(s, a, t->name, t->name_len);
    sql_bytes(a, t->token, HF_TOKEN);
    sql_int(a, t->keep_ms);
}

static void answer_leave(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    const int64_t *n = hf__sql_numbers(reply, 1);

    hf__scripted_left(&s->scripted, q->about,
                      !n     ? LEFT_UNKNOWN
                      : n[0] ? LEFT_OUT
                             : LEFT_NOT_THERE);
}

static void send_leave(struct scripted *k, struct ticket *t)
{
    static const struct sql_type type = { SQL_LEAVE, build_leave, answer_leave };

    if (!hf__sql_ask(sql_at(k), &type, t))
        hf__scripted_left(k, t, LEFT_UNKNOWN);
}

/* ---- changing a hold ------------------------------------------------------------- */

struct amend_call {
    struct sql_call q;
    unsigned char token[HF_TOKEN]; /* the ticket may have left */
};

static const unsigned char *token_of(struct sql_call *q)
{
    return container_of(q, struct amend_call, q)->token;
}

static void build_amend(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct ticket *t = hf__scripted_holder(&s->scripted, token_of(q));

    a->nothing = !t;
    if (!t)
        return;
    name_args(s, a, t->name, t->name_len);
    sql_bytes(a, t->token, HF_TOKEN);
    sql_int(a, t->weight);
    sql_int(a, (int64_t)t->owner.process);
    sql_int(a, (int64_t)t->owner.number);
    sql_bytes(a, t->note, strlen(t->note));
    sql_bytes(a, t->hints, t->hints_len);
}

/* Without an answer nothing is said: the core repeats after UP. */
static void answer_amend(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    const int64_t *n = hf__sql_numbers(reply, 1);
    hf_error err;

    if (reply)
        hf__scripted_amended(&s->scripted, token_of(q),
                             !n     ? hf__sql_refusal(s, reply, &err)
                             : n[0] ? 0
                                    : HF_ELOST);
}

void hf__sql_amend(struct store *store, struct ticket *t)
{
    static const struct sql_type type = { SQL_AMEND, build_amend, answer_amend };
    bool can = sql_of(store)->mode == SQL_LINE;
    struct sql_call *q = can ? hf__sql_call_of(&type, sizeof(struct amend_call)) : NULL;

    if (sql_has_sessions(sql_of(store))) {
        hf__sql_session_amend(t);
    } else if (q) {
        memcpy(container_of(q, struct amend_call, q)->token, t->token, HF_TOKEN);
        hf__sql_send(sql_of(store), q);
    } else {
        ev_amended(t, can ? HF_ENOMEM : HF_ENOTSUP);
    }
}

/* ---- the safety look ------------------------------------------------------------- */

/* Without a line a look may take the place: for the first that still wants it. It is chosen
 * when the look is sent, and sent again: one that has left since must not get it. */
static struct ticket *claimant(const struct sql *s, const struct wait_life *w)
{
    for (size_t i = 0; i < w->n; i++) {
        struct ticket *t = hf__seat_find(&s->scripted.seats, w->tokens[i]);

        if (t && t->life == w->life && seat_idle(t))
            return t;
    }
    return NULL;
}

static void claimant_args(const struct sql *s, struct sql_args *a, const struct ticket *t)
{
    sql_bytes(a, t ? t->token : NULL, t ? HF_TOKEN : 0);
    sql_int(a, t ? (int64_t)t->owner.process : 0);
    sql_int(a, t ? (int64_t)t->owner.number : 0);
    sql_int(a, s->open.pid);
    sql_bytes(a, s->open.host, strlen(s->open.host));
    sql_bytes(a, t ? t->note : "", t ? strlen(t->note) : 0);
}

static void build_wait(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    const struct wait_life *w = q->about; /* it stays until the look is answered */

    name_args(s, a, w->name, w->name_len);
    sql_bytes(a, s->client, SQL_CLIENT);
    sql_int(a, w->life->ttl_ms);
    sql_bytes(a, w->tokens, w->n * HF_TOKEN);
    if (s->mode == SQL_OPTIMISTIC)
        claimant_args(s, a, claimant(s, w));
}

static void read_place(struct scripted_place *p, int64_t state)
{
    memset(p, 0, sizeof *p);
    p->kind = state < 0          ? PLACE_WAITS
              : state == LOST    ? PLACE_LOST
              : state == REVOKED ? PLACE_REFUSED
                                 : PLACE_HELD;
    p->code = HF_EEVICTED;
    p->position = state < 0 ? (uint32_t)-state : 0;
    p->fence = state > 0 ? (uint64_t)state : 0;
}

static void answer_wait(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct wait_life *w = q->about;
    const int64_t *n = hf__sql_numbers(reply, 3 + w->n);
    struct scripted_place places[WAIT_CHUNK];
    struct scripted_looked l = { 0 };
    hf_error err;

    if (n) {
        l.stamp = n[0];
        l.renewed = n[0] > 0;
        l.count = (size_t)n[1];
        l.recheck_ms = hf__sql_recheck(s, n[2]);
        l.places = places;
        for (size_t i = 0; i < w->n; i++) {
            read_place(&places[i], n[3 + i]);
            if (places[i].kind == PLACE_HELD && s->listens && s->heard)
                hf__sql_listen(s); /* nobody told us */
        }
    } else if (reply) {
        l.code = hf__sql_refusal(s, reply, &err);
        l.err = &err;
    } else if (s->mode == SQL_OPTIMISTIC) { /* it may still be executed, as a join may */
        echo_lost(&s->echo, w->life->ttl_ms);
        for (size_t i = 0; i < w->n; i++) {
            struct ticket *t = hf__seat_find(&s->scripted.seats, w->tokens[i]);

            if (t)
                seat_of(t)->echo = true;
        }
    }
    hf__scripted_looked(&s->scripted, w, q->call.sent_at, reply ? &l : NULL);
}

static void send_look(struct scripted *k, struct wait_life *w)
{
    static const struct sql_type type = { SQL_WAIT, build_wait, answer_wait };

    if (!hf__sql_ask(sql_at(k), &type, w))
        hf__scripted_looked(k, w, 0, NULL); /* the next one finds it */
}

/* ---- proving that holders live --------------------------------------------------- */

static void build_renew(struct sql *s, struct sql_call *q, struct sql_args *a)
{
    struct scripted_renewal *k = q->about;
    size_t n = hf__scripted_trim(&s->scripted, k);

    a->nothing = n == 0; /* all have left meanwhile */
    for (size_t i = 0; i < n; i++) {
        const struct ticket *t = hf__scripted_holder(&s->scripted, k->holds[i].token);

        memcpy(s->tokens + i * HF_TOKEN, k->holds[i].token, HF_TOKEN);
        s->lines[i] = (int64_t)t->drv[2];
        s->ttls[i] = k->holds[i].ttl_ms;
    }
    sql_int(a, sql_now(s));
    sql_ints(a, s->lines, n);
    sql_bytes(a, s->tokens, n * HF_TOKEN);
    sql_ints(a, s->ttls, n);
}

static void answer_renew(struct sql *s, struct sql_call *q, const struct sql_reply *reply)
{
    struct scripted_renewal *k = q->about;
    const int64_t *n = hf__sql_numbers(reply, k->n);
    unsigned char renewed[SQL_RENEW_MOST];
    hf_error err;

    if (reply && !n) {
        hf__sql_refusal(s, reply, &err);
        hf__sql_warn(s, "holds were not renewed: %s", err.text);
    }
    for (size_t i = 0; n && i < k->n; i++) /* the function and the kit count alike */
        renewed[i] = (unsigned char)n[i];
    hf__scripted_renewed(&s->scripted, k, q->call.sent_at, n ? renewed : NULL);
}

static void send_renewal(struct scripted *k, struct scripted_renewal *r)
{
    static const struct sql_type type = { SQL_RENEW, build_renew, answer_renew };

    if (!hf__sql_ask(sql_at(k), &type, r))
        hf__scripted_renewed(k, r, 0, NULL);
}

/* ---- for the kit, and from the core ---------------------------------------------- */

/* A connection that was lost could not be ended: its joins may still be executed. */
static bool echoes(struct scripted *k, const struct ticket *t)
{
    (void)t;
    return sql_now(sql_at(k)) < sql_at(k)->echo.until;
}

const struct scripted_ops hf__sql_scripted = { .join = send_join,
                                               .leave = send_leave,
                                               .look = send_look,
                                               .renew = send_renewal,
                                               .echoes = echoes };

void hf__sql_join(struct store *store, struct ticket *t)
{
    if (sql_has_sessions(sql_of(store)))
        hf__sql_session_join(sql_of(store), t);
    else
        hf__scripted_join(&sql_of(store)->scripted, t);
}

void hf__sql_leave(struct store *store, struct ticket *t)
{
    if (sql_has_sessions(sql_of(store))) {
        hf__sql_session_leave(sql_of(store), t);
        return;
    }
    hf__sql_leaves(sql_of(store));
    hf__scripted_leave(&sql_of(store)->scripted, t);
}

void hf__sql_renew(struct store *store, struct life *const *lives, size_t n)
{
    if (sql_has_sessions(sql_of(store)))
        hf__sql_session_renew(lives, n);
    else
        hf__scripted_renew(&sql_of(store)->scripted, lives, n);
}
