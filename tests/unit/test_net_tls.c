/* test_net_tls.c: streams with TLS, against a server of OpenSSL on loopback, with
 * certificates that are made here. Every case that must be refused has one beside it that
 * must not. */
#include "net_tls_harness.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a good day ------------------------------------------------------------------ */

static void it_connects_and_talks(void **state)
{
    (void)state;
    talk("127.0.0.1", 0);
    talk("localhost", TLS1_3_VERSION);
    talk("localhost", TLS1_2_VERSION);
    net_name("localhost.", "127.0.0.1", 0, false);
    talk("localhost.", 0);
}

static void a_round_trip_is_one_send_and_one_recv(void **state)
{
    (void)state;
    meet_well("localhost", 0);
    send_now("first"); /* the session tickets of the server come before its answer */
    tls_server_say(&t, "x", 1);
    UNTIL(p.got == 1 && t.got == 5);
    for (int i = 0; i < 3; i++)
        net_step();
    for (int i = 0; i < 3; i++) {
        net_sends = net_recvs = net_watches = 0;
        send_now("ping");
        UNTIL(t.got == 9 + 4 * (size_t)i);
        tls_server_say(&t, "pong", 4);
        UNTIL(p.got == 5 + 4 * (size_t)i);
        assert_int_equal(net_sends, 1);
        assert_int_equal(net_recvs, 1);
        assert_int_equal(net_watches, 0);
    }
    part();
}

static void a_unix_socket_is_for_localhost(void **state)
{
    char path[128];
    struct stream_target to = tls_to(NULL);
    int here;

    (void)state;
    snprintf(path, sizeof path, "%s/s", net_folder());
    to.path = path;
    here = serve_path(path, 4);
    tls_server_init(&t, &good, 0);
    probe_init(&p);
    probe_open(&p, &to);
    tls_server_take(&t, take(here));
    net_pump = tls_pump;
    UNTIL(p.ups + p.downs > 0);
    assert_int_equal(p.ups, 1);
    close(here);
    part();
}

static void cork(int fd, int on)
{
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
}

static void the_server_may_speak_first(void **state)
{
    struct stream_target to = tls_to("localhost");

    (void)state;
    tls_server_init(&t, &good, TLS1_2_VERSION);
    probe_init(&p);
    probe_open(&p, &to);
    tls_server_take(&t, take(server));
    net_pump = tls_pump;
    cork(t.fd, 1);
    while (!t.shaken)
        net_step();
    tls_server_say(&t, "welcome", 7); /* together with the last of the handshake */
    cork(t.fd, 0);
    UNTIL(p.got == 7);
    assert_int_equal(p.ups, 1);
    part();
}

/* More records than one turn reads, all in the session already: the descriptor is silent.
 */
static void many_records_that_came_at_once_are_all_read(void **state)
{
    (void)state;
    meet_well("localhost", 0);
    for (int i = 0; i < 200; i++)
        tls_server_say(&t, "abc", 3);
    UNTIL(p.got == 600);
    send_now("ping");
    UNTIL(t.got == 4);
    part();
}

/* ---- much data ------------------------------------------------------------------- */

enum { MUCH = 5 << 20 };

static char *much(void)
{
    char *block = malloc(MUCH);

    for (size_t i = 0; i < MUCH; i++)
        block[i] = (char)(i * 7 + (i >> 9));
    return block;
}

static void much_goes_both_ways_at_once(void **state)
{
    char *block = much();
    size_t at = 0;

    (void)state;
    meet_well("localhost", 0);
    assert_int_equal(hf__stream_write(&p.s, block, MUCH), 0);
    hf__stream_flush(&p.s);
    assert_true(p.s.blocked);
    while (p.got < MUCH || t.got < MUCH) {
        int n = at < MUCH ? SSL_write(t.ssl, block + at, (int)(MUCH - at)) : 0;

        if (n > 0)
            at += (size_t)n;
        net_step();
        assert_int_equal(p.downs, 0);
        assert_false(t.failed);
    }
    assert_int_equal(p.sum, sum_of(0, block, MUCH));
    assert_int_equal(t.sum, sum_of(0, block, MUCH));
    assert_false(p.s.blocked);
    free(block);
    part();
}

