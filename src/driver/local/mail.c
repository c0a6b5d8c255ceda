/* mail.c: telling other members, and being told.
 *
 * News for a ticket goes into the mailbox of its member, in the transaction that makes it
 * true; then, outside the gate, one byte without content is sent to the member's datagram
 * socket. The reader takes a byte first and reads its mailbox second, so a byte that
 * comes in between causes one more, empty, look. Nothing depends on the byte: a full
 * buffer means that one is there already, a dead reader needs none, and a byte that was
 * lost (its sender was killed after the commit) is made good by the safety look, which
 * reads the mailbox too (G4).
 *
 * A mailbox has one record per ticket and kind, so it does not grow while its owner
 * sleeps; it goes when the member closes or its process is buried. News for tickets of
 * the very same client takes no such way: it is told directly when the gate has been
 * left.
 *
 * Sockets are reached through /proc/self/fd/N/NAME: sun_path is too short for a long
 * folder. Member numbers are never used twice, so a connected socket to one cannot reach
 * another.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- writing, inside the gate ------------------------------------------------------ */

static size_t mail_key(unsigned char key[KEY_MAIL], uint64_t process, uint64_t member,
                       enum mail_kind kind, const unsigned char *token)
{
    const uint64_t n[] = { process, member };
    size_t len = hf__key_numbers(key, TABLE_MAIL, n, 2);

    key[len++] = (unsigned char)kind;
    memcpy(key + len, token, HF_TOKEN);
    return len + HF_TOKEN;
}

static int no_memory(struct tx *tx)
{
    return hf__fail(tx->err, HF_ENOMEM, ENOMEM, tx->sh->path, "no memory");
}

int hf__note(struct tx *tx, enum mail_kind kind, const unsigned char *token, uint64_t value,
             int64_t expires_at)
{
    struct local *ls = tx->ls;
    void *notes = ls->notes;
    struct note *n;

    if (hf__room(&notes, &ls->notes_room, ls->nnotes + 1, sizeof *ls->notes) < 0)
        return no_memory(tx);
    ls->notes = notes;
    n = &ls->notes[ls->nnotes++];
    n->kind = kind;
    n->fix = (struct mail_fix){ value, expires_at };
    memcpy(n->token, token, HF_TOKEN);
    return 0;
}

static int add_poke(struct tx *tx, uint64_t process, uint64_t member)
{
    struct local *ls = tx->ls;
    void *pokes = ls->pokes;

    for (size_t i = 0; i < ls->npokes; i++)
        if (ls->pokes[i].process == process && ls->pokes[i].member == member)
            return 0;
    if (hf__room(&pokes, &ls->pokes_room, ls->npokes + 1, sizeof *ls->pokes) < 0)
        return no_memory(tx);
    ls->pokes = pokes;
    ls->pokes[ls->npokes++] = (struct poke){ process, member };
    return 0;
}

int hf__tell(struct tx *tx, uint64_t process, uint64_t member, enum mail_kind kind,
             const unsigned char *token, uint64_t value, int64_t expires_at)
{
    const struct mail_fix fix = { value, expires_at };
    unsigned char key[KEY_MAIL];
    void *room;
    int rc;

    if (process == 0)
        return 0; /* kept: nobody is left to be told */
    if (tx->ls && process == tx->sh->process && member == tx->ls->member)
        return hf__note(tx, kind, token, value, expires_at);
    rc =
        hf__db_put(tx, key, mail_key(key, process, member, kind, token), sizeof fix, &room);
    if (rc < 0)
        return rc;
    memcpy(room, &fix, sizeof fix);
    return tx->ls ? add_poke(tx, process, member) : 0;
}

