/* wake.c: waking other members, and being woken.
 *
 * Each member has a named pipe. After the commit, and outside the gate, the process that
 * left an entry in its inbox writes a message of fixed size there. Mostly it only says "see
 * the inbox"; the reader takes all messages first and reads its inbox second, so one that
 * comes in between causes one more, empty, look. A single grant stands in the message
 * itself, as it stands in the inbox: then the reader need not enter the gate, and the new
 * holder can start work sooner.
 *
 * Nothing depends on the message. If its writer was killed after the commit, or was
 * refused by a full pipe, the entry is still there: the process that removes the dead
 * writer wakes every member with an entry, the safety look reads the inbox, and so does a
 * reader that finds so much in its pipe that it may have been full (G4). What a message
 * says was committed before it was written, and stays true as long as it matters: a ticket
 * is granted once in its life, tokens are not used again, and the expiry that it names is
 * the one that the hold was given (G1). If the hold has been marked or evicted since, that
 * is an entry of its own; if the ticket has left, or knows, nobody listens.
 *
 * A grant that stands in a message also stands in the gate, in a slot that its member
 * shares with others: the woken process checks the slot first, and drains its pipe
 * later, off the critical path of its caller. Why that is right:
 *  - A slot is written inside the gate, after the commit counts, before the message. So
 *    there is one writer at a time, and the slot is as true as the message.
 *  - `turn` is odd while a slot is written, and another one afterwards: a reader, which
 *    is not in the gate, takes a slot only if it read all of it under one even number. A
 * writer that is killed leaves it odd; the next one goes on from there.
 *  - A slot is only a short cut. If it is torn, overwritten by another member's grant, or
 *    tells what is known, the pipe is read as ever. Its message is never skipped: it stays
 *    in the pipe, which therefore stays readable, and is read, with all that came behind
 *    it, at the next turn of the loop, or before this client sleeps for its next ticket,
 *    whichever comes first (G4). So an entry that came together with the grant is read as
 * late as if it had come just after it.
 *
 * A pipe, because writing and reading it takes less time than sending a datagram. All
 * open it for reading and writing, so that it always has a reader: a message for one that
 * has died stays in it and harms nobody, where SIGPIPE would. Member numbers are never
 * used twice, so a pipe that is kept open cannot reach another. A program that closes all
 * descriptors may have a file of its own where our pipe was: so we look before we write.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- pipes ----------------------------------------------------------------------- */

/* MANY: so much in it at once that it may have been full, and news refused. */
enum { PIPE_NAME = 48, PIPE_SIZE = 8192, PIPE_MANY = PIPE_SIZE / 4 };

static void pipe_name(char name[PIPE_NAME], uint64_t process, uint64_t member)
{
    snprintf(name, PIPE_NAME, "w.%llu.%llu", (unsigned long long)process,
             (unsigned long long)member);
}

static int pipe_open(const struct shared *sh, const char *name)
{
    return openat(sh->dirfd, name, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
}

/* Our own pipe, made anew. Returns the descriptor or -1 with errno. */
static int pipe_make(const struct shared *sh, uint64_t process, uint64_t member)
{
    char name[PIPE_NAME];
    int fd, rc;

    pipe_name(name, process, member);
    unlinkat(sh->dirfd, name, 0);
    if (mkfifoat(sh->dirfd, name, 0600) < 0 ||
        fchmodat(sh->dirfd, name, 0600, 0) < 0 || /* whatever the umask is */
        (fd = pipe_open(sh, name)) < 0)
        return -1;
    if ((rc = hf__local_file_own(sh, fd)) != 0) {
        close(fd);
        errno = rc;
        return -1;
    }
    /* Small, because a user may have only so many pages in pipes; and a size that others
     * do not have (see still_ours). More than a page, or one byte would make it full. */
    fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE);
    hf__local_fd_keep(fd);
    return fd;
}

/* Any pipe of that size is taken for ours, no other file is. To ask for more, with fstat,
 * makes the next write a dear one: the file system must then give it a time of its own. */
static bool still_ours(const struct sender *s)
{
    return fcntl(s->fd, F_GETPIPE_SZ) == s->size;
}

