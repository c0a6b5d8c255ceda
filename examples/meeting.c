/* meeting.c: three processes begin together, and a fourth waits until they have loaded.
 *
 * Goes well: nobody passes the barrier before all have come; each counts one event of the
 * latch, and whoever waits for it goes on when all three are counted. Then two of three
 * parties come, and one of them gives up: the other one is told (HF_EPARTY), as it would be
 * if the first had died. Goes wrong: a time limit of a minute is over, somebody passes who
 * must not, and the program ends with 1. Needs a store with permits and cells.
 */
#include <holdfast/recipes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTIES = 3, WAIT_MS = 60000 };

static int fail(const char *what, const hf_error *e)
{
    fprintf(stderr, "%s: %s: %s\n", what, hf_errname(e->code), e->text);
    return 1;
}

/* Opened after fork, never before (rule 7). The ttl of the client, not of the request:
 * ZooKeeper has one for a whole session. */
static hf_client *open_store(const char *url)
{
    hf_client *client;
    hf_error e;

    if (hf_open(url, HF_OPTIONS(.ttl_ms = 5000), &client, &e) == 0)
        return client;
    exit(fail("open", &e));
}

static int party(const char *url)
{
    hf_client *client = open_store(url);
    hf_error e;
    int64_t left;

    if (hf_barrier(client, "begin", PARTIES, WAIT_MS, NULL, &e) < 0)
        return fail("barrier", &e);
    /* ... loads ... */
    if (hf_latch_set(client, "loaded", PARTIES, &e) <
            0 || /* all may: it is the same number */
        hf_latch_down(client, "loaded", 1, &left, &e) < 0)
        return fail("latch", &e);
    printf("a party has loaded, %lld left\n", (long long)left);
    hf_close(client);
    return 0;
}

/* Comes when they have loaded; the latch may not be set yet when it begins to wait. */
static int visitor(const char *url)
{
    hf_client *client = open_store(url);
    hf_error e;

    if (hf_latch_wait(client, "loaded", WAIT_MS, NULL, &e) < 0)
        return fail("latch", &e);
    printf("all have loaded\n");
    hf_close(client);
    return 0;
}

/* Comes to a barrier that will not open. */
static int patient(const char *url)
{
    hf_client *client = open_store(url);
    hf_error e;
    int rc = hf_barrier(client, "again", PARTIES, WAIT_MS, NULL, &e);

    printf("who waited is told: %s\n", hf_strerror(rc));
    hf_close(client);
    return rc == HF_EPARTY ? 0 : 1;
}

static size_t come(hf_client *client)
{
    hf_list *list;
    hf_error e;

    if (hf_look(client, "again", &list, &e) < 0)
        exit(fail("look", &e));
    size_t n = hf_list_count(list) ? hf_line_holders(hf_list_at(list, 0)) : 0;
    hf_list_free(list);
    return n;
}

static int impatient(const char *url)
{
    hf_client *client = open_store(url);
    hf_error e;

    for (int i = 0; i < 600 && come(client) == 0; i++)
        usleep(100 * 1000);
    int rc = hf_barrier(client, "again", PARTIES, 300, NULL, &e);
    printf("who gave up: %s\n", hf_strerror(rc));
    hf_close(client);
    return rc == HF_ETIMEDOUT ? 0 : 1;
}

static void start(int (*what)(const char *url), const char *url)
{
    if (fork() == 0)
        exit(what(url));
}

static int all_end(void)
{
    int rc = 0, status;

    while (wait(&status) > 0)
        rc |= status != 0;
    return rc;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    int rc;

    if (!url)
        url = "local:";
    for (int i = 0; i < PARTIES; i++)
        start(party, url);
    start(visitor, url);
    rc = all_end();
    start(patient, url);
    start(impatient, url);
    return rc | all_end();
}
