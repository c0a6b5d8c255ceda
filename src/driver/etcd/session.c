/* session.c: the connection to a member: coming up, going down, and what an answer says.
 *
 *   greeting:  Authenticate, if there is a login -> Status -> settling
 *   settling:  a read that needs a majority -> the leases are proved (lease.c) -> up; and
 *              beside that the numbers of watches (watch.c)
 *
 * Settling makes sure that nothing of an older connection can come any more (G7): what it
 * may have left under way are creates, which compare their lease's epoch, changes of a
 * ticket, which compare its revision, and deletes of names that are not used again. Only
 * then the core hears UP and repeats them.
 *
 * An answer that leaves open whether a request was or will be carried out ("request timed
 * out", a leader that has changed, an internal error, none) gives the connection up. So
 * there is one way back from every doubt: through settling, and finding the key (ticket.c).
 * The same way goes a token that has expired, and a server that has too much to do: the
 * link's pauses are the patience with it.
 *
 * The servers were set back (a backup was restored, or it is another cluster) if that
 * majority has a smaller revision than we have seen, or the cluster another number. Then
 * leases and tickets, ours too, belong to another history: all leases are over.
 *
 * Releases: below those in `good`, a leader that is none any more may answer keep-alives,
 * or a revoked lease may be renewed with success. HF_CAP_DEADLINE is promised only if every
 * member that the URL names has been visited before the first UP and has a good one. */
#include "driver/etcd/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_PATIENCE_MS = 500 };

/* ---- what an answer says ----------------------------------------------------------- */

static bool says(const struct etcd_answer *a, const char *text)
{
    return strstr(a->text, text) != NULL;
}

/* It is refused: nothing has been done, nothing will be. */
static bool refused(const struct etcd_answer *a)
{
    switch (a->status) {
    case GRPC_NOT_FOUND:
    case GRPC_ALREADY_EXISTS:
    case GRPC_PERMISSION_DENIED:
    case GRPC_FAILED_PRECONDITION:
    case GRPC_OUT_OF_RANGE:
    case GRPC_UNIMPLEMENTED:
        return true;
    case GRPC_RESOURCE_EXHAUSTED:
        return says(a, "space exceeded");
    case GRPC_INVALID_ARGUMENT: /* as long as it is about the request, not about who asks */
        return !says(a, "auth store is old") && !says(a, "user name is empty");
    default:
        return false;
    }
}

/* The header is the first field of every answer. */
static const Hf__Etcd__ResponseHeader *header_of(const struct etcd_answer *a)
{
    return ((const Hf__Etcd__RangeResponse *)a->body)->header;
}

int64_t hf__etcd_revision(const struct etcd_answer *a)
{
    return header_of(a) ? header_of(a)->revision : 0;
}

bool hf__etcd_no_lease(const struct etcd_answer *a)
{
    return a && a->status == GRPC_NOT_FOUND && says(a, "lease not found");
}

int hf__etcd_result(struct etcd *e, const struct etcd_answer *a, hf_error *err)
{
    int rc;

    if (a && a->status == GRPC_OK) {
        hf__ordered_told(&e->ordered, (uint64_t)hf__etcd_revision(a));
        return 0;
    }
    rc = hf__etcd_error(&e->conn, a, err);
    if (a && refused(a))
        return rc;
    if (a && !e->open.login.user && says(a, "user name is empty"))
        hf__link_fail(&e->conn.link, HF_EAUTH, "it wants a user and a password");
    else if (a)
        hf__link_fail(&e->conn.link, rc == HF_EAUTH ? HF_EUNREACHABLE : rc, "%s",
                      err->text);
    return 1;
}

int hf__etcd_query_result(struct etcd *e, const struct etcd_answer *a, hf_error *err)
{
    int rc;

    if (a && (a->status == GRPC_INTERNAL || says(a, "16 MiB")))
        return hf__etcd_error(&e->conn, a, err); /* asked again it would be the same */
    rc = hf__etcd_result(e, a, err);
    return rc > 0 ? err->code = HF_EUNREACHABLE : rc;
}

/* ---- coming up --------------------------------------------------------------------- */

