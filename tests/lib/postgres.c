/* postgres.c: makes, starts, stops and asks PostgreSQL servers.
 *
 * The programs are those that pg_config names, so no package with a service that runs is
 * needed. A killed first process leaves others for a moment, which use the same memory: the
 * next start waits until they are gone. Goes wrong: a server that does not answer in time
 * fails the test, and its log is printed.
 */
#include "postgres.h"

#include "check.h"

#include <dirent.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What was written outlives a killed process; how fast the disk is, is not asked: a folder
 * in memory makes fsync cheap. Statements are counted at once by that library. */
static const char base_config[] = "listen_addresses = '127.0.0.1'\n"
                                  "unix_socket_permissions = 0777\n"
                                  "max_connections = 300\n"
                                  "shared_buffers = 16MB\n"
                                  "dynamic_shared_memory_type = mmap\n"
                                  "max_wal_size = 256MB\n"
                                  "shared_preload_libraries = 'pg_stat_statements'\n"
                                  "pg_stat_statements.save = off\n"
                                  "log_checkpoints = off\n";

static const char *folder_of_programs(void)
{
    static char found[256];
    FILE *f;

    if (found[0])
        return found;
    f = popen("pg_config --bindir 2>/dev/null", "r");
    CHECK(f);
    if (!fgets(found, sizeof(found), f))
        found[0] = 0;
    pclose(f);
    found[strcspn(found, "\n")] = 0;
    if (!found[0])
        check_failed(__FILE__, __LINE__, "no pg_config in PATH: install postgresql");
    return found;
}

static struct passwd *servant(void)
{
    struct passwd *p = getuid() == 0 ? getpwnam("nobody") : NULL;

    CHECK(p || getuid() != 0);
    return p;
}

/* A folder and a port, and a database by one of the server's programs. */
static void make_database(struct server *s, const char *how)
{
    struct passwd *p;
    char command[1024], as[128] = "";

    server_init(s, "postgres");
    p = servant();
    if (p) {
        CHECK(chown(s->dir, p->pw_uid, p->pw_gid) == 0);
        snprintf(as, sizeof(as), "setpriv --reuid=%d --regid=%d --clear-groups",
                 (int)p->pw_uid, (int)p->pw_gid);
    }
    snprintf(command, sizeof(command), "cd '%s' && %s %s/%s --no-sync >made.log 2>&1",
             s->dir, as, folder_of_programs(), how);
    if (system(command) != 0)
        check_failed(__FILE__, __LINE__, "failed: %s", command);
}

static void set_place(struct server *s)
{
    postgres_config(s, "port = %d\nunix_socket_directories = '%s'", s->port, s->dir);
}

void postgres_init(struct server *s)
{
    char path[256];

    make_database(s, "initdb -D data -A trust -U holdfast -E UTF8 --locale=C");
    snprintf(path, sizeof(path), "%s/data", s->dir);
    file_put(path, "postgresql.conf", "a", base_config);
    set_place(s);
}

void postgres_config(struct server *s, const char *line, ...)
{
    char text[2048], path[256];
    va_list ap;
    int n;

    va_start(ap, line);
    n = vsnprintf(text, sizeof(text) - 1, line, ap);
    va_end(ap);
    CHECK(n > 0 && n < (int)sizeof(text) - 1);
    strcpy(text + n, "\n");
    snprintf(path, sizeof(path), "%s/data", s->dir);
    file_put(path, "postgresql.conf", "a", text);
}

/* ---- its processes --------------------------------------------------------------- */

static void spawn(struct server *s)
{
    struct passwd *p = servant();
    char program[300], clock[256], uid[32], gid[32];
    char *plain[] = { program, (char *)"-D", (char *)"data", NULL };
    char *other[] = { (char *)"setpriv",
                      uid,
                      gid,
                      (char *)"--clear-groups",
                      (char *)"--pdeathsig=QUIT",
                      program,
                      (char *)"-D",
                      (char *)"data",
                      NULL };

    snprintf(program, sizeof(program), "%s/postgres", folder_of_programs());
    if (p) {
        snprintf(clock, sizeof(clock), "%s/clock", s->dir);
        CHECK(!s->clock || chown(clock, p->pw_uid, p->pw_gid) == 0);
        snprintf(uid, sizeof(uid), "--reuid=%d", (int)p->pw_uid);
        snprintf(gid, sizeof(gid), "--regid=%d", (int)p->pw_gid);
    }
    server_spawn(s, p ? "/usr/bin/setpriv" : program, p ? other : plain);
}

