/* old.c: a program of version 0.1, as it was: compiled with the headers of then
 * (holdfast-0.1.h and async-0.1.h, which this build finds as <holdfast/...>), run with the
 * library of today, on an embedded store in a temporary folder. Structures have the size
 * and fields of then. It calls every function that there was; tests/abi/symbols checks
 * that.
 */
#include <errno.h>
#include <holdfast/async.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef HOLDFAST_TOOL_H
#error "these are not the headers of 0.1"
#endif

enum { LIMIT_MS = 60000 };

static char folder[] = "/tmp/hf-abi-XXXXXX", url[64];
static hf_client *a, *b;
static hf_error err;

#define OK(call)                                                                           \
    do {                                                                                   \
        int rc_ = (call);                                                                  \
        if (rc_ < 0)                                                                       \
            fail_msg("%s: %s (%s)", #call, hf_errname(rc_), err.text);                     \
    } while (0)

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    return snprintf(url, sizeof url, "local://%s", folder) < 0;
}

static int remove_folder(void **state)
{
    char cmd[128];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd);
}

static int setup(void **state)
{
    (void)state;
    return hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_PROMPT, .ttl_ms = 20000), &a, &err) <
               0 ||
           hf_open(url, NULL, &b, &err) < 0;
}

static int teardown(void **state)
{
    (void)state;
    hf_close(a);
    hf_close(b);
    return 0;
}

static hf_lease *taken(hf_client *c, const char *name, const hf_request *r)
{
    hf_lease *l = NULL;

    OK(hf_acquire(c, name, LIMIT_MS, r, &l, &err));
    return l;
}

static void sizes_are_those_of_then(void **state)
{
    hf_options o = HF_OPTIONS_INIT;
    hf_request r = HF_REQUEST_INIT;
    hf_backend s = { .size = sizeof s - 8 };
    hf_client *c;
    hf_lease *l;

    (void)state;
    if (sizeof(void *) == 8) {
        assert_int_equal(sizeof(hf_options), 40);
        assert_int_equal(sizeof(hf_request), 64);
        assert_int_equal(sizeof(hf_backend), 280);
        assert_int_equal(sizeof(hf_error), 336);
    }
    o.size -= 8;
    assert_int_equal(hf_open(url, &o, &c, &err), HF_EINVAL);
    r.size -= 8;
    assert_int_equal(hf_acquire(a, "size", 0, &r, &l, &err), HF_EINVAL);
    assert_int_equal(err.code, HF_EINVAL);
    assert_int_equal(hf_backend_at(0, &s), HF_EINVAL);
}

