/* peers.c: is that process alive?
 *
 * A process is dead when its number is gone, or belongs to a process that started at
 * another time, AND nobody listens on its life socket: a guard that keeps a copy of that
 * socket says that the dead process's work still goes on. Both are facts that cannot turn
 * round: a dead process does not come back, and a socket whose last copy is closed has no
 * listener ever again. So what was judged outside the gate is still true when it is acted
 * on inside. Whatever cannot be found out (no permission, no descriptors, another PID
 * namespace) counts as alive: then the ttl decides (G5), never a guess (G1).
 *
 * Watching: a pidfd per process, kept for all tickets of the client and for a while
 * after. When it fires we connect to the life socket; if that succeeds, the connection is
 * never accepted and ends when the last copy of the listening socket does. A backlog that
 * is full is also an answer: alive; the next look asks again.
 *
 * Removing a dead process deletes its record, lives, inbox and follows; its tickets are
 * dead by that and go when their line is next touched, ours at once. To do it twice is
 * harmless. Of its files those go that every process has; to search the folder for more
 * would make each death the dearer the more have died before: collect.c does it for many at
 * once.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { IDLE_PEERS = 64 };

static int pidfd_of(uint32_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
#else
    (void)pid;
    errno = ENOSYS;
    return -1;
#endif
}

/* Of a pidfd: the process has ended; of a guard's connection: nobody has its socket. */
static bool ended(int pidfd)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };

    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

static bool other_start(const struct shared *sh, uint32_t pid, uint64_t start)
{
    uint64_t now = start ? hf__local_process_start(sh, pid) : 0;

    return now != 0 && now != start;
}

/* Asks anew, whatever a descriptor of ours said: a program that closes descriptors which
 * are not its own may have got another file under the old number. */
static bool process_dead(const struct shared *sh, uint32_t pid, uint64_t start)
{
    int fd = pidfd_of(pid);
    bool dead = fd < 0 ? errno == ESRCH : ended(fd);

    if (fd >= 0)
        close(fd);
    return dead || other_start(sh, pid, start);
}

/* ---- peers ----------------------------------------------------------------------- */

static struct peer *peer_find(const struct local *ls, uint64_t process)
{
    for (struct map_node *n = map_chain(&ls->peers, process); n; n = n->next)
        if (n->hash == process)
            return container_of(n, struct peer, node);
    return NULL;
}

static void peer_free(struct local *ls, struct peer *p)
{
    if (!list_empty(&p->idle)) {
        list_remove(&p->idle);
        ls->nidle--;
    }
    hf__map_remove(&ls->peers, &p->node);
    ls->store.env->unwatch(ls->store.env, &p->watch);
    hf__local_fd_close(p->pidfd);
    hf__local_fd_close(p->guardfd);
    free(p);
}

static void peer_rest(struct local *ls, struct peer *p)
{
    list_push(&ls->idle, &p->idle);
    if (++ls->nidle > IDLE_PEERS)
        peer_free(ls, container_of(list_first(&ls->idle), struct peer, idle));
}

static void peer_fired(struct watch *, uint32_t);

/* NULL: cannot be watched (then its ttl decides), or *dead. A new peer rests. */
static struct peer *peer_new(struct local *ls, const struct seen *s, bool *dead)
{
    struct peer *p;
    int fd = pidfd_of(s->fix.pid);

    if (fd < 0 && errno != ESRCH)
        return NULL;
    if ((p = calloc(1, sizeof *p)) == NULL) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    p->ls = ls;
    p->process = s->process;
    p->pid = s->fix.pid;
    p->start = s->fix.start;
    p->pidfd = fd;
    p->guardfd = -1;
    if (fd >= 0)
        hf__local_fd_keep(fd);
    watch_init(&p->watch, peer_fired);
    list_init(&p->idle);
    hf__map_insert(&ls->peers, &p->node, p->process);
    *dead = process_dead(ls->sh, p->pid, p->start);
    if (*dead)
        *dead = !hf__local_guarded(ls->sh, p->process, &p->guardfd);
    if (*dead || ls->store.env->watch(ls->store.env, &p->watch,
                                      p->guardfd >= 0 ? p->guardfd : fd, EPOLLIN) < 0) {
        peer_free(ls, p);
        return NULL;
    }
    peer_rest(ls, p);
    return p;
}