static void sender_close(struct sender *s)
{
    hf__local_fd_close(s->fd);
    s->fd = -1;
}

static void sender_open(struct local *ls, struct sender *s, const struct poke *p)
{
    char name[PIPE_NAME];

    sender_close(s);
    pipe_name(name, p->process, p->member);
    if ((s->fd = pipe_open(ls->sh, name)) < 0)
        return;
    hf__local_fd_keep(s->fd);
    if ((s->size = fcntl(s->fd, F_GETPIPE_SZ)) < 0) {
        sender_close(s);
        return;
    }
    s->process = p->process;
    s->member = p->member;
}

/* ---- being woken ----------------------------------------------------------------- */

static void woken(struct watch *, uint32_t);

static int next_member(struct tx *tx, void *arg)
{
    (void)arg;
    tx->ls->member = ++tx->sh->next_member;
    return TX_READ;
}

int hf__local_wake_open(struct local *ls, hf_error *err)
{
    int rc;

    if (ls->wakefd >= 0)
        return 0;
    if (ls->member == 0 && (rc = hf__local_tx_run(ls, next_member, NULL, false, err)) < 0)
        return rc;
    ls->wakefd = pipe_make(ls->sh, ls->sh->process, ls->member);
    if (ls->wakefd < 0)
        return hf__fail(err, HF_ESYS, errno, ls->sh->path, "cannot make the wake pipe");
    watch_init(&ls->wake, woken);
    if (ls->store.env->watch(ls->store.env, &ls->wake, ls->wakefd, EPOLLIN) < 0) {
        rc = hf__fail(err, HF_ESYS, errno, ls->sh->path, "cannot watch the wake pipe");
        hf__local_wake_close(ls);
        return rc;
    }
    return 0;
}

void hf__local_wake_close(struct local *ls)
{
    char name[PIPE_NAME];

    if (ls->wakefd >= 0) {
        pipe_name(name, ls->sh->process, ls->member);
        unlinkat(ls->sh->dirfd, name, 0);
        ls->store.env->unwatch(ls->store.env, &ls->wake);
        hf__local_fd_close(ls->wakefd);
        ls->wakefd = -1;
        ls->unread = false;
    }
    for (size_t i = 0; i < SENDERS; i++)
        sender_close(&ls->senders[i]);
}

static int read_inbox(struct tx *tx, void *arg)
{
    (void)arg;
    return hf__local_inbox_read(tx);
}

static int run_inbox(struct local *ls, void *of)
{
    int rc = hf__local_tx_run(ls, read_inbox, NULL, false, NULL);

    (void)of;
    if (rc == 0)
        hf__local_deliver(ls);
    return rc == HF_EBUSYSTORE ? rc : 0;
}

static const struct verb inbox_verb = { .run = run_inbox };

/* ---- grants in the gate ---------------------------------------------------------- */

static struct grant *slot_of(const struct local *ls, uint64_t process, uint64_t member)
{
    return &ls->sh->gate->grants[(process * 31 + member) % GATE_GRANTS];
}

static void put(uint64_t *to, uint64_t n)
{
    __atomic_store_n(to, n, __ATOMIC_RELAXED);
}

