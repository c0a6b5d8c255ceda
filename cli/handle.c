/* handle.c: acquire, renew, release: a lock across the steps of a pipeline.
 *
 * Nobody stands behind such a lock: no process renews it, and nobody stops a job when it
 * expires. Only the fence protects. It is a place that its holder has left taken
 * (hf_release_after), and a handle is what names it: "hf1:ID:NAME:STORE", name and store
 * (the URL without secrets, with its namespace) percent-encoded, so that it is one word for
 * a shell, a file of variables and a command line.
 *
 * Goes well: acquire waits in line as run does and prints the handle, the fence and the
 * expiry as lines KEY=VALUE. Goes wrong: a store that cannot keep a place is refused (78)
 * before anything is taken; output that cannot be written gives the place back, for nobody
 * would know its handle; a handle of another store is refused (64), whatever its ids are;
 * one that has ended is 76. A signal while acquire waits leaves the line first. */
#include "cli.h"
#include "util/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { REACH_MS = 10000, ID_MAX = 64, HANDLE_MAX = 16384 };

struct job {
    const char *verb;
    int64_t wait_ms, ttl_ms;
    bool json;
    hf_request request;
    char note[512];
    char handle[HANDLE_MAX];
    /* of the handle */
    char id[ID_MAX], name[CLI_TEXT], store[HANDLE_MAX];
};

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    struct job *j = ctx;
    const struct cli cli = { .verb = j->verb };
    int64_t *time = strcmp(o->name, "ttl") == 0 ? &j->ttl_ms : &j->wait_ms;
    char shown[256];

    if (o->letter == 'n')
        j->wait_ms = 0;
    else if (o->letter == 's')
        j->request.mode = HF_READ;
    else if (strcmp(o->name, "json") == 0)
        j->json = true;
    else if (strcmp(o->name, "note") == 0)
        j->request.note = value;
    else {
        bool good = hf__parse_time(value, time);

        if (good && (*time || time == &j->wait_ms))
            return 0;
        cli_usage(&cli, "--%s '%s': %s", o->name, cli_text(shown, sizeof shown, value),
                  good ? "must be more than 0" : CLI_TIME);
        return -1;
    }
    return 0;
}

/* ---- handles --------------------------------------------------------------------- */

static size_t encode(char *to, size_t size, const char *from)
{
    size_t n = 0;

    for (; *from && n + 4 < size; from++)
        n += (size_t)snprintf(
            to + n, size - n,
            isalnum((unsigned char)*from) || strchr("._/-", *from) ? "%c" : "%%%02x",
            (unsigned char)*from);
    return n;
}

static bool make_handle(struct job *j, const char *id, const char *name, const char *store)
{
    size_t n = (size_t)snprintf(j->handle, HANDLE_MAX, "hf1:%s:", id);

    n += encode(j->handle + n, HANDLE_MAX - n, name);
    n += (size_t)snprintf(j->handle + n, HANDLE_MAX - n, ":");
    n += encode(j->handle + n, HANDLE_MAX - n, store);
    return n + 4 < HANDLE_MAX;
}

static bool decode(char *to, size_t size, const char *from, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int high = 0, low = from[i];

        if (from[i] == '%') {
            high = i + 2 < len ? hf__hex_digit(from[i + 1]) : -1;
            low = high < 0 ? -1 : hf__hex_digit(from[i + 2]);
            i += 2;
        }
        if (high < 0 || low < 0 || high * 16 + low == 0 || n + 1 >= size)
            return false;
        to[n++] = (char)(high * 16 + low);
    }
    to[n] = '\0';
    return n > 0;
}

static bool read_handle(struct job *j, const char *text)
{
    size_t id, name;

    if (strncmp(text, "hf1:", 4) != 0)
        return false;
    text += 4;
    id = strcspn(text, ":");
    if (!text[id] || !decode(j->id, sizeof j->id, text, id))
        return false;
    text += id + 1;
    name = strcspn(text, ":");
    return text[name] && decode(j->name, sizeof j->name, text, name) &&
           decode(j->store, sizeof j->store, text + name + 1, strlen(text + name + 1));
}

static int has_ended(const struct job *j)
{
    char name[CLI_TEXT];

    cli_say("%s: the lock of this handle has ended", cli_text(name, sizeof name, j->name));
    return EXIT_LOST;
}

