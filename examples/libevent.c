/* libevent.c: two tasks of one libevent base take turns on a name; no thread is made.
 *
 * Goes well: both ask at once, the first is granted, works for 200 ms (a timer stands
 * for the work), releases; that admits the second. When both are through, the client is
 * detached and the loop ends for want of events. Goes wrong: a failed or lost lease ends
 * the program with 1.
 */
#include <holdfast/glue/event.h>
#include <stdio.h>

struct task {
    const char *name;
    hf_lease *lease;
};

static struct event_base *base;
static hf_client *client;
static hf_event *glue;
static int left, bad;

static void end(void)
{
    if (--left == 0)
        hf_event_detach(glue);
}

static void released(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
    struct task *t = user;
    (void)lease;
    (void)e;
    printf("%s: released (%s)\n", t->name, rc < 0 ? hf_errname(rc) : "ok");
    bad |= rc < 0;
    hf_op_free(op);
    end();
}

static void worked(evutil_socket_t fd, short what, void *user)
{
    struct task *t = user;
    hf_op *op;
    (void)fd;
    (void)what;
    bad |= hf_lease_check(t->lease) < 0;
    if (hf_release_start(t->lease, released, t, &op, NULL) < 0) {
        bad = 1;
        end();
    }
}

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
    struct timeval work = { 0, 200 * 1000 };
    struct task *t = user;
    hf_op_free(op);
    if (rc < 0) {
        fprintf(stderr, "%s: %s: %s\n", t->name, hf_errname(rc), e->text);
        bad = 1;
        end();
        return;
    }
    printf("%s: holds, fence %llu\n", t->name, (unsigned long long)hf_lease_fence(lease));
    t->lease = lease;
    event_base_once(base, -1, EV_TIMEOUT, worked, t, &work);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    struct task tasks[2] = { { .name = "one" }, { .name = "two" } };
    hf_error e;
    hf_op *op;

    if (!url)
        url = "local:";
    base = event_base_new();
    if (hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &e) < 0) {
        fprintf(stderr, "open: %s\n", e.text);
        return 1;
    }
    glue = hf_event_attach(base, client);
    if (!glue)
        return 1;
    for (int i = 0; i < 2; i++) {
        if (hf_acquire_start(client, "loop", 5000, NULL, granted, &tasks[i], &op, &e) < 0)
            return 1;
        left++;
    }
    event_base_dispatch(base);
    hf_close(client);
    event_base_free(base);
    return bad;
}
