/* etcd_members.c: the connection to etcd where there is more than one member, TLS, or a
 * login. */
#include "etcd_world.h"
#include "setup_redis.h"

#ifdef WITH_TLS
#include "net/tls/openssl.h"
#endif

#include <stdio.h>
#include <string.h>

extern const struct test_case etcd_member_cases[];

enum { LIMIT_SHORT_MS = 400 };

static size_t begin_three(void)
{
    size_t leader;

    etcd = etcd_place_new(3);
    etcd_start_all(etcd);
    leader = etcd_leader(etcd);
    world_begin(etcd->servers[leader].port);
    return leader;
}

static void end(void)
{
    world_end();
    etcd_place_stop(etcd);
}

/* The leader can reach nobody: by the limit that it was told it says so itself. The
 * connection stays. */
static void deadline_of_a_call(void)
{
    Hf__Etcd__PutRequest q = HF__ETCD__PUT_REQUEST__INIT;
    size_t leader = begin_three();
    struct reply o;
    int64_t since;

    put("d", "1", 0);
    for (size_t i = 0; i < 3; i++)
        if (i != leader)
            server_freeze(&etcd->servers[i]);
    q.key = bytes("d");
    since = now_ms();
    ask_within(&o, ETCD_PUT, &q, LIMIT_SHORT_MS);
    UNTIL(o.answers == 1);
    CHECK(!o.nothing);
    /* DEADLINE_EXCEEDED comes from gRPC below etcd, if that is faster */
    CHECK(o.status == GRPC_DEADLINE_EXCEEDED ||
          (o.status == GRPC_UNAVAILABLE && strstr(o.text, "timed out")));
    CHECK_NUM(o.at_ms - since, >=, LIMIT_SHORT_MS);
    CHECK_NUM(o.at_ms - since, <, 5000); /* etcd's own limit */
    CHECK_NUM(w.losses, ==, 0);
    for (size_t i = 0; i < 3; i++)
        if (i != leader)
            server_continue(&etcd->servers[i]);
    end();
}

/* `hasleader`: a member that has lost the others ends the watches, and refuses calls at
 * once instead of letting them wait. */
static void without_a_leader(void)
{
    Hf__Etcd__StatusRequest sq = HF__ETCD__STATUS_REQUEST__INIT;
    Hf__Etcd__RangeRequest q = HF__ETCD__RANGE_REQUEST__INIT;
    size_t leader = begin_three();
    const struct reply *o;

    watch("n/", "n0", 0, false);
    for (size_t i = 0; i < 3; i++)
        if (i != leader)
            server_kill(&etcd->servers[i]);
    UNTIL(w.losses == 1);
    CHECK_NUM(w.why.code, ==, HF_EUNREACHABLE);
    CHECK_STR(w.why.text, "etcdserver: no leader (UNAVAILABLE)");
    UNTIL(w.ups == 2);
    q.key = bytes("n");
    q.serializable = true;
    o = asked(ETCD_RANGE, &q);
    CHECK_NUM(o->status, ==, GRPC_UNAVAILABLE);
    CHECK_STR(o->text, "etcdserver: no leader");
    ok(ETCD_STATUS, &sq); /* which is about the member alone */
    end();
}

/* ---- logins ---------------------------------------------------------------------- */

static const struct reply *log_in(const char *password)
{
    Hf__Etcd__AuthenticateRequest q = HF__ETCD__AUTHENTICATE_REQUEST__INIT;

    q.name = (char *)(uintptr_t) "locker";
    q.password = (char *)(uintptr_t)password;
    return asked(ETCD_AUTHENTICATE, &q);
}

static void login(void)
{
    Hf__Etcd__PutRequest q = HF__ETCD__PUT_REQUEST__INIT;
    const Hf__Etcd__AuthenticateResponse *r;
    const struct reply *o;
    hf_error err;

    etcd = etcd_place_new(1);
    etcd_start_all(etcd);
    etcd_auth_slash(etcd);
    world_begin(etcd->servers[0].port);
    q.key = bytes("/locks/a");
    o = asked(ETCD_PUT, &q);
    CHECK_NUM(o->status, ==, GRPC_INVALID_ARGUMENT);
    CHECK_STR(o->text, "etcdserver: user name is empty");
    o = log_in("wrong");
    CHECK_NUM(o->status, ==, GRPC_INVALID_ARGUMENT);
    o = log_in("s3cr@t");
    CHECK_NUM(o->status, ==, GRPC_OK);
    r = o->body;
    CHECK(hf__etcd_set_token(&w.c, r->token) == 0);
    put("/locks/a", "v", 0);
    watch("/locks/", "/locks0", 0, false);
    put("/locks/a", "v", 0);
    UNTIL(w.nevents == 1);
    q.key = bytes("/other");
    o = asked(ETCD_PUT, &q);
    CHECK_NUM(o->status, ==, GRPC_PERMISSION_DENIED);
    CHECK_RC(hf__etcd_error(
                 &w.c, &(struct etcd_answer){ .status = o->status, .text = o->text }, &err),
             HF_EAUTH);
    CHECK(hf__etcd_set_token(&w.c, "none.1") == 0);
    q.key = bytes("/locks/a");
    o = asked(ETCD_PUT, &q);
    CHECK_NUM(o->status, ==, GRPC_UNAUTHENTICATED);
    CHECK_NUM(w.losses, ==, 0);
    end();
}

/* ---- TLS ------------------------------------------------------------------------- */

#ifdef WITH_TLS
static void encrypted(void)
{
    struct tls_context *context = NULL;
    char ca[256], cert[256], key[256];
    struct tls_config config = { .ca = ca, .cert = cert, .key = key, .alpn = "h2" };

    etcd = etcd_place_new(1);
    certificates_make(etcd->servers[0].dir);
    etcd_secure(etcd);
    etcd_start_all(etcd);
    snprintf(ca, sizeof(ca), "%s/ca.crt", etcd->servers[0].dir);
    snprintf(cert, sizeof(cert), "%s/client.crt", etcd->servers[0].dir);
    snprintf(key, sizeof(key), "%s/client.key", etcd->servers[0].dir);
    CHECK_RC(hf__tls.context_new(&context, &config, E()), 0);
    world_open(etcd->servers[0].port, &hf__tls, context);
    UNTIL(w.ups == 1);
    CHECK_NUM(alive(grant(60)), ==, 60);
    watch("t", "", 0, false);
    put("t", "v", 0);
    UNTIL(w.nevents == 1);
    world_end();
    world_open(etcd->servers[0].port, NULL, NULL); /* in the clear */
    w.no_up = true;
    UNTIL(w.losses > 0);
    end();
    hf__tls.context_free(context);
}
#endif

const struct test_case etcd_member_cases[] = {
    { "deadline-of-a-call", deadline_of_a_call, ON_BLOCKING, 0, 0 },
    { "without-a-leader", without_a_leader, ON_BLOCKING, 0, 0 },
    { "login", login, ON_BLOCKING, 0, 0 },
#ifdef WITH_TLS
    { "encrypted", encrypted, ON_BLOCKING, 0, 0 },
#endif
    { NULL, NULL, 0, 0, 0 },
};
