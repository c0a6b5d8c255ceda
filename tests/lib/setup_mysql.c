/* setup_mysql.c: one MariaDB server, in the clear. Its schema is there from the start, as
 * an administrator makes it: clients that make it themselves are a matter of the fault
 * tests.
 *
 * Restarting is SIGKILL: what was answered is recovered. Blocking is SIGSTOP: the kernel
 * goes on accepting connections, and nobody answers. */
#include "check.h"
#include "mariadb.h"
#include "setup.h"

#include <holdfast/tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mysql_place {
    struct server server;
    int dead_port, dead_fd; /* where nobody listens */
};

static struct server *server_of(struct place *p)
{
    return &((struct mysql_place *)p->own)->server;
}

static void start(struct place *p)
{
    struct mysql_place *own = shared_new(sizeof(*own));
    char *text = NULL;

    p->own = own;
    p->pid = 0;
    own->dead_port = port_reserve(&own->dead_fd);
    mariadb_begin(&own->server);
    strcpy(p->dir, own->server.dir);
    snprintf(p->url, sizeof(p->url), "mysql://holdfast@127.0.0.1:%d/holdfast",
             own->server.port);
    CHECK_RC(hf_admin_text(p->url, &text, E()), 0);
    mariadb_script(&own->server, text);
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

static void named_start(struct place *p)
{
    start(p);
    strcat(p->url, "?mode=named");
}

static void fast_start(struct place *p)
{
    start(p);
    strcat(p->url, "?crash=fast");
}

static void stop(struct place *p)
{
    struct mysql_place *own = p->own;

    server_remove(&own->server);
    close(own->dead_fd);
    shared_free(own, sizeof(*own));
}

static void restart(struct place *p)
{
    server_kill(server_of(p));
    mariadb_run(server_of(p));
}

static void block(struct place *p)
{
    server_freeze(server_of(p));
}

static void unblock(struct place *p)
{
    server_continue(server_of(p));
}

static void unusable(struct place *p, char *url, size_t size)
{
    struct mysql_place *own = p->own;

    snprintf(url, size, "mysql://holdfast@127.0.0.1:%d/holdfast", own->dead_port);
}

static int64_t work(struct place *p)
{
    return mariadb_work(server_of(p));
}

#define MYSQL_SETUP(var, title, begin, can, trait)                                         \
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
        .waiters = 2000, /* each is a transaction of its own, one after the other */       \
    }

MYSQL_SETUP(setup_mysql, "mysql", start,
            HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE | HF_CAP_SHARED |
                HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_KEEP | HF_CAP_CELL |
                HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
            0);
MYSQL_SETUP(setup_mysql_fast, "mysql-fast", fast_start,
            HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE | HF_CAP_SHARED | HF_CAP_PERMITS |
                HF_CAP_LINE | HF_CAP_KEEP | HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
            SETUP_TOPOLOGY | SETUP_SEES_DEATH | SETUP_DEATH_SOON);
MYSQL_SETUP(setup_mysql_optimistic, "mysql-optimistic", optimistic_start,
            HF_CAP_DEADLINE | HF_CAP_FENCE | HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
            SETUP_TOPOLOGY);
MYSQL_SETUP(setup_mysql_pessimistic, "mysql-pessimistic", pessimistic_start,
            HF_CAP_FENCE | HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
            SETUP_TOPOLOGY | SETUP_SEES_DEATH);
MYSQL_SETUP(setup_mysql_named, "mysql-named", named_start,
            HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL,
            SETUP_TOPOLOGY | SETUP_SEES_DEATH);
