/* redis_connect.c: hf_connect: a server that is not there, comes later, refuses us, and
 * goes away. Blocking and started.
 */
#include "redis_fault.h"

#include <stdio.h>
#include <string.h>

enum { A_WHILE_MS = 500 };

struct told {
    struct outcome out;
    hf_op *op;
};

static void on_told(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)op;
    CHECK(!l);
    outcome_set(user, rc, NULL, err);
}

/* In the manner of the face. */
static int connected(hf_client *c, int64_t wait_ms, hf_error *err)
{
    struct told t;
    int rc;

    if (!rig.face->async)
        return hf_connect(c, wait_ms, err);
    outcome_init(&t.out);
    CHECK_RC(hf_connect_start(c, wait_ms, on_told, &t.out, &t.op, E()), 0);
    outcome_wait(&t.out);
    rc = t.out.rc;
    if (rc < 0)
        *err = t.out.err;
    hf_op_free(t.op);
    outcome_fini(&t.out);
    return rc;
}

/* Where nobody listens: a server that is configured and not started. */
static void use_no_server(void)
{
    redis_init(&server);
    snprintf(rig.place->url, sizeof(rig.place->url), "redis://127.0.0.1:%d", server.port);
}

static void connect_nobody_there(void)
{
    int64_t began;
    hf_client *c;

    use_no_server();
    c = opened();
    began = now_ms();
    CHECK_RC(connected(c, A_WHILE_MS, E()), HF_EUNREACHABLE);
    CHECK_NUM(now_ms() - began, >=, A_WHILE_MS);
    CHECK(strstr(last_error()->text, "refused")); /* the reason, not only the time */
    CHECK_RC(connected(c, 0, E()), HF_EUNREACHABLE);
    closed(c);
    done();
}

static void *connect_for_ever(void *client)
{
    CHECK_RC(connected(client, HF_FOREVER, E()), 0);
    return NULL;
}

static void connect_comes_later(void)
{
    pthread_t t;
    hf_client *c;

    use_no_server();
    c = opened();
    CHECK(pthread_create(&t, NULL, connect_for_ever, c) == 0);
    CHECK_RC(connected(c, A_WHILE_MS, E()), HF_EUNREACHABLE);
    redis_run(&server);
    pthread_join(t, NULL);
    CHECK_RC(connected(c, 0, E()), 0);
    given(taken(c, nm("n"), NULL));
    closed(c);
    done();
}

static void connect_refused(void)
{
    int64_t began;
    hf_client *c;

    redis_init(&server);
    redis_config(&server, "requirepass right");
    strcpy(server.login, "default right");
    use_server();
    c = opened();
    began = now_ms();
    CHECK_RC(connected(c, HF_FOREVER, E()), HF_EAUTH);
    CHECK_RC(connected(c, HF_FOREVER, E()), HF_EAUTH);
    CHECK_WITHIN(began, LIMIT_MS);
    CHECK(last_error()->text[0]);
    closed(c);
    done();
}

static void *connect_until_stopped(void *client)
{
    CHECK_RC(connected(client, HF_FOREVER, E()), HF_ECLOSED);
    return NULL;
}

static void connect_and_stop(void)
{
    pthread_t t;
    hf_client *c;

    use_no_server();
    c = opened();
    CHECK(pthread_create(&t, NULL, connect_until_stopped, c) == 0);
    CHECK_RC(connected(c, A_WHILE_MS, E()), HF_EUNREACHABLE);
    CHECK_RC(hf_client_stop(c), 0);
    pthread_join(t, NULL);
    CHECK_RC(hf_connect(c, 0, E()), HF_ECLOSED);
    closed(c);
    done();
}

static void connect_cancelled(void)
{
    struct told t;
    hf_client *c;

    use_no_server();
    c = opened();
    outcome_init(&t.out);
    CHECK_RC(hf_connect_start(c, HF_FOREVER, on_told, &t.out, &t.op, E()), 0);
    hf_op_cancel(t.op);
    outcome_wait(&t.out);
    CHECK_RC(t.out.rc, HF_ECANCELED);
    hf_op_free(t.op);
    outcome_fini(&t.out);
    closed(c);
    done();
}

const struct test_case redis_connect_cases[] = {
    { "connect-nobody-there", connect_nobody_there, ON_ALL, 0, 0 },
    { "connect-comes-later", connect_comes_later, ON_ALL, 0, 0 },
    { "connect-refused", connect_refused, ON_ALL, 0, 0 },
    { "connect-and-stop", connect_and_stop, ON_ALL, 0, 0 },
    { "connect-cancelled", connect_cancelled, ON_ASYNC, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
