/* The loop: one descriptor that is readable exactly when there is something to do. */
#include "unit.h"

#include "loop/loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct loop l;
static int fired[4];

static int setup(void **state)
{
    (void)state;
    memset(fired, 0, sizeof fired);
    return hf__loop_init(&l);
}

static int teardown(void **state)
{
    (void)state;
    hf__loop_done(&l);
    return 0;
}

static int readable(int ms)
{
    struct pollfd p = { .fd = l.epfd, .events = POLLIN };

    return poll(&p, 1, ms);
}

static int turn(void)
{
    struct epoll_event evs[8];
    int n = hf__loop_sleep(&l, evs, 8, 0);

    return hf__loop_turn(&l, evs, n);
}

static void on_timer0(struct timer *t)
{
    (void)t;
    fired[0]++;
}

static void on_timer1(struct timer *t)
{
    (void)t;
    fired[1]++;
}

static void timers_make_the_descriptor_readable(void **state)
{
    struct timer a, b;

    (void)state;
    timer_init(&a, on_timer0);
    timer_init(&b, on_timer1);
    hf__loop_timer(&l, &a, hf__loop_now() + 1000000);
    hf__loop_timer(&l, &b, hf__loop_now() + 3600000000);
    hf__loop_arm(&l);
    assert_int_equal(readable(0), 0);
    assert_int_equal(readable(30000), 1);
    assert_int_equal(turn(), 1);
    assert_int_equal(fired[0], 1);
    hf__loop_arm(&l);
    assert_int_equal(readable(0), 0);
    hf__loop_timer(&l, &b, 1); /* past */
    hf__loop_arm(&l);
    assert_int_equal(readable(30000), 1);
    turn();
    assert_int_equal(fired[1], 1);
    assert_true(loop_next(&l) == LOOP_NEVER);
}

static void wake_is_seen_once(void **state)
{
    (void)state;
    hf__loop_wake(&l);
    hf__loop_wake(&l);
    assert_int_equal(readable(0), 1);
    turn();
    assert_int_equal(readable(0), 0);
    hf__loop_wake(&l);
    assert_int_equal(readable(0), 1);
}

static struct watch w0, w1;

static void on_w0(struct watch *w, uint32_t events)
{
    assert_true(events & EPOLLIN);
    fired[0]++;
    hf__loop_unwatch(&l, w);
    hf__loop_unwatch(&l, &w1); /* ready in the same turn */
}

static void on_w1(struct watch *w, uint32_t events)
{
    (void)events;
    fired[1]++;
    hf__loop_unwatch(&l, w);
    hf__loop_unwatch(&l, &w0);
}

static void on_read(struct watch *w, uint32_t events)
{
    char c;

    assert_true(events & EPOLLIN);
    assert_int_equal(read(w->fd, &c, 1), 1);
    fired[w == &w1]++;
}

/* The number of `fd` is another pipe from now on; returns its other end. */
static int reopen(int fd)
{
    int p[2];

    assert_int_equal(close(fd), 0);
    assert_int_equal(pipe(p), 0);
    if (p[0] != fd) {
        assert_int_equal(dup2(p[0], fd), fd);
        close(p[0]);
    }
    return p[1];
}

/* A library has closed a descriptor under its watch, and opened another of the same number.
 */
static void number_that_was_closed_is_watched_again(void **state)
{
    int p[2], end;

    (void)state;
    assert_int_equal(pipe(p), 0);
    watch_init(&w0, on_read);
    watch_init(&w1, on_read);
    assert_int_equal(hf__loop_watch(&l, &w0, p[0], EPOLLIN), 0);
    close(p[1]);
    end = reopen(p[0]);
    assert_int_equal(hf__loop_watch(&l, &w0, p[0], EPOLLIN | EPOLLRDHUP), 0);
    assert_int_equal(write(end, "x", 1), 1);
    turn();
    assert_int_equal(fired[0], 1);

    close(end);
    end = reopen(p[0]); /* now another watch has it, and the first must not disturb that */
    assert_int_equal(hf__loop_watch(&l, &w1, p[0], EPOLLIN), 0);
    hf__loop_unwatch(&l, &w0);
    assert_int_equal(write(end, "x", 1), 1);
    turn();
    assert_int_equal(fired[1], 1);
    assert_int_equal(fired[0], 1);

    close(end);
    close(p[0]);
    hf__loop_unwatch(&l, &w1); /* of what is closed: harmless */
    assert_int_equal(pipe(p), 0);
    assert_int_equal(hf__loop_watch(&l, &w1, p[0], EPOLLIN), 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    turn();
    assert_int_equal(fired[1], 2);
    hf__loop_unwatch(&l, &w1);
    close(p[0]);
    close(p[1]);
}

/* What has its number meanwhile is not touched: it may be another thread's. */
static void forgotten_watch_makes_no_call(void **state)
{
    struct epoll_event ev = { .events = EPOLLIN };
    int p[2], end;

    (void)state;
    assert_int_equal(pipe(p), 0);
    watch_init(&w0, on_read);
    assert_int_equal(hf__loop_watch(&l, &w0, p[0], EPOLLIN), 0);
    close(p[1]);
    end = reopen(p[0]);
    assert_int_equal(epoll_ctl(l.epfd, EPOLL_CTL_ADD, p[0], &ev), 0);
    hf__loop_forget(&l, &w0);
    assert_int_equal(w0.fd, -1);
    assert_int_equal(epoll_ctl(l.epfd, EPOLL_CTL_DEL, p[0], &ev), 0);
    assert_int_equal(hf__loop_watch(&l, &w0, p[0], EPOLLIN), 0);
    assert_int_equal(write(end, "x", 1), 1);
    turn();
    assert_int_equal(fired[0], 1);
    hf__loop_unwatch(&l, &w0);
    close(end);
    close(p[0]);
}

static void watch_removed_in_the_same_turn_does_not_fire(void **state)
{
    int p[2], q[2];

    (void)state;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(pipe(q), 0);
    watch_init(&w0, on_w0);
    watch_init(&w1, on_w1);
    assert_int_equal(hf__loop_watch(&l, &w0, p[0], EPOLLIN), 0);
    assert_int_equal(hf__loop_watch(&l, &w1, q[0], EPOLLIN), 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    assert_int_equal(write(q[1], "x", 1), 1);
    assert_int_equal(turn(), 1);
    assert_int_equal(fired[0] + fired[1], 1);
    assert_int_equal(readable(0), 0);
    for (int i = 0; i < 2; i++) {
        close(p[i]);
        close(q[i]);
    }
}

/* Between the sleep and the turn somebody removes the watch and frees it. */
static void event_of_a_freed_watch_is_dropped(void **state)
{
    struct watch *w = malloc(sizeof *w);
    struct epoll_event evs[8];
    int p[2], n;

    (void)state;
    assert_int_equal(pipe(p), 0);
    watch_init(w, on_w0);
    assert_int_equal(hf__loop_watch(&l, w, p[0], EPOLLIN), 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    n = hf__loop_sleep(&l, evs, 8, 0);
    assert_int_equal(n, 1);
    hf__loop_unwatch(&l, w);
    free(w);
    assert_int_equal(hf__loop_turn(&l, evs, n), 0);
    close(p[0]);
    close(p[1]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(timers_make_the_descriptor_readable),
        TEST(wake_is_seen_once),
        TEST(number_that_was_closed_is_watched_again),
        TEST(forgotten_watch_makes_no_call),
        TEST(watch_removed_in_the_same_turn_does_not_fire),
        TEST(event_of_a_freed_watch_is_dropped),
    };

    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