static void numbers_of_errors_are_those_of_then(void **state)
{
    (void)state;
#define HF_X(symbol, number, text, retry)                                                  \
    assert_string_equal(hf_errname(number), #symbol);                                      \
    assert_string_not_equal(hf_strerror(number), "");
    HF_ERRORS(HF_X)
#undef HF_X
    assert_non_null(hf_version());
}

static void locks_and_permits(void **state)
{
    const hf_request slot = {
        .size = sizeof slot, .mode = HF_PERMITS, .permits = 2, .capacity = 3
    };
    hf_lease *l = taken(a, "job", HF_REQUEST(.ttl_ms = 15000, .note = "old")), *m;

    (void)state;
    assert_int_equal(hf_lease_check(l), 0);
    assert_int_equal(hf_lease_state(l), HF_HELD);
    assert_in_range(hf_lease_remaining_ms(l), 1, 15000);
    assert_string_equal(hf_lease_name(l), "job");
    assert_true(hf_lease_fence(l) > 0 && hf_lease_fence(l) == hf_lease_fence_of(l, "job"));
    assert_int_equal(hf_acquire(b, "job", 0, NULL, &m, &err), HF_EBUSY);
    assert_int_equal(err.retry, 1);
    OK(hf_lease_note(l, "older", &err));
    OK(hf_lease_adopt(l, 7, &err));
    OK(hf_acquire(a, "job", 0, HF_REQUEST(.owner = 7), &m, &err));
    OK(hf_release(m, &err));
    OK(hf_lease_downgrade(l, &err));
    m = taken(b, "job", HF_REQUEST(.mode = HF_READ));
    OK(hf_release(m, &err));
    OK(hf_release(l, &err));
    l = taken(a, "slots", &slot);
    assert_int_equal(hf_acquire(b, "slots", 0, &slot, &m, &err), HF_EBUSY);
    OK(hf_release(l, &err));
    l = taken(a, "by hand", HF_REQUEST(.flags = HF_NO_RENEW, .max_hold_ms = LIMIT_MS));
    OK(hf_lease_renew(l, 0, &err));
    OK(hf_release_after(l, LIMIT_MS, &err));
    assert_int_equal(hf_acquire(b, "by hand", 0, NULL, &m, &err), HF_EBUSY);
}

static int body(hf_lease *l, void *user)
{
    (void)user;
    return hf_lease_check(l) == 0 ? 42 : 0;
}

static void several_names_a_body_and_a_stop_button(void **state)
{
    const char *names[] = { "two", "one" };
    hf_cancel *stop;
    hf_lease *l, *m;
    int result = 0;

    (void)state;
    OK(hf_acquire_all(a, names, 2, 0, NULL, &l, &err));
    assert_string_equal(hf_lease_name(l), "one");
    OK(hf_cancel_new(&stop, &err));
    hf_cancel_fire(stop);
    assert_int_equal(hf_acquire(b, "two", LIMIT_MS, HF_REQUEST(.cancel = stop), &m, &err),
                     HF_ECANCELED);
    hf_cancel_reset(stop);
    OK(hf_release(l, &err));
    OK(hf_acquire(b, "two", LIMIT_MS, HF_REQUEST(.cancel = stop), &m, &err));
    OK(hf_release(m, &err));
    hf_cancel_free(stop);
    OK(hf_with(a, "one", 0, NULL, body, NULL, &result, &err));
    assert_int_equal(result, 42);
}

static void check_ticket(const hf_ticket *t, hf_lease *l)
{
    assert_int_equal(hf_ticket_fence(t), hf_lease_fence(l));
    assert_int_equal(hf_ticket_position(t), 0);
    assert_int_equal(hf_ticket_mode(t), HF_WRITE);
    assert_int_equal(hf_ticket_permits(t), 0);
    assert_int_equal(hf_ticket_pid(t), getpid());
    assert_string_not_equal(hf_ticket_host(t), "");
    assert_string_not_equal(hf_ticket_owner(t), "");
    assert_string_equal(hf_ticket_note(t), "seen");
    assert_true(hf_ticket_age_ms(t) >= 0 && hf_ticket_expires_ms(t) > 0);
    assert_int_equal(hf_ticket_broken(t) + hf_ticket_kept(t), 0);
}

static void changed(hf_lease *l, int state, void *user)
{
    (void)l, (void)state, (void)user;
}

static void looking_and_breaking(void **state)
{
    hf_lease *l = taken(a, "seen", HF_REQUEST(.note = "seen"));
    hf_list *list, *all;
    const hf_line *line;
    struct pollfd p = { .events = POLLIN };

    (void)state;
    p.fd = hf_lease_fd(l, &err);
    assert_true(p.fd >= 0);
    OK(hf_lease_on_change(l, changed, NULL, &err));
    OK(hf_look(b, "seen", &list, &err));
    assert_int_equal(hf_list_count(list), 1);
    line = hf_list_at(list, 0);
    assert_string_equal(hf_line_name(line), "seen");
    assert_int_equal(hf_line_mode(line), HF_WRITE);
    assert_int_equal(hf_line_capacity(line), 0);
    assert_int_equal(hf_line_holders(line), 1);
    assert_int_equal(hf_line_waiters(line), 0);
    assert_true(hf_line_oldest_ms(line) >= 0);
    assert_int_equal(hf_line_tickets(line), 1);
    check_ticket(hf_line_ticket(line, 0), l);
    OK(hf_ls(b, "see", 0, &all, &err));
    assert_int_equal(hf_list_count(all), 1);
    hf_list_free(all);
    OK(hf_evict(b, "seen", hf_ticket_id(hf_line_ticket(line, 0)), HF_EVICT_NOW, &err));
    hf_list_free(list);
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    assert_int_equal(hf_lease_check(l), HF_ELOST);
    assert_int_equal(hf_release(l, &err), HF_ELOST);
    l = taken(b, "seen", NULL);
    OK(hf_release(l, &err));
}

struct told {
    int calls, rc;
    hf_lease *lease;
};

static void done(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    struct told *t = user;

    (void)op, (void)e;
    t->calls++;
    t->rc = rc;
    t->lease = l;
}

static void seen(hf_op *op, int rc, const hf_list *list, const hf_error *e, void *user)
{
    (void)op, (void)list, (void)e;
    *(int *)user = rc < 0 ? rc : 1;
}

static void tell(hf_client *c, const struct told *t)
{
    while (t->calls == 0)
        assert_true(hf_client_wait(c, LIMIT_MS) > 0);
}

static void operations_with_callbacks(void **state)
{
    const char *names[] = { "x", "y" };
    struct told got = { 0 }, gave = { 0 }, gone = { 0 }, both = { 0 };
    struct pollfd p = { .events = POLLIN };
    hf_op *op;
    int watched = 0;

    (void)state;
    p.fd = hf_client_fd(b);
    assert_true(p.fd >= 0);
    OK(hf_acquire_start(b, "x", 0, HF_REQUEST(.owner = 1), done, &got, &op, &err));
    while (got.calls == 0) {
        assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
        OK(hf_client_process(b));
    }
    hf_op_free(op);
    assert_int_equal(got.rc, 0);
    OK(hf_acquire_start(b, "x", LIMIT_MS, NULL, done, &gone, &op, &err));
    hf_op_cancel(op);
    tell(b, &gone);
    hf_op_free(op);
    assert_int_equal(gone.rc, HF_ECANCELED);
    OK(hf_release_start(got.lease, done, &gave, &op, &err));
    tell(b, &gave);
    hf_op_free(op);
    assert_int_equal(gave.rc, 0);
    OK(hf_acquire_all_start(b, names, 2, 0, NULL, done, &both, &op, &err));
    tell(b, &both);
    hf_op_free(op);
    assert_int_equal(both.rc, 0);
    OK(hf_release(both.lease, &err));
    OK(hf_watch_start(b, "x", seen, &watched, &op, &err));
    while (!watched)
        assert_true(hf_client_wait(b, LIMIT_MS) > 0);
    hf_op_free(op);
    assert_int_equal(watched, 1);
}

static void what_tools_ask(void **state)
{
    hf_lease *l = taken(a, "owned", HF_REQUEST(.owner = HF_OWNER_THREAD)), *m;
    hf_backend s = { .size = sizeof s };
    char owner[256];
    hf_client *c;
    int fds[4], local = 0;

    (void)state;
    assert_true(hf_client_caps(a) & HF_CAP_DEADLINE);
    assert_string_equal(hf_client_url(a), url);
    assert_int_equal(hf_client_life_fds(a, fds, 4), 1);
    assert_in_range(hf_lease_owner(l, owner, sizeof owner), 1, sizeof owner - 1);
    OK(hf_open(url, HF_OPTIONS(.owner = owner), &c, &err));
    assert_int_equal(hf_acquire(c, "owned", LIMIT_MS, NULL, &m, &err), HF_EDEADLK);
    hf_close(c);
    OK(hf_release(l, &err));
    OK(hf_preload("local", &err));
    for (size_t i = 0; hf_backend_at(i, &s) == 0; i++)
        if (strcmp(s.name, "local") == 0)
            local +=
                s.state == HF_BACKEND_BUILTIN && strstr(s.schemes, "local") && *s.detail;
    assert_int_equal(local, 1);
    assert_int_equal(s.size, sizeof s);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(sizes_are_those_of_then), CASE(numbers_of_errors_are_those_of_then),
        CASE(locks_and_permits),       CASE(several_names_a_body_and_a_stop_button),
        CASE(looking_and_breaking),    CASE(operations_with_callbacks),
        CASE(what_tools_ask),
    };

    return cmocka_run_group_tests_name("abi-old", cases, make_folder, remove_folder);
}
