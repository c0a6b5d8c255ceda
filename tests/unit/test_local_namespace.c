/* test_local_namespace.c: programs of other PID and time namespaces, and programs that
 * change their root or their user while the store is open. */
#include "driver/local/local.h"
#include "local_harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static int namespace_flags; /* CLONE_NEWPID or CLONE_NEWTIME */

static void go_there(void)
{
    bool time = namespace_flags == CLONE_NEWTIME;

    if (namespace_enter(namespace_flags) &&
        (!time || file_write("/proc/self/timens_offsets", "boottime 5000 0\n")))
        return;
    print_message("# no namespace can be made here: the driver is told of one\n");
    fflush(stdout);
    *(time ? &pretend.time_ns : &pretend.pid_ns) = 1;
}

/* In a grandchild that is in the new namespace: opens and tries "x". */
static int over_there(const char *where)
{
    int status;
    pid_t pid;

    go_there();
    pid = fork();
    if (pid == 0) {
        struct side s;
        struct pass p;
        int rc = side_open(&s, where, "");

        if (rc < 0)
            _exit(-rc);
        pass_init(&p, &s, "x");
        p.t.try_only = true;
        if (pass_join(&p) == 1)
            pass_leave(&p);
        rc = p.granted ? 0 : p.why;
        side_close(&s);
        _exit(-rc);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return 76;
    return WEXITSTATUS(status);
}

static void check_namespace(int flags)
{
    struct side s;
    struct pass p;
    int rc;

    namespace_flags = flags;
    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_hold(&p, &s, "x");
    rc = in_child(over_there, folder);
    assert_int_equal(rc, -HF_EFOREIGN);
    pass_renew(&p); /* still ours */
    assert_int_equal(p.alive, 1);
    pass_leave(&p);
    side_close(&s);
    assert_int_equal(in_child(over_there, folder), 0); /* nobody inside: re-homed */
    assert_int_equal(try_once("x"), 1);                /* and back */
    use_once("x");
    rc = in_child(over_there, folder);
    /* A kept ticket lives on in another PID namespace, but has no meaning on another clock.
     */
    assert_int_equal(rc, flags == CLONE_NEWPID ? -HF_EBUSY : -HF_EFOREIGN);
    assert_int_equal(try_once("x"), HF_EBUSY);
}

static void another_pid_namespace(void **state)
{
    (void)state;
    check_namespace(CLONE_NEWPID);
}

static void another_time_namespace(void **state)
{
    (void)state;
    check_namespace(CLONE_NEWTIME);
}

/* A living process that seems to be nobody, and whose start is told by another clock. */
static void start_times_of_another_clock(void **state)
{
    struct child c = child_start(folder, hold_without_descriptors, NULL);

    (void)state;
    assert_int_equal(child_hear(&c), 'h');
    namespace_flags = CLONE_NEWTIME;
    assert_int_equal(in_child(over_there, folder), -HF_EFOREIGN);
    assert_int_equal(try_once("x"), HF_EBUSY);
    child_kill(&c, SIGKILL);
    assert_int_equal(try_once("x"), 1);
}

/* The first process of a PID namespace that has the /proc of another one holds "x"; its
 * children try to take it, with every number that comes, until one has the same number in
 * both. Its /proc has another process by the number of the holder, which lives. */
static int try_with_our_number(const char *where, int to)
{
    char number[32] = "";
    struct side s;
    struct pass p;

    if (readlink("/proc/self", number, sizeof number - 1) < 0)
        return 1;
    if (atoi(number) != getpid())
        return write(to, number, sizeof number) == sizeof number ? CANNOT : 1;
    if (side_open(&s, where, "") < 0)
        return 2;
    pass_init(&p, &s, "x");
    p.t.try_only = true;
    return pass_join(&p) == 1 ? 3 : p.why == HF_EBUSY ? 0 : 4;
}

static int hold_as_first(const char *where)
{
    char number[32] = "1";
    int status = 0, ends[2];
    struct side s;
    struct pass p;

    if (side_open(&s, where, "") < 0)
        return 5;
    pass_init(&p, &s, "x");
    if (pass_join(&p) != 1 || pipe(ends) < 0)
        return 6;
    for (int i = 0; i < 4000; i++) {
        pid_t pid;

        /* the last one outside; others, or a thread of a sanitizer, may take some */
        snprintf(number, sizeof number, "%d", atoi(number) + i % 4);
        if (!file_write("/proc/sys/kernel/ns_last_pid", number))
            return CANNOT;
        if ((pid = fork()) == 0)
            _exit(try_with_our_number(where, ends[1]));
        if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
            return 7;
        if (WEXITSTATUS(status) != CANNOT)
            return WEXITSTATUS(status);
        if (read(ends[0], number, sizeof number) != sizeof number)
            return 8;
    }
    return 9;
}

static int as_first(const char *where)
{
    int status;
    pid_t pid;

    if (!namespace_enter(CLONE_NEWPID))
        return CANNOT;
    if ((pid = fork()) == 0)
        _exit(hold_as_first(where));
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 10;
}

static void a_foreign_proc_with_our_number(void **state)
{
    int rc = in_child(as_first, folder);

    (void)state;
    if (rc == CANNOT)
        print_message("# numbers of processes cannot be chosen here\n");
    else
        assert_int_equal(rc, 0);
}

/* ---- another root, another user -------------------------------------------------- */

enum { NEW_ROOT, NEW_USER };

static bool change(int what, const char *where)
{
    if (what == NEW_ROOT)
        return root_change(where);
    return geteuid() != 0
               ? chmod(where, 0) == 0
               : setresgid(12345, 12345, 12345) == 0 && setresuid(12345, 12345, 12345) == 0;
}

static bool works_on(struct side *s, struct pass *held, const char *name)
{
    struct pass p;

    held->alive = 0;
    pass_renew(held);
    s->ahead_us += 2 * 1000000; /* a join looks at the folder once in a second */
    pass_init(&p, s, name);
    return held->alive == 1 && pass_join(&p) == 1 && pass_leave(&p) == 0;
}

static void carry_on(struct child *c, const char *where, void *arg)
{
    struct side s;
    struct pass p;

    child_hold(&s, &p, where);
    if (!change(*(int *)arg, where))
        _exit(CANNOT);
    child_say(c, works_on(&s, &p, "y") ? 'y' : 'n');
    child_hear(c); /* the store grows */
    child_say(c, works_on(&s, &p, "z") ? 'y' : 'n');
    child_hear(c); /* the folder is moved */
    pass_renew(&p);
    child_say(c, p.dead ? 'y' : 'n');
    child_hear(c);
}

static void check_change(int what)
{
    char *moved;
    struct pass p[100], first;
    struct side s;
    struct child c;
    size_t size;

    assert_true(
        asprintf(&moved, "%.*s/moved", (int)(strrchr(folder, '/') - folder), folder) > 0);
    assert_int_equal(side_open(&s, folder, ""), 0);
    pass_hold(&first, &s, "first");
    c = child_start(folder, carry_on, &what);
    assert_int_equal(child_hear(&c), 'y');
    size = local_of(s.store)->sh->mapped;
    for (int i = 0; i < 100; i++) {
        char name[400];

        snprintf(name, sizeof name, "%0*d", 399, i);
        pass_hold(&p[i], &s, name);
    }
    assert_true(local_of(s.store)->sh->mapped > size);
    child_tell(&c, 'g');
    assert_int_equal(child_hear(&c), 'y');
    assert_int_equal(rename(folder, moved), 0);
    child_tell(&c, 'm');
    /* Only where it may not even enter the folder above: the test's own, of root. */
    assert_int_equal(child_hear(&c), what == NEW_USER && geteuid() == 0 ? 'n' : 'y');
    child_end(&c);
    side_close(&s);
    assert_int_equal(chmod(moved, 0700), 0);
    free(moved);
}

static void another_root(void **state)
{
    (void)state;
    check_change(NEW_ROOT);
}

static void another_user(void **state)
{
    (void)state;
    check_change(NEW_USER);
}

#define T(f) cmocka_unit_test_setup_teardown(f, folder_setup, folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(another_pid_namespace),  T(a_foreign_proc_with_our_number),
        T(another_time_namespace), T(start_times_of_another_clock),
        T(another_root),           T(another_user),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
