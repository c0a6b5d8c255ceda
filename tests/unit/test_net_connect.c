/* test_net_connect.c: how a stream comes up: addresses, unix sockets, names, and what a
 * fork does to it. */
#include "net_harness.h"

#include <errno.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- connecting ------------------------------------------------------------------ */

static uint16_t closed_port(void)
{
    uint16_t free_port = 0;

    close(serve("127.0.0.1", &free_port, 1));
    return free_port;
}

static void a_refused_connection_is_told(void **state)
{
    struct stream_target to = to_host("127.0.0.1", closed_port());

    (void)state;
    expect_failure(&to, ECONNREFUSED, "cannot connect to 127.0.0.1: Connection refused");
}

static void a_silent_peer_takes_no_longer_than_allowed(void **state)
{
    int fillers[8];
    struct stream_target to;
    int64_t began, took;

    (void)state;
    port = 0;
    server = full_server("127.0.0.1", &port, fillers);
    to = to_host("127.0.0.1", port);
    to.connect_ms = 300;
    began = now_ms();
    expect_failure(&to, ETIMEDOUT, "cannot connect");
    took = now_ms() - began;
    assert_true(took >= 299);
    assert_true(took < LIMIT_MS / 3);
    close(server);
    for (int i = 0; i < 8 && fillers[i] >= 0; i++)
        close(fillers[i]);
}

static void a_silent_address_is_followed_by_the_next(void **state)
{
    int fillers[8];
    struct stream_target to;

    (void)state;
    port = 0;
    /* first: nobody else is at that port of the other */
    peer = serve("127.0.0.1", &port, 8);
    server = full_server("127.0.0.2", &port, fillers);
    net_name("two.example", "127.0.0.2 127.0.0.1", 0, false);
    to = to_host("two.example", port);
    to.connect_ms = 8000;
    probe_init(&p);
    probe_open(&p, &to);
    UNTIL(p.ups + p.downs == 1);
    assert_int_equal(p.ups, 1);
    assert_true(hf__loop_now() < p.s.connect_at); /* it took its share only */
    part_pair();
    for (int i = 0; i < 8 && fillers[i] >= 0; i++)
        close(fillers[i]);
}

static void a_refusing_address_is_followed_at_once(void **state)
{
    struct stream_target to;
    int64_t began = now_ms();

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    net_name("two.example", "127.0.0.3 127.0.0.1", 0, false);
    to = to_host("two.example", port);
    to.connect_ms = 4 * LIMIT_MS;
    probe_init(&p);
    probe_open(&p, &to);
    UNTIL(p.ups == 1);
    assert_true(now_ms() - began < LIMIT_MS);
    probe_done(&p);
    close(server);
}

static void the_most_telling_failure_is_told(void **state)
{
    struct stream_target to = to_host("three.example", closed_port());

    (void)state;
    net_name("three.example", "192.0.2.1 127.0.0.1 192.0.2.2", 0, false);
    expect_failure(&to, ECONNREFUSED, "cannot connect to 127.0.0.1");
    net_name("three.example", "192.0.2.1 192.0.2.2", 0, false);
    expect_failure(&to, ENETUNREACH, "cannot connect to 192.0.2.1");
}

static void a_socket_that_meets_itself_is_refused(void **state)
{
    struct stream_target to = to_host("127.0.0.1", closed_port());

    (void)state;
    net_meet_itself = true;
    expect_failure(&to, ECONNREFUSED, "cannot connect");
}

/* As the loop does when a descriptor was closed and its number given to this socket. */
static void a_call_for_nothing_does_not_make_it_connected(void **state)
{
    int fillers[8];
    struct stream_target to;

    (void)state;
    port = 0;
    server = full_server("127.0.0.1", &port, fillers);
    to = to_host("127.0.0.1", port);
    probe_init(&p);
    probe_open(&p, &to);
    p.s.watch.fire(&p.s.watch, EPOLLIN);
    assert_int_equal(p.ups + p.downs, 0);
    assert_int_equal(p.s.state, STREAM_CONNECTING);
    probe_done(&p);
    close(server);
    for (int i = 0; i < 8 && fillers[i] >= 0; i++)
        close(fillers[i]);
}

static void a_late_look_finds_it_connected(void **state)
{
    struct stream_target to;

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    to = to_host("127.0.0.1", port);
    to.connect_ms = 0;
    probe_init(&p);
    probe_open(&p, &to);
    UNTIL(p.ups + p.downs == 1);
    assert_int_equal(p.ups, 1);
    probe_done(&p);
    close(server);
}

/* ---- unix sockets ---------------------------------------------------------------- */

