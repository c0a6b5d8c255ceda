/* jute.c: a bare session with a ZooKeeper server. Goes wrong: says why and returns an
 * exit status. */
#include "stores/jute.h"

#include "stores/link.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SESSION_MS = 60000, XID = 1 };

/* as long as what the library writes of an owner without a note */
static const char record[] =
    "holdfast 1\nowner 0123456789abcdef 17\nhost bench\npid 12345\n"
    "since 1763190000123\nttl 30000\n";

/* ---- messages -------------------------------------------------------------------- */

static struct jute_out *begin(struct jute_link *r, enum jute_op op, size_t *begun)
{
    *begun = hf__jute_begin(&r->out);
    hf__jute_put_header(&r->out, XID, op);
    return &r->out;
}

static void end(struct jute_link *r, size_t begun)
{
    hf__jute_end(&r->out, begun);
    r->owed++;
}

void jute_delete(struct jute_link *r, const char *path, size_t len)
{
    size_t begun;
    struct jute_out *o = begin(r, JUTE_DELETE, &begun);

    hf__jute_put_text(o, path, len);
    hf__jute_put_int(o, -1);
    end(r, begun);
}

void jute_read(struct jute_link *r, const char *path, size_t len, bool watch)
{
    size_t begun;
    struct jute_out *o = begin(r, JUTE_GET_DATA, &begun);

    hf__jute_put_text(o, path, len);
    hf__jute_put_bool(o, watch);
    end(r, begun);
}

void jute_create(struct jute_link *r, const char *path, size_t len, enum jute_mode mode)
{
    size_t begun;
    bool level = mode == JUTE_CONTAINER;
    struct jute_out *o = begin(r, level ? JUTE_CREATE_CONTAINER : JUTE_CREATE2, &begun);

    hf__jute_put_create(o, path, len, record, level ? 0 : sizeof record - 1, r->private_,
                        mode);
    end(r, begun);
}

int jute_flush(struct jute_link *r)
{
    int status = EXIT_SYSTEM;

    if (r->out.failed)
        cli_say("out of memory");
    else
        status = link_send(r->fd, r->out.buf, r->out.len);
    r->out.len = 0;
    return status;
}

/* What is no message at all is taken, too, and refused then. */
bool jute_has_more(const struct jute_link *r)
{
    int64_t len = hf__jute_length(r->in + r->at, r->len - r->at);

    return len < 0 || (len > 0 && (uint64_t)len <= r->len - r->at);
}

/* The next message, valid until the next call. */
static int take(struct jute_link *r, const char **ret, size_t *ret_len)
{
    int64_t len;
    size_t more;

    while (!jute_has_more(r)) {
        int status;

        memmove(r->in, r->in + r->at, r->len - r->at);
        r->len -= r->at;
        r->at = 0;
        status = link_more(r->fd, r->in + r->len, sizeof r->in - r->len, &more);
        if (status)
            return status;
        r->len += more;
    }
    len = hf__jute_length(r->in + r->at, r->len - r->at);
    if (len < 0)
        return link_broken("not an answer of ZooKeeper");
    *ret = r->in + r->at + 4;
    *ret_len = (size_t)len - 4;
    r->at += (size_t)len;
    return 0;
}

int jute_hear(struct jute_link *r, struct jute_reply *reply)
{
    const char *message = NULL;
    size_t len = 0;
    int status = take(r, &message, &len);

    if (status)
        return status;
    if (!hf__jute_reply(message, len, reply))
        return link_broken("an answer that is too short");
    if (reply->xid == JUTE_XID_EVENT)
        r->events++;
    else
        r->owed--;
    return 0;
}

int jute_answer(struct jute_link *r, struct jute_reply *reply, int32_t may)
{
    int status;

    do
        status = jute_hear(r, reply);
    while (status == 0 && reply->xid == JUTE_XID_EVENT);
    if (status || reply->err == 0 || reply->err == may)
        return status;
    cli_say("bench: the server answered with error %d", reply->err);
    return EXIT_REFUSED;
}

int jute_answers(struct jute_link *r, int32_t may)
{
    struct jute_reply reply;
    int status = jute_flush(r);

    while (status == 0 && r->owed > 0)
        status = jute_answer(r, &reply, may);
    return status;
}

/* ---- opening --------------------------------------------------------------------- */

static int greet(struct jute_link *r)
{
    struct jute_session s = { .timeout_ms = SESSION_MS };
    const char *message = NULL;
    size_t len = 0;
    int status;

    hf__jute_put_connect(&r->out, &s, 0);
    status = jute_flush(r);
    if (status == 0)
        status = take(r, &message, &len);
    if (status == 0 && (!hf__jute_connected(message, len, &s) || s.timeout_ms <= 0))
        status = link_broken("no session was given");
    return status;
}

static int log_in(struct jute_link *r, const struct link_target *t, const char *url)
{
    char login[sizeof t->user + sizeof t->password + 2];
    size_t begun;
    int status;

    snprintf(login, sizeof login, "%s:%s", t->user, t->password);
    if (!link_option(url, "auth", login, sizeof login) && !t->user[0])
        return 0;
    r->private_ = true;
    begun = hf__jute_begin(&r->out);
    hf__jute_put_header(&r->out, JUTE_XID_AUTH, JUTE_AUTH);
    hf__jute_put_auth(&r->out, "digest", login);
    end(r, begun);
    status = jute_answers(r, 0);
    explicit_bzero(login, sizeof login);
    return status;
}

int jute_open(struct jute_link **ret, const char *url, char *root, size_t size)
{
    struct jute_link *r = calloc(1, sizeof *r);
    struct link_target t;
    int status;

    if (!r) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    r->fd = -1;
    if (link_read(&t, url, "2181"))
        status = link_open(&t, &r->fd);
    else
        status = link_broken("a URL that it cannot read");
    if (status == 0)
        status = greet(r);
    if (status == 0)
        status = log_in(r, &t, url);
    snprintf(root, size, "%s", t.path);
    explicit_bzero(&t, sizeof t);
    if (status == 0)
        *ret = r;
    else
        jute_close(r);
    return status;
}

void jute_close(struct jute_link *r)
{
    size_t begun;

    if (!r)
        return;
    if (r->fd >= 0) {
        begin(r, JUTE_CLOSE, &begun);
        end(r, begun);
        jute_flush(r);
        close(r->fd);
    }
    if (r->out.buf) /* it has sent the password */
        explicit_bzero(r->out.buf, r->out.room);
    free(r->out.buf);
    free(r);
}
