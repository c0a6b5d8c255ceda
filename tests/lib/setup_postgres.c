/* setup_postgres.c: one PostgreSQL server, in the clear. Its schema is there from the
 * start, as an administrator makes it: clients that make it themselves are a matter of the
 * fault tests.
 *
 * Restarting kills all its processes with SIGKILL: what was answered is recovered. Blocking
 * is SIGSTOP of all of them: the kernel goes on accepting connections, and nobody answers.
 */
#include "check.h"
#include "postgres.h"
#include "setup.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct postgres_place {
    struct server server;
    int dead_port, dead_fd; /* where nobody listens */
};

static struct server *server_of(struct place *p)
{
    return &((struct postgres_place *)p->own)->server;
}

static void start(struct place *p)
{
    struct postgres_place *own = shared_new(sizeof(*own));
    char *text = NULL;

    p->own = own;
    p->pid = 0;
    own->dead_port = port_reserve(&own->dead_fd);
    postgres_start(&own->server);
    strcpy(p->dir, own->server.dir);
    snprintf(p->url, sizeof(p->url), "postgres://holdfast@127.0.0.1:%d/postgres",
             own->server.port);
    CHECK_RC(hf_admin_text(p->url, &text, E()), 0);
    postgres_do(&own->server, "%s", text);
    free(text);
}

static void optimistic_start(struct place *p)
{
    start(p);
    strcat(p->url, "?mode=optimistic");
}

static void pessimistic_start(struct place *p)
{
    start(p);
    strcat(p->url, "?mode=pessimistic");
}

static void advisory_start(struct place *p)
{
    start(p);
    strcat(p->url, "?mode=advisory");
}

static void stop(struct place *p)
{
    struct postgres_place *own = p->own;

    postgres_remove(&own->server);
    close(own->dead_fd);
    shared_free(own, sizeof(*own));
}

static void restart(struct place *p)
{
    postgres_kill(server_of(p));
    postgres_run(server_of(p));
}

static void block(struct place *p)
{
    postgres_freeze(server_of(p));
}

static void unblock(struct place *p)
{
    postgres_continue(server_of(p));
}

static void unusable(struct place *p, char *url, size_t size)
{
    struct postgres_place *own = p->own;

    snprintf(url, size, "postgres://holdfast@127.0.0.1:%d/postgres", own->dead_port);
}

static int64_t work(struct place *p)
{
    return postgres_work(server_of(p));
}

#define POSTGRES_SETUP(var, title, begin, can, trait)                                      \
    const struct setup var = {                                                             \
        .name = title,                                                                     \
        .caps = can,                                                                       \
        .traits = trait,                                                                   \
        .start = begin,                                                                    \
        .stop = stop,                                                                      \
        .restart = restart,                                                                \
        .block = block,                                                                    \
        .unblock = unblock,                                                                \
        .unusable = unusable,                                                              \
        .work = work,                                                                      \
    }

POSTGRES_SETUP(setup_postgres, "postgres", start,
               HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE | HF_CAP_SHARED |
                   HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_KEEP | HF_CAP_CELL |
                   HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
               0);
POSTGRES_SETUP(setup_postgres_optimistic, "postgres-optimistic", optimistic_start,
               HF_CAP_DEADLINE | HF_CAP_FENCE | HF_CAP_CELL | HF_CAP_CELL_EXPIRY |
                   HF_CAP_TTL,
               SETUP_TOPOLOGY);
POSTGRES_SETUP(setup_postgres_pessimistic, "postgres-pessimistic", pessimistic_start,
               HF_CAP_FENCE | HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
               SETUP_TOPOLOGY | SETUP_SEES_DEATH);
POSTGRES_SETUP(setup_postgres_advisory, "postgres-advisory", advisory_start,
               HF_CAP_SHARED | HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
               SETUP_TOPOLOGY | SETUP_SEES_DEATH);
