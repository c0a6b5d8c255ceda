/* net_tls_harness.c: see net_tls_harness.h. */
#include "net_tls_harness.h"

#include <unistd.h>

struct tls_server t;
struct cert authority, other_authority, good;
struct tls_context *context;

void tls_pump(void)
{
    tls_server_step(&t);
}

struct tls_context *make_context(const char *ca, const char *cert, const char *key)
{
    struct tls_config config = { .ca = ca, .cert = cert, .key = key };
    struct tls_context *made = NULL;
    hf_error err = { 0 };

    if (hf__tls.context_new(&made, &config, &err) != 0)
        fail_msg("context: %s", err.text);
    return made;
}

int tls_setup(void **state)
{
    if (net_setup(state) < 0)
        return -1;
    cert_make(&authority, net_folder(), "authority", NULL, NULL, 30);
    cert_make(&other_authority, net_folder(), "other", NULL, NULL, 30);
    cert_make(&good, net_folder(), "good", &authority, "DNS:localhost,IP:127.0.0.1", 30);
    context = make_context(authority.file, NULL, NULL);
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    return 0;
}

int tls_teardown(void **state)
{
    if (t.ctx)
        tls_server_done(&t); /* of a case that failed */
    if (server >= 0)
        close(server);
    hf__tls.context_free(context);
    cert_free(&authority);
    cert_free(&other_authority);
    cert_free(&good);
    return net_teardown(state);
}

struct stream_target tls_to(const char *host)
{
    struct stream_target to = to_host(host, port);

    to.tls = &hf__tls;
    to.tls_context = context;
    return to;
}

/* Opens a stream to the server, which has this certificate, until something is told. */
void meet(const char *host, const struct cert *c, int version)
{
    struct stream_target to = tls_to(host);

    if (!t.ctx)
        tls_server_init(&t, c, version);
    probe_init(&p);
    probe_open(&p, &to);
    tls_server_take(&t, take(server));
    net_pump = tls_pump;
    UNTIL(p.ups + p.downs > 0);
}

void meet_well(const char *host, int version)
{
    meet(host, &good, version);
    if (p.downs)
        fail_msg("%s", p.err.text);
    UNTIL(t.shaken);
}

void part(void)
{
    net_pump = NULL;
    probe_done(&p);
    tls_server_done(&t);
}

void expect_down(int code, const char *text)
{
    UNTIL(p.downs == 1);
    if (p.err.code != code || !strstr(p.err.text, text))
        fail_msg("%s, %s: %s", hf_errname(p.err.code), p.err.where, p.err.text);
    assert_string_equal(p.err.where, "store.example:1");
    for (int i = 0; i < 3; i++)
        net_step();
    assert_int_equal(p.downs, 1);
}

void expect_refusal(const char *host, const struct cert *c, int code, const char *text)
{
    meet(host, c, 0);
    expect_down(code, text);
    assert_int_equal(p.ups, 0);
    part();
}

void talk(const char *host, int version)
{
    meet_well(host, version);
    send_now("ping");
    UNTIL(t.got == 4);
    assert_memory_equal(t.text, "ping", 4);
    tls_server_say(&t, "pong", 4);
    UNTIL(p.got == 4);
    assert_string_equal(p.text, "pong");
    assert_int_equal(p.ups, 1);
    hf__stream_close(&p.s);
    UNTIL(t.closed); /* it was told so, not merely cut off */
    part();
    assert_int_equal(p.downs, 0);
}