/* NULL: nobody there. */
static PGconn *enter(struct server *s)
{
    char info[512];
    PGconn *c;

    snprintf(info, sizeof(info),
             "host=%s port=%d user=holdfast dbname=postgres connect_timeout=%d"
             " application_name=test options='-c statement_timeout=0 -c lock_timeout=0"
             " -c default_transaction_read_only=off'",
             s->dir, s->port, (int)(LIMIT_MS / 1000));
    c = PQconnectdb(info);
    CHECK(c);
    if (PQstatus(c) == CONNECTION_OK)
        return c;
    PQfinish(c);
    return NULL;
}

static bool answers(struct server *s)
{
    PGconn *c;
    int status;

    if (s->parent == getpid() && waitpid(s->pid, &status, WNOHANG) == s->pid)
        spawn(s); /* others of before used its memory */
    c = enter(s);
    PQfinish(c);
    return c != NULL;
}

void postgres_run(struct server *s)
{
    spawn(s);
    AWAIT(answers(s));
    postgres_do(s, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
}

void postgres_start(struct server *s)
{
    postgres_init(s);
    postgres_run(s);
}

void postgres_replica(struct server *s, struct server *of)
{
    char how[512];

    snprintf(how, sizeof(how), "pg_basebackup -D data -R -c fast -h %s -p %d -U holdfast",
             of->dir, of->port);
    make_database(s, how);
    set_place(s);
    spawn(s);
    AWAIT(answers(s));
    AWAIT(postgres_number(of, "SELECT count(*) FROM pg_stat_replication WHERE state = "
                              "'streaming'") == 1);
}

void postgres_promote(struct server *s)
{
    postgres_do(s, "SELECT pg_promote()");
    AWAIT(postgres_number(s, "SELECT pg_is_in_recovery()::int") == 0);
}

static int parent_of(int pid, char *state)
{
    char path[64], text[512], *end;
    int parent = -1;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "r");
    if (!f)
        return -1;
    if (fgets(text, sizeof(text), f) && (end = strrchr(text, ')')) != NULL &&
        sscanf(end + 1, " %c %d", state, &parent) != 2)
        parent = -1;
    fclose(f);
    return parent;
}

/* Sends it to each; returns how many were in none of these states before. */
static int signal_children(const struct server *s, int number, const char *states)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int n = 0;

    CHECK(d);
    while ((e = readdir(d)) != NULL) {
        int pid = atoi(e->d_name);
        char state = 0;

        if (pid <= 0 || parent_of(pid, &state) != s->pid)
            continue;
        n += !strchr(states, state);
        kill(pid, number);
    }
    closedir(d);
    return n;
}

void postgres_freeze(struct server *s)
{
    server_freeze(s);
    AWAIT(signal_children(s, SIGSTOP, "TZ") == 0);
}

void postgres_continue(struct server *s)
{
    server_continue(s);
    signal_children(s, SIGCONT, "");
}

/* The first one is stopped before, or it would start others in their place. Its number may
 * stay in use until its parent has taken notice of its end: the next one is not to wait for
 * that. */
void postgres_kill(struct server *s)
{
    char path[256];

    if (!server_runs(s))
        return;
    postgres_freeze(s);
    AWAIT(signal_children(s, SIGKILL, "Z") == 0);
    server_kill(s);
    snprintf(path, sizeof(path), "%s/data/postmaster.pid", s->dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/.s.PGSQL.%d.lock", s->dir, s->port);
    unlink(path);
}

/* SIGQUIT ends it at once, and it gives its shared memory back to the system. */
void postgres_remove(struct server *s)
{
    if (server_runs(s)) {
        postgres_continue(s);
        kill(s->pid, SIGQUIT);
        AWAIT(!server_runs(s));
    }
    server_remove(s);
}

/* ---- asking ---------------------------------------------------------------------- */

static int64_t __attribute__((format(printf, 2, 0)))
ask(struct server *s, const char *fmt, va_list ap)
{
    PGconn *c = enter(s);
    static char text[1 << 16];
    PGresult *r;
    int64_t number = 0;

    if (!c)
        check_failed(__FILE__, __LINE__, "the server on port %d is not there", s->port);
    CHECK(vsnprintf(text, sizeof(text), fmt, ap) < (int)sizeof(text));
    r = PQexec(c, text);
    if (PQresultStatus(r) != PGRES_TUPLES_OK && PQresultStatus(r) != PGRES_COMMAND_OK)
        check_failed(__FILE__, __LINE__, "%s: %s", text, PQerrorMessage(c));
    if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) > 0 && PQnfields(r) > 0)
        number = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    PQfinish(c);
    return number;
}

void postgres_do(struct server *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ask(s, fmt, ap);
    va_end(ap);
}

int64_t postgres_number(struct server *s, const char *fmt, ...)
{
    int64_t number;
    va_list ap;

    va_start(ap, fmt);
    number = ask(s, fmt, ap);
    va_end(ap);
    return number;
}

int64_t postgres_work(struct server *s)
{
    return postgres_number(s, "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements"
                              " WHERE query NOT LIKE '%%pg_stat_statements%%'");
}
