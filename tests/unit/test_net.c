/* test_net.c: streams that are up, in the clear, against real sockets on loopback. After
 * each case nothing may be left: no descriptor, no timer, no watch, no SIGPIPE
 * (net_harness.c). */
#include "net_harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- a good day ------------------------------------------------------------------ */

static void it_connects_and_talks(void **state)
{
    (void)state;
    connect_pair();
    send_now("ping");
    hear(peer, "ping");
    say(peer, "pong");
    UNTIL(p.got == 4);
    assert_string_equal(p.text, "pong");
    hf__stream_close(&p.s);
    assert_int_equal(read(peer, p.text, 1), 0); /* the peer sees the end */
    part_pair();
    assert_int_equal(p.ups, 1);
    assert_int_equal(p.downs, 0);
}

static int option(int level, int what)
{
    int value = 0;
    socklen_t len = sizeof value;

    assert_int_equal(getsockopt(p.s.fd, level, what, &value, &len), 0);
    return value;
}

static void its_socket_is_set_up_well(void **state)
{
    hf_error err;
    struct stream_target to;

    (void)state;
    connect_pair();
    assert_int_equal(fcntl(p.s.fd, F_GETFD), FD_CLOEXEC);
    assert_true(option(IPPROTO_TCP, TCP_NODELAY));
    assert_true(option(SOL_SOCKET, SO_KEEPALIVE));
    to = to_host("127.0.0.1", port);
    assert_int_equal(hf__stream_open(&p.s, &to, &err), HF_EBUG); /* it is open */
    send_now("ping");
    hear(peer, "ping");
    part_pair();
}

static void a_round_trip_is_one_send_and_one_recv(void **state)
{
    (void)state;
    connect_pair();
    for (int i = 0; i < 3; i++) {
        net_sends = net_recvs = net_watches = 0;
        assert_int_equal(hf__stream_write(&p.s, "pi", 2), 0);
        assert_int_equal(hf__stream_write(&p.s, "ng", 2), 0);
        hf__stream_flush(&p.s);
        hear(peer, "ping");
        say(peer, "pong");
        UNTIL(p.reads == i + 1);
        assert_int_equal(net_sends, 1);
        assert_int_equal(net_recvs, 1);
        assert_int_equal(net_watches, 0);
    }
    part_pair();
}

static void what_is_written_before_up_is_sent_then(void **state)
{
    struct stream_target to;

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    to = to_host("127.0.0.1", port);
    probe_init(&p);
    assert_int_equal(hf__stream_write(&p.s, "x", 1), HF_EUNREACHABLE);
    probe_open(&p, &to);
    send_now("early");
    peer = take(server);
    UNTIL(p.ups == 1 && !p.s.blocked);
    hear(peer, "early");
    part_pair();
}

static void it_may_be_opened_again(void **state)
{
    struct stream_target to;

    (void)state;
    connect_pair();
    to = to_host("127.0.0.1", port);
    close(peer);
    UNTIL(p.downs == 1);
    probe_open(&p, &to);
    peer = take(server);
    UNTIL(p.ups == 2);
    send_now("again");
    hear(peer, "again");
    part_pair();
}

