/* sd-event.c: two tasks of one sd-event loop take turns on a name; no thread is made.
 *
 * Goes well: both ask at once, the first is granted, works for 200 ms (a timer stands
 * for the work), releases; that admits the second. When both are through, the client is
 * detached and the loop exits. Goes wrong: a failed or lost lease ends the program with
 * 1.
 */
#include <holdfast/glue/sd-event.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct task {
    const char *name;
    hf_lease *lease;
};

static sd_event *loop;
static hf_client *client;
static sd_event_source *source;
static int left, bad;

static void end(void)
{
    if (--left > 0)
        return;
    source = hf_sd_event_detach(source);
    sd_event_exit(loop, 0);
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

static int worked(sd_event_source *timer, uint64_t usec, void *user)
{
    struct task *t = user;
    hf_op *op;
    (void)timer;
    (void)usec;
    bad |= hf_lease_check(t->lease) < 0;
    if (hf_release_start(t->lease, released, t, &op, NULL) < 0) {
        bad = 1;
        end();
    }
    return 0;
}

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
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
    if (sd_event_add_time_relative(loop, NULL, CLOCK_MONOTONIC, 200 * 1000, 0, worked, t) <
        0)
        exit(1);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    struct task tasks[2] = { { .name = "one" }, { .name = "two" } };
    hf_error e;
    hf_op *op;

    if (!url)
        url = "local:";
    if (sd_event_new(&loop) < 0)
        return 1;
    if (hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &e) < 0) {
        fprintf(stderr, "open: %s\n", e.text);
        return 1;
    }
    if (hf_sd_event_attach(loop, client, &source) < 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        if (hf_acquire_start(client, "loop", 5000, NULL, granted, &tasks[i], &op, &e) < 0)
            return 1;
        left++;
    }
    sd_event_loop(loop);
    hf_close(client);
    sd_event_unref(loop);
    return bad;
}