static bool still_there(struct local *ls, struct peer *p)
{
    if (!ended(p->guardfd >= 0 ? p->guardfd : p->pidfd))
        return true;
    /* What has ended stays readable: it is watched no more, whatever is found out now. */
    ls->store.env->unwatch(ls->store.env, &p->watch);
    if (!process_dead(ls->sh, p->pid, p->start))
        return true; /* or nobody can tell just now: the next look asks again */
    hf__local_fd_close(p->guardfd);
    if (!hf__local_guarded(ls->sh, p->process, &p->guardfd))
        return false;
    if (p->guardfd >= 0) /* else again: the next look */
        ls->store.env->watch(ls->store.env, &p->watch, p->guardfd, EPOLLIN);
    return true;
}

/* now: must know at once; else what the loop is going to tell anyway is not asked. */
static struct peer *peer_get(struct local *ls, const struct seen *s, bool now, bool *dead)
{
    struct peer *p = peer_find(ls, s->process);

    *dead = false;
    if (!p)
        return peer_new(ls, s, dead);
    if ((!now && p->watch.fd >= 0) || still_there(ls, p))
        return p;
    *dead = true;
    return NULL;
}

bool hf__local_peer_dead(struct local *ls, const struct seen *s)
{
    bool dead;

    peer_get(ls, s, true, &dead);
    return dead;
}

void hf__local_peers_done(struct local *ls)
{
    struct list *n;

    while ((n = list_first(&ls->idle)) != NULL)
        peer_free(ls, container_of(n, struct peer, idle));
}

/* ---- posts ----------------------------------------------------------------------- */

void hf__local_post_clear(struct local *ls, struct post *post)
{
    for (size_t i = 0; post && i < post->n; i++)
        if (--post->peers[i]->refs == 0)
            peer_rest(ls, post->peers[i]);
    free(post);
}

static void peer_use(struct local *ls, struct peer *p)
{
    if (p->refs++ == 0) {
        list_remove(&p->idle);
        ls->nidle--;
    }
}

static void post_add(struct local *ls, struct post *post, struct peer *p)
{
    peer_use(ls, p);
    post->peers[post->n++] = p;
}

uint64_t hf__local_post_set(struct local *ls, struct post **place)
{
    size_t n = ls->nseen;
    struct post *post = n ? malloc(sizeof *post + n * sizeof *post->peers) : NULL;
    uint64_t corpse = 0;

    if (post)
        post->n = 0;
    for (size_t i = 0; i < n && corpse == 0; i++) {
        bool dead;
        struct peer *p = peer_get(ls, &ls->seen[i], false, &dead);

        if (dead)
            corpse = ls->seen[i].process;
        else if (p && post)
            post_add(ls, post, p);
    }
    hf__local_post_clear(ls, *place); /* after the new one: most peers stay the same */
    *place = post;
    return corpse;
}

bool hf__local_post_has(const struct post *post, const struct peer *p)
{
    for (size_t i = 0; post && i < post->n; i++)
        if (post->peers[i] == p)
            return true;
    return false;
}

static void peer_fired(struct watch *w, uint32_t events)
{
    struct peer *p = container_of(w, struct peer, watch);
    struct local *ls = p->ls;
    unsigned char(*tokens)[HF_TOKEN];
    size_t n = 0;

    (void)events;
    if (still_there(ls, p))
        return;
    tokens = malloc(ls->tickets.count * sizeof *tokens + 1);
    for (size_t i = 0; tokens && i <= ls->tickets.mask; i++)
        for (struct map_node *m = ls->tickets.slots[i]; m; m = m->next) {
            struct ticket *t = container_of(m, struct ticket, drv_node);

            if (hf__local_post_has(t->drv_ptr, p))
                memcpy(tokens[n++], t->token, HF_TOKEN);
        }
    ls->store.env->unwatch(ls->store.env, &p->watch);
    peer_use(ls, p); /* stays until all who watch it have looked */
    hf__local_remove_dead(ls,
                          p->process); /* if the gate is closed: the next look removes it */
    for (size_t i = 0; i < n; i++)
        hf__local_attend(ls, tokens[i]);
    hf__local_follow_death(ls, p);
    if (--p->refs == 0)
        peer_rest(ls, p);
    free(tokens);
}

