/* setup_redis.c: one Redis server: plain, by unix socket, with TLS, with a user of few
 * rights.
 *
 * Restarting kills with SIGKILL; everything answered was written. Blocking is SIGSTOP: the
 * kernel goes on accepting connections, and nobody answers, which is the harder case for a
 * client than a port where nobody listens. That one is the unusable store.
 */
#include "setup_redis.h"

#include "check.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- shared with the other set-ups ----------------------------------------------- */

struct redis_place *redis_place_new(struct place *p, size_t data)
{
    struct redis_place *r = shared_new(sizeof(*r));

    p->own = r;
    p->pid = 0;
    r->n = r->data = data;
    r->dead_port = port_reserve(&r->dead_fd);
    for (size_t i = 0; i < data; i++) {
        redis_init(&r->servers[i]);
        /* what was written outlives a killed process; how fast the disk is, is not asked */
        redis_config(&r->servers[i], "appendfsync no");
    }
    strcpy(p->dir, r->servers[0].dir);
    return r;
}

void redis_place_stop(struct place *p)
{
    struct redis_place *r = p->own;

    for (size_t i = 0; i < r->n; i++)
        server_remove(&r->servers[i]);
    close(r->dead_fd);
    shared_free(r, sizeof(*r));
}

void redis_place_restart(struct place *p)
{
    struct redis_place *r = p->own;

    for (size_t i = 0; i < r->data; i++)
        server_kill(&r->servers[i]);
    for (size_t i = 0; i < r->data; i++)
        redis_run(&r->servers[i]);
}

void redis_place_block(struct place *p)
{
    struct redis_place *r = p->own;

    for (size_t i = r->n; i-- > 0;) /* who watches first: nobody is to be replaced */
        server_freeze(&r->servers[i]);
}

void redis_place_unblock(struct place *p)
{
    struct redis_place *r = p->own;

    for (size_t i = 0; i < r->n; i++)
        server_continue(&r->servers[i]);
}

/* Of masters: replicas repeat it when they come to it. */
int64_t redis_place_work(struct place *p)
{
    struct redis_place *r = p->own;
    int64_t sum = 0;

    for (size_t i = 0; i < r->data; i++)
        if (strcmp(redis_info(&r->servers[i], "role"), "master") == 0)
            sum += redis_work(&r->servers[i]);
    return sum;
}

/* ---- the set-ups ----------------------------------------------------------------- */

static void plain_start(struct place *p)
{
    struct redis_place *r = redis_place_new(p, 1);

    redis_run(&r->servers[0]);
    snprintf(p->url, sizeof(p->url), "redis://127.0.0.1:%d/0", r->servers[0].port);
}

static void plain_unusable(struct place *p, char *url, size_t size)
{
    struct redis_place *r = p->own;

    snprintf(url, size, "redis://127.0.0.1:%d", r->dead_port);
}

static void unix_start(struct place *p)
{
    struct redis_place *r = redis_place_new(p, 1);

    redis_config(&r->servers[0], "port 0");
    redis_run(&r->servers[0]);
    snprintf(p->url, sizeof(p->url), "redis+unix://%s", r->servers[0].socket);
}

static void unix_unusable(struct place *p, char *url, size_t size)
{
    snprintf(url, size, "redis+unix://%s/nobody", p->dir);
}

static void tls_url(struct place *p, int port, char *url, size_t size)
{
    int n = snprintf(url, size, "rediss://localhost:%d?tls_ca=%s/ca.crt", port, p->dir);

    n += snprintf(url + n, size - (size_t)n, "&tls_cert=%s/client.crt", p->dir);
    n += snprintf(url + n, size - (size_t)n, "&tls_key=%s/client.key", p->dir);
    CHECK(n < (int)size);
}

static void tls_start(struct place *p)
{
    struct redis_place *r = redis_place_new(p, 1);
    struct server *s = &r->servers[0];

    certificates_make(s->dir);
    redis_config(s,
                 "port 0\ntls-port %d\ntls-auth-clients yes\ntls-ca-cert-file ca.crt\n"
                 "tls-cert-file server.crt\ntls-key-file server.key",
                 s->port);
    redis_run(s);
    tls_url(p, s->port, p->url, sizeof(p->url));
}

static void tls_unusable(struct place *p, char *url, size_t size)
{
    struct redis_place *r = p->own;

    tls_url(p, r->dead_port, url, size);
}

/* What the library tells an administrator is all that the user may do; without the newline,
 * malloc'ed. */
static char *locker_rights(const char *url)
{
    static const char line[] = "ACL SETUSER locker ";
    char *text = NULL;

    CHECK_RC(hf_admin_text(url, &text, E()), 0);
    CHECK(strncmp(text, line, sizeof(line) - 1) == 0);
    text[strcspn(text, "\n")] = '\0';
    memmove(text, text + sizeof(line) - 1, strlen(text) - sizeof(line) + 2);
    return text;
}

static void acl_start(struct place *p)
{
    struct redis_place *r = redis_place_new(p, 1);
    struct server *s = &r->servers[0];
    char other[600], *rights, *of_other;

    redis_config(s, "user default off");
    redis_config(s, "user admin on >of-the-test ~* &* +@all");
    snprintf(p->url, sizeof(p->url), "redis://locker:s3cr%%40t@127.0.0.1:%d", s->port);
    snprintf(other, sizeof(other), "%s?namespace=other", p->url); /* namespaces-apart */
    rights = locker_rights(p->url);
    of_other = locker_rights(other);
    redis_config(s, "user locker >s3cr@t %s %s", rights, of_other);
    free(rights);
    free(of_other);
    strcpy(s->login, "admin of-the-test");
    redis_run(s);
}

REDIS_SETUP(setup_redis, "redis", plain_start, redis_place_restart, plain_unusable, 0);
REDIS_SETUP(setup_redis_unix, "redis-unix", unix_start, redis_place_restart, unix_unusable,
            SETUP_TOPOLOGY);
REDIS_SETUP(setup_redis_tls, "redis-tls", tls_start, redis_place_restart, tls_unusable,
            SETUP_TOPOLOGY);
REDIS_SETUP(setup_redis_acl, "redis-acl", acl_start, redis_place_restart, plain_unusable,
            SETUP_TOPOLOGY);