/* Where the machine has no IPv6, that is what is told. */
static void addresses_may_be_of_version_6(void **state)
{
    struct sockaddr_in6 at = { .sin6_family = AF_INET6,
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    socklen_t len = sizeof at;
    struct stream_target to;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
               listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0;

    (void)state;
    to = to_host("::1", has ? ntohs(at.sin6_port) : 1);
    probe_init(&p);
    probe_open(&p, &to);
    UNTIL(p.ups + p.downs == 1);
    assert_int_equal(p.ups, has);
    assert_int_equal(p.downs, !has);
    if (!has)
        assert_int_equal(p.err.code, HF_EUNREACHABLE);
    probe_done(&p);
    if (fd >= 0)
        close(fd);
}

/* ---- writing and reading much ---------------------------------------------------- */

static void a_slow_reader_gets_everything(void **state)
{
    enum { PIECE = 100003, PIECES = 100 };
    char *piece = malloc(PIECE), *buf = malloc(PIECE);
    uint32_t sent = 0, heard = 0;
    int written = 0;
    bool blocked = false;
    size_t got = 0;

    (void)state;
    connect_pair();
    while (got < (size_t)PIECE * PIECES) {
        int there = 0;
        ssize_t n;

        /* half of it at once, the rest while it is being read */
        while (written < (got == 0 ? PIECES / 2 : PIECES) && p.s.out_len < 6000000) {
            for (int k = 0; k < PIECE; k++)
                piece[k] = (char)(written * 31 + k);
            sent = sum_of(sent, piece, PIECE);
            assert_int_equal(hf__stream_write(&p.s, piece, PIECE), 0);
            hf__stream_flush(&p.s);
            written++;
        }
        blocked = blocked || p.s.blocked;
        assert_int_equal(ioctl(peer, FIONREAD, &there), 0);
        if (there > 0) {
            n = read(peer, buf, (size_t)(there < PIECE ? there : PIECE));
            assert_true(n > 0);
            heard = sum_of(heard, buf, (size_t)n);
            got += (size_t)n;
        }
        net_step();
    }
    assert_int_equal(heard, sent);
    assert_true(blocked);
    assert_false(p.s.blocked);
    assert_true(p.s.out_room <= 65536); /* the burst is over */
    net_watches = 0;
    send_now("small");
    hear(peer, "small");
    assert_int_equal(net_watches, 0);
    free(piece);
    free(buf);
    part_pair();
}

static void a_socket_without_any_room_is_waited_for(void **state)
{
    static char block[65536];
    size_t filled = 0;
    ssize_t n;

    (void)state;
    connect_pair();
    for (int idle = 0; idle < 50; idle++) /* the kernel moves bytes on for a while */
        while ((n = write(p.s.fd, block, sizeof block)) > 0 || (poll(NULL, 0, 1), false)) {
            filled += (size_t)n;
            idle = 0;
        }
    send_now("tail");
    assert_true(p.s.blocked);
    while (filled > 0) {
        n = read(peer, block, filled < sizeof block ? filled : sizeof block);
        assert_true(n > 0);
        filled -= (size_t)n;
    }
    UNTIL(!p.s.blocked);
    hear(peer, "tail");
    part_pair();
}

static void a_peer_that_never_reads_fills_no_memory(void **state)
{
    size_t size = 1 << 20, all = 0;
    char *block = calloc(1, size);
    int rc;

    (void)state;
    connect_pair();
    while ((rc = hf__stream_write(&p.s, block, size)) == 0) {
        hf__stream_flush(&p.s);
        all += size;
        assert_true(all < (size_t)1 << 30);
    }
    assert_int_equal(rc, HF_EUNREACHABLE);
    assert_int_equal(p.downs, 0);
    free(block);
    part_pair();
}

static void much_is_read_in_turns(void **state)
{
    size_t size = 3 << 20, at = 0;
    char *block = malloc(size);

    (void)state;
    for (size_t i = 0; i < size; i++)
        block[i] = (char)(i * 7 + (i >> 9));
    connect_pair();
    while (at < size) {
        ssize_t n = send(peer, block + at, size - at, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n > 0)
            at += (size_t)n;
        net_step();
    }
    UNTIL(p.got == size);
    assert_int_equal(p.sum, sum_of(0, block, size));
    free(block);
    part_pair();
}

/* ---- wants of TLS ---------------------------------------------------------------- */

/* A session that waits as TLS may: `script` says for what, one letter per call that
 * waits. */
struct tls_session {
    int fd;
    const char *script;
};

static struct tls_session fake;

static bool waits(struct tls_session *session, char call, int *want)
{
    if (session->script[0] != call)
        return false;
    *want = session->script[1] == 'r' ? TLS_WANT_READ : TLS_WANT_WRITE;
    session->script += 2;
    return true;
}

static int fake_begin(struct tls_session **ret, struct tls_context *context, int fd,
                      const char *host, hf_error *err)
{
    (void)context;
    (void)host;
    (void)err;
    fake.fd = fd;
    *ret = &fake;
    return 0;
}

static int fake_shake(struct tls_session *session, hf_error *err)
{
    int want;

    (void)err;
    return waits(session, 's', &want) ? want : 1;
}

static ssize_t fake_read(struct tls_session *session, void *buf, size_t n, hf_error *err)
{
    int want;
    ssize_t got;

    (void)err;
    if (waits(session, 'r', &want))
        return want;
    got = recv(session->fd, buf, n, MSG_DONTWAIT);
    return got < 0 ? TLS_WANT_READ : got;
}

static ssize_t fake_write(struct tls_session *session, const void *data, size_t n,
                          hf_error *err)
{
    int want;

    (void)err;
    if (waits(session, 'w', &want))
        return want;
    return send(session->fd, data, n, MSG_NOSIGNAL);
}

static void fake_end(struct tls_session *session, int tell_peer)
{
    (void)tell_peer;
    session->fd = -1;
}

static const struct tls_module fake_tls = { .begin = fake_begin,
                                            .shake = fake_shake,
                                            .read = fake_read,
                                            .write = fake_write,
                                            .end = fake_end };

static void reading_may_wait_for_writing_and_writing_for_reading(void **state)
{
    struct stream_target to;

    (void)state;
    port = 0;
    server = serve("127.0.0.1", &port, 8);
    to = to_host("127.0.0.1", port);
    to.tls = &fake_tls;
    fake.script = "swswsr"
                  "rr";
    probe_init(&p);
    probe_open(&p, &to);
    peer = take(server);
    say(peer, "a");
    UNTIL(p.ups == 1);
    UNTIL(p.got == 1);
    assert_string_equal(fake.script, "");

    fake.script = "rwrw";
    say(peer, "b"); /* is read although nothing more comes */
    UNTIL(p.got == 2);
    assert_false(p.s.read_wants_write);

    fake.script = "wr";
    send_now("x"); /* goes out only when something has come */
    assert_true(p.s.write_wants_read);
    for (int i = 0; i < 3; i++)
        net_step();
    assert_true(p.s.blocked);
    say(peer, "c");
    UNTIL(!p.s.blocked);
    hear(peer, "x");
    assert_int_equal(p.got, 3);
    assert_int_equal(p.s.watch.events, EPOLLIN);
    part_pair();
    assert_int_equal(fake.fd, -1);
}

/* ---- inside callbacks ------------------------------------------------------------ */

static char when;

static void close_then(struct probe *q, char what)
{
    if (what == when)
        hf__stream_close(&q->s);
}

static void it_may_be_closed_inside_each_callback(void **state)
{
    static const char each[] = "udx";

    (void)state;
    for (size_t i = 0; each[i]; i++) {
        struct stream_target to;

        port = 0;
        server = serve("127.0.0.1", &port, 8);
        to = to_host("127.0.0.1", port);
        when = each[i];
        probe_init(&p);
        p.hook = close_then;
        probe_open(&p, &to);
        peer = take(server);
        UNTIL(p.ups == 1);
        if (when != 'u') {
            say(peer, "something");
            close(peer);
            peer = -1;
            UNTIL(p.got > 0);
        }
        if (when == 'x')
            UNTIL(p.downs == 1);
        for (int k = 0; k < 3; k++)
            net_step();
        assert_int_equal(p.s.state, STREAM_CLOSED);
        assert_int_equal(p.downs, when == 'x');
        part_pair();
    }
}

static void free_then(struct probe *q, char what)
{
    if (what == when) {
        hf__stream_done(&q->s);
        free(q);
        when = '!';
    }
}

static void it_may_be_freed_inside_each_callback(void **state)
{
    static const char each[] = "udx";

    (void)state;
    for (size_t i = 0; each[i]; i++) {
        struct probe *q = malloc(sizeof *q);
        struct stream_target to;

        port = 0;
        server = serve("127.0.0.1", &port, 8);
        to = to_host("127.0.0.1", port);
        when = each[i];
        probe_init(q);
        q->hook = free_then;
        probe_open(q, &to);
        peer = take(server);
        say(peer, "something");
        close(peer);
        UNTIL(when == '!');
        net_step();
        close(server);
    }
}

static struct stream_target again_to;

static void reopen_then(struct probe *q, char what)
{
    if (what == 'd' && q->reads == 1) {
        hf__stream_close(&q->s);
        probe_open(q, &again_to);
    }
}

static void it_may_be_closed_and_opened_inside_data(void **state)
{
    (void)state;
    connect_pair();
    again_to = to_host("127.0.0.1", port);
    p.hook = reopen_then;
    say(peer, "old");
    UNTIL(p.reads == 1);
    close(peer);
    peer = take(server);
    UNTIL(p.ups == 2);
    say(peer, "new");
    UNTIL(p.got == 6);
    assert_int_equal(p.downs, 0);
    part_pair();
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, net_setup, net_teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(it_connects_and_talks),
        CASE(its_socket_is_set_up_well),
        CASE(addresses_may_be_of_version_6),
        CASE(a_round_trip_is_one_send_and_one_recv),
        CASE(what_is_written_before_up_is_sent_then),
        CASE(it_may_be_opened_again),
        CASE(a_slow_reader_gets_everything),
        CASE(a_socket_without_any_room_is_waited_for),
        CASE(a_peer_that_never_reads_fills_no_memory),
        CASE(much_is_read_in_turns),
        CASE(reading_may_wait_for_writing_and_writing_for_reading),
        CASE(it_may_be_closed_inside_each_callback),
        CASE(it_may_be_freed_inside_each_callback),
        CASE(it_may_be_closed_and_opened_inside_data),
    };

    return cmocka_run_group_tests_name("net", cases, NULL, NULL);
}
