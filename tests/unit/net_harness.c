/* net_harness.c: see net_harness.h. */
#include "net_harness.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

struct env net_env;
struct loop net_loop;
void (*net_pump)(void);
int net_watches;
struct probe p;
uint16_t port;
int server, peer;

static char folder[64];
static int fds_before;
static volatile sig_atomic_t pipes;

/* ---- the world of a stream ------------------------------------------------------- */

static int64_t env_now(struct env *e)
{
    (void)e;
    return hf__loop_now();
}

static int env_watch(struct env *e, struct watch *w, int fd, uint32_t events)
{
    (void)e;
    if (w->fd != fd || w->events != events)
        net_watches++;
    if (net_fails(&net_fail_watch)) {
        errno = ENOSPC;
        return HF_ESYS;
    }
    return hf__loop_watch(&net_loop, w, fd, events);
}

static void env_unwatch(struct env *e, struct watch *w)
{
    (void)e;
    hf__loop_unwatch(&net_loop, w);
}

static void env_timer(struct env *e, struct timer *t, int64_t at)
{
    (void)e;
    hf__loop_timer(&net_loop, t, at);
}

void net_step(void)
{
    struct epoll_event evs[8];
    struct pollfd ready = { .fd = net_loop.epfd, .events = POLLIN };
    int n;

    hf__loop_arm(&net_loop);
    poll(&ready, 1, net_pump ? 1 : 5);
    n = hf__loop_sleep(&net_loop, evs, 8, false);
    hf__loop_turn(&net_loop, evs, n);
    if (net_pump)
        net_pump();
}

static void on_pipe(int sig)
{
    (void)sig;
    pipes++;
}

int net_setup(void **state)
{
    (void)state;
    fds_before = open_fds();
    signal(SIGPIPE, on_pipe);
    pipes = 0;
    net_pump = NULL;
    net_fail_watch = net_fail_alloc = net_fail_socket = net_fail_thread = 0;
    net_meet_itself = net_block_send = false;
    net_name(NULL, NULL, 0, false);
    snprintf(folder, sizeof folder, "/tmp/hfnet.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    net_env = (struct env){
        .now = env_now, .watch = env_watch, .unwatch = env_unwatch, .timer = env_timer
    };
    return hf__loop_init(&net_loop);
}

const char *net_folder(void)
{
    return folder;
}

static void remove_folder(void)
{
    DIR *d = opendir(folder);
    const struct dirent *e;

    while (d && (e = readdir(d)) != NULL)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(folder);
}

int net_teardown(void **state)
{
    (void)state;
    assert_null(heap_first(&net_loop.timers));
    for (size_t i = 0; i < net_loop.nslots; i++)
        assert_null(net_loop.slots[i]);
    hf__loop_done(&net_loop);
    remove_folder();
    AWAIT(open_fds() == fds_before); /* a lookup that nobody waits for ends by itself */
    assert_int_equal(pipes, 0);
    return 0;
}

/* ---- streams --------------------------------------------------------------------- */

uint32_t sum_of(uint32_t sum, const void *data, size_t n)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < n; i++)
        sum = (sum ^ byte[i]) * 16777619u;
    return sum;
}

static void told(struct probe *q, char what)
{
    if (q->hook)
        q->hook(q, what);
}

static void on_up(struct stream *s)
{
    struct probe *q = container_of(s, struct probe, s);

    assert_int_equal(s->state, STREAM_UP);
    q->ups++;
    told(q, 'u');
}

static void on_data(struct stream *s, const char *data, size_t n)
{
    struct probe *q = container_of(s, struct probe, s);

    assert_true(n > 0);
    for (size_t i = 0; i < n && q->got + i + 1 < sizeof q->text; i++)
        q->text[q->got + i] = data[i];
    q->sum = sum_of(q->sum, data, n);
    q->got += n;
    q->reads++;
    told(q, 'd');
}

static void on_down(struct stream *s, const hf_error *err)
{
    struct probe *q = container_of(s, struct probe, s);

    assert_int_equal(s->state, STREAM_CLOSED);
    assert_int_equal(s->fd, -1);
    q->err = *err;
    q->downs++;
    told(q, 'x');
}