/* The server wants new keys: an answer is owed in the middle of reading, while there is
 * no room to send it. */
static void new_keys_are_agreed_on_while_nothing_can_be_sent(void **state)
{
    (void)state;
    meet_well("localhost", TLS1_3_VERSION);
    net_block_send = true;
    assert_int_equal(SSL_key_update(t.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    tls_server_say(&t, "pong", 4);
    send_now("ping");
    UNTIL(p.got == 4);
    net_block_send = false;
    UNTIL(t.got == 4);
    part();
}

static void new_keys_are_agreed_on_in_the_middle_of_a_burst(void **state)
{
    char *block = much();

    (void)state;
    meet_well("localhost", TLS1_3_VERSION);
    t.paused = true;
    assert_int_equal(hf__stream_write(&p.s, block, MUCH), 0);
    hf__stream_flush(&p.s);
    assert_true(p.s.blocked);
    assert_int_equal(SSL_key_update(t.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    tls_server_say(&t, "pong", 4);
    for (int i = 0; i < 20; i++)
        net_step();
    assert_int_equal(p.downs, 0);
    t.paused = false;
    UNTIL(t.got == MUCH && p.got == 4);
    assert_int_equal(t.sum, sum_of(0, block, MUCH));
    tls_server_say(&t, "more", 4);
    send_now("tail");
    UNTIL(t.got == MUCH + 4 && p.got == 8);
    free(block);
    part();
}

/* ---- not TLS --------------------------------------------------------------------- */

static int meet_plain(int64_t connect_ms)
{
    struct stream_target to = tls_to("localhost");
    int fd, there = 0;

    to.connect_ms = connect_ms;
    probe_init(&p);
    probe_open(&p, &to);
    fd = take(server);
    UNTIL(ioctl(fd, FIONREAD, &there) < 0 || there > 0);
    assert_true(there > 0);
    return fd;
}

static void garbage_is_not_tls(void **state)
{
    static const char answers[][32] = { "-ERR unknown command\r\n",
                                        "HTTP/1.1 400 Bad\r\n\r\n",
                                        "\x16\x03\x03\x00\x05garbage and more of" };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        int fd = meet_plain(LIMIT_MS);

        assert_int_equal(write(fd, answers[i], sizeof answers[i]), sizeof answers[i]);
        expect_down(HF_EPROTO, "the peer does not speak TLS");
        close(fd);
        probe_done(&p);
    }
}

static void old_versions_are_refused(void **state)
{
    (void)state;
    meet("localhost", &good, TLS1_1_VERSION);
    UNTIL(p.downs == 1);
    assert_int_equal(p.ups, 0);
    assert_true(p.err.code == HF_EPROTO || p.err.code == HF_EAUTH);
    assert_non_null(strstr(p.err.text, "version"));
    part();
}

static void a_cut_in_the_handshake_is_told(void **state)
{
    int fd = meet_plain(LIMIT_MS);
    char hello[4096];

    (void)state;
    assert_true(read(fd, hello, sizeof hello) > 0);
    assert_int_equal(write(fd, "\x16\x03\x03\x01", 4), 4);
    close(fd);
    expect_down(HF_EUNREACHABLE, "closed the connection in the TLS handshake");
    probe_done(&p);
    fd = meet_plain(LIMIT_MS);
    close(fd); /* with the hello unread: a reset */
    expect_down(HF_EUNREACHABLE, "");
    probe_done(&p);
}

static void silence_in_the_handshake_ends_in_time(void **state)
{
    int fd = meet_plain(2000);

    (void)state;
    expect_down(HF_EUNREACHABLE, "no TLS handshake with 127.0.0.1: Connection timed out");
    close(fd);
    probe_done(&p);
}

/* ---- the end --------------------------------------------------------------------- */

static void the_end_is_told_once(void **state)
{
    (void)state;
    meet_well("localhost", 0);
    tls_server_say(&t, "bye", 3);
    SSL_shutdown(t.ssl);
    expect_down(HF_EUNREACHABLE, "the peer closed the connection");
    assert_string_equal(p.text, "bye");
    part();
    meet_well("localhost", 0);
    tls_server_say(&t, "bye", 3);
    tls_server_done(&t); /* without a word of TLS */
    net_pump = NULL;
    expect_down(HF_EUNREACHABLE, "");
    assert_string_equal(p.text, "bye");
    probe_done(&p);
}

static void no_signal_is_raised_by_writing_to_a_closed_peer(void **state)
{
    (void)state;
    meet_well("localhost", 0);
    net_pump = NULL;
    tls_server_done(&t);
    for (int i = 0; i < 100 && !p.s.broken; i++)
        send_now("into the void");
    assert_true(p.s.broken);
    assert_int_equal(p.downs, 0);
    expect_down(HF_EUNREACHABLE, "");
    probe_done(&p);
}

static void damaged_records_end_it(void **state)
{
    (void)state;
    meet_well("localhost", 0);
    assert_int_equal(
        write(t.fd, "\x17\x03\x03\x00\x20................................", 37), 37);
    expect_down(HF_EUNREACHABLE, "TLS: ");
    part();
}

static void close_then(struct probe *q, char what)
{
    if (what == 'd')
        hf__stream_close(&q->s);
}

static void it_may_be_closed_inside_data(void **state)
{
    (void)state;
    meet_well("localhost", 0);
    p.hook = close_then;
    for (int i = 0; i < 20; i++)
        tls_server_say(&t, "abc", 3);
    UNTIL(p.got > 0);
    for (int i = 0; i < 3; i++)
        net_step();
    assert_int_equal(p.reads, 1);
    assert_int_equal(p.downs, 0);
    part();
}

static void a_child_tells_the_peer_nothing(void **state)
{
    pid_t pid;
    int status;

    (void)state;
    meet_well("localhost", 0);
    pid = fork();
    if (pid == 0) {
        hf__stream_forked(&p.s);
        _exit(p.s.session ? 1 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    send_now("ping");
    UNTIL(t.got == 4);
    assert_false(t.closed);
    tls_server_say(&t, "pong", 4);
    UNTIL(p.got == 4);
    part();
}

static void every_failure_of_the_system_is_survived(void **state)
{
    int *const what[] = { &net_fail_watch, &net_fail_alloc };
    struct pollfd queue = { .fd = server, .events = POLLIN };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        int n, left = 0;

        for (n = 1; left == 0; n++) {
            struct stream_target to = tls_to("127.0.0.1");
            hf_error err;

            assert_true(n < 20);
            tls_server_init(&t, &good, 0);
            probe_init(&p);
            net_pump = tls_pump;
            *what[i] = n;
            if (hf__stream_open(&p.s, &to, &err) == 0) {
                while (p.ups + p.downs == 0) {
                    if (!t.ssl && poll(&queue, 1, 0) == 1)
                        tls_server_take(&t, take(server));
                    net_step();
                }
                if (p.ups)
                    hf__stream_write(&p.s, "ping", 4);
            }
            left = *what[i];
            *what[i] = 0;
            part();
            assert_true(p.downs <= 1);
            while (poll(&queue, 1, 0) == 1)
                close(take(server));
        }
        assert_true(n > 3);
    }
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(it_connects_and_talks),
        CASE(a_round_trip_is_one_send_and_one_recv),
        CASE(a_unix_socket_is_for_localhost),
        CASE(the_server_may_speak_first),
        CASE(many_records_that_came_at_once_are_all_read),
        CASE(much_goes_both_ways_at_once),
        CASE(new_keys_are_agreed_on_while_nothing_can_be_sent),
        CASE(new_keys_are_agreed_on_in_the_middle_of_a_burst),
        CASE(garbage_is_not_tls),
        CASE(old_versions_are_refused),
        CASE(a_cut_in_the_handshake_is_told),
        CASE(silence_in_the_handshake_ends_in_time),
        CASE(the_end_is_told_once),
        CASE(no_signal_is_raised_by_writing_to_a_closed_peer),
        CASE(damaged_records_end_it),
        CASE(it_may_be_closed_inside_data),
        CASE(a_child_tells_the_peer_nothing),
        CASE(every_failure_of_the_system_is_survived),
    };

    return cmocka_run_group_tests_name("net-tls", cases, NULL, NULL);
}
