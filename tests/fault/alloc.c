/* alloc.c: every allocation of a working life fails once, and all from it on.
 *
 * The program is linked with --wrap for the allocating functions, so that it decides
 * which allocation of the library finds no memory. For N = 1, 2, ... a child process
 * opens a store, locks, waits, looks, releases and closes while the N-th allocation
 * fails (or all from the N-th on); each call must succeed or say HF_ENOMEM, the client
 * must work once there is memory again, and in the end nothing is in any line. It ends
 * when N is beyond the last allocation. Under AddressSanitizer the end of each child is
 * also a leak check. Upholds G7 and G11.
 *
 *     fault-alloc [SETUP] [one|all N]
 *
 * With a server the driver must be part of the library: what a module allocates is not seen
 * here, and neither is what hiredis does. There a call may also say that it could not
 * connect again, or that its outcome is unknown, and what it left is settled when there is
 * memory again.
 */
#include "check.h"
#include "setup.h"

#include <errno.h>
#include <holdfast/async.h>
#include <holdfast/tool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DONE = 42,
    CALL_MS = 20,
    OUT_OF_MEMORY_MS = 300,
    BRIEF_MS = 500,
    CONNECT_MS = 1000,
    MOST = 5000,
    AT_ONCE = 8
};

static atomic_bool armed;
static atomic_long until_failure; /* counts down; fails at 0 */
static atomic_bool onwards, fired;
static bool server; /* the store is one */

static bool fails(void)
{
    long left;

    if (!atomic_load(&armed))
        return false;
    left = atomic_fetch_sub(&until_failure, 1) - 1;
    if (left > 0 || (left < 0 && !atomic_load(&onwards)))
        return false;
    atomic_store(&fired, true);
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
char *__real_strdup(const char *);
char *__real_strndup(const char *, size_t);
void *__wrap_malloc(size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);
char *__wrap_strdup(const char *);
char *__wrap_strndup(const char *, size_t);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}

/* `rc` is what the call may give when there is memory. */
static int either(int line, int rc, int wanted)
{
    if (server && (rc == HF_EUNREACHABLE || rc == HF_EUNKNOWN))
        return rc;
    if (rc != wanted && rc != HF_ENOMEM)
        check_failed(__FILE__, line, "gave %d %s, expected %s or HF_ENOMEM", rc,
                     rc < 0 ? hf_errname(rc) : "", wanted < 0 ? hf_errname(wanted) : "0");
    return rc;
}
#define EITHER(call, wanted) either(__LINE__, (call), (wanted))

/* Without any memory every call waits for a server that it cannot reach, and the sessions
 * of both clients end meanwhile if that lasts: then what has been tried without memory is
 * enough. */
static bool hopeless(void)
{
    return server && atomic_load(&onwards) && atomic_load(&fired);
}

/* A release is never refused: at worst it is settled later. */
static void released(hf_lease *l)
{
    int rc = hf_release(l, E());

    CHECK(rc == 0 || rc == HF_ENOMEM || rc == HF_EUNKNOWN);
}

struct told {
    int calls, rc;
    hf_lease *lease;
};

static void on_told(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    struct told *t = user;

    (void)op;
    (void)err;
    t->calls++;
    t->rc = rc;
    t->lease = l;
}

/* Drives until the callback has run. Without any memory it need not come to that, but then
 * it must as soon as there is memory again. */
static void drive_until_told(hf_client *c, const struct told *t)
{
    int64_t start = now_ms();

    while (!t->calls) {
        int rc = hf_client_wait(c, 100);

        CHECK(rc >= 0 || rc == HF_ENOMEM);
        if (rc == HF_ENOMEM) /* sleeping needs memory, looking does not */
            CHECK(hf_client_process(c) >= 0);
        if (atomic_load(&onwards) && now_ms() > start + OUT_OF_MEMORY_MS)
            atomic_store(&armed, false);
        CHECK(now_ms() < start + LIMIT_MS);
    }
}

/* A wait that ends with a grant, on the asynchronous side. */
static void granted_later(hf_client *c, hf_client *helper)
{
    struct told t = { 0 };
    hf_lease *busy = NULL;
    hf_op *op = NULL;
    bool was = atomic_exchange(&armed, false);

    CHECK_RC(hf_acquire(helper, "later", 0, NULL, &busy, E()), 0);
    atomic_store(&armed, was);
    if (EITHER(hf_acquire_start(c, "later", HF_FOREVER, HF_REQUEST(.note = "note"), on_told,
                                &t, &op, E()),
               0) == 0) {
        was = atomic_exchange(&armed, false);
        CHECK_RC(hf_release(busy, E()), 0);
        busy = NULL;
        atomic_store(&armed, was);
        drive_until_told(c, &t);
        was = atomic_load(&armed);
        EITHER(t.rc, 0);
        if (t.lease)
            EITHER(hf_release_start(t.lease, NULL, NULL, NULL, E()), 0);
        hf_op_free(op);
    }
    atomic_store(&armed, false);
    CHECK_RC(hf_release(busy, E()), 0);
    atomic_store(&armed, was);
}

