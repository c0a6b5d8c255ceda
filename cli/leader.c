/* leader.c: `holdfast leader`: who leads, and, with --follow, each change of it.
 *
 * Goes well: one line "FENCE VALUE", with --json one object. The value is the leader's own
 * and escaped (G11). Goes wrong: nobody leads: 75; --follow prints that as a fence of 0 and
 * waits on. A store that does not answer is waited for by --follow: it prints what is new
 * then. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

struct led {
    bool json, follow, ended;
    const char *name;
    int rc;
    hf_error err;
};

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    struct led *l = ctx;

    (void)value;
    *(strcmp(o->name, "json") == 0 ? &l->json : &l->follow) = true;
    return 0;
}

static void print_json(const struct led *l, const hf_leader_info *info)
{
    fputs("{\"name\": ", stdout);
    json_string(stdout, l->name);
    if (!info) {
        puts(", \"fence\": null, \"value\": null, \"host\": null, \"pid\": null, "
             "\"age_ms\": null}");
        return;
    }
    printf(", \"fence\": %" PRIu64 ", \"value\": ", info->fence);
    json_string(stdout, info->value);
    fputs(", \"host\": ", stdout);
    json_string(stdout, info->host);
    printf(", \"pid\": %" PRId64 ", \"age_ms\": ", info->pid);
    json_number_or_null(stdout, info->age_ms);
    puts("}");
}

static void print(const struct led *l, const hf_leader_info *info)
{
    char value[CLI_TEXT];

    if (l->json)
        print_json(l, info);
    else if (info)
        printf("%" PRIu64 " %s\n", info->fence, cli_text(value, sizeof value, info->value));
    else
        puts("0");
}

static void seen(hf_op *op, int rc, const hf_leader_info *info, const hf_error *err,
                 void *user)
{
    struct led *l = user;

    (void)op;
    if (rc < 0) {
        l->err = *err;
        l->ended = true;
        return;
    }
    print(l, info);
    l->ended = fflush(stdout) != 0; /* nobody reads it: cli_end says so */
}

static int follow(hf_client *client, struct led *l)
{
    hf_op *op = NULL;
    int rc = hf_observe_start(client, l->name, seen, l, &op, &l->err);

    while (rc >= 0 && !l->ended)
        rc = hf_client_wait(client, HF_FOREVER);
    hf_op_free(op);
    return l->err.code ? cli_fail(&l->err) : cli_exit_of(rc < 0 ? rc : 0);
}

static int ask(hf_client *client, struct led *l)
{
    static hf_leader_info info; /* large */
    char name[CLI_TEXT];
    int rc = client ? hf_leader(client, l->name, &info, &l->err) : HF_ENOENT;

    if (rc < 0 && rc != HF_ENOENT)
        return cli_fail(&l->err);
    if (rc == 0 || l->json)
        print(l, rc == 0 ? &info : NULL);
    if (rc == 0)
        return 0;
    cli_say("%s: nobody leads", cli_text(name, sizeof name, l->name));
    return EXIT_BUSY;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct led l = { .json = false };
    int at = cli_arguments(&verb_leader, argc, argv, set, &l, 1, 1, "NAME"), rc;
    hf_client *client = NULL;

    if (at < 0)
        return cli_ended(at);
    l.name = argv[at];
    if (l.follow) /* the store may be made later */
        rc = cli_open(cli, HF_OPTIONS(.drive = HF_DRIVE_APP), &client);
    else
        rc = cli_open_existing(cli, l.name, &client, NULL);
    if (rc)
        return rc;
    rc = l.follow ? follow(client, &l) : ask(client, &l);
    hf_close(client);
    return rc;
}

static const struct cli_option options[] = {
    { 0, "follow", NULL, "print each change, until a signal comes" },
    { 0, "json", NULL, "print one object, with --follow one per line" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_leader = {
    .name = "leader",
    .usage = "holdfast [-u URL] leader [--follow] [--json] NAME",
    .help = "Print fence and value of who leads NAME (holdfast elect).",
    .details = "One line \"FENCE VALUE\"; with --follow \"0\" if nobody leads. Exit status "
               "75: nobody\n"
               "leads; 78: this store cannot tell.",
    .options = options,
    .run = run,
};
