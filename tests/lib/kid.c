/* kid.c: the order loop of a kid and the calls that send orders.
 *
 * Goes well: one answer per order, in order. Goes wrong: a kid whose check fails says so
 * on the case's output and exits; the case then fails at the missing answer. Every kid
 * dies with its parent (PR_SET_PDEATHSIG), also when stopped.
 */
#include "kid.h"

#include "rig.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum verb { ACQUIRE, RELEASE, KEEP, LOOK, FORK, LIFE, END };

struct order {
    enum verb verb;
    int slot;
    int64_t ms;
    hf_request req;
    bool has_note;
    char name[520], note[128];
};

static void carry_acquire(hf_client *c, struct order *o, hf_lease **slot, struct answer *a)
{
    o->req.note = o->has_note ? o->note : NULL;
    a->rc = rig.face->acquire(c, o->name, o->ms, &o->req, slot, E());
    if (a->rc == 0)
        a->fence = hf_lease_fence(*slot);
}

static void carry_fork(struct answer *a)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0)
        for (;;)
            pause();
    a->pid = pid;
}

static void carry_out(hf_client *c, struct order *o, hf_lease **slots, struct answer *a)
{
    hf_lease **slot = &slots[o->slot];

    if (*slot) {
        a->check = hf_lease_check(*slot);
        a->state = hf_lease_state(*slot);
        a->fence = hf_lease_fence(*slot);
        a->remaining_ms = hf_lease_remaining_ms(*slot);
    }
    switch (o->verb) {
    case ACQUIRE:
        CHECK(!*slot);
        carry_acquire(c, o, slot, a);
        break;
    case RELEASE:
        a->rc = rig.face->release(*slot, E());
        *slot = NULL;
        break;
    case KEEP:
        a->rc = hf_release_after(*slot, o->ms, E());
        if (a->rc == 0)
            *slot = NULL;
        break;
    case FORK:
        carry_fork(a);
        break;
    case LIFE:
        a->rc = hf_client_life_fds(c, a->fds, KID_LIFE_FDS);
        CHECK(a->rc <= KID_LIFE_FDS);
        break;
    case LOOK:
    case END:
        break;
    }
    snprintf(a->text, sizeof(a->text), "%s", a->rc < 0 ? last_error()->text : "");
}

/* An answer, with copies of the descriptors in it if there are any. */
union control {
    struct cmsghdr align;
    char room[CMSG_SPACE(KID_LIFE_FDS * sizeof(int))];
};

static void send_answer(int sock, struct answer *a, int nfds)
{
    struct iovec iov = { a, sizeof(*a) };
    union control control = { .room = { 0 } };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (nfds > 0) {
        struct cmsghdr *cmsg;

        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), a->fds, (size_t)nfds * sizeof(int));
    }
    CHECK(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(*a));
}

static bool receive_answer(int sock, struct answer *a)
{
    struct iovec iov = { a, sizeof(*a) };
    union control control = { .room = { 0 } };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    struct cmsghdr *cmsg;

    msg.msg_control = &control;
    msg.msg_controllen = sizeof(control);
    if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(*a))
        return false;
    cmsg = CMSG_FIRSTHDR(&msg);
    if (cmsg)
        memcpy(a->fds, CMSG_DATA(cmsg), cmsg->cmsg_len - CMSG_LEN(0));
    return true;
}

_Noreturn static void kid_main(int sock)
{
    hf_lease *slots[KID_SLOTS] = { NULL };
    hf_client *c = opened();
    struct order o;

    while (recv(sock, &o, sizeof(o), 0) == (ssize_t)sizeof(o) && o.verb != END) {
        struct answer a = { 0 };

        carry_out(c, &o, slots, &a);
        send_answer(sock, &a, o.verb == LIFE ? a.rc : 0);
    }
    closed(c);
    for (int i = 0; i < KID_SLOTS; i++)
        if (slots[i])
            (void)hf_release(slots[i], NULL);
    exit(0);
}