int hf__tell_followers(struct tx *tx, enum table table, uint64_t hash)
{
    unsigned char prefix[KEY_FOLLOW], token[HF_TOKEN] = { 0 };
    size_t len = hf__key_numbers(prefix, TABLE_FOLLOW, &hash, 1);
    struct poke *who = NULL;
    size_t n = 0, room = 0;
    struct scan s;
    int rc;

    prefix[len++] = (unsigned char)table;
    token[0] = (unsigned char)table;
    memcpy(token + 1, &hash, sizeof hash);
    if ((rc = hf__scan_open(&s, tx, prefix, len)) < 0)
        return rc;
    for (rc = hf__scan_first(&s); rc == 0; rc = hf__scan_next(&s)) {
        const unsigned char *key = s.key.mv_data;
        void *more = who;

        if (s.key.mv_size != KEY_FOLLOW)
            continue;
        if (hf__room(&more, &room, n + 1, sizeof *who) < 0) {
            rc = no_memory(tx);
            break;
        }
        who = more;
        who[n++] =
            (struct poke){ hf__key_number(key + len), hf__key_number(key + len + 8) };
    }
    hf__scan_close(&s);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = hf__tell(tx, who[i].process, who[i].member, MAIL_CHANGED, token, hash, 0);
    free(who);
    return rc < 0 ? rc : 0;
}

int hf__mail_forget(struct tx *tx, enum mail_kind kind, const unsigned char *token)
{
    unsigned char key[KEY_MAIL];
    int rc;

    if (tx->ls->member == 0)
        return 0;
    rc = hf__db_del(tx, key, mail_key(key, tx->sh->process, tx->ls->member, kind, token));
    return rc < 0 ? rc : 0;
}

int hf__mail_read(struct tx *tx)
{
    unsigned char prefix[KEY_MAIL];
    const uint64_t n[] = { tx->sh->process, tx->ls->member };
    struct scan s;
    int rc;

    if (tx->ls->member == 0)
        return 0;
    rc = hf__scan_open(&s, tx, prefix, hf__key_numbers(prefix, TABLE_MAIL, n, 2));
    if (rc < 0)
        return rc;
    while ((rc = hf__scan_first(&s)) == 0) {
        const unsigned char *key = s.key.mv_data;
        struct mail_fix fix;

        if (s.key.mv_size == KEY_MAIL && s.value.mv_size == sizeof fix) {
            memcpy(&fix, s.value.mv_data, sizeof fix);
            if ((rc = hf__note(tx, (enum mail_kind)key[17], key + 18, fix.value,
                               fix.expires_at)) < 0)
                break;
        }
        if ((rc = hf__scan_del(&s)) < 0)
            break;
    }
    hf__scan_close(&s);
    return rc < 0 ? rc : 0;
}

/* ---- sockets ----------------------------------------------------------------------- */

void hf__socket_address(const struct shared *sh, struct sockaddr_un *a, char kind,
                        uint64_t process, uint64_t member)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    if (kind == 'l')
        snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/l.%llu", sh->dirfd,
                 (unsigned long long)process);
    else
        snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/w.%llu.%llu", sh->dirfd,
                 (unsigned long long)process, (unsigned long long)member);
}

/* Binds a new socket. A name is never used twice, so one that is there is a leftover of
 * something that was not ours. Returns the descriptor or -1 with errno. */
int hf__socket_bind(const struct shared *sh, int type, char kind, uint64_t process,
                    uint64_t member)
{
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), saved;
    struct sockaddr_un a;

    if (fd < 0)
        return -1;
    hf__socket_address(sh, &a, kind, process, member);
    unlink(a.sun_path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
        chmod(a.sun_path, sh->group ? 0660 : 0600) == 0 &&
        (!sh->group || chown(a.sun_path, (uid_t)-1, sh->gid) == 0)) {
        hf__fd_keep(fd);
        return fd;
    }
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static void woken(struct watch *, uint32_t);

static int next_member(struct tx *tx, void *arg)
{
    (void)arg;
    tx->ls->member = ++tx->sh->next_member;
    return TX_READ;
}

