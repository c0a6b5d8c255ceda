/* uv.c: two tasks of one libuv loop take turns on a name; no thread is made.
 *
 * Goes well: both ask at once, the first is granted, works for 200 ms (a loop timer
 * stands for the work), releases; that admits the second. When both are through, the
 * client is detached and the loop ends. Goes wrong: a failed or lost lease ends the
 * program with 1.
 */
#include <holdfast/glue/uv.h>
#include <stdio.h>
#include <stdlib.h>

struct task {
    const char *name;
    hf_lease *lease;
    uv_timer_t work;
};

static uv_loop_t *loop;
static hf_client *client;
static hf_uv glue;
static int left, bad;

static void end(struct task *t)
{
    uv_close((uv_handle_t *)&t->work, NULL);
    if (--left == 0)
        hf_uv_detach(&glue, NULL);
}

static void released(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
    struct task *t = user;
    (void)lease;
    (void)e;
    printf("%s: released (%s)\n", t->name, rc < 0 ? hf_errname(rc) : "ok");
    bad |= rc < 0;
    hf_op_free(op);
    end(t);
}

static void worked(uv_timer_t *timer)
{
    struct task *t = timer->data;
    hf_op *op;
    bad |= hf_lease_check(t->lease) < 0;
    if (hf_release_start(t->lease, released, t, &op, NULL) < 0) {
        bad = 1;
        end(t);
    }
}

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
    struct task *t = user;
    hf_op_free(op);
    if (rc < 0) {
        fprintf(stderr, "%s: %s: %s\n", t->name, hf_errname(rc), e->text);
        bad = 1;
        end(t);
        return;
    }
    printf("%s: holds, fence %llu\n", t->name, (unsigned long long)hf_lease_fence(lease));
    t->lease = lease;
    uv_timer_start(&t->work, worked, 200, 0);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    struct task tasks[2] = { { .name = "one" }, { .name = "two" } };
    hf_error e;
    hf_op *op;

    if (!url)
        url = "local:";
    loop = uv_default_loop();
    if (hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &e) < 0) {
        fprintf(stderr, "open: %s\n", e.text);
        return 1;
    }
    if (hf_uv_attach(&glue, loop, client) < 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        uv_timer_init(loop, &tasks[i].work);
        tasks[i].work.data = &tasks[i];
        if (hf_acquire_start(client, "loop", 5000, NULL, granted, &tasks[i], &op, &e) < 0)
            return 1;
        left++;
    }
    uv_run(loop, UV_RUN_DEFAULT);
    hf_close(client);
    uv_loop_close(loop);
    return bad;
}
