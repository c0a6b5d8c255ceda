/* crowd.c: see crowd.h. */
#include "crowd.h"

#include <fcntl.h>
#include <holdfast/async.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* Of one process of the crowd. */
static hf_lease *held[WAITERS]; /* the oldest first */
static size_t nheld;

static void on_grant(hf_op *op, int rc, hf_lease *lease, const hf_error *err, void *user)
{
    const struct crowd *k = user;

    (void)err;
    hf_op_free(op);
    if (rc == HF_ECLOSED)
        return;
    CHECK_RC(rc, 0);
    held[nheld++] = lease;
    CHECK_NUM(write(k->told[1], "", 1), ==, 1);
}

static void release_oldest(void)
{
    hf_lease *l = held[0];

    memmove(held, held + 1, --nheld * sizeof(held[0]));
    CHECK_RC(hf_release_start(l, NULL, NULL, NULL, E()), 0);
}

static void wait_in_line(void *arg)
{
    struct crowd *k = arg;
    hf_client *c;
    hf_op *op;
    char byte;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &c, E()), 0);
    for (int i = 0; i < WAITERS; i++)
        CHECK_RC(hf_acquire_start(c, nm("n"), HF_FOREVER, k->req, on_grant, k, &op, E()),
                 0);
    for (;;) {
        struct pollfd p[] = { { .fd = hf_client_fd(c), .events = POLLIN },
                              { .fd = k->end[0], .events = POLLIN },
                              { .fd = nheld > 0 ? k->next[0] : -1, .events = POLLIN } };

        CHECK_NUM(poll(p, 3, -1), >, 0);
        if (p[1].revents)
            break;
        if (nheld > 0 && read(k->next[0], &byte, 1) == 1) /* another may have been faster */
            release_oldest();
        CHECK(hf_client_process(c) >= 0);
    }
    hf_close(c);
}

static void await_grant(const struct crowd *k)
{
    struct pollfd p = { .fd = k->told[0], .events = POLLIN };
    char byte;

    CHECK_NUM(poll(&p, 1, LIMIT_MS), ==, 1);
    CHECK_NUM(read(k->told[0], &byte, 1), ==, 1);
}

void crowd_start(struct crowd *k, const hf_request *req, size_t holders, hf_client *looker)
{
    k->req = req;
    CHECK_NUM(pipe2(k->next, O_NONBLOCK), ==, 0);
    CHECK_NUM(pipe(k->told), ==, 0);
    CHECK_NUM(pipe(k->end), ==, 0);
    for (int i = 0; i < PROCESSES; i++)
        k->pids[i] = proc_start(wait_in_line, k);
    AWAIT(line_is(looker, nm("n"), holders, PROCESSES * WAITERS - holders));
    for (size_t i = 0; i < holders; i++)
        await_grant(k);
}

void crowd_hand_over(const struct crowd *k)
{
    for (int i = 0; i < HANDS; i++) {
        CHECK_NUM(write(k->next[1], "", 1), ==, 1);
        await_grant(k);
    }
}

void crowd_end(struct crowd *k)
{
    CHECK_NUM(write(k->end[1], "", 1), ==, 1);
    for (int i = 0; i < PROCESSES; i++)
        proc_end(k->pids[i]);
    for (int i = 0; i < 2; i++) {
        close(k->next[i]);
        close(k->told[i]);
        close(k->end[i]);
    }
}
