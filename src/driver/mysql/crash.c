/* crash.c: crash=fast: the place of a holder whose session is gone does not last until its
 * expiry. schema.sql has the server's half.
 *
 * The session is that of the commands connection. It owns the user lock hf_s_CLIENT from
 * its greeting until the server has ended it, and no other session can own it meanwhile.
 *
 *   S(t)  the session that is written in the ticket t; 0: none, it ends by its ttl; -1: one
 *         that was found gone
 *   C     the session that our connection has; none: it is down
 *
 *   waits      S(t) = C at the time of the join, or of the last wait
 *   holds      S(t) = C or 0, and we know it from an answer to join or wait in C
 *   orphaned   hf_s_CLIENT is not S(t)'s: somebody writes -1, and it ends in 300 ms
 *   lost       told here, when the connection goes down; the core leaves, by token
 *
 * Invariant: while we believe to hold t, and C is up, S(t) is C or 0. So it is not orphaned
 * for as long as the server lets C live. What may go wrong, step by step:
 *
 *   C does not get hf_s_CLIENT (the session before it is still there): S(t) = 0.
 *   C ends before the answer to a join or wait: there is none. The ticket is orphaned, or
 *     was not made; nobody believes to hold it.
 *   C ends after it: the server shuts the socket before it frees the lock, so we can know
 *     it at least 300 ms before another is let in. Whoever drives the client tells the
 *     holder at once (HF_DRIVE_PROMPT, callbacks; else the next timer does). If the news is
 *     lost on its way the holder learns it late: this is why such a client has no
 *     HF_CAP_DEADLINE.
 *   C ends while t waits: another grants it with the old S(t). We are not told "g", only to
 *     look, and a wait in the new session finds it gone, or writes the new S(t).
 *   A request of the session before is executed late: it was ended before C got the lock.
 *     If C did not get it, the old session lives, and S(t) of its tickets is true.
 *   The server is restarted: no session is there, all user locks are free: orphaned. Our
 *     connection has ended before.
 *   We are stopped (SIGSTOP): the session lives; the ticket ends by its ttl.
 *   We fork, and die: the child has a copy of the socket, which would keep the session
 *     alive (G12). So the sockets of these clients are in a list, and a handler of
 *     pthread_atfork closes the copies in the child. */
#include "driver/mysql/mysql.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { JOIN_FAST = 4 };

/* ---- fork ------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list clients = { &clients, &clients }; /* mysql.fast_node */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* The number stays taken, by nothing: the library has it. */
static void in_child(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    list_for(n, &clients) {
        int fd = container_of(n, struct mysql, fast_node)->fast_fd;

        if (fd >= 0 && (null < 0 || dup3(null, fd, O_CLOEXEC) < 0))
            close(fd);
    }
    if (null >= 0)
        close(null);
    pthread_mutex_unlock(&lock);
}

static void handle_fork(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

static void set_fd(struct mysql *m, int fd)
{
    if (!m->fast)
        return;
    pthread_mutex_lock(&lock);
    m->fast_fd = fd;
    pthread_mutex_unlock(&lock);
}

void hf__mysql_fast_up(struct mysql *m)
{
    set_fd(m, (int)mysql_get_socket(m->commands.my));
}

void hf__mysql_fast_down(struct mysql *m)
{
    set_fd(m, -1);
}

void hf__mysql_fast_done(struct mysql *m)
{
    if (!m->fast)
        return;
    pthread_mutex_lock(&lock);
    list_remove(&m->fast_node);
    pthread_mutex_unlock(&lock);
}

/* ---- the URL --------------------------------------------------------------------- */

int hf__mysql_read_crash(struct mysql *m, const struct url *url, hf_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *crash = hf__url_param(url, "crash");

    if (!crash)
        return 0;
    if (strcmp(crash, "fast") != 0)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: crash=%s: only fast is known",
                        crash);
    if (m->sql.mode != SQL_LINE)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: crash=fast is for the line, not for another mode=");
    if (m->polls)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "URL: crash=fast needs user locks, which wake=poll does without");
    pthread_once(&once, handle_fork);
    m->fast = true;
    m->fast_fd = -1;
    pthread_mutex_lock(&lock);
    list_push(&clients, &m->fast_node);
    pthread_mutex_unlock(&lock);
    m->sql.join_flags = JOIN_FAST;
    m->sql.store.caps &= ~(uint32_t)HF_CAP_DEADLINE;
    return 0;
}

/* ---- the session ----------------------------------------------------------------- */

/* A guard that has a copy of the socket keeps the session alive. */
int hf__mysql_life_fds(struct store *s)
{
    struct mysql *m = mysql_of(sql_of(s));

    s->nlife_fds = 0;
    if (!m->fast)
        return 0;
    if (!m->sql.up)
        return HF_EBUSYSTORE;
    s->life_fds[s->nlife_fds++] = (int)mysql_get_socket(m->commands.my);
    return 0;
}

/* ev_dead forgets no ticket: the table stays as it is. */
void hf__mysql_session_gone(struct mysql *m)
{
    const struct scripted *k = &m->sql.scripted;

    for (size_t i = 0; m->fast && i <= k->seats.mask; i++)
        for (struct map_node *n = k->seats.slots[i]; n; n = n->next) {
            struct ticket *t = container_of(n, struct ticket, drv_node);

            if (hf__scripted_holder(&m->sql.scripted, t->token))
                ev_dead(t->own);
        }
}
