/* test_net_tls_trust.c: which certificates are trusted and shown, which protocols are
 * agreed upon, which files are read. Every case that must be refused has one beside it that
 * must not. */
#include "net_tls_harness.h"

#include <openssl/err.h>
#include <unistd.h>

/* ---- whom we trust --------------------------------------------------------------- */

static void a_certificate_for_another_name_is_refused(void **state)
{
    struct cert wrong;

    (void)state;
    cert_make(&wrong, net_folder(), "wrong", &authority,
              "DNS:elsewhere.example,IP:127.0.0.9", 30);
    expect_refusal("localhost", &wrong, HF_EAUTH,
                   "the certificate for localhost is refused: it is for another host name");
    expect_refusal("127.0.0.1", &wrong, HF_EAUTH, "it is for another address");
    cert_free(&wrong);
}

static void an_expired_certificate_is_refused(void **state)
{
    struct cert old;

    (void)state;
    cert_make(&old, net_folder(), "old", &authority, "DNS:localhost", -1);
    expect_refusal("localhost", &old, HF_EAUTH, "certificate has expired");
    cert_free(&old);
}

static void an_unknown_authority_is_refused(void **state)
{
    struct cert stranger, alone;

    (void)state;
    cert_make(&stranger, net_folder(), "stranger", &other_authority, "DNS:localhost", 30);
    expect_refusal("localhost", &stranger, HF_EAUTH, "unknown authority (tls_ca=");
    cert_make(&alone, net_folder(), "alone", NULL, "DNS:localhost", 30);
    expect_refusal("localhost", &alone, HF_EAUTH,
                   "not among the authorities we trust (tls_ca=");
    cert_free(&stranger);
    cert_free(&alone);
}

static void the_systems_authorities_do_not_know_ours(void **state)
{
    (void)state;
    hf__tls.context_free(context);
    context = make_context(NULL, NULL, NULL);
    expect_refusal("localhost", &good, HF_EAUTH, "signed by an unknown authority");
}

static void a_folder_of_authorities_is_read(void **state)
{
    (void)state;
    hf__tls.context_free(context);
    context = make_context(net_folder(), NULL, NULL);
    talk("localhost", 0);
}

/* ---- who we are ------------------------------------------------------------------ */

static void want_client(int version)
{
    tls_server_init(&t, &good, version);
    tls_server_want_client(&t, &authority);
}

static void a_client_certificate_is_shown(void **state)
{
    struct cert mine;
    char both[160], line[512];
    FILE *f, *from;

    (void)state;
    cert_make(&mine, net_folder(), "mine", &authority, "DNS:client", 30);
    hf__tls.context_free(context);
    context = make_context(authority.file, mine.file, mine.key_file);
    want_client(TLS1_3_VERSION);
    talk("localhost", 0);
    want_client(TLS1_2_VERSION);
    talk("localhost", 0);
    hf__tls.context_free(context);
    snprintf(both, sizeof both, "%s/both", net_folder());
    f = fopen(both, "w");
    for (int i = 0; i < 2; i++) {
        from = fopen(i == 0 ? mine.file : mine.key_file, "r");
        while (fgets(line, sizeof line, from))
            fputs(line, f);
        fclose(from);
    }
    fclose(f);
    context = make_context(authority.file, both, NULL);
    want_client(0);
    talk("localhost", 0);
    cert_free(&mine);
}

static void a_missing_client_certificate_is_named(void **state)
{
    (void)state;
    want_client(TLS1_2_VERSION);
    meet("localhost", &good, 0);
    expect_down(HF_EAUTH, "the peer requires a client certificate");
    part();
    want_client(TLS1_3_VERSION);
    meet("localhost", &good, 0); /* here we are up before the server has seen it */
    if (p.downs == 0)
        send_now("ping");
    expect_down(HF_EAUTH, "the peer requires a client certificate");
    part();
}

/* The server has refused us, said so and closed, while we are sending. */
static void a_refusal_is_heard_after_a_failed_send(void **state)
{
    (void)state;
    want_client(TLS1_3_VERSION);
    meet("localhost", &good, 0);
    net_pump = NULL;
    assert_int_equal(p.ups, 1);
    while (!t.failed)
        tls_server_step(&t);
    close(t.fd);
    t.fd = -1;
    for (int i = 0; i < 100 && !p.s.broken; i++)
        send_now("ping");
    assert_true(p.s.broken);
    expect_down(HF_EAUTH, "the peer requires a client certificate");
    part();
}