static void a_unix_socket_works_alike(void **state)
{
    struct stream_target to = to_path(socket_path());

    (void)state;
    expect_failure(&to, ENOENT, "cannot connect");
    server = serve_path(to.path, -1);
    expect_failure(&to, ECONNREFUSED, "cannot connect");
    assert_int_equal(listen(server, 4), 0);
    probe_init(&p);
    probe_open(&p, &to);
    peer = take(server);
    UNTIL(p.ups == 1);
    send_now("ping");
    hear(peer, "ping");
    close(peer);
    UNTIL(p.downs == 1);
    peer = -1;
    probe_done(&p);
    close(server);
}

static void a_unix_socket_with_a_full_queue_is_tried_again(void **state)
{
    struct stream_target to = to_path(socket_path());
    struct probe first;

    (void)state;
    server = serve_path(to.path, 0);
    probe_init(&first);
    probe_open(&first, &to);
    UNTIL(first.ups == 1);
    to.connect_ms = 100;
    expect_failure(&to, EAGAIN, "cannot connect");
    to.connect_ms = LIMIT_MS;
    probe_init(&p);
    probe_open(&p, &to);
    net_step();
    assert_int_equal(p.ups + p.downs, 0);
    close(take(server)); /* makes room */
    UNTIL(p.ups + p.downs == 1);
    assert_int_equal(p.ups, 1);
    probe_done(&p);
    probe_done(&first);
    close(server);
}

static void a_path_that_is_too_long_is_refused_at_once(void **state)
{
    char path[200] = "";
    struct stream_target to = to_path(path);
    hf_error err;

    (void)state;
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    probe_init(&p);
    assert_int_equal(hf__stream_open(&p.s, &to, &err), HF_EINVAL);
    path[0] = '\0';
    assert_int_equal(hf__stream_open(&p.s, &to, &err), HF_EINVAL);
    assert_int_equal(p.s.state, STREAM_CLOSED);
    probe_done(&p);
    assert_int_equal(p.downs, 0);
}

/* ---- names ----------------------------------------------------------------------- */

static void localhost_is_found(void **state)
{
    struct stream_target to;

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    to = to_host("localhost", port);
    probe_init(&p);
    probe_open(&p, &to);
    assert_int_equal(p.s.state, STREAM_RESOLVING);
    peer = take(server);
    UNTIL(p.ups == 1);
    part_pair();
}

static void a_name_that_is_not_found_is_told_with_the_reason(void **state)
{
    struct stream_target to = to_host("nowhere.example", 1);

    (void)state;
    net_name("nowhere.example", "", EAI_NONAME, false);
    expect_failure(&to, 0, gai_strerror(EAI_NONAME));
    net_name("nowhere.example", "", EAI_AGAIN, false);
    expect_failure(&to, 0, "the address of nowhere.example: ");
    net_name("nowhere.example", "", EAI_SYSTEM, false);
    expect_failure(&to, EMFILE, "the address of nowhere.example");
    net_name("nowhere.example", "", 0, false);
    expect_failure(&to, 0, "no address of nowhere.example");
}

static void looking_up_counts_in_the_time_to_connect(void **state)
{
    struct stream_target to = to_host("slow.example", 1);

    (void)state;
    net_name("slow.example", "127.0.0.1", 0, true);
    to.connect_ms = 50;
    expect_failure(&to, ETIMEDOUT, "cannot find the address of slow.example");
    net_unblock();
}

static void closing_while_a_name_is_looked_up_leaves_nothing(void **state)
{
    struct stream_target to = to_host("slow.example", 1);

    (void)state;
    net_name("slow.example", "127.0.0.1", 0, true);
    probe_init(&p);
    probe_open(&p, &to);
    AWAIT(net_lookups(NULL) == 1);
    hf__stream_close(&p.s);
    assert_true(loop_next(&net_loop) == LOOP_NEVER);
    net_unblock();
    AWAIT(net_lookups(NULL) == 0);
    probe_done(&p);
    assert_int_equal(p.ups + p.downs, 0);
}

static void many_names_wait_for_few_threads(void **state)
{
    enum { MANY = 20 };
    static struct probe many[MANY];
    struct stream_target to;
    int most, up = 0;

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, MANY);
    net_name("slow.example", "127.0.0.1", 0, true);
    to = to_host("slow.example", port);
    for (int i = 0; i < MANY; i++) {
        probe_init(&many[i]);
        probe_open(&many[i], &to);
    }
    AWAIT(net_lookups(NULL) == 4);
    assert_true(net_signals_blocked);
    hf__stream_close(&many[0].s);        /* being looked up */
    hf__stream_close(&many[MANY - 1].s); /* still waits */
    AWAIT(net_lookups(NULL) == 5);       /* and one that nobody waits for any more */
    net_unblock();
    while (up < MANY - 2) {
        net_step();
        up = 0;
        for (int i = 0; i < MANY; i++)
            up += many[i].ups;
    }
    for (int i = 0; i < MANY; i++)
        probe_done(&many[i]);
    assert_int_equal(many[0].ups + many[MANY - 1].ups, 0);
    net_lookups(&most);
    assert_int_equal(most, 5);
    close(server);
}

