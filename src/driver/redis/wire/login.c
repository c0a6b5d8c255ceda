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

/* Nobody else would hear why there are no messages. */
static void fail(struct conn *conn, hf_error *err)
{
    struct redis *r = conn->node->redis;

    if (err->code == HF_EAUTH && conn->login->file && r->served)
        err->code = HF_EUNREACHABLE;
    if (conn_hears(conn))
        r->store.env->log(r->store.env, HF_LOG_WARN, NULL, err->text);
    hf__link_break(&conn->link, err);
}

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    struct conn *conn = q->about;
    const struct login *as = conn->login;
    char password[PASSWORD_MAX + 1];
    hf_error err;

    (void)r;
    if (hf__login_password(as, password, &err) < 0) {
        c->nothing = true;
        fail(conn, &err);
    } else {
        hf__redis_command_words(c, "AUTH", as->user ? 2 : 1);
        if (as->user)
            hf__redis_command_text(c, as->user);
        hf__redis_command_text(c, password);
    }
    explicit_bzero(password, sizeof password);
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    struct conn *conn = q->about;
    const char *by = conn->login == &r->sentinel_login ? " by this sentinel" : "";
    hf_error err;

    if (!reply || reply->type != REDIS_REPLY_ERROR)
        return;
    if (hf__redis_reply_error(r, reply, &err) == HF_EUNREACHABLE)
        err.code = HF_EUNREACHABLE; /* too many clients: it says so before it reads */
    else if (reply_starts(reply, "WRONGPASS"))
        hf__fail(&err, HF_EAUTH, 0, conn->node->shown,
                 "the login was refused%s: wrong password, or the user is unknown or "
                 "disabled (WRONGPASS)",
                 by);
    else if (reply_starts(reply, "ERR AUTH <password> called"))
        hf__fail(&err, HF_EAUTH, 0, conn->node->shown,
                 "the login was refused%s: no password is configured there", by);
    else
        hf__fail(&err, HF_EAUTH, 0, conn->node->shown, "the login was refused%s: %.*s ...",
                 by, (int)strcspn(reply->str, " "), reply->str);
    fail(conn, &err);
}

void hf__redis_login(struct conn *conn)
{
    static const struct request_type type = { .build = build, .answer = answer };
    const struct command *c = &conn->node->redis->command;

    if (!login_wanted(conn->login))
        return;
    if (!hf__redis_ask_on(conn, &type, conn))
        hf__link_fail(&conn->link, HF_ENOMEM, "no memory for a request");
    hf__stream_wipe(&conn->stream);
    if (c->buf)
        explicit_bzero(c->buf, c->len);
}