static void on_seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    (void)list;
    on_told(op, rc, NULL, err, user);
}

/* Two questions at once; the second is not waited for. */
static void looked_later(hf_client *c)
{
    struct told t = { 0 }, freed = { 0 };
    hf_op *op = NULL, *other = NULL;

    EITHER(hf_name_state_start(c, "busy", on_told, &freed, &other, E()), 0);
    if (EITHER(hf_look_start(c, "busy", on_seen, &t, &op, E()), 0) == 0) {
        hf_op_free(other);
        drive_until_told(c, &t);
        EITHER(t.rc, 0);
        CHECK_NUM(freed.calls, ==, 0);
        other = NULL;
    }
    hf_op_free(other);
    hf_op_free(op);
}

static void look_around(hf_client *c)
{
    hf_cancel *stop = NULL;
    hf_list *list = NULL;

    EITHER(hf_look(c, "busy", &list, E()), 0);
    hf_list_free(list);
    list = NULL;
    EITHER(hf_ls(c, "", 0, &list, E()), 0);
    hf_list_free(list);
    EITHER(hf_cancel_new(&stop, E()), 0);
    hf_cancel_free(stop);
    if (!hopeless())
        EITHER(hf_name_state(c, "busy", E()), HF_TAKEN);
    if (!hopeless())
        EITHER(hf_evict(c, "busy", "00000000000000000000000000000000", HF_EVICT_NOW, E()),
               HF_ENOENT);
    if (!hopeless())
        looked_later(c);
}

static void use(hf_client *c, hf_client *helper)
{
    const char *names[] = { "all/2", "all/1", "all/3" };
    hf_lease *l = NULL, *again = NULL, *none = NULL;
    const hf_request *req = HF_REQUEST(.note = "note", .owner = 7);

    if (EITHER(hf_acquire(c, "one", 0, req, &l, E()), 0) == 0) {
        if (EITHER(hf_acquire(c, "one", 0, req, &again, E()), 0) == 0)
            released(again);
        if (hf_lease_fd(l, E()) < 0)
            CHECK(last_error()->code == HF_ENOMEM);
        EITHER(hf_lease_note(l, "another note", E()), 0);
        EITHER(hf_lease_downgrade(l, E()), 0);
        released(l);
    }
    EITHER(hf_acquire(c, "busy", 0, NULL, &none, E()), HF_EBUSY);
    EITHER(hf_acquire(c, "busy", CALL_MS, NULL, &none, E()), HF_ETIMEDOUT);
    l = NULL;
    if (EITHER(hf_acquire_all(c, names, 3, 0, NULL, &l, E()), 0) == 0) {
        if (!hopeless())
            EITHER(hf_lease_note(l, "of all", E()), 0);
        hf_lease_ticket(l); /* or NULL */
        EITHER(hf_lease_wait(l, 1, E()), 0);
        released(l);
    }
    CHECK(!none);
    granted_later(c, helper);
    look_around(c);
}

static size_t in_line(hf_client *c, const char *name)
{
    hf_list *list = NULL;
    const hf_line *line;
    size_t n;

    CHECK_RC(hf_look(c, name, &list, E()), 0);
    line = hf_list_at(list, 0);
    n = line ? hf_line_tickets(line) : 0;
    hf_list_free(list);
    return n;
}

static const char *const names_used[] = {
    "one", "later", "all/1", "all/2", "all/3", "after"
};

static void await_empty(hf_client *helper)
{
    for (size_t i = 0; i < sizeof(names_used) / sizeof(names_used[0]); i++)
        AWAIT(in_line(helper, names_used[i]) == 0);
}

