/* zookeeper_run.c: `holdfast run` on servers that give less than the ttl that was asked
 * for: its grace and its margins fit the ttl that was given, and a healthy command is left
 * alone. */
#include "zookeeper_fault.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void use_limits(const char *limits, const char *tail)
{
    struct server *s;

    servers = zk_place_new(rig.place, 1);
    s = &servers->servers[0];
    zk_config(s, "clientPort=%d\n%s", s->port, limits);
    zk_start_all(servers);
    zk_url(servers, rig.place->url, sizeof(rig.place->url), tail);
}

/* The exit status of `holdfast run` with these words. */
static int run(const char *words)
{
    char command[1024];
    int status, n = snprintf(command, sizeof(command), "exec '%s' -u '%s' run %s", HOLDFAST,
                             rig.place->url, words);

    CHECK(n < (int)sizeof(command));
    status = system(command);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void ttl_is(int64_t ms)
{
    hf_client *c = opened();
    hf_lease *l = taken(c, nm("n"), NULL);

    CHECK_NUM(hf_lease_ttl_ms(l), ==, ms);
    given(l);
    closed(c);
}

/* The rest of a session's time goes down to half of it between two proofs of life: longer
 * than that is enough to see a grace that does not fit. */
static void session_cut(void)
{
    use_limits("maxSessionTimeout=10000", "/run");
    ttl_is(10000);
    CHECK_NUM(run("x -- sleep 8"), ==, 0);
    CHECK_NUM(run("--grace 3s x -- sleep 8"), ==, 0);
    done();
}

static void short_ticks(void)
{
    use_limits("tickTime=300", "/run");
    ttl_is(6000);
    CHECK_NUM(run("x -- sleep 5"), ==, 0);
    done();
}

/* A grace that was asked for is not cut behind the back of who asked: the command does not
 * start, and nothing is held. */
static void grace_refused(void)
{
    char words[512], started[300];
    hf_client *c;

    use_limits("maxSessionTimeout=10000", "/run?ttl=2h");
    snprintf(started, sizeof(started), "%s/started", rig.place->dir);
    snprintf(words, sizeof(words), "--grace 60s %s -- touch '%s'", nm("n"), started);
    CHECK_NUM(run(words), ==, 78);
    CHECK(access(started, F_OK) < 0);
    c = opened();
    given(taken(c, nm("n"), NULL));
    closed(c);
    done();
}

const struct test_case run_cases_of_zookeeper[] = {
    { "session_cut", session_cut, ON_BLOCKING, 0, 0 },
    { "short_ticks", short_ticks, ON_BLOCKING, 0, 0 },
    { "grace_refused", grace_refused, ON_BLOCKING, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
