/* glib.c: two tasks of one GLib main loop take turns on a name; no thread is made.
 *
 * Goes well: both ask at once, the first is granted, works for 200 ms (a timeout stands
 * for the work), releases; that admits the second. When both are through, the client is
 * detached and the loop quits. Goes wrong: a failed or lost lease ends the program with
 * 1.
 */
#include <holdfast/glue/glib.h>
#include <stdio.h>

struct task {
    const char *name;
    hf_lease *lease;
};

static GMainLoop *loop;
static hf_client *client;
static GSource *source;
static int left, bad;

static void end(void)
{
    if (--left > 0)
        return;
    hf_glib_detach(source);
    g_main_loop_quit(loop);
}

static void released(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
    struct task *t = user;
    (void)lease;
    (void)e;
    g_print("%s: released (%s)\n", t->name, rc < 0 ? hf_errname(rc) : "ok");
    bad |= rc < 0;
    hf_op_free(op);
    end();
}

static gboolean worked(gpointer user)
{
    struct task *t = user;
    hf_op *op;
    bad |= hf_lease_check(t->lease) < 0;
    if (hf_release_start(t->lease, released, t, &op, NULL) < 0) {
        bad = 1;
        end();
    }
    return G_SOURCE_REMOVE;
}

static void granted(hf_op *op, int rc, hf_lease *lease, const hf_error *e, void *user)
{
    struct task *t = user;
    hf_op_free(op);
    if (rc < 0) {
        g_printerr("%s: %s: %s\n", t->name, hf_errname(rc), e->text);
        bad = 1;
        end();
        return;
    }
    g_print("%s: holds, fence %" G_GUINT64_FORMAT "\n", t->name, hf_lease_fence(lease));
    t->lease = lease;
    g_timeout_add(200, worked, t);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : g_getenv("HOLDFAST_URL");
    struct task tasks[2] = { { .name = "one" }, { .name = "two" } };
    hf_error e;
    hf_op *op;

    if (!url)
        url = "local:";
    loop = g_main_loop_new(NULL, FALSE);
    if (hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &e) < 0) {
        g_printerr("open: %s\n", e.text);
        return 1;
    }
    source = hf_glib_attach(NULL, client);
    for (int i = 0; i < 2; i++) {
        if (hf_acquire_start(client, "loop", 5000, NULL, granted, &tasks[i], &op, &e) < 0)
            return 1;
        left++;
    }
    g_main_loop_run(loop);
    hf_close(client);
    g_main_loop_unref(loop);
    return bad;
}
