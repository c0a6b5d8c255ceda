/* test_module.c: the loader of driver modules, through the public calls.
 *
 * Each case makes a folder, puts modules of the build into it (copies: the loader looks at
 * owner and mode of the file and of its folder) and names it in HOLDFAST_MODULE_DIR. Goes
 * wrong: a module of another build, a file or folder that others may write, a file that is
 * no module, none at all: each has its error; a fork while another thread loads a module.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <holdfast/tool.h>

static char folder[256];

static void path_of(char *buf, size_t size, const char *name)
{
    snprintf(buf, size, "%s/%s", folder, name);
}

static void copy_as(const char *from, const char *to)
{
    char path[512], data[4096];
    int in, out;
    ssize_t n;

    snprintf(path, sizeof path, "%s/%s", MODULES, from);
    in = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(in >= 0);
    path_of(path, sizeof path, to);
    out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(out >= 0);
    while ((n = read(in, data, sizeof data)) > 0)
        assert_int_equal(write(out, data, (size_t)n), n);
    assert_int_equal(n, 0);
    close(in);
    close(out);
    assert_int_equal(chmod(path, 0755), 0);
}

static int setup(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof folder, "%s/hfmod.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder) || chmod(folder, 0755) < 0)
        return -1;
    return setenv("HOLDFAST_MODULE_DIR", folder, 1);
}

static int teardown(void **state)
{
    static const char *const names[] = { "holdfast-stub.so", "holdfast-other.so",
                                         "holdfast-text.so", "holdfast-slow.so" };
    char path[512];

    (void)state;
    unsetenv("HOLDFAST_MODULE_DIR");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(path, sizeof path, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

/* A loaded module stays for the life of the process, so each case asks in a child. */
struct answer {
    int rc;
    hf_error err;
};

static struct answer ask(int (*call)(hf_error *))
{
    struct answer a = { 0, { 0 } };
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        a.rc = call(&a.err);
        _exit(write(fds[1], &a, sizeof a) == sizeof a ? 0 : 1);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &a, sizeof a), sizeof a);
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return a;
}

static int open_stub(hf_error *err)
{
    hf_client *c;

    return hf_open("stub://somewhere", NULL, &c, err);
}

static int open_stub_variant(hf_error *err)
{
    hf_client *c;

    return hf_open("stub+variant://somewhere", NULL, &c, err);
}

static int open_stub_unheard(hf_error *err)
{
    hf_client *c;

    return hf_open("stub+unheard://somewhere", NULL, &c, err);
}

static int open_other(hf_error *err)
{
    hf_client *c;

    return hf_open("other://somewhere", NULL, &c, err);
}

static int open_text(hf_error *err)
{
    hf_client *c;

    return hf_open("text://somewhere", NULL, &c, err);
}

static int preload_stub(hf_error *err)
{
    return hf_preload("local stub", err);
}

static int preload_then_remove(hf_error *err)
{
    char path[512];
    int rc = preload_stub(err);

    if (rc < 0)
        return rc;
    path_of(path, sizeof path, "holdfast-stub.so");
    unlink(path);
    return open_stub(err);
}

static void a_module_is_loaded_and_answers(void **state)
{
    struct answer a;

    (void)state;
    copy_as("holdfast-stub.so", "holdfast-stub.so");
    a = ask(open_stub);
    assert_int_equal(a.rc, HF_EUNREACHABLE);
    assert_int_equal(a.err.code, HF_EUNREACHABLE);
    assert_string_equal(a.err.text, "the stub is never reachable");
}

static void variants_of_a_scheme_share_its_module(void **state)
{
    struct answer a;

    (void)state;
    copy_as("holdfast-stub.so", "holdfast-stub.so");
    a = ask(open_stub_variant);
    assert_int_equal(a.rc, HF_EUNREACHABLE);
    a = ask(open_stub_unheard);
    assert_int_equal(a.rc, HF_EMODULE);
    assert_non_null(strstr(a.err.text, "stub+unheard"));
}

static void preload_needs_the_file_no_more(void **state)
{
    struct answer a;

    (void)state;
    copy_as("holdfast-stub.so", "holdfast-stub.so");
    a = ask(preload_then_remove);
    assert_int_equal(a.rc, HF_EUNREACHABLE);
}

static void another_build_is_refused(void **state)
{
    struct answer a;

    (void)state;
    copy_as("holdfast-other.so", "holdfast-other.so");
    a = ask(open_other);
    assert_int_equal(a.rc, HF_EVERSION);
    assert_non_null(strstr(a.err.text, "0.0.0-made-elsewhere"));
}

static void no_such_module_is_said(void **state)
{
    struct answer a;

    (void)state;
    a = ask(open_stub);
    assert_int_equal(a.rc, HF_EINVAL);
    assert_non_null(strstr(a.err.text, "holdfast-stub.so"));
    a = ask(preload_stub);
    assert_int_equal(a.rc, HF_EINVAL);
}