/* Opens the store and sees to it that the handle is one of it. 0 or an exit status. */
static int open_for(struct cli *cli, struct job *j, const char *handle, hf_client **ret)
{
    char ours[CLI_TEXT], theirs[CLI_TEXT], *url = NULL;
    int rc;

    if (!read_handle(j, handle))
        return cli_usage(cli, "this is not a handle of 'holdfast acquire'");
    rc = cli_open_existing(cli, NULL, ret, &url);
    if (rc == 0 && strcmp(url, j->store) == 0)
        rc = *ret ? 0 : has_ended(j);
    else if (rc == 0)
        rc = cli_usage(cli, "the handle is of the store %s, not of %s",
                       cli_text(theirs, sizeof theirs, j->store),
                       cli_text(ours, sizeof ours, url));
    if (rc) {
        hf_close(*ret);
        *ret = NULL;
    }
    free(url);
    return rc;
}

/* ---- output ---------------------------------------------------------------------- */

static void print(const struct job *j, bool renewed, uint64_t fence)
{
    time_t at = time(NULL) + (time_t)(j->ttl_ms / 1000);
    struct tm utc;
    char expires[32];

    strftime(expires, sizeof expires, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &utc));
    if (j->json) {
        fputs("{\"handle\": ", stdout);
        json_string(stdout, j->handle);
        if (!renewed)
            printf(", \"fence\": %" PRIu64, fence);
        printf(", \"expires_in_ms\": %" PRId64 ", \"expires\": \"%s\"}\n", j->ttl_ms,
               expires);
        return;
    }
    if (!renewed)
        printf("HOLDFAST_HANDLE=%s\nHOLDFAST_FENCE=%" PRIu64 "\n", j->handle, fence);
    printf("HOLDFAST_EXPIRES=%s\n", expires);
}

/* ---- acquire --------------------------------------------------------------------- */

/* From here on nobody holds it but who has the handle. */
static int keep(hf_client *client, struct job *j, hf_lease *lease, const char *name)
{
    const char *ticket = hf_lease_ticket(lease);
    uint64_t fence = hf_lease_fence(lease);
    char id[ID_MAX];
    hf_error err;
    int rc;

    snprintf(id, sizeof id, "%s", ticket ? ticket : "");
    if (!ticket || !make_handle(j, id, name, hf_client_url(client))) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    rc = hf_release_after(lease, j->ttl_ms, &err);
    if (rc < 0)
        return cli_fail(&err);
    signal(SIGPIPE, SIG_IGN); /* a reader that is gone is an error of the output */
    print(j, false, fence);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    cli_say("cannot write the handle: %s; the lock is given back", strerror(errno));
    hf_evict(client, name, id, 0, NULL);
    clearerr(stdout);
    return EXIT_SYSTEM;
}

/* A place can be kept, looked at and ended by its id. */
static int check_store(hf_client *client)
{
    const uint32_t needs = HF_CAP_KEEP | HF_CAP_LINE;
    hf_error err;

    if (hf_connect(client, REACH_MS, &err) < 0)
        return cli_fail(&err);
    if ((hf_client_caps(client) & needs) == needs)
        return 0;
    cli_say("%s cannot keep and show a lock without a process (holdfast-url(7) says what "
            "each store can do)",
            hf_client_url(client));
    return EXIT_NOTSUP;
}

static int acquire(struct cli *cli, int argc, char **argv)
{
    static struct job j; /* large: what is all 0 takes no room in the file */
    hf_client *client = NULL;
    hf_lease *lease;
    hf_error err;
    int at, rc;

    j.verb = cli->verb;
    j.wait_ms = HF_FOREVER;
    j.request = (hf_request)HF_REQUEST_INIT;
    at = cli_arguments(&verb_acquire, argc, argv, set, &j, 1, 1, "NAME");
    if (at < 0)
        return cli_ended(at);
    if (j.ttl_ms == 0)
        return cli_usage(cli, "--ttl is missing: after that time the lock ends by itself");
    if (!j.request.note)
        j.request.note = cli_note(j.note, sizeof j.note, NULL);
    rc = cli_open(cli, NULL, &client);
    if (rc)
        return rc;
    rc = check_store(client);
    if (rc == 0)
        rc = cli_catch_signals(&j.request.cancel);
    if (rc == 0)
        rc = hf_acquire(client, argv[at], j.wait_ms, &j.request, &lease, &err) < 0
                 ? cli_fail_name(argv[at], &err)
                 : keep(client, &j, lease, argv[at]);
    hf_close(client);
    return cli_ended_by_signal(rc);
}