/* A lookup that hangs goes on after its stream has given up. */
static void names_given_up_hold_up_no_other(void **state)
{
    enum { MANY = 8, AT_ONCE = 4 };
    static struct probe many[MANY];
    struct stream_target to = to_host("slow.example", 1);

    (void)state;
    net_name("slow.example", "127.0.0.1", 0, true);
    for (int i = 0; i < MANY; i++) {
        probe_init(&many[i]);
        probe_open(&many[i], &to);
    }
    AWAIT(net_lookups(NULL) == AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++)
        hf__stream_close(&many[i].s);
    AWAIT(net_lookups(NULL) == MANY);
    for (int i = AT_ONCE; i < MANY; i++)
        hf__stream_close(&many[i].s);
    net_unblock();
    AWAIT(net_lookups(NULL) == 0);
    for (int i = 0; i < MANY; i++)
        probe_done(&many[i]);
}

/* ---- fork ------------------------------------------------------------------------ */

static void await_child(pid_t pid)
{
    int status;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void a_child_leaves_the_parents_stream_alone(void **state)
{
    pid_t pid;

    (void)state;
    connect_pair();
    assert_int_equal(hf__stream_write(&p.s, "kept", 4), 0);
    pid = fork();
    if (pid == 0) {
        int before = open_fds();

        hf__stream_forked(&p.s);
        _exit(open_fds() == before - 1 && p.downs == 0 && !p.s.out ? 0 : 1);
    }
    await_child(pid);
    hf__stream_flush(&p.s);
    hear(peer, "kept");
    say(peer, "pong");
    UNTIL(p.got == 4);
    part_pair();
}

/* Every thread of the parent is in the middle of a lookup, and one more waits: the child
 * has neither threads nor jobs. */
static void a_child_may_look_up_names_of_its_own(void **state)
{
    enum { BUSY = 5 };
    static struct probe busy[BUSY];
    struct stream_target to;
    pid_t pid;

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    net_name("slow.example", "127.0.0.1", 0, true);
    to = to_host("slow.example", port);
    for (int i = 0; i < BUSY; i++) {
        probe_init(&busy[i]);
        probe_open(&busy[i], &to);
    }
    AWAIT(net_lookups(NULL) == BUSY - 1);
    pid = fork();
    if (pid == 0) {
        for (int i = 0; i < BUSY; i++)
            hf__stream_forked(&busy[i].s);
#if !TEST_TSAN
        hf__loop_init(&net_loop);
        net_name("mine.example", "127.0.0.1", 0, false);
        to = to_host("mine.example", port);
        probe_init(&p);
        probe_open(&p, &to);
        UNTIL(p.ups + p.downs == 1);
        _exit(p.ups == 1 ? 0 : 1);
#endif
        _exit(0);
    }
    await_child(pid);
    net_unblock();
    for (int i = 0; i < BUSY; i++) {
        UNTIL(busy[i].ups == 1);
        probe_done(&busy[i]);
    }
    close(server);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_refused_connection_is_told),
        CASE(a_silent_peer_takes_no_longer_than_allowed),
        CASE(a_silent_address_is_followed_by_the_next),
        CASE(a_refusing_address_is_followed_at_once),
        CASE(the_most_telling_failure_is_told),
        CASE(a_socket_that_meets_itself_is_refused),
        CASE(a_call_for_nothing_does_not_make_it_connected),
        CASE(a_late_look_finds_it_connected),
        CASE(a_unix_socket_works_alike),
        CASE(a_unix_socket_with_a_full_queue_is_tried_again),
        CASE(a_path_that_is_too_long_is_refused_at_once),
        CASE(localhost_is_found),
        CASE(a_name_that_is_not_found_is_told_with_the_reason),
        CASE(looking_up_counts_in_the_time_to_connect),
        CASE(closing_while_a_name_is_looked_up_leaves_nothing),
        CASE(many_names_wait_for_few_threads),
        CASE(names_given_up_hold_up_no_other),
        CASE(a_child_leaves_the_parents_stream_alone),
        CASE(a_child_may_look_up_names_of_its_own),
    };

    return cmocka_run_group_tests_name("net-connect", cases, NULL, NULL);
}