static void up(struct etcd *e)
{
    hf__link_up(&e->conn.link);
    e->seen = true;
    if (e->old_release)
        e->store.caps &= ~(uint32_t)HF_CAP_DEADLINE;
    ev_store(&e->store, STORE_UP, NULL);
    hf__ordered_up(&e->ordered);
    hf__etcd_pulse_later(e);
}

void hf__etcd_settled(struct etcd *e)
{
    if (--e->unproved == 0 && e->conn.link.state == LINK_SETTLING &&
        link_open(&e->conn.link))
        up(e);
}

static void settled(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    const Hf__Etcd__ResponseHeader *h = a && a->status == GRPC_OK ? header_of(a) : NULL;
    struct etcd *e = etcd_at(c);
    bool back = h && ((uint64_t)h->revision < e->ordered.revision ||
                      (e->cluster != 0 && h->cluster_id != e->cluster));
    hf_error err;

    (void)q;
    if (hf__etcd_result(e, a, &err) > 0 || e->shut)
        return; /* refused for want of rights is an answer of a majority, too */
    if (h)
        e->cluster = h->cluster_id;
    if (back)
        e->ordered.revision = (uint64_t)h->revision;
    list_for_safe(n, &e->leases) {
        struct etcd_lease *l = container_of(n, struct etcd_lease, node);

        if (l->id != 0 && (back || hf__etcd_lease_late(l)))
            hf__etcd_lease_over(l, true);
        else if (l->id != 0)
            hf__etcd_lease_prove(l);
        e->unproved += l->asked;
    }
    hf__etcd_settled(e);
}

static void settle(struct etcd *e)
{
    struct etcd_call *q = hf__etcd_call(&e->conn, settled, sizeof *q);
    Hf__Etcd__RangeRequest r;
    struct etcd_key k;

    if (!q)
        return;
    hf__link_settle(&e->conn.link);
    hf__etcd_epoch_key(&k, e, 0);
    hf__etcd_range(&r, &k, NULL);
    e->unproved = 2;
    hf__etcd_send(&e->conn, q, ETCD_RANGE, &r);
    hf__etcd_watch_probe(e);
}

/* ---- releases ---------------------------------------------------------------------- */

static bool is_good(const char *version)
{
    static const int good[][2] = { { 4, 38 }, { 5, 23 }, { 6, 5 } };
    int major = 0, minor = 0, patch = 0;

    if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) < 2)
        return false;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (major == 3 && minor == good[i][0])
            return patch >= good[i][1];
    return major > 3 || (major == 3 && minor > 6);
}

static void is_old(struct etcd *e, const char *what)
{
    char text[200];

    if (e->old_release)
        return;
    e->old_release = true;
    snprintf(text, sizeof text,
             "%.60s: a lease may end before its ttl; 3.4.38, 3.5.23, 3.6.5 and later "
             "releases of etcd have no such fault",
             what);
    e->store.env->log(e->store.env, HF_LOG_WARN, e->conn.to.shown, text);
}

void hf__etcd_next_member(struct etcd *e)
{
    const struct opening_host *h;

    e->member = (e->member + 1) % e->open.nhosts;
    h = &e->open.hosts[e->member];
    e->conn.to = (struct stream_target){ .host = h->host,
                                         .port = h->port,
                                         .tls = e->open.tls,
                                         .tls_context = e->open.tls_context,
                                         .shown = h->shown };
}

static void has_status(struct etcd_conn *c, struct etcd_call *q,
                       const struct etcd_answer *a)
{
    const Hf__Etcd__StatusResponse *r = a ? a->body : NULL;
    struct etcd *e = etcd_at(c);
    char release[64] = "a release that it does not tell";

    (void)q;
    if (!a || e->shut)
        return;
    if (r)
        snprintf(release, sizeof release, "etcd %.40s", r->version);
    if (!r || !is_good(r->version))
        is_old(e, release);
    if (e->old_release || e->seen || ++e->visited >= e->open.nhosts) {
        settle(e);
    } else { /* the next one is asked, too */
        hf__link_forgive(&c->link);
        hf__link_fail(&c->link, HF_EUNREACHABLE,
                      "the next member is asked for its release");
    }
}

