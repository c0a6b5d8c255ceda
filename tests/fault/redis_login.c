/* redis_login.c: passwords of servers and of sentinels, in URLs and in files, and passwords
 * that are changed while they are in use.
 */
#include "redis_fault.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DOWN_MS = 1500, FAILOVER_TTL_MS = 12000 };

static char file[300]; /* of a password */

/* As mounted secrets change: a new file, and a link that is switched. */
static void put_password(const char *dir, const char *password)
{
    static int number;
    char name[64], path[300], link[300], text[128];

    snprintf(name, sizeof(name), "password.%d", ++number);
    snprintf(text, sizeof(text), "%s\n", password);
    file_put(dir, name, "w", text);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    CHECK(chmod(path, 0400) == 0);
    snprintf(link, sizeof(link), "%s/link.%d", dir, number);
    CHECK(symlink(name, link) == 0);
    snprintf(file, sizeof(file), "%s/password", dir);
    CHECK(rename(link, file) == 0);
}

static void is_refused_without(const char *url, const char *secret)
{
    hf_client *c = opened_at(url, NULL);
    hf_lease *none = NULL;

    CHECK_RC(rig.face->acquire(c, nm("n"), HF_FOREVER, NULL, &none, E()), HF_EAUTH);
    CHECK(!none && !strstr(last_error()->text, secret) &&
          !strstr(last_error()->where, secret));
    closed(c);
}

static void is_invalid(const char *url, int code, const char *word)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(url, NULL, &c, E()), code);
    CHECK(!c && strstr(last_error()->text, word));
}

/* ---- sentinels ------------------------------------------------------------------- */

static void sentinel_password(void)
{
    char plain[400], url[900];
    struct redis_place *many;
    struct server *old;
    struct two t;

    redis_sentinel_start_with(rig.place, DOWN_MS, "Watchs3cret");
    many = rig.place->own;
    snprintf(plain, sizeof(plain), "%.399s", rig.place->url);
    is_refused_without(plain, "s3cret");
    snprintf(url, sizeof(url), "%s?sentinel_password=Wrongs3cret", plain);
    is_refused_without(url, "s3cret");
    snprintf(url, sizeof(url), "%s?sentinel_user=nobody&sentinel_password=Wrongs3cret",
             plain);
    is_refused_without(url, "s3cret");
    snprintf(url, sizeof(url), "%s?sentinel_user=nobody", plain);
    is_invalid(url, HF_EINVAL, "user");
    put_password(many->servers[0].dir, "Watchs3cret");
    snprintf(url, sizeof(url), "%s?sentinel_user=default&sentinel_password_file=%s", plain,
             file);
    closed(opened_at(url, NULL));
    /* one of them refuses us: the others are asked */
    redis_do(&many->servers[many->data], "ACL SETUSER default resetpass >another");
    strcpy(many->servers[many->data].login, "default another");
    for (int i = 0; i < 5; i++) {
        hf_client *c = opened_at(url, NULL);

        given(taken(c, nm("n"), NULL));
        closed(c);
    }
    snprintf(rig.place->url, sizeof(rig.place->url), "%s?sentinel_password=Watchs3cret",
             plain);
    t = hold_and_wait(FAILOVER_TTL_MS);
    old = redis_sentinel_master(many);
    redis_replicated(many, old);
    server_kill(old);
    two_renewed(&t);
    two_go_on(&t);
    redis_place_stop(rig.place);
}

/* ---- a password that is changed -------------------------------------------------- */

static void use_password(const char *password)
{
    redis_init(&server);
    redis_config(&server, "requirepass %s", password);
    snprintf(server.login, sizeof(server.login), "default %s", password);
    redis_run(&server);
    put_password(server.dir, password);
    snprintf(rig.place->url, sizeof(rig.place->url),
             "redis://127.0.0.1:%d?password_file=%s", server.port, file);
}

static void throw_out(void)
{
    redis_do(&server, "CLIENT KILL TYPE pubsub");
    redis_do(&server, "CLIENT KILL TYPE normal");
}

static int64_t refusals(void)
{
    return redis_errors(&server, "WRONGPASS");
}

/* The server has the new one first; everybody waits until the file has it too. */
static void password_file_changes(void)
{
    struct two t;
    int64_t before;

    use_password("Olds3cret");
    t = hold_and_wait(FAILOVER_TTL_MS);
    redis_do(&server, "CONFIG SET requirepass News3cret");
    strcpy(server.login, "default News3cret");
    before = refusals();
    throw_out();
    AWAIT(refusals() >= before + 6);
    CHECK_RC(hf_lease_check(t.held), 0);
    CHECK(!pend_done(t.waits));
    is_refused_without(rig.place->url, "s3cret"); /* whoever comes now */
    put_password(server.dir, "News3cret");
    two_renewed(&t);
    two_go_on(&t);
    done();
}

/* It is missing for a moment, and nobody is lost. */
static void password_file_missing(void)
{
    struct two t;

    use_password("s3cret");
    t = hold_and_wait(FAILOVER_TTL_MS);
    CHECK(unlink(file) == 0);
    throw_out();
    STAYS(hf_lease_check(t.held) == 0 && !pend_done(t.waits), 1000);
    put_password(server.dir, "s3cret");
    two_renewed(&t);
    two_go_on(&t);
    done();
}

static void password_file_refused(void)
{
    char url[600];

    use_password("s3cret");
    CHECK(chmod(file, 0444) == 0);
    is_invalid(rig.place->url, HF_EAUTH, "everybody may read it");
    CHECK(chmod(file, 0420) == 0);
    is_invalid(rig.place->url, HF_EAUTH, "others may write it");
    CHECK(chmod(file, 0440) == 0);
    closed(opened());
    snprintf(url, sizeof(url), "%s&sentinel_password=x", rig.place->url);
    is_invalid(url, HF_EINVAL, "sentinel_password");
    snprintf(url, sizeof(url), "redis://:s3cret@127.0.0.1:%d?password_file=%s", server.port,
             file);
    is_invalid(url, HF_EINVAL, "password");
    snprintf(url, sizeof(url), "redis://jobs@127.0.0.1:%d", server.port);
    is_invalid(url, HF_EINVAL, "user without a password");
    CHECK(unlink(file) == 0);
    is_invalid(rig.place->url, HF_EAUTH, "No such file");
    done();
}

const struct test_case redis_login_cases[] = {
    { "sentinel-password", sentinel_password, ON_ALL, 0, CASE_LONG },
    { "password-file-changes", password_file_changes, ON_ALL, 0, 0 },
    { "password-file-missing", password_file_missing, ON_ALL, 0, 0 },
    { "password-file-refused", password_file_refused, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