static pid_t fork_bound(void)
{
    pid_t parent = getpid(), pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

struct kid kid_new(void)
{
    struct kid k;
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    k.pid = fork_bound();
    if (k.pid == 0) {
        close(pair[0]);
        kid_main(pair[1]);
    }
    close(pair[1]);
    k.sock = pair[0];
    return k;
}

static void kid_send(struct kid *k, struct order *o)
{
    CHECK(send(k->sock, o, sizeof(*o), MSG_NOSIGNAL) == (ssize_t)sizeof(*o));
}

void kid_begin(struct kid *k, int slot, const char *name, int64_t wait_ms,
               const hf_request *req)
{
    struct order o = { .verb = ACQUIRE, .slot = slot, .ms = wait_ms };

    o.req = req ? *req : (hf_request)HF_REQUEST_INIT;
    CHECK(strlen(name) < sizeof(o.name));
    strcpy(o.name, name);
    if (o.req.note) {
        CHECK(strlen(o.req.note) < sizeof(o.note));
        strcpy(o.note, o.req.note);
        o.has_note = true;
    }
    kid_send(k, &o);
}

bool kid_answered(struct kid *k)
{
    struct pollfd p = { .fd = k->sock, .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

struct answer kid_answer(struct kid *k)
{
    struct answer a;

    AWAIT(kid_answered(k));
    if (!receive_answer(k->sock, &a))
        check_failed(__FILE__, __LINE__, "kid %d gave no answer", (int)k->pid);
    return a;
}

int kid_acquire(struct kid *k, int slot, const char *name, int64_t wait_ms,
                const hf_request *req, uint64_t *ret_fence)
{
    struct answer a;

    kid_begin(k, slot, name, wait_ms, req);
    a = kid_answer(k);
    if (a.rc == 0 && ret_fence)
        *ret_fence = a.fence;
    return a.rc;
}

static struct answer kid_ask(struct kid *k, enum verb verb, int slot, int64_t ms)
{
    struct order o = { .verb = verb, .slot = slot, .ms = ms };

    kid_send(k, &o);
    return kid_answer(k);
}

struct answer kid_release(struct kid *k, int slot)
{
    return kid_ask(k, RELEASE, slot, 0);
}

struct answer kid_keep(struct kid *k, int slot, int64_t keep_ms)
{
    return kid_ask(k, KEEP, slot, keep_ms);
}

struct answer kid_check(struct kid *k, int slot)
{
    return kid_ask(k, LOOK, slot, 0);
}

struct answer kid_fork(struct kid *k)
{
    return kid_ask(k, FORK, 0, 0);
}

int kid_life_fds(struct kid *k, int fds[KID_LIFE_FDS])
{
    struct answer a = kid_ask(k, LIFE, 0, 0);

    CHECK(a.rc >= 0);
    memcpy(fds, a.fds, sizeof(a.fds));
    return a.rc;
}

void kid_stop(struct kid *k)
{
    int status;

    CHECK(kill(k->pid, SIGSTOP) == 0);
    CHECK(waitpid(k->pid, &status, WUNTRACED) == k->pid);
    CHECK(WIFSTOPPED(status));
}

void kid_continue(struct kid *k)
{
    CHECK(kill(k->pid, SIGCONT) == 0);
}

void kid_kill(struct kid *k)
{
    CHECK(kill(k->pid, SIGKILL) == 0);
    CHECK(waitpid(k->pid, NULL, 0) == k->pid);
    close(k->sock);
}

void kid_end(struct kid *k)
{
    struct order o = { .verb = END };

    kid_send(k, &o);
    proc_end(k->pid);
    close(k->sock);
}

pid_t proc_start(void (*body)(void *), void *arg)
{
    pid_t pid = fork_bound();

    if (pid == 0) {
        body(arg);
        exit(0);
    }
    return pid;
}

void proc_end(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        CHECK(errno == EINTR);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        check_failed(__FILE__, __LINE__, "process %d ended with %s %d", (int)pid,
                     WIFEXITED(status) ? "status" : "signal",
                     WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}
