/* test_tls.c: the module that has no driver: found and loaded as every other, and its
 * absence is said in words that name it. Each case asks in a child: a loaded module
 * stays. */
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

struct answer {
    int rc;
    hf_error err;
};

static struct answer preload(const char *words, const char *folder)
{
    struct answer a = { 0, { 0 } };
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (folder)
            setenv("HOLDFAST_MODULE_DIR", folder, 1);
        else
            unsetenv("HOLDFAST_MODULE_DIR");
        a.rc = hf_preload(words, &a.err);
        _exit(write(fds[1], &a, sizeof a) == sizeof a ? 0 : 1);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &a, sizeof a), sizeof a);
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return a;
}

static void it_is_beside_the_library(void **state)
{
    struct answer a = preload("local tls tls", NULL);

    (void)state;
    if (a.rc)
        fail_msg("%s", a.err.text);
}

static void that_it_is_missing_is_said(void **state)
{
    char folder[] = "/tmp/hfmod.XXXXXX";
    struct answer a;

    (void)state;
    assert_non_null(mkdtemp(folder));
    a = preload("tls", folder);
    assert_int_equal(a.rc, HF_EMODULE);
    assert_int_equal(a.err.code, HF_EMODULE);
    assert_string_equal(a.err.text, "TLS: the module holdfast-tls.so is not installed");
    rmdir(folder);
}

static void it_is_no_store(void **state)
{
    hf_client *c = NULL;
    hf_error err = { 0 };

    (void)state;
    assert_int_equal(hf_open("tls://somewhere", NULL, &c, &err), HF_EMODULE);
    assert_string_equal(err.text, "the module has no driver for tls:");
}

static void it_is_not_listed_among_the_stores(void **state)
{
    hf_backend b = { .size = sizeof b };

    (void)state;
    for (size_t i = 0; hf_backend_at(i, &b) == 0; i++)
        assert_string_not_equal(b.name, "tls");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(it_is_beside_the_library),
        cmocka_unit_test(that_it_is_missing_is_said),
        cmocka_unit_test(it_is_no_store),
        cmocka_unit_test(it_is_not_listed_among_the_stores),
    };

    return cmocka_run_group_tests_name("module-tls", cases, NULL, NULL);
}