/* In a child. Ends with DONE if nothing failed because N was beyond the last allocation. */
_Noreturn static void one_life(const char *url, long n, bool all)
{
    hf_request brief = HF_REQUEST_INIT;
    hf_client *helper = NULL, *c = NULL;
    hf_lease *busy = NULL, *l = NULL;
    char hasty[700], patient[700];
    int rc;

    snprintf(hasty, sizeof(hasty), "%s%s", url, server ? "&connect_timeout=500ms" : "");
    snprintf(patient, sizeof(patient), "%s%s", url, server ? "&connect_timeout=30s" : "");
    CHECK_RC(hf_open(patient, NULL, &helper, E()), 0);
    CHECK_RC(hf_acquire(helper, "busy", 0, NULL, &busy, E()), 0);
    if (server && (hf_client_caps(helper) & HF_CAP_TTL))
        /* a server that cannot be told of the end ends it by itself */
        brief.ttl_ms = strncmp(url, "etcd:", 5) == 0 ? 1000 : BRIEF_MS;
    atomic_store(&until_failure, n);
    atomic_store(&onwards, all);
    atomic_store(&armed, true);
    if (EITHER(hf_open(hasty, NULL, &c, E()), 0) == 0)
        use(c, helper);
    atomic_store(&armed, false);
    if (c) {
        await_empty(helper);
        AWAIT(in_line(helper, "busy") == 1);
        /* a server that is known to be away is not waited for */
        AWAIT((rc = hf_acquire(c, "after", LIMIT_MS, NULL, &l, E())) != HF_EUNREACHABLE);
        CHECK_RC(rc, 0);
        rc = hf_release(l, E());
        CHECK(rc == 0 ||
              (server && rc == HF_EUNKNOWN)); /* not answered in its short time */
        AWAIT((rc = hf_acquire(c, "after", 0, &brief, &l, E())) == 0 ||
              (rc != HF_EUNREACHABLE && rc != HF_EBUSY));
        CHECK_RC(rc, 0);
        atomic_store(&armed, all); /* closing with a hold, without memory */
        hf_close(c);
        atomic_store(&armed, false);
        CHECK_RC(hf_release(l, E()), HF_ECLOSED);
    }
    await_empty(helper);
    CHECK_RC(hf_release(busy, E()), 0);
    CHECK(in_line(helper, "busy") == 0);
    hf_close(helper);
    exit(atomic_load(&fired) ? 0 : DONE);
}

static pid_t start_life(const char *url, long n, bool all)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        char
            own[600]; /* what a life that failed left in a server is not in another's way */

        snprintf(own, sizeof(own), "%s%c%snamespace=%d", url, strchr(url, '?') ? '&' : '?',
                 strstr(url, "ttl=") ? "" : "ttl=10m&", /* beyond patience */
                 (int)getpid());
        alarm(60 * TEST_SLOW);
        one_life(server ? own : url, n, all);
    }
    return pid;
}

/* Returns the child's status as a shell gives it: 128 and more is a signal. */
static int life_ended(pid_t pid)
{
    int status;

    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* On a server several at a time: mostly they wait. */
static bool all_lives(const char *url, bool all, int number)
{
    const int at_once = server ? AT_ONCE : 1;
    int failed = 0;
    bool done = false;
    long n = 1;

    while (n < MOST && !done) {
        pid_t pids[AT_ONCE];

        for (int i = 0; i < at_once; i++)
            pids[i] = start_life(url, n + i, all);
        for (int i = 0; i < at_once; i++) {
            int status = life_ended(pids[i]);

            done = done || status == DONE;
            if (done)
                continue;
            if (status != 0) {
                failed++;
                printf("# allocation %ld: status %d\n", n, status);
            }
            n++;
        }
    }
    if (n < 10 || !done) /* then the wrapping does not work, and nothing was tested */
        failed++;
    printf("%s %d - %s, %ld places\n", failed ? "not ok" : "ok", number,
           all ? "all-fail-from" : "one-fails", n - 1);
    return failed == 0;
}

static const struct setup *chosen(int *argc, char ***argv)
{
    for (size_t i = 1; setups[i] && *argc > 1; i++) {
        if (strcmp((*argv)[1], setups[i]->name) != 0)
            continue;
        server = true;
        --*argc;
        ++*argv;
        return setups[i];
    }
    return setups[0];
}

int main(int argc, char **argv)
{
    const struct setup *setup = chosen(&argc, &argv);
    struct place place = { .pid = 0 };
    char *limits;
    bool ok;

    setlinebuf(stdout);
    setup->start(&place);
    limits = strstr(place.url, "?ttl="); /* a life has its own */
    if (limits)
        *limits = '\0';
    if (argc == 3) { /* that one alone, to look at it */
        ok = life_ended(start_life(place.url, strtol(argv[2], NULL, 10),
                                   strcmp(argv[1], "all") == 0)) == 0;
        setup->stop(&place);
        return ok ? 0 : 1;
    }
    ok = all_lives(place.url, false, 1);
    ok = all_lives(place.url, true, 2) && ok;
    setup->stop(&place);
    printf("1..2\n");
    return ok ? 0 : 1;
}