static void a_name_that_no_certificate_can_have_is_refused(void **state)
{
    char name[300];

    (void)state;
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    net_name(name, "127.0.0.1", 0, false);
    meet(name, &good, 0);
    expect_down(HF_EAUTH, "no certificate can be for xxx");
    part();
}

static void a_client_certificate_that_is_not_wanted_is_told(void **state)
{
    struct cert mine;

    (void)state;
    cert_make(&mine, net_folder(), "mine", &other_authority, "DNS:client", 30);
    hf__tls.context_free(context);
    context = make_context(authority.file, mine.file, mine.key_file);
    want_client(0);
    meet("localhost", &good, 0);
    expect_down(HF_EAUTH, "the peer refused us: unknown ca");
    part();
    cert_free(&mine);
}

/* ---- protocols ------------------------------------------------------------------- */

static void ask_for(const char *protocol)
{
    struct tls_config config = { .ca = authority.file, .alpn = protocol };

    hf__tls.context_free(context);
    context = NULL;
    assert_int_equal(hf__tls.context_new(&context, &config, NULL), 0);
}

static void a_protocol_is_agreed_upon(void **state)
{
    static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };

    (void)state;
    ask_for("h2");
    for (size_t i = 0; i < 2; i++) {
        tls_server_init(&t, &good, versions[i]);
        tls_server_speaks(&t, "h2");
        talk("localhost", 0);
    }
    ask_for(NULL); /* nobody asks: whatever the server speaks */
    tls_server_init(&t, &good, 0);
    tls_server_speaks(&t, "h2");
    talk("localhost", 0);
}

/* One that says no, and one that knows nothing of it and goes on. */
static void another_protocol_is_refused(void **state)
{
    static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };

    (void)state;
    ask_for("h2");
    for (size_t i = 0; i < 4; i++) {
        tls_server_init(&t, &good, versions[i % 2]);
        if (i < 2)
            tls_server_speaks(&t, "http/1.1");
        meet("localhost", &good, 0);
        expect_down(HF_EPROTO, "the peer does not agree to the protocol h2");
        assert_int_equal(p.ups, 0);
        part();
    }
}

/* ---- files ----------------------------------------------------------------------- */

static void refuse_context(const char *ca, const char *cert, const char *key,
                           const char *text)
{
    struct tls_config config = { .ca = ca, .cert = cert, .key = key };
    struct tls_context *made = NULL;
    hf_error err = { 0 };
    int rc = hf__tls.context_new(&made, &config, &err);

    assert_null(made);
    if (rc != HF_EINVAL || err.code != rc || !strstr(err.text, text))
        fail_msg("%s: %s", hf_errname(rc), err.text);
    assert_int_equal(ERR_peek_error(), 0);
}

static void files_that_are_not_right_are_named(void **state)
{
    char locked[160], absent[160];

    (void)state;
    snprintf(locked, sizeof locked, "%s/locked", net_folder());
    snprintf(absent, sizeof absent, "%s/absent", net_folder());
    cert_lock_key(&good, locked);
    refuse_context(absent, NULL, NULL, "absent: No such file");
    refuse_context(authority.key_file, NULL, NULL, "no certificate in ");
    refuse_context(authority.file, absent, NULL, "cannot read the certificate ");
    refuse_context(authority.file, good.key_file, NULL, "no certificate in ");
    refuse_context(authority.file, good.file, absent, "cannot read the key ");
    refuse_context(authority.file, good.file, authority.key_file, "no key for ");
    refuse_context(authority.file, good.file, NULL, "no key for ");
    refuse_context(authority.file, good.file, locked, "has a passphrase");
    refuse_context(authority.file, NULL, good.key_file, "a key without its certificate");
    hf__tls.context_free(NULL);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_certificate_for_another_name_is_refused),
        CASE(an_expired_certificate_is_refused),
        CASE(an_unknown_authority_is_refused),
        CASE(the_systems_authorities_do_not_know_ours),
        CASE(a_folder_of_authorities_is_read),
        CASE(a_client_certificate_is_shown),
        CASE(a_missing_client_certificate_is_named),
        CASE(a_refusal_is_heard_after_a_failed_send),
        CASE(a_name_that_no_certificate_can_have_is_refused),
        CASE(a_client_certificate_that_is_not_wanted_is_told),
        CASE(a_protocol_is_agreed_upon),
        CASE(another_protocol_is_refused),
        CASE(files_that_are_not_right_are_named),
    };

    return cmocka_run_group_tests_name("net-tls-trust", cases, NULL, NULL);
}
