/* break.c: takes a hold, or a place in the queue, away from its owner.
 *
 * Goes well: shows the ticket, asks, and ends its renewal: the owner is told, and the
 * line moves at the ticket's expiry; one that no process keeps ends at once. With --now the
 * next is admitted at once, and from then on only the fence protects the resource. Goes
 * wrong: the ticket that was shown is broken or nothing is (75); if another holder came
 * while the question stood, that one is not touched (G8). Without a terminal to ask on,
 * --yes is needed. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct breaking {
    struct cli *cli;
    const char *name;
    char shown[CLI_TEXT]; /* the name, escaped */
    uint64_t fence;       /* --fence, or 0 */
    const char *id;       /* --id, or NULL: also one that waits */
    bool all, now, yes;
};

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    struct breaking *b = ctx;
    char shown[256];

    switch (o->name[0]) {
    case 'a':
        b->all = true;
        break;
    case 'n':
        b->now = true;
        break;
    case 'y':
        b->yes = true;
        break;
    case 'i':
        b->id = value;
        break;
    default:
        if (!cli_number(value, UINT64_MAX, &b->fence) || b->fence == 0) {
            cli_usage(b->cli, "--fence '%s': wants the number that 'holdfast show' prints",
                      cli_text(shown, sizeof shown, value));
            return -1;
        }
    }
    return 0;
}

static bool chosen(const struct breaking *b, const hf_ticket *t)
{
    if (b->id)
        return strcmp(hf_ticket_id(t), b->id) == 0;
    return hf_ticket_position(t) == 0 && (!b->fence || hf_ticket_fence(t) == b->fence);
}

/* Shows what is to be broken. 0, or the exit status if that is nothing or not clear. */
static int choose(const struct breaking *b, const hf_line *line)
{
    size_t n = 0, tickets = line ? hf_line_tickets(line) : 0;

    for (size_t i = 0; i < tickets; i++)
        n += chosen(b, hf_line_ticket(line, i));
    if (n == 0) {
        if (b->id)
            cli_say("no ticket of %s has this id: nothing to break", b->shown);
        else if (b->fence)
            cli_say("no holder of %s has the fence %" PRIu64 ": nothing to break", b->shown,
                    b->fence);
        else
            cli_say("nobody holds %s: nothing to break", b->shown);
        return EXIT_BUSY;
    }
    for (size_t i = 0; i < tickets; i++)
        if (chosen(b, hf_line_ticket(line, i)))
            cli_ticket(stdout, hf_line_ticket(line, i));
    fflush(stdout);
    if (n > 1 && !b->all)
        return cli_usage(b->cli, "%s has %zu holders: choose one by --fence N, or --all",
                         b->shown, n);
    return 0;
}

static bool confirmed(const struct breaking *b)
{
    char answer[16];

    if (b->yes)
        return true;
    fprintf(stderr, "Break %s%s? [y/N] ", b->shown, b->now ? " now" : "");
    fflush(stderr);
    if (!fgets(answer, sizeof answer, stdin))
        return false;
    answer[strcspn(answer, "\r\n")] = '\0';
    return strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0;
}

/* How long the broken tickets of `old` may still hold their places: read again, because
 * their owner may have renewed them between the first look and the break. 0: gone; -1:
 * not known. */
static int64_t rest_of(hf_client *client, const struct breaking *b, const hf_line *old)
{
    hf_list *list = NULL;
    const hf_line *line;
    int64_t most = 0;

    if (hf_look(client, b->name, &list, NULL) < 0)
        return -1;
    line = hf_list_at(list, 0);
    for (size_t i = 0; line && i < hf_line_holders(line); i++)
        for (size_t k = 0; most >= 0 && k < hf_line_holders(old); k++) {
            const hf_ticket *t = hf_line_ticket(line, i), *was = hf_line_ticket(old, k);
            int64_t ends = hf_ticket_expires_ms(t);

            if (chosen(b, was) && strcmp(hf_ticket_id(t), hf_ticket_id(was)) == 0)
                most = ends < 0 ? -1 : ends > most ? ends : most;
        }
    hf_list_free(list);
    return most;
}

static bool waits(const struct breaking *b, const hf_line *line)
{
    for (size_t i = 0; i < hf_line_tickets(line); i++)
        if (chosen(b, hf_line_ticket(line, i)))
            return hf_ticket_position(hf_line_ticket(line, i)) > 0;
    return false;
}

