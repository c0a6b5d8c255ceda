/* Descriptors: none left; and a program that closes those it does not know, as daemons do,
 * and has files of its own in their places. */
#include "api/api.h"
#include "drive_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <holdfast/tool.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a wait with a cancel token says when it finds no descriptor to watch the button
 * with.
 */
static void no_descriptor_for_a_stop_button(void **state)
{
    hf_lease *x = hold(other, "x", 0), *l;
    struct rlimit was, now;
    hf_error e = { 0 };
    hf_cancel *stop;
    int lowest, rc;

    (void)state;
    /* it has all it needs */
    assert_int_equal(hf_acquire(c, "x", 1, NULL, &l, NULL), HF_ETIMEDOUT);
    assert_int_equal(hf_cancel_new(&stop, NULL), 0);
    lowest = dup(0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    now = (struct rlimit){ (rlim_t)lowest, was.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    rc = hf_acquire(c, "x", HF_FOREVER, HF_REQUEST(.cancel = stop), &l, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(rc, HF_ESYS);
    assert_int_equal(e.sys, EMFILE);
    hf_cancel_free(stop);
    hf_release(x, NULL);
}

/* ---- how often it is looked whether they are ours -------------------------------- */

bool __real_hf__pipe_is(int, const struct fd_id *);
bool __wrap_hf__pipe_is(int, const struct fd_id *);

static atomic_uint looks; /* each is a system call */

bool __wrap_hf__pipe_is(int fd, const struct fd_id *id)
{
    looks++;
    return __real_hf__pipe_is(fd, id);
}

struct starter {
    unsigned before, after, left;
};

static void counted(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct starter *x = user;

    (void)err;
    assert_int_equal(rc, 0);
    hf_op_free(op);
    hf_release(l, NULL);
    x->left--;
}

static void start_many(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct starter *x = user;
    char name[16];

    (void)err;
    assert_int_equal(rc, 0);
    x->before = looks;
    for (unsigned i = 0; i < x->left; i++) {
        hf_op *each;

        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(hf_acquire_start(c, name, 0, NULL, counted, x, &each, NULL), 0);
    }
    hf_release(l, NULL);
    hf_op_free(op);
    x->after = looks;
}

/* With a driver that writes to sockets: one look for all that callbacks start, before it is
 * sent, not one for each call. */
static void no_look_while_nothing_is_sent(void **state)
{
    struct starter x = { .left = 64 };
    unsigned before;
    hf_op *op;

    (void)state;
    c->core.store->starts_down = true;
    assert_int_equal(hf_acquire_start(c, "first", 0, NULL, start_many, &x, &op, NULL), 0);
    before = looks;
    while (x.left > 0)
        assert_true(hf_client_wait(c, PATIENCE_MS) > 0);
    assert_int_equal(x.after, x.before);
    assert_in_range(looks - before, 2, 16);
}

/* A sleep that a descriptor of ours has ended is followed by the next one without a look:
 * calls that wait for several answers need not pay for each. */
static void no_look_between_sleeps(void **state)
{
    enum { POKES = 100 };
    struct call a = { .name = "busy", .wait_ms = HF_FOREVER };
    hf_lease *x = hold(other, "busy", 0);
    unsigned before;

    (void)state;
    begin(&a);
    until_waiters("busy", 1);
    before = looks;
    for (int i = 0; i < POKES; i++) {
        hf__loop_poke(&c->loop); /* which looks once by itself */
        nap();
    }
    assert_in_range(looks - before, POKES, POKES + POKES / 2);
    hf_release(x, NULL);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.rc, 0);
    hf_release(a.lease, NULL);
}

/* ---- files of the program where ours were ---------------------------------------- */

enum { FIRST = 3, LAST = 63, FAR_S = 100000 };
enum theirs { FILE_, EVENT, TIMER, EPOLL, PIPE_END, KINDS };

/* Each number gets another kind in each run, so that each of ours meets all of them. */
static enum theirs kind_of(int fd, int run)
{
    return (enum theirs)((fd + run) % KINDS);
}

static char path[128];

static int make(enum theirs kind)
{
    struct itimerspec far = { .it_value = { FAR_S, 0 } };
    struct epoll_event once = { .events = EPOLLIN | EPOLLONESHOT };
    int fd, p[2];

    switch (kind) {
    case FILE_:
        return open(path, O_RDWR);
    case EVENT:
        return eventfd(7, EFD_NONBLOCK);
    case TIMER:
        fd = timerfd_create(CLOCK_BOOTTIME, 0);
        return timerfd_settime(fd, 0, &far, NULL) < 0 ? -1 : fd;
    case EPOLL: /* one event, which whoever asks first takes away */
        fd = epoll_create1(0);
        return epoll_ctl(fd, EPOLL_CTL_ADD, 1000, &once) < 0 ? -1 : fd;
    default:
        if (pipe(p) < 0 || write(p[1], "pipe", 4) != 4)
            return -1;
        close(p[1]);
        return p[0];
    }
}

static bool untouched(int fd, enum theirs kind)
{
    struct epoll_event ev;
    struct itimerspec its;
    char text[16] = "";
    uint64_t n;

    switch (kind) {
    case FILE_:
        return lseek(fd, 0, SEEK_CUR) == 0 && read(fd, text, 8) == 8 &&
               !strcmp(text, "contents");
    case EVENT:
        return read(fd, &n, sizeof n) == sizeof n && n == 7;
    case TIMER:
        return timerfd_gettime(fd, &its) == 0 && its.it_value.tv_sec > FAR_S / 2;
    case EPOLL:
        return epoll_wait(fd, &ev, 1, 0) == 1;
    default:
        return read(fd, text, 8) == 4 && !strcmp(text, "pipe");
    }
}

static void take_all(int run)
{
    int file, ready;

    syscall(SYS_close_range, FIRST, ~0u, 0);
    snprintf(path, sizeof path, "/tmp/hf-descriptors.%d", (int)getpid());
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ready = eventfd(1, 0);
    if (file != FIRST || write(file, "contents", 8) != 8 || dup2(ready, 1000) < 0)
        _exit(20);
    close(ready);
    close(file);
    for (int fd = FIRST; fd <= LAST; fd++) {
        int got = make(kind_of(fd, run));

        if (got > fd) /* a pipe has an end more */
            got = dup2(got, fd) == fd && close(got) == 0 ? fd : -1;
        if (got != fd)
            _exit(21);
    }
}

static int harmed(int run)
{
    int bad = 0;

    unlink(path);
    for (int fd = FIRST; fd <= LAST; fd++)
        if (!untouched(fd, kind_of(fd, run))) {
            fprintf(stderr, "descriptor %d, kind %d, was used\n", fd, kind_of(fd, run));
            bad = 1;
        }
    return bad;
}

static hf_cancel *button;

#define MUST(cond)                                                                         \
    do {                                                                                   \
        if (!(cond)) {                                                                     \
            fprintf(stderr, "line %d: %s\n", __LINE__, #cond);                             \
            _exit(1);                                                                      \
        }                                                                                  \
    } while (0)

static void await_loss(const hf_lease *l)
{
    for (int64_t end = now_ms() + PATIENCE_MS; hf_lease_check(l) == 0 && now_ms() < end;)
        nap();
    MUST(hf_lease_check(l) == HF_ELOST);
}

/* A lease is lost by its deadline; the thread that sleeps finds out why a moment later. */
static void await_refusal(hf_error *e)
{
    int64_t end = now_ms() + PATIENCE_MS;
    hf_lease *l;
    int rc;

    while ((rc = hf_acquire(c, "y", 0, NULL, &l, e)) == 0 && now_ms() < end) {
        hf_release(l, NULL);
        nap();
    }
    MUST(rc == HF_ESYS);
}

/* All of a client that has a descriptor is in use. */
static void closes_all(uint32_t drive, int run)
{
    struct call a = { .name = "busy", .wait_ms = HF_FOREVER };
    hf_lease *x, *kept;
    int64_t before;
    hf_error e;

    MUST(hf_open(url, HF_OPTIONS(.drive = drive, .ttl_ms = SOON_MS), &c, NULL) == 0);
    MUST(hf_open(url, HF_OPTIONS(.ttl_ms = SOON_MS), &other, NULL) == 0);
    MUST(hf_cancel_new(&button, NULL) == 0);
    x = hold(other, "busy", 0);
    kept = hold(c, "kept", 0);
    MUST(hf_lease_fd(kept, NULL) >= 0 && (run % 2 || hf_client_fd(c) >= 0));
    a.cancel = button;
    begin(&a);
    until_waiters("busy", 1);
    take_all(run);
    before = cpu_ms();
    hf_cancel_fire(button);
    await_loss(kept);
    pthread_join(a.thread, NULL);
    /* or cancelled: the button has lost its other end before its watch was lost */
    MUST(a.rc == HF_ECANCELED || (a.rc == HF_ESYS && strstr(a.err.text, "descriptor")));
    MUST(cpu_ms() - before < SOON_MS / 3);
    await_refusal(&e);
    MUST(strstr(e.text, "descriptors"));
    MUST(hf_client_process(c) == HF_ESYS && hf_client_wait(c, 1000) == HF_ESYS);
    errno = 0;
    MUST(hf_client_life_fds(c, NULL, 0) == HF_ESYS && errno == EBADF);
    memset(&e, 0, sizeof e);
    MUST(hf_release(kept, &e) == HF_ELOST && e.code == HF_ELOST && e.text[0]);
    hf_close(c);
    hf_close(other); /* nobody has found out about this one */
    MUST(hf_release(x, NULL) == HF_ECLOSED);
    hf_cancel_free(button);
}

/* In a store of its own: a process that comes there is watched by the others, with a
 * descriptor that a thread would open while all are closed. */
static pid_t start(uint32_t drive, int run)
{
    pid_t pid = fork();

    if (pid == 0) {
        alarm(60 * TEST_SLOW);
        snprintf(url + strlen(url), sizeof url - strlen(url), "/%d", run);
        closes_all(drive, run);
        _exit(harmed(run));
    }
    return pid;
}

static void in_children(uint32_t drive)
{
    pid_t pids[KINDS];
    int status;

    for (int run = 0; run < KINDS; run++)
        pids[run] = start(drive, run);
    for (int run = 0; run < KINDS; run++) {
        assert_int_equal(waitpid(pids[run], &status, 0), pids[run]);
        assert_int_equal(status, 0);
    }
}

__attribute__((unused)) static void closed_by_the_program(void **state)
{
    (void)state;
    in_children(HF_DRIVE_CALLER);
}

__attribute__((unused)) static void
closed_by_the_program_beside_a_resident_thread(void **state)
{
    (void)state;
    in_children(HF_DRIVE_PROMPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_descriptor_for_a_stop_button),
        APP(no_look_while_nothing_is_sent),
        TEST(no_look_between_sleeps),
#if !TEST_TSAN /* for which descriptors that are closed beside a thread that uses them are \
                  a race */
        cmocka_unit_test(closed_by_the_program),
        cmocka_unit_test(closed_by_the_program_beside_a_resident_thread),
#endif
    };

    return cmocka_run_group_tests_name("descriptors", tests, make_folder, remove_folder);
}
