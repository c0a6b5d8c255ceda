/* newer.c: a program that was compiled with a newer header than the library's: its
 * structures have more fields. While those are zero, which is their default, the library
 * takes them; a value in one asks for something that the library does not know: HF_EINVAL.
 */
#include <holdfast/async.h>
#include <holdfast/tool.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct options {
    hf_options known;
    int64_t more[2];
};

struct request {
    hf_request known;
    const char *more[3];
};

struct backend {
    hf_backend known;
    char more[64];
};

static char folder[] = "/tmp/hf-abi-XXXXXX", url[64];
static hf_client *c;
static hf_error err;

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(url, sizeof url, "local://%s", folder);
    return hf_open(url, NULL, &c, NULL);
}

static int teardown(void **state)
{
    char cmd[128];

    (void)state;
    hf_close(c);
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd);
}

static void options(void **state)
{
    struct options o = { .known = { .size = sizeof o, .ttl_ms = 5000 } };
    hf_client *other = NULL;

    (void)state;
    assert_int_equal(hf_open(url, &o.known, &other, &err), 0);
    hf_close(other);
    other = NULL;
    o.more[1] = 1;
    assert_int_equal(hf_open(url, &o.known, &other, &err), HF_EINVAL);
    assert_null(other);
    assert_non_null(strstr(err.text, "hf_options"));
}

static int body(hf_lease *l, void *user)
{
    (void)user;
    return hf_lease_check(l);
}

static void done(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    (void)op, (void)e;
    *(int *)user = rc;
    hf_release(l, NULL);
}

/* Every call that takes a request gives this result. */
static void check_calls(const hf_request *r, int wanted)
{
    const char *names[] = { "a", "b" };
    hf_lease *l = NULL;
    hf_op *op = NULL;
    int rc = 1;

    assert_int_equal(hf_acquire(c, "a", 0, r, &l, &err), wanted);
    hf_release(l, NULL);
    l = NULL;
    assert_int_equal(hf_acquire_all(c, names, 2, 0, r, &l, &err), wanted);
    hf_release(l, NULL);
    assert_int_equal(hf_with(c, "a", 0, r, body, NULL, NULL, &err), wanted);
    assert_int_equal(hf_acquire_start(c, "a", 0, r, done, &rc, &op, &err), wanted);
    while (wanted == 0 && rc == 1)
        assert_true(hf_client_wait(c, 60000) > 0);
    hf_op_free(op);
    op = NULL;
    assert_int_equal(rc, wanted == 0 ? 0 : 1);
    assert_int_equal(hf_acquire_all_start(c, names, 2, 0, r, done, &rc, &op, &err), wanted);
    hf_op_free(op);
}

static void requests(void **state)
{
    struct request r = { .known = { .size = sizeof r, .mode = HF_WRITE, .ttl_ms = 5000 } };

    (void)state;
    check_calls(&r.known, 0);
    r.more[2] = "not known yet";
    check_calls(&r.known, HF_EINVAL);
    assert_non_null(strstr(err.text, "hf_request"));
}

static void backends(void **state)
{
    struct backend b;

    (void)state;
    memset(&b, 0x5a, sizeof b);
    b.known.size = sizeof b;
    assert_int_equal(hf_backend_at(0, &b.known), 0);
    assert_int_equal(b.known.size, sizeof b);
    assert_non_null(b.known.name);
    for (size_t i = 0; i < sizeof b.more; i++)
        assert_int_equal(b.more[i], 0x5a);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(options),
        cmocka_unit_test(requests),
        cmocka_unit_test(backends),
    };

    return cmocka_run_group_tests_name("abi-newer", cases, setup, teardown);
}