/* Nobody renews such a ticket, so that it has ended. */
static bool kept(const struct breaking *b, const hf_line *line)
{
    for (size_t i = 0; i < hf_line_tickets(line); i++)
        if (chosen(b, hf_line_ticket(line, i)) && hf_ticket_kept(hf_line_ticket(line, i)))
            return true;
    return false;
}

static void report(hf_client *client, const struct breaking *b, const hf_line *line)
{
    bool waiter = waits(b, line);
    int64_t ms = b->now || waiter ? 0 : rest_of(client, b, line);

    if (waiter)
        cli_say("that place in the queue of %s is taken away", b->shown);
    else if (b->now)
        cli_say(
            "%s was taken away at once; its owner may still be at work until it notices: "
            "only the fence protects now",
            b->shown);
    else if (ms == 0 && kept(b, line))
        cli_say("%s was taken away at once; if it is of 'holdfast acquire', its owner may "
                "still be at work: only the fence protects now",
                b->shown);
    else if (ms < 0)
        cli_say("the owner of %s is told; free when its ttl is over", b->shown);
    else if (ms == 0)
        cli_say("%s is free", b->shown);
    else
        cli_say("the owner of %s is told; free in at most %" PRId64 " s", b->shown,
                (ms + 999) / 1000);
}

static int evict(hf_client *client, const struct breaking *b, const hf_line *line)
{
    size_t broken = 0;
    hf_error err;

    for (size_t i = 0; i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);
        int rc;

        if (!chosen(b, t))
            continue;
        rc = hf_evict(client, b->name, hf_ticket_id(t), b->now ? HF_EVICT_NOW : 0, &err);
        if (rc == HF_ENOTSUP && !b->now)
            cli_say("its holder would not be told: --now takes the place away at once");
        if (rc < 0 && rc != HF_ENOENT)
            return cli_fail(&err);
        broken += rc == 0;
    }
    if (broken == 0) {
        cli_say("the ticket has gone meanwhile: nothing was broken");
        return EXIT_BUSY;
    }
    report(client, b, line);
    return 0;
}

static int break_line(hf_client *client, const struct breaking *b)
{
    hf_list *list = NULL;
    hf_error err;
    int rc = client ? hf_look(client, b->name, &list, &err) : 0;

    if (rc < 0)
        return cli_fail(&err);
    rc = choose(b, hf_list_at(list, 0));
    if (rc == 0 && !b->yes && !(isatty(STDIN_FILENO) && isatty(STDERR_FILENO))) {
        rc = cli_usage(b->cli, "there is no terminal to ask on: add --yes to break %s",
                       b->shown);
    } else if (rc == 0 && !confirmed(b)) {
        cli_say("nothing was broken");
        rc = EXIT_BUSY;
    } else if (rc == 0) {
        rc = evict(client, b, hf_list_at(list, 0));
    }
    hf_list_free(list);
    return rc;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct breaking b = { .cli = cli };
    int at = cli_arguments(&verb_break, argc, argv, set, &b, 1, 1, "NAME"), rc;
    hf_client *client = NULL;

    if (at < 0)
        return cli_ended(at);
    b.name = argv[at];
    cli_text(b.shown, sizeof b.shown, b.name);
    if ((b.fence != 0) + b.all + (b.id != NULL) > 1)
        return cli_usage(cli, "--fence, --id and --all exclude each other");
    rc = cli_open_existing(cli, b.name, &client, NULL);
    if (rc)
        return rc;
    rc = break_line(client, &b);
    hf_close(client);
    return rc;
}

static const struct cli_option options[] = {
    { 0, "fence", "N", "the holder with this fence, of several" },
    { 0, "id", "ID", "this ticket: also of one who waits ('show' prints it)" },
    { 0, "all", NULL, "all holders" },
    { 0, "now", NULL, "admit the next at once: only the fence protects then" },
    { 'y', "yes", NULL, "do not ask" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_break = {
    .name = "break",
    .usage = "holdfast [-u URL] break [--fence N | --id ID | --all] [--now] [--yes] NAME",
    .help = "Take NAME away from its holder.",
    .details =
        "Shows the holder and asks. By default only ends the renewal: the owner "
        "is told,\n"
        "'run' stops its command, and the next is admitted when the ticket "
        "expires. What\n"
        "was shown is broken or nothing is: then the exit status is 75. A name that no\n"
        "process keeps (acquire, --at-least, --rate) is free at once.",
    .options = options,
    .run = run,
};