static void ask_status(struct etcd *e)
{
    struct etcd_call *q = hf__etcd_call(&e->conn, has_status, sizeof *q);
    Hf__Etcd__StatusRequest r = HF__ETCD__STATUS_REQUEST__INIT;

    hf__etcd_send(&e->conn, q, ETCD_STATUS, &r);
}

/* ---- logging in -------------------------------------------------------------------- */

static void logged_in(struct etcd_conn *c, struct etcd_call *q, const struct etcd_answer *a)
{
    const Hf__Etcd__AuthenticateResponse *r = a ? a->body : NULL;

    (void)q;
    if (!a)
        return;
    if (r && hf__etcd_set_token(c, r->token) == 0)
        ask_status(etcd_at(c));
    else if (r)
        hf__link_fail(&c->link, HF_ENOMEM, "no memory for a token");
    else if (a->status == GRPC_FAILED_PRECONDITION) /* authentication is not enabled */
        ask_status(etcd_at(c));
    else
        hf__link_fail(&c->link, refused(a) ? HF_EAUTH : HF_EUNREACHABLE, "%s", a->text);
}

static void greet(struct link *k)
{
    struct etcd *e = container_of(k, struct etcd, conn.link);
    Hf__Etcd__AuthenticateRequest r = HF__ETCD__AUTHENTICATE_REQUEST__INIT;
    char password[PASSWORD_MAX + 1];
    struct etcd_call *q;
    hf_error err;

    hf__etcd_set_token(&e->conn, NULL);
    if (!e->open.login.user) {
        ask_status(e);
        return;
    }
    if (hf__login_password(&e->open.login, password, &err) < 0) {
        hf__link_break(k, &err);
        return;
    }
    r.name = e->open.login.user;
    r.password = password;
    q = hf__etcd_call(&e->conn, logged_in, sizeof *q);
    hf__etcd_send(&e->conn, q, ETCD_AUTHENTICATE, &r);
    explicit_bzero(password, sizeof password);
}

/* ---- going down -------------------------------------------------------------------- */

static void down(struct link *k, const hf_error *err)
{
    struct etcd *e = container_of(k, struct etcd, conn.link);
    struct env *env = e->store.env;

    e->store.awaits = false;
    hf__etcd_numbers_lost(e);
    env->timer(env, &e->pulse, LOOP_NEVER);
    if (!e->shut)
        ev_store(&e->store, STORE_DOWN, err);
}

static void lost(struct link *k, const hf_error *err)
{
    struct etcd *e = container_of(k, struct etcd, conn.link);

    (void)err;
    if (e->shut) {
        ev_shut(&e->store);
        return;
    }
    hf__etcd_watches_down(e);
    hf__etcd_lines_down(e);
    hf__etcd_leases_down(e);
    if (!e->seen && e->conn.link.failed > 0 && e->open.nhosts > 1)
        is_old(e, "a member that cannot be asked for its release");
    hf__etcd_next_member(e);
}

/* What is held must not be lost for one member that does not answer, and a call that waits
 * for no longer than connect_ms shall have found the one that does. */
static int64_t patience_ms(const struct link *k)
{
    const struct etcd *e = container_of(k, struct etcd, conn.link);
    int64_t ms = e->open.connect_ms / (int64_t)e->open.nhosts;

    list_for(n, &e->leases) {
        const struct etcd_lease *l = container_of(n, struct etcd_lease, node);
        int64_t third = l->ttl_s * 1000 / 3;

        if (l->life->ntickets > 0 && third < ms)
            ms = third > LEAST_PATIENCE_MS ? third : LEAST_PATIENCE_MS;
    }
    return ms;
}

void hf__etcd_shut(struct store *s)
{
    struct etcd *e = etcd_of(s);
    struct env *env = e->store.env;

    e->shut = true;
    e->conn.link.wanted = false;
    env->timer(env, &e->pulse, LOOP_NEVER);
    if (e->conn.link.state < LINK_SETTLING || !link_open(&e->conn.link))
        ev_shut(s);
    else
        hf__etcd_leases_end(e);
}

const struct link_events hf__etcd_events = { patience_ms, greet, down, hf__etcd_unanswered,
                                             lost };
