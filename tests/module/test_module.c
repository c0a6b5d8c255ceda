/* test_module.c: the loader of driver modules, through the public calls.
 *
 * Each case makes a folder, puts modules of the build into it (copies: the loader looks at
 * owner and mode of the file and of its folder) and names it in HOLDFAST_MODULE_DIR. Goes
 * wrong: a module of another build, a file or folder that others may write, a file that is no
 * module, none at all: each has its error.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
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
                                         "holdfast-text.so" };
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
    };

    return cmocka_run_group_tests_name("module", cases, NULL, NULL);
}