/* ---- removing the dead --------------------------------------------------------------------- */

int hf__local_seen_add(struct tx *tx, uint64_t process)
{
    struct local *ls = tx->ls;
    unsigned char key[KEY_PROCESS];
    void *seen = ls->seen;
    struct process_fix fix;
    MDB_val v;
    int rc;

    if (process == 0 || process == tx->sh->process)
        return 0;
    for (size_t i = 0; i < ls->nseen; i++)
        if (ls->seen[i].process == process)
            return 0;
    rc = hf__local_db_get(tx, key, hf__local_key_numbers(key, TABLE_PROCESS, &process, 1),
                          &v);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if ((rc = hf__local_process_decode(&fix, v.mv_data, v.mv_size)) < 0)
        return hf__fail(tx->err, rc, 0, tx->sh->path, "a damaged process");
    if (fix.pid_ns != tx->sh->place.pid_ns)
        return 0;
    if (hf__local_room(&seen, &ls->seen_room, ls->nseen + 1, sizeof *ls->seen) < 0)
        return hf__fail(tx->err, HF_ENOMEM, ENOMEM, tx->sh->path, "no memory");
    ls->seen = seen;
    ls->seen[ls->nseen++] = (struct seen){ process, fix };
    return 0;
}

static int drop_follows(struct tx *tx, uint64_t process)
{
    const unsigned char table = TABLE_FOLLOW;
    struct scan s;
    int rc;

    if (tx->sh->gate->followers == 0)
        return 0;
    if ((rc = hf__local_scan_open(&s, tx, &table, 1)) < 0)
        return rc;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s)) {
        const unsigned char *key = s.key.mv_data;

        if (s.key.mv_size != KEY_FOLLOW || hf__local_key_number(key + 10) != process)
            continue;
        if ((rc = hf__local_scan_del(&s)) < 0)
            break;
        tx->unfollowed++; /* never more than were counted: see follow.c */
    }
    hf__local_scan_close(&s);
    return rc < 0 ? rc : 0;
}

int hf__local_remove_dead_inside(struct tx *tx, uint64_t process)
{
    unsigned char key[KEY_PROCESS];
    size_t len = hf__local_key_numbers(key, TABLE_PROCESS, &process, 1);
    int rc = hf__local_db_del(tx, key, len);

    if (rc >= 0) {
        key[0] = TABLE_LIFE;
        rc = hf__local_db_del_prefix(tx, key, len);
    }
    if (rc >= 0) {
        key[0] = TABLE_INBOX;
        rc = hf__local_db_del_prefix(tx, key, len);
    }
    return rc < 0 ? rc : drop_follows(tx, process);
}

/* What it meant to wake others for may be all that is left of it: it may have been killed
 * between a commit and the wakes. */
static int remove_dead(struct tx *tx, void *arg)
{
    int rc = hf__local_remove_dead_inside(tx, *(uint64_t *)arg);

    return rc < 0 ? rc : hf__local_poke_unread(tx, NULL);
}

void hf__local_remove_dead_files(const struct shared *sh, uint64_t process)
{
    char name[48];

    snprintf(name, sizeof name, "l.%llu", (unsigned long long)process);
    unlinkat(sh->dirfd, name, 0);
    snprintf(name, sizeof name, "w.%llu.1", (unsigned long long)process);
    unlinkat(sh->dirfd, name, 0);
}

int hf__local_remove_dead(struct local *ls, uint64_t process)
{
    int rc;

    hf__local_remove_dead_files(ls->sh, process);
    if ((rc = hf__local_tx_run(ls, remove_dead, &process, false, NULL)) == 0)
        hf__local_poke(ls);
    return rc;
}

bool hf__local_remove_dead_seen(struct local *ls)
{
    uint64_t dead[SEEN_IN_TRY];
    size_t n = 0;

    for (size_t i = 0; i < ls->nseen && n < SEEN_IN_TRY; i++)
        if (hf__local_peer_dead(ls, &ls->seen[i]))
            dead[n++] = ls->seen[i].process;
    for (size_t i = 0; i < n; i++)
        hf__local_remove_dead(ls, dead[i]);
    return n > 0;
}