static const struct stream_events events = { on_up, on_data, on_down };

void probe_init(struct probe *q)
{
    memset(q, 0, sizeof *q);
    hf__stream_init(&q->s, &net_env, &events);
}

struct stream_target to_host(const char *host, uint16_t number)
{
    return (struct stream_target){
        .host = host, .port = number, .connect_ms = LIMIT_MS, .shown = "store.example:1"
    };
}

struct stream_target to_path(const char *path)
{
    return (struct stream_target){ .path = path, .connect_ms = LIMIT_MS, .shown = path };
}

void probe_open(struct probe *q, const struct stream_target *to)
{
    hf_error err = { 0 };
    int before = q->ups + q->downs;

    if (hf__stream_open(&q->s, to, &err) != 0)
        fail_msg("open: %s", err.text);
    assert_int_equal(q->ups + q->downs, before);
}

void probe_done(struct probe *q)
{
    int before = q->ups + q->downs;

    hf__stream_done(&q->s);
    assert_int_equal(q->ups + q->downs, before);
    assert_int_equal(q->s.fd, -1);
}

/* ---- peers ----------------------------------------------------------------------- */

int serve(const char *address, uint16_t *ret_port, int backlog)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(*ret_port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof at;

    assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *ret_port = ntohs(at.sin_port);
    return fd;
}

int serve_path(const char *path, int backlog)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    if (backlog >= 0)
        assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

int take(int listener)
{
    struct pollfd queue = { .fd = listener, .events = POLLIN };
    int fd;

    UNTIL(poll(&queue, 1, 0) == 1);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* A queue that is full: a further SYN is dropped. How many it takes differs between
 * kernels, so connections are made until one hangs. */
int full_server(const char *address, uint16_t *ret_port, int *fillers)
{
    int listener = serve(address, ret_port, 0);
    struct sockaddr_in at;
    socklen_t len = sizeof at;

    getsockname(listener, (struct sockaddr *)&at, &len);
    for (int i = 0; i < 8; i++) {
        struct pollfd done = { .events = POLLOUT };

        done.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        fillers[i] = done.fd;
        connect(done.fd, (struct sockaddr *)&at, len);
        if (poll(&done, 1, 200) == 0) {
            for (int k = i + 1; k < 8; k++)
                fillers[k] = -1;
            return listener;
        }
    }
    fail_msg("the queue of a socket is never full");
    return -1;
}

/* ---- a stream and its peer ------------------------------------------------------- */

/* A stream that is up, and its peer. */
void connect_pair(void)
{
    struct stream_target to;

    port = 0;
    server = serve("127.0.0.1", &port, 8);
    to = to_host("127.0.0.1", port);
    probe_init(&p);
    probe_open(&p, &to);
    peer = take(server);
    UNTIL(p.ups == 1);
}

void part_pair(void)
{
    probe_done(&p);
    close(peer);
    close(server);
}

void say(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

void hear(int fd, const char *text)
{
    char buf[64];
    size_t got = 0, n = strlen(text);

    while (got < n) {
        ssize_t r = read(fd, buf + got, n - got);

        assert_true(r > 0);
        got += (size_t)r;
    }
    assert_memory_equal(buf, text, n);
}

void send_now(const char *text)
{
    assert_int_equal(hf__stream_write(&p.s, text, strlen(text)), 0);
    hf__stream_flush(&p.s);
}

void expect_failure(const struct stream_target *to, int sys, const char *text)
{
    probe_init(&p);
    probe_open(&p, to);
    UNTIL(p.downs == 1);
    assert_int_equal(p.err.code, HF_EUNREACHABLE);
    assert_int_equal(p.err.retry, 1);
    assert_int_equal(p.err.sys, sys);
    assert_string_equal(p.err.where, to->shown);
    if (!strstr(p.err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, p.err.text);
    assert_int_equal(p.ups, 0);
    for (int i = 0; i < 3; i++)
        net_step();
    assert_int_equal(p.downs, 1);
    probe_done(&p);
}

const char *socket_path(void)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/s", net_folder());
    return path;
}
