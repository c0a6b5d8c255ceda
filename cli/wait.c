/* wait.c: until nobody holds NAME and nobody waits for it, without standing in its line.
 *
 * Goes well: the line is followed, and each change of it is told by the store; 0 as soon
 * as it is empty. Goes wrong: 75 when the time is over. While a store that has answered
 * once is unreachable it is waited for, as `run` does; if the time is over then: 69. A
 * holder that dies makes no change by itself where nobody waits for it, so the line is
 * looked at again at the earliest expiry in it, at most every 10 s. "Free" is news of a
 * moment: only a lock of one's own keeps it so. */
#include "cli.h"
#include "util/text.h"

#include <string.h>

enum { LOOK_LEAST_MS = 500, LOOK_MOST_MS = 10000 };

struct waiting {
    bool free, ended; /* ended: the watch is over */
    int rc;
    int64_t look_at; /* the next look of our own */
    hf_error err;
};

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    const struct cli cli = { .verb = "wait" };
    char shown[256];

    (void)o;
    if (hf__parse_time(value, ctx))
        return 0;
    cli_usage(&cli, "--wait '%s': " CLI_TIME, cli_text(shown, sizeof shown, value));
    return -1;
}

static void judge(struct waiting *w, const hf_list *list)
{
    const hf_line *line = hf_list_at(list, 0);
    int64_t next = LOOK_MOST_MS;

    w->free = !line || hf_line_holders(line) + hf_line_waiters(line) == 0;
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        int64_t ends = hf_ticket_expires_ms(hf_line_ticket(line, i));

        if (ends >= 0 && ends < next)
            next = ends;
    }
    w->look_at = cli_now_ms() + (next < LOOK_LEAST_MS ? LOOK_LEAST_MS : next);
}

/* An error that may pass is no answer: it is asked again soon. */
static void took(struct waiting *w, int rc, const hf_error *err, const hf_list *list)
{
    w->rc = rc;
    if (rc >= 0) {
        judge(w, list);
        return;
    }
    w->err = *err;
    w->look_at = cli_now_ms() + LOOK_LEAST_MS;
}

static void seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    struct waiting *w = user;

    (void)op;
    w->ended = rc < 0;
    took(w, rc, err, list);
}

static bool may_pass(const struct waiting *w)
{
    return w->rc >= 0 || w->err.retry;
}

static int look(hf_client *client, const char *name, struct waiting *w)
{
    hf_list *list = NULL;
    hf_error err;
    int rc = hf_look(client, name, &list, &err);

    took(w, rc, &err, list);
    hf_list_free(list);
    return rc;
}

static void follow(hf_client *client, const char *name, int64_t until, struct waiting *w)
{
    hf_op *op = NULL;
    int rc = hf_watch_start(client, name, seen, w, &op, &w->err);

    while (rc >= 0 && !w->free && may_pass(w) && cli_now_ms() < until) {
        int64_t now = cli_now_ms(), next = w->look_at < until ? w->look_at : until;

        rc = hf_client_wait(client, next > now ? next - now : 0);
        if (rc < 0) {
            memset(&w->err, 0, sizeof w->err);
            w->err.code = rc;
        } else if (!w->free && cli_now_ms() >= w->look_at && look(client, name, w) >= 0 &&
                   w->ended) {
            hf_op_free(op);
            op = NULL;
            w->ended = false;
            rc = hf_watch_start(client, name, seen, w, &op, &w->err);
        }
    }
    if (rc < 0)
        w->rc = rc;
    else if (!w->free && w->rc >= 0) /* do we know that it is in use? */
        w->rc = hf_connect(client, 0, &w->err);
    hf_op_free(op);
}

static int run(struct cli *cli, int argc, char **argv)
{
    int64_t wait_ms = HF_FOREVER, start = cli_now_ms();
    int at = cli_arguments(&verb_wait, argc, argv, set, &wait_ms, 1, 1, "NAME"), rc;
    struct waiting w = { 0 };
    hf_client *client = NULL;

    if (at < 0)
        return cli_ended(at);
    rc = cli_open_existing(cli, argv[at], &client, NULL);
    if (rc || !client)
        return rc;
    if (look(client, argv[at], &w) >= 0 && !w.free && wait_ms > 0)
        follow(client, argv[at], wait_ms == HF_FOREVER ? HF_FOREVER : start + wait_ms, &w);
    if (w.rc < 0) {
        rc = cli_fail(&w.err);
    } else if (!w.free) {
        char name[CLI_TEXT];

        cli_say("%s is still in use", cli_text(name, sizeof name, argv[at]));
        rc = EXIT_BUSY;
    }
    hf_close(client);
    return rc;
}

static const struct cli_option options[] = {
    { 'w', "wait", "T", "wait at most so long (0: only look); else for ever" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_wait = {
    .name = "wait",
    .usage = "holdfast [-u URL] wait [-w T] NAME",
    .help = "Wait until nobody holds NAME or waits for it.",
    .details =
        "Does not stand in the line and takes no lock: by the time you read the answer\n"
        "somebody else may have come. Exit status 75: still in use when the time was "
        "over.",
    .options = options,
    .run = run,
};
