/* show.c: one line: who holds it, who waits, since when and why.
 *
 * Goes well: holders first, then the queue in its order. A name that nobody uses is said
 * to be free, which is no error; where the store does not show who waits, that is said. The
 * store is shown too: the same name in another store, or in another mode of it, is another
 * lock. Everything that strangers wrote is escaped (G11). */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    (void)o;
    (void)value;
    *(bool *)ctx = true;
    return 0;
}

/* ---- for people ------------------------------------------------------------------ */

static void print_place(FILE *out, const hf_ticket *t)
{
    char place[32] = "holds", what[32] = "exclusive", age[32];

    if (hf_ticket_position(t) > 0)
        snprintf(place, sizeof place, "waits %" PRIu32, hf_ticket_position(t));
    if (hf_ticket_mode(t) == HF_READ)
        snprintf(what, sizeof what, "shared");
    else if (hf_ticket_mode(t) == HF_PERMITS)
        snprintf(what, sizeof what, "%" PRIu32 " permit%s", hf_ticket_permits(t),
                 hf_ticket_permits(t) == 1 ? "" : "s");
    fprintf(out, "%-11s%s, for %s", place, what,
            cli_age(age, sizeof age, hf_ticket_age_ms(t)));
    if (hf_ticket_fence(t) > 0)
        fprintf(out, ", fence %" PRIu64, hf_ticket_fence(t));
    putc('\n', out);
}

static void print_expiry(FILE *out, const hf_ticket *t)
{
    int64_t ms = hf_ticket_expires_ms(t);
    char in[32];

    cli_age(in, sizeof in, ms);
    if (hf_ticket_broken(t) && ms >= 0)
        fprintf(out, "%11sbroken: ends in %s, cannot be renewed\n", "", in);
    else if (hf_ticket_broken(t))
        fprintf(out, "%11sbroken: cannot be renewed\n", "");
    else if (hf_ticket_kept(t))
        fprintf(out,
                "%11sends in %s: kept by no process (run --at-least or --rate, acquire)\n",
                "", in);
    else if (ms >= 0)
        fprintf(out, "%11sends in %s unless renewed\n", "", in);
}

void cli_ticket(FILE *out, const hf_ticket *t)
{
    char text[CLI_TEXT];

    print_place(out, t);
    fprintf(out, "%11spid %" PRId64 " on %s", "", hf_ticket_pid(t),
            cli_text(text, sizeof text, hf_ticket_host(t)));
    if (hf_ticket_owner(t)[0])
        fprintf(out, ", owner %s", cli_text(text, sizeof text, hf_ticket_owner(t)));
    putc('\n', out);
    if (hf_ticket_id(t)[0])
        fprintf(out, "%11sid %s\n", "", cli_text(text, sizeof text, hf_ticket_id(t)));
    print_expiry(out, t);
    if (hf_ticket_note(t)[0])
        fprintf(out, "%11snote: %s\n", "", cli_text(text, sizeof text, hf_ticket_note(t)));
}

static void print_kind(const hf_line *line, bool waiters)
{
    uint64_t taken = 0;

    if (!line) {
        printf("kind       free: nobody holds it%s\n",
               waiters ? " or waits" : "; who waits is not known");
        return;
    }
    if (hf_line_mode(line) == HF_PERMITS) {
        for (size_t i = 0; i < hf_line_tickets(line); i++)
            if (hf_ticket_position(hf_line_ticket(line, i)) == 0)
                taken += hf_ticket_permits(hf_line_ticket(line, i));
        printf("kind       permits, %" PRIu64 " of %" PRIu32 " taken", taken,
               hf_line_capacity(line));
    } else {
        printf("kind       lock");
    }
    printf("; %zu hold%s, ", hf_line_holders(line), hf_line_holders(line) == 1 ? "s" : "");
    if (waiters)
        printf("%zu wait%s\n", hf_line_waiters(line),
               hf_line_waiters(line) == 1 ? "s" : "");
    else
        puts("who waits is not known");
}

static void print_text(const char *url, const char *name, const hf_line *line, bool waiters)
{
    char text[CLI_TEXT];

    printf("name       %s\n", cli_text(text, sizeof text, name));
    printf("store      %s\n", cli_text(text, sizeof text, url));
    print_kind(line, waiters);
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        putchar('\n');
        cli_ticket(stdout, hf_line_ticket(line, i));
    }
}

