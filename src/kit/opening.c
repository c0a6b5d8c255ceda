/* opening.c: reading what all networked stores have in their URLs. Nothing is connected
 * here. Goes wrong: a parameter that nobody knows, tls_* with a scheme without TLS, a
 * certificate or a password that cannot be read, no memory. Secrets are overwritten before
 * their memory is given back. */
#include "kit/opening.h"
#include "net/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int no_memory(hf_error *err)
{
    return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a store");
}

static int check_params(const struct url *url, const struct opening_rules *rules,
                        hf_error *err)
{
    char known[2048];

    snprintf(known, sizeof known, "%s tls_ca tls_cert tls_key", rules->params);
    return hf__url_known(url, known, err);
}

static int read_tls(struct opening *o, const struct url *url, struct env *env,
                    const struct opening_rules *rules, hf_error *err)
{
    const struct tls_config config = { .ca = hf__url_param(url, "tls_ca"),
                                       .cert = hf__url_param(url, "tls_cert"),
                                       .key = hf__url_param(url, "tls_key"),
                                       .alpn = rules->alpn };
    int rc;

    if (!rules->tls) {
        if (config.ca || config.cert || config.key)
            return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: tls_* needs %s",
                            rules->tls_schemes);
        return 0;
    }
    rc = env->tls(env, &o->tls, err);
    if (rc == 0)
        rc = o->tls->context_new(&o->tls_context, &config, err);
    return rc;
}

static void shuffle(struct opening *o, struct env *env)
{
    for (size_t i = o->nhosts; i > 1; i--) {
        struct opening_host swap = o->hosts[i - 1];
        uint32_t dice;

        env->random(env, &dice, sizeof dice);
        o->hosts[i - 1] = o->hosts[dice % i];
        o->hosts[dice % i] = swap;
    }
}

static int read_hosts(struct opening *o, const struct url *url,
                      const struct opening_rules *rules, hf_error *err)
{
    uint16_t port = rules->tls && rules->tls_port ? rules->tls_port : rules->port;

    if (url->nhosts == 0)
        return 0;
    o->hosts = calloc(url->nhosts, sizeof *o->hosts);
    for (size_t i = 0; o->hosts && i < url->nhosts; i++) {
        struct opening_host *h = &o->hosts[i];

        h->host = strdup(url->hosts[i].host);
        h->port = url->hosts[i].port ? url->hosts[i].port : port;
        if (!h->host)
            break;
        snprintf(h->shown, sizeof h->shown, strchr(h->host, ':') ? "[%s]:%u" : "%s:%u",
                 h->host, (unsigned)h->port);
        o->nhosts++;
    }
    return o->nhosts < url->nhosts ? no_memory(err) : 0;
}

static int read_login(struct opening *o, const struct url *url, hf_error *err)
{
    o->shown = strdup(url->shown);
    if (!o->shown)
        return no_memory(err);
    return hf__login_init(&o->login, url->user, url->password,
                          hf__url_param(url, "password_file"), url->shown, err);
}

int hf__opening_read(struct opening *o, const struct url *url, struct env *env,
                     const struct opening_rules *rules, hf_error *err)
{
    int rc = check_params(url, rules, err);

    o->connect_ms = url->connect_ms;
    gethostname(o->host, sizeof o->host - 1);
    o->pid = getpid();
    if (rc == 0)
        rc = read_login(o, url, err);
    if (rc == 0)
        rc = read_hosts(o, url, rules, err);
    if (rc == 0 && rules->shuffle)
        shuffle(o, env);
    if (rc == 0)
        rc = read_tls(o, url, env, rules, err);
    return rc;
}

void hf__opening_done(struct opening *o)
{
    if (o->tls)
        o->tls->context_free(o->tls_context);
    hf__login_done(&o->login);
    for (size_t i = 0; i < o->nhosts; i++)
        free(o->hosts[i].host);
    free(o->hosts);
    free(o->shown);
    memset(o, 0, sizeof *o);
}

int hf__mismatch(hf_error *err, const char *where, const char *name, enum line_kind kind,
                 int64_t capacity)
{
    if (kind == LINE_PERMITS)
        return hf__fail(err, HF_EMISMATCH, 0, where, "'%s' is in use with %lld permits",
                        name, (long long)capacity);
    return hf__fail(err, HF_EMISMATCH, 0, where, "'%s' is in use as a lock", name);
}
