/* test_net_end.c: how a stream ends, and that it is told once; what happens when the
 * system is out of something. */
#include "net_harness.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the end --------------------------------------------------------------------- */

static void expect_end(const char *text)
{
    UNTIL(p.downs == 1);
    assert_int_equal(p.err.code, HF_EUNREACHABLE);
    assert_string_equal(p.err.where, "store.example:1");
    if (!strstr(p.err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, p.err.text);
    hf__stream_flush(&p.s);
    hf__stream_close(&p.s);
    for (int i = 0; i < 3; i++)
        net_step();
    assert_int_equal(p.downs, 1);
}

static void what_came_before_the_end_is_told_first(void **state)
{
    (void)state;
    connect_pair();
    say(peer, "bye");
    close(peer);
    expect_end("the peer closed the connection");
    assert_string_equal(p.text, "bye");
    peer = -1;
    part_pair();
}

static void half_closed_is_closed(void **state)
{
    (void)state;
    connect_pair();
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    expect_end("the peer closed the connection");
    part_pair();
}

static void reset_peer(void)
{
    struct linger hard = { 1, 0 };

    setsockopt(peer, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(peer);
    peer = -1;
}

static void a_reset_is_told(void **state)
{
    (void)state;
    connect_pair();
    reset_peer();
    expect_end("the connection broke: Connection reset by peer");
    part_pair();
}

/* The server is full, says so and closes, while we are sending. */
static void last_words_are_heard_after_a_failed_send(void **state)
{
    static char much[50000];

    (void)state;
    connect_pair();
    send_now("one");
    say(peer, "full");
    assert_int_equal(write(peer, much, sizeof much), sizeof much);
    close(peer); /* with "one" unread: a reset follows */
    peer = -1;
    for (int i = 0; i < 100 && !p.s.broken; i++)
        send_now("two");
    assert_true(p.s.broken);
    assert_int_equal(p.downs, 0);
    assert_int_equal(hf__stream_write(&p.s, "three", 5), 0);
    expect_end("");
    assert_int_equal(p.got, 4 + sizeof much);
    assert_memory_equal(p.text, "full", 4);
    part_pair();
}

static void send_until_broken(void)
{
    for (int i = 0; i < 100 && !p.s.broken; i++)
        send_now("into the void");
    assert_true(p.s.broken);
    assert_int_equal(p.s.last.sys, EPIPE);
    UNTIL(p.downs == 1);
    assert_int_equal(p.err.code, HF_EUNREACHABLE);
}

/* The harness counts the signals. */
static void no_signal_is_raised_by_writing_to_a_closed_peer(void **state)
{
    struct stream_target to = to_path(socket_path());

    (void)state;
    connect_pair();
    close(peer); /* with nothing unread: a plain end */
    peer = -1;
    send_until_broken();
    part_pair();
    server = serve_path(to.path, 1);
    probe_init(&p);
    probe_open(&p, &to);
    UNTIL(p.ups == 1);
    close(take(server));
    send_until_broken();
    probe_done(&p);
    close(server);
}

static void what_has_come_is_read_when_asked_for(void **state)
{
    int there = 0;

    (void)state;
    connect_pair();
    assert_false(hf__stream_read(&p.s));
    say(peer, "pong");
    while (there < 4)
        assert_int_equal(ioctl(p.s.fd, FIONREAD, &there), 0);
    assert_true(hf__stream_read(&p.s));
    assert_int_equal(p.got, 4);
    assert_false(hf__stream_read(&p.s));
    close(peer);
    peer = -1;
    while (p.downs == 0)
        hf__stream_read(&p.s);
    assert_false(hf__stream_read(&p.s));
    part_pair();
}

/* ---- when the system is out of something ----------------------------------------- */

/* Opens, talks and closes with the n-th of something failing; true when nothing failed.
 */
static bool survives(int *fail_at, int n, const char *host)
{
    struct stream_target to = to_host(host, port);
    struct pollfd queue = { .fd = server, .events = POLLIN };
    hf_error err = { 0 };
    int rc;

    probe_init(&p);
    peer = -1;
    *fail_at = n;
    rc = hf__stream_open(&p.s, &to, &err);
    assert_int_equal(p.downs + p.ups, 0);
    if (rc < 0) {
        assert_int_equal(rc, err.code);
        assert_int_equal(p.s.state, STREAM_CLOSED);
    } else {
        UNTIL(p.ups + p.downs > 0);
        if (p.ups) {
            peer = take(server);
            if (hf__stream_write(&p.s, "ping", 4) == 0) {
                hf__stream_flush(&p.s);
                hear(peer, "ping");
            }
        }
    }
    for (int i = 0; i < 3; i++)
        net_step();
    assert_true(p.downs <= 1);
    rc = *fail_at; /* still to come: it was never reached */
    *fail_at = 0;
    probe_done(&p);
    if (peer >= 0)
        close(peer);
    while (poll(&queue, 1, 0) == 1)
        close(take(server));
    return rc > 0;
}

static void every_failure_of_the_system_is_survived(void **state)
{
    int n;

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    net_name("some.example", "127.0.0.1", 0, false);
    for (n = 1; !survives(&net_fail_watch, n, "some.example"); n++)
        assert_true(n < 20);
    assert_true(n > 3);
    for (n = 1; !survives(&net_fail_alloc, n, "some.example"); n++)
        assert_true(n < 20);
    assert_true(n > 2);
    for (n = 1; !survives(&net_fail_alloc, n, "127.0.0.1"); n++)
        assert_true(n < 20);
    assert_true(n > 2);
    close(server);
}

static void without_a_thread_no_name_is_looked_up(void **state)
{
    struct stream_target to = to_host("slow.example", 1);
    struct probe other;
    hf_error err;

    (void)state;
    net_name("slow.example", "127.0.0.1", 0, true);
    probe_init(&p);
    net_fail_thread = 1;
    assert_int_equal(hf__stream_open(&p.s, &to, &err), HF_EUNREACHABLE);
    assert_int_equal(err.sys, EAGAIN);
    probe_open(&p, &to);
    AWAIT(net_lookups(NULL) == 1);
    net_fail_thread = 1;
    probe_init(&other);
    probe_open(&other, &to); /* the one thread that there is comes to it */
    net_unblock();
    UNTIL(p.downs == 1 && other.downs == 1);
    probe_done(&p);
    probe_done(&other);
}

static void without_a_socket_there_is_no_connection(void **state)
{
    struct stream_target to = to_host("127.0.0.1", 1);

    (void)state;
    net_fail_socket = 1;
    expect_failure(&to, EMFILE, "cannot connect to 127.0.0.1: ");
}

static void a_stream_that_was_never_made_may_be_done_with(void **state)
{
    (void)state;
    memset(&p, 0, sizeof p);
    hf__stream_done(&p.s);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(what_came_before_the_end_is_told_first),
        CASE(half_closed_is_closed),
        CASE(a_reset_is_told),
        CASE(last_words_are_heard_after_a_failed_send),
        CASE(no_signal_is_raised_by_writing_to_a_closed_peer),
        CASE(what_has_come_is_read_when_asked_for),
        CASE(every_failure_of_the_system_is_survived),
        CASE(without_a_thread_no_name_is_looked_up),
        CASE(without_a_socket_there_is_no_connection),
        CASE(a_stream_that_was_never_made_may_be_done_with),
    };

    return cmocka_run_group_tests_name("net-end", cases, NULL, NULL);
}