/* ---- for programs ---------------------------------------------------------------- */

/* Capacity and weights as the rule of the line has them: those of the holders together
 * never exceed the capacity, whatever its kind. */
#define FULL (UINT64_C(1) << 31)

static void ticket_json(const hf_ticket *t)
{
    int mode = hf_ticket_mode(t);
    const char *name = mode == HF_READ      ? "shared"
                       : mode == HF_PERMITS ? "permits"
                                            : "exclusive";
    uint64_t weight = mode == HF_READ      ? 1
                      : mode == HF_PERMITS ? hf_ticket_permits(t)
                                           : FULL;

    printf("\n    {\"fence\": ");
    if (hf_ticket_fence(t) > 0)
        printf("%" PRIu64, hf_ticket_fence(t));
    else
        fputs("null", stdout);
    printf(", \"position\": %" PRIu32 ", \"owner\": ", hf_ticket_position(t));
    json_string(stdout, hf_ticket_owner(t));
    fputs(", \"host\": ", stdout);
    json_string(stdout, hf_ticket_host(t));
    printf(", \"pid\": %" PRId64 ", \"mode\": \"%s\", \"weight\": %" PRIu64
           ", \"age_ms\": ",
           hf_ticket_pid(t), name, weight);
    json_number_or_null(stdout, hf_ticket_age_ms(t));
    fputs(", \"expires_in_ms\": ", stdout);
    json_number_or_null(stdout, hf_ticket_expires_ms(t));
    fputs(", \"note\": ", stdout);
    json_string(stdout, hf_ticket_note(t));
    printf(", \"broken\": %s, \"kept\": %s, \"id\": ",
           hf_ticket_broken(t) ? "true" : "false", hf_ticket_kept(t) ? "true" : "false");
    json_string(stdout, hf_ticket_id(t));
    putchar('}');
}

static void tickets_json(const hf_line *line, bool waiters)
{
    bool first = true;

    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);

        if ((hf_ticket_position(t) > 0) != waiters)
            continue;
        if (!first)
            putchar(',');
        first = false;
        ticket_json(t);
    }
    fputs(first ? "]" : "\n  ]", stdout);
}

static void print_json(const char *url, const char *name, const hf_line *line, bool waiters)
{
    bool permits = line && hf_line_mode(line) == HF_PERMITS;

    fputs("{\"name\": ", stdout);
    json_string(stdout, name);
    fputs(", \"store\": ", stdout);
    json_string(stdout, url);
    if (line)
        printf(",\n  \"mode\": \"%s\", \"capacity\": %" PRIu64,
               permits ? "permits" : "lock", permits ? hf_line_capacity(line) : FULL);
    else
        fputs(",\n  \"mode\": null, \"capacity\": null", stdout);
    fputs(",\n  \"holders\": [", stdout);
    tickets_json(line, false);
    fputs(",\n  \"waiters\": ", stdout);
    if (waiters) {
        putchar('[');
        tickets_json(line, true);
    } else {
        fputs("null", stdout);
    }
    fputs("}\n", stdout);
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool json = false;
    int at = cli_arguments(&verb_show, argc, argv, set, &json, 1, 1, "NAME"), rc;
    hf_client *client = NULL;
    hf_list *list = NULL;
    char *url = NULL;
    hf_error err;

    if (at < 0)
        return cli_ended(at);
    rc = cli_open_existing(cli, argv[at], &client, &url);
    if (rc)
        return rc;
    if (client)
        rc = hf_look(client, argv[at], &list, &err);
    if (rc < 0) {
        rc = cli_fail(&err);
    } else {
        const hf_line *line = hf_list_at(list, 0);
        bool waiters = !client || (hf_client_caps(client) & HF_CAP_LINE);

        if (json)
            print_json(url, argv[at], line, waiters);
        else
            print_text(url, argv[at], line, waiters);
    }
    hf_list_free(list);
    hf_close(client);
    free(url);
    return rc;
}

static const struct cli_option options[] = {
    { 0, "json", NULL, "print one object" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_show = {
    .name = "show",
    .usage = "holdfast [-u URL] show [--json] NAME",
    .help = "Show who holds NAME and who waits for it.",
    .details = "A name that nobody uses is shown as free, with exit status 0.",
    .options = options,
    .run = run,
};