static uint64_t get(const uint64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static void show(struct grant *g, const struct poke *p)
{
    uint64_t turn = get(&g->turn) | 1, token[HF_TOKEN / 8];

    memcpy(token, p->wake.token, sizeof token);
    put(&g->turn, turn);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* odd before anything else changes */
    put(&g->process, p->process);
    put(&g->member, p->member);
    for (size_t i = 0; i < HF_TOKEN / 8; i++)
        put(&g->token[i], token[i]);
    put(&g->fence, p->wake.fix.value);
    put(&g->expires_at, (uint64_t)p->wake.fix.expires_at);
    __atomic_store_n(&g->turn, turn + 1, __ATOMIC_RELEASE);
}

void hf__local_grants_show(struct local *ls)
{
    for (size_t i = 0; i < ls->npokes; i++)
        if (ls->pokes[i].wake.kind == INBOX_GRANTED)
            show(slot_of(ls, ls->pokes[i].process, ls->pokes[i].member), &ls->pokes[i]);
}

/* Our slot, if what stands there is whole and for us. */
static bool seen(const struct local *ls, struct note *ret)
{
    const struct grant *g = slot_of(ls, ls->sh->process, ls->member);
    uint64_t turn = __atomic_load_n(&g->turn, __ATOMIC_ACQUIRE), token[HF_TOKEN / 8];
    bool ours = get(&g->process) == ls->sh->process && get(&g->member) == ls->member;

    for (size_t i = 0; i < HF_TOKEN / 8; i++)
        token[i] = get(&g->token[i]);
    *ret = (struct note){ .kind = INBOX_GRANTED,
                          .fix = { get(&g->fence), (int64_t)get(&g->expires_at) } };
    memcpy(ret->token, token, sizeof token);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return ours && turn % 2 == 0 && get(&g->turn) == turn;
}

/* Is there news in it? Then its message, which says the same, can be read later. */
static bool take_grant(struct local *ls)
{
    const struct ticket *t;
    struct note note;

    if (!seen(ls, &note) || (t = hf__local_ticket_find(ls, note.token)) == NULL ||
        !t->life || t->life->kind != LIFE_WAIT)
        return false;
    ls->unread = true;
    memcpy(ls->taken, note.token, HF_TOKEN);
    hf__local_stale_add(ls, 0, note.token);
    hf__local_hear(ls, &note);
    return true;
}

/* ---- reading --------------------------------------------------------------------- */

/* What was read from the pipe, if it tells all. taken: the ticket that knows; or NULL. */
static bool tell_granted(struct local *ls, const struct wake *got, size_t len,
                         const unsigned char *taken)
{
    size_t n = len / sizeof *got;

    if (n == 0 || len % sizeof *got != 0 || len >= PIPE_MANY)
        return false;
    for (size_t i = 0; i < n; i++)
        if (got[i].kind != INBOX_GRANTED)
            return false;
    for (size_t i = 0; i < n; i++) {
        struct note note = { .kind = INBOX_GRANTED, .fix = got[i].fix };

        if (taken && memcmp(got[i].token, taken, HF_TOKEN) == 0)
            continue;
        memcpy(note.token, got[i].token, HF_TOKEN);
        hf__local_stale_add(ls, 0, note.token);
        hf__local_hear(ls, &note);
    }
    return true;
}

static void read_pipe(struct local *ls)
{
    struct wake got[PIPE_SIZE / sizeof(struct wake) + 1];
    const unsigned char *taken = ls->unread ? ls->taken : NULL;
    ssize_t n;

    ls->unread = false;
    /* If there are more, the pipe stays readable and we look once more. */
    while ((n = read(ls->wakefd, got, sizeof got)) < 0 && errno == EINTR)
        ;
    if (n > 0 && tell_granted(ls, got, (size_t)n, taken))
        return;
    /* If there is an error the entry stays; the safety look reads it. */
    run_verb(ls, &inbox_verb, &ls->wake);
}

void hf__local_wake_rest(struct local *ls)
{
    if (ls->unread)
        read_pipe(ls);
}

static void woken(struct watch *w, uint32_t events)
{
    struct local *ls = container_of(w, struct local, wake);

    (void)events;
    if (ls->unread || !take_grant(ls))
        read_pipe(ls);
}

/* ---- waking ---------------------------------------------------------------------- */

static void poke(struct local *ls, const struct poke *p)
{
    struct sender *s = &ls->senders[(p->process * 31 + p->member) % SENDERS];

    if (s->fd >= 0 && !still_ours(s)) {
        hf__local_fd_forget(s->fd);
        s->fd = -1;
    }
    if (s->fd < 0 || s->process != p->process || s->member != p->member)
        sender_open(ls, s, p);
    if (s->fd >= 0 && write(s->fd, &p->wake, sizeof p->wake) < 0 && errno != EAGAIN)
        sender_close(s);
}

void hf__local_poke(struct local *ls)
{
    for (size_t i = 0; i < ls->npokes; i++)
        poke(ls, &ls->pokes[i]);
    ls->npokes = 0;
}