int hf__mail_open(struct local *ls, hf_error *err)
{
    int rc;

    if (ls->wakefd >= 0)
        return 0;
    if (ls->member == 0 &&
        (rc = hf__tx_run(ls, next_member, NULL, false, ls->gate_ms, err)) < 0)
        return rc;
    ls->wakefd = hf__socket_bind(ls->sh, SOCK_DGRAM, 'w', ls->sh->process, ls->member);
    if (ls->wakefd < 0)
        return hf__fail(err, HF_ESYS, errno, ls->sh->path, "cannot make the wake socket");
    watch_init(&ls->wake, woken);
    if (ls->store.env->watch(ls->store.env, &ls->wake, ls->wakefd, EPOLLIN) < 0) {
        rc = hf__fail(err, HF_ESYS, errno, ls->sh->path, "cannot watch the wake socket");
        hf__mail_close(ls);
        return rc;
    }
    return 0;
}

void hf__mail_close(struct local *ls)
{
    struct sockaddr_un a;

    if (ls->wakefd >= 0) {
        hf__socket_address(ls->sh, &a, 'w', ls->sh->process, ls->member);
        unlink(a.sun_path);
        ls->store.env->unwatch(ls->store.env, &ls->wake);
        hf__fd_close(ls->wakefd);
        ls->wakefd = -1;
    }
    for (size_t i = 0; i < SENDERS; i++) {
        hf__fd_close(ls->senders[i].fd);
        ls->senders[i].fd = -1;
    }
}

static int read_mail(struct tx *tx, void *arg)
{
    (void)arg;
    return hf__mail_read(tx);
}

static void woken(struct watch *w, uint32_t events)
{
    struct local *ls = container_of(w, struct local, wake);
    char bytes[16];

    (void)events;
    /* One byte only: if there are more, the socket stays readable and we look once more. */
    while (recv(ls->wakefd, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno == EINTR)
        ;
    /* If the gate is blocked the mail stays; the safety look reads it. */
    if (hf__tx_run(ls, read_mail, NULL, false, LOOK_MS, NULL) == 0)
        hf__deliver(ls);
}

/* ---- after the gate ---------------------------------------------------------------- */

static void poke(struct local *ls, const struct poke *p)
{
    struct sender *s = &ls->senders[(p->process * 31 + p->member) % SENDERS];
    struct sockaddr_un a;

    if (s->fd < 0 || s->process != p->process || s->member != p->member) {
        hf__fd_close(s->fd);
        s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s->fd < 0)
            return;
        hf__fd_keep(s->fd);
        hf__socket_address(ls->sh, &a, 'w', p->process, p->member);
        if (connect(s->fd, (struct sockaddr *)&a, sizeof a) < 0) {
            hf__fd_close(s->fd);
            s->fd = -1;
            return;
        }
        s->process = p->process;
        s->member = p->member;
    }
    if (send(s->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
        hf__fd_close(s->fd);
        s->fd = -1;
    }
}

static void deliver(struct local *ls, const struct note *n)
{
    struct ticket *t;

    if (n->kind == MAIL_CHANGED) {
        hf__follow_changed(ls, (enum table)n->token[0], n->fix.value);
        return;
    }
    if ((t = hf__ticket_find(ls, n->token)) == NULL)
        return; /* it has left meanwhile */
    switch (n->kind) {
    case MAIL_GRANTED:
        if (t->life && t->life->kind == LIFE_WAIT) /* else it knows */
            hf__ticket_granted(ls, t, n->fix.value, n->fix.expires_at);
        break;
    case MAIL_MARKED:
        if (t->life == &t->own)
            ev_dead(t->life, HF_EBUSY);
        break;
    case MAIL_EVICTED:
        hf__ticket_out(ls, t);
        ev_gone(t, HF_ELOST, NULL);
        break;
    default:
        hf__attend(ls, n->token);
        break;
    }
}

/* Others first: what we tell our own client may take long. Telling may lead to other
 * entries, which fill the arrays anew: so ours is taken out of the way. */
void hf__deliver(struct local *ls)
{
    struct note *notes = ls->notes;
    size_t n = ls->nnotes;

    for (size_t i = 0; i < ls->npokes; i++)
        poke(ls, &ls->pokes[i]);
    ls->npokes = 0;
    if (n == 0)
        return;
    ls->notes = NULL;
    ls->nnotes = ls->notes_room = 0;
    for (size_t i = 0; i < n; i++)
        deliver(ls, &notes[i]);
    free(notes);
}