static const struct cli_option acquire_options[] = {
    { 0, "ttl", "T", "how long the lock lasts unless it is renewed" },
    { 'n', "try", NULL, "do not wait: exit 75 if it is taken" },
    { 'w', "wait", "T", "wait at most T" },
    { 's', "shared", NULL, "shared: together with other shared ones" },
    { 0, "note", "TEXT", "why: shown to whoever looks" },
    { 0, "json", NULL, "print one object" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_acquire = {
    .name = "acquire",
    .usage = "holdfast [-u URL] acquire --ttl T [options] NAME",
    .help = "Take NAME for later steps; print a handle of it.",
    .details = "Nobody stops a job when the time is over: only a resource that checks the\n"
               "fence is protected. Prints HOLDFAST_HANDLE, HOLDFAST_FENCE and\n"
               "HOLDFAST_EXPIRES. Where one command can do it all, use run.",
    .options = acquire_options,
    .run = acquire,
};

/* ---- renew, release -------------------------------------------------------------- */

static int renew(struct cli *cli, int argc, char **argv)
{
    static struct job j;
    hf_client *client = NULL;
    hf_error err;
    int at, rc;

    j.verb = cli->verb;
    at = cli_arguments(&verb_renew, argc, argv, set, &j, 1, 1, "HANDLE");
    if (at < 0)
        return cli_ended(at);
    if (j.ttl_ms == 0)
        return cli_usage(cli, "--ttl is missing");
    rc = open_for(cli, &j, argv[at], &client);
    if (rc)
        return rc;
    snprintf(j.handle, sizeof j.handle, "%s", argv[at]);
    rc = hf_keep_renew(client, j.name, j.id, j.ttl_ms, &err);
    if (rc == 0)
        print(&j, true, 0);
    else
        rc = rc == HF_ENOENT ? has_ended(&j) : cli_fail(&err);
    hf_close(client);
    return rc;
}

static const struct cli_option renew_options[] = {
    { 0, "ttl", "T", "how long the lock lasts from now on" },
    { 0, "json", NULL, "print one object" },
    { 0, NULL, NULL, NULL },
};

const struct cli_verb verb_renew = {
    .name = "renew",
    .usage = "holdfast [-u URL] renew --ttl T [--json] HANDLE",
    .help = "Let the lock of a handle last longer.",
    .details = "Exit status 76: it has ended. Then others may have held it since.",
    .options = renew_options,
    .run = renew,
};

/* Only a kept ticket: its id does not name one that a process holds. */
static bool is_kept(const hf_list *list, const char *id)
{
    const hf_line *line = hf_list_at(list, 0);

    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);

        if (strcmp(hf_ticket_id(t), id) == 0)
            return hf_ticket_kept(t);
    }
    return false;
}

static int release(struct cli *cli, int argc, char **argv)
{
    static struct job j;
    int at = cli_arguments(&verb_release, argc, argv, set, &j, 1, 1, "HANDLE"), rc;
    hf_client *client = NULL;
    hf_list *list = NULL;
    hf_error err;

    if (at < 0)
        return cli_ended(at);
    rc = open_for(cli, &j, argv[at], &client);
    if (rc)
        return rc;
    rc = hf_look(client, j.name, &list, &err);
    if (rc == 0)
        rc = is_kept(list, j.id) ? hf_evict(client, j.name, j.id, 0, &err) : HF_ENOENT;
    if (rc < 0)
        rc = rc == HF_ENOENT ? has_ended(&j) : cli_fail(&err);
    hf_list_free(list);
    hf_close(client);
    return rc;
}

const struct cli_verb verb_release = {
    .name = "release",
    .usage = "holdfast [-u URL] release HANDLE",
    .help = "Give the lock of a handle back.",
    .details = "Exit status 76: it had ended before.",
    .run = release,
};
