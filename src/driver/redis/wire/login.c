/* login.c: AUTH on a new connection: of a server, for commands or for messages, or of a
 * sentinel.
 *
 * The password is in memory from when it is read until it has been sent, and no longer: the
 * request does not keep it, and it is overwritten in every buffer that it passed.
 *
 * A refused login ends the connection with HF_EAUTH. If the password stands in a file, and
 * the store has been up, it is being changed: the server has the new one before the file
 * has, or the other way round. That is waited out (HF_EUNREACHABLE).
 *
 * Servers may repeat what came behind AUTH in their refusal ("unknown command 'AUTH', with
 * args beginning with ..."): of a text that we do not know only the first word is shown. */
#include "driver/redis/redis.h"

#include <string.h>

struct login_request {
    struct redis_call q;
    struct conn *conn;
    const struct login *as;
    const char *password; /* while it is being sent */
};

static struct login_request *of(struct redis_call *q)
{
    return container_of(q, struct login_request, q);
}

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct login *as = of(q)->as;

    (void)r;
    hf__redis_command_begin(c, as->user ? 3 : 2);
    hf__redis_command_text(c, "AUTH");
    if (as->user)
        hf__redis_command_text(c, as->user);
    hf__redis_command_text(c, of(q)->password);
}

/* Nobody else would hear why there are no messages. */
static void fail(struct conn *conn, const struct login *as, hf_error *err)
{
    struct redis *r = conn->node->redis;

    if (err->code == HF_EAUTH && as->file && r->served)
        err->code = HF_EUNREACHABLE;
    if (conn != &conn->node->commands)
        r->store.env->log(r->store.env, HF_LOG_WARN, NULL, err->text);
    hf__redis_conn_drop(conn, err);
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    const struct conn *conn = of(q)->conn;
    hf_error err;

    if (!reply || reply->type != REDIS_REPLY_ERROR)
        return;
    if (hf__redis_reply_error(r, reply, &err) == HF_EUNREACHABLE)
        err.code = HF_EUNREACHABLE; /* too many clients: it says so before it reads */
    else if (strncmp(reply->str, "WRONGPASS", 9) == 0)
        hf__fail(&err, HF_EAUTH, 0, conn->node->shown,
                 "the login was refused: wrong password, or the user is unknown or "
                 "disabled (WRONGPASS)");
    else if (strncmp(reply->str, "ERR AUTH <password> called", 26) == 0)
        hf__fail(&err, HF_EAUTH, 0, conn->node->shown,
                 "the login was refused: no password is configured there");
    else
        hf__fail(&err, HF_EAUTH, 0, conn->node->shown, "the login was refused: %.*s ...",
                 (int)strcspn(reply->str, " "), reply->str);
    fail(of(q)->conn, of(q)->as, &err);
}

void hf__redis_login(struct conn *conn, const struct login *as)
{
    static const struct request_type type = { .build = build, .answer = answer };
    struct redis *r = conn->node->redis;
    char password[PASSWORD_MAX + 1];
    struct redis_call *q = NULL;
    hf_error err;

    if (!login_wanted(as))
        return;
    if (hf__login_password(as, password, &err) == 0) {
        q = hf__redis_request_new(&type, sizeof(struct login_request), 0);
        hf__fail(&err, HF_ENOMEM, 0, conn->node->shown, "no memory for a request");
    }
    if (q) {
        of(q)->conn = conn;
        of(q)->as = as;
        of(q)->password = password;
        hf__redis_conn_send(conn, q); /* builds it now or never */
        of(q)->password = NULL;
        hf__stream_wipe(&conn->stream);
    } else {
        fail(conn, as, &err);
    }
    explicit_bzero(password, sizeof password);
    if (r->command.buf)
        explicit_bzero(r->command.buf, r->command.len);
}