static void a_file_that_is_no_module_is_refused(void **state)
{
    char path[512];
    FILE *f;
    struct answer a;

    (void)state;
    path_of(path, sizeof path, "holdfast-text.so");
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("not a module\n", f);
    fclose(f);
    a = ask(open_text);
    assert_int_equal(a.rc, HF_EMODULE);
    assert_non_null(strstr(a.err.text, "holdfast-text.so"));
}

static void a_file_that_others_may_write_is_refused(void **state)
{
    char path[512];
    struct answer a;

    (void)state;
    copy_as("holdfast-stub.so", "holdfast-stub.so");
    path_of(path, sizeof path, "holdfast-stub.so");
    assert_int_equal(chmod(path, 0757), 0);
    a = ask(open_stub);
    assert_int_equal(a.rc, HF_EMODULE);
}

static void a_folder_that_others_may_write_is_refused(void **state)
{
    struct answer a;

    (void)state;
    copy_as("holdfast-stub.so", "holdfast-stub.so");
    assert_int_equal(chmod(folder, 0777), 0);
    a = ask(open_stub);
    assert_int_equal(a.rc, HF_EMODULE);
}

/* ---- fork beside a thread that loads a module ------------------------------------ */

enum { CHILD_S = 60 };

static void *preload(void *schemes)
{
    return (void *)(intptr_t)hf_preload(schemes, NULL);
}

/* In a forked child, which may hang where it must not: 0, or what went wrong. */
static int status_of(pid_t pid)
{
    int status;

    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return HF_ESYS;
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGALRM ? HF_ETIMEDOUT : HF_EBUG;
    return -WEXITSTATUS(status);
}

static int fork_while_a_module_loads(hf_error *err)
{
    int begun[2], go[2], rc;
    char fds[32], byte;
    pthread_t thread;
    pid_t pid;

    if (pipe(begun) < 0 || pipe(go) < 0)
        return HF_ESYS;
    snprintf(fds, sizeof fds, "%d %d", begun[1], go[0]);
    setenv("HF_TEST_SLOW", fds, 1);
    if (pthread_create(&thread, NULL, preload, "slow") != 0 ||
        read(begun[0], &byte, 1) != 1)
        return HF_ESYS;
    pid = fork();
    if (pid == 0) {
        hf_client *c;

        alarm(CHILD_S);
        _exit(-hf_open("slow://somewhere", NULL, &c, err));
    }
    rc = write(go[1], "", 1) == 1 ? status_of(pid) : HF_ESYS;
    pthread_join(thread, NULL);
    return rc;
}

/* Without waiting in fork the child would find the loader's lock taken by nobody. */
static void a_fork_waits_for_a_module_that_is_being_loaded(void **state)
{
    (void)state;
    copy_as("holdfast-slow.so", "holdfast-slow.so");
    assert_int_equal(ask(fork_while_a_module_loads).rc, HF_EUNREACHABLE);
}

#ifdef REAL_MODULES

static atomic_bool stop;

static void *preload_for_ever(void *arg)
{
    while (!atomic_load(&stop))
        if (hf_preload("redis zk", NULL) < 0)
            return "a module cannot be loaded";
    return arg;
}

static int open_real(const char *url)
{
    hf_client *c;
    int rc = hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, NULL);

    if (rc == 0)
        hf_close(c);
    return rc;
}

static int fork_beside_a_loader(hf_error *err)
{
    pthread_t thread;
    void *failed;
    int rc = 0;

    (void)err;
    if (pthread_create(&thread, NULL, preload_for_ever, NULL) != 0)
        return HF_ESYS;
    for (int i = 0; rc == 0 && i < 300; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            alarm(CHILD_S);
            rc = open_real("redis://127.0.0.1:1");
            _exit(rc < 0 ? -rc : -open_real("zk://127.0.0.1:1"));
        }
        rc = status_of(pid);
    }
    atomic_store(&stop, true);
    pthread_join(thread, &failed);
    return rc == 0 && failed ? HF_EMODULE : rc;
}

static void the_child_of_a_loading_process_loads_what_it_needs(void **state)
{
    (void)state;
    unsetenv("HOLDFAST_MODULE_DIR");
    assert_int_equal(ask(fork_beside_a_loader).rc, 0);
}

#endif

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_module_is_loaded_and_answers),
        CASE(variants_of_a_scheme_share_its_module),
        CASE(preload_needs_the_file_no_more),
        CASE(another_build_is_refused),
        CASE(no_such_module_is_said),
        CASE(a_file_that_is_no_module_is_refused),
        CASE(a_file_that_others_may_write_is_refused),
        CASE(a_folder_that_others_may_write_is_refused),
        CASE(a_fork_waits_for_a_module_that_is_being_loaded),
#ifdef REAL_MODULES
        CASE(the_child_of_a_loading_process_loads_what_it_needs),
#endif
    };

    return cmocka_run_group_tests_name("module", cases, NULL, NULL);
}
