/* two-stores.c: holds a name of one store and a name of another, both or none.
 *
 * Within one store hf_acquire_all() does this. Across stores nobody sees both lines, so no
 * deadlock is found there, and two programs that take the names in different order may wait
 * for each other for ever. Three rules make it safe:
 *
 *   1 Everybody takes them in the same order: by store, then by name. All programs must
 * give a store the same URL (hf_client_url is compared, which has no secrets); where they
 * do not, give the stores numbers and order by those. 2 The first may be lost while we wait
 * for the second: both are asked at the end. 3 They end together: when one is lost the
 * other one is given back at once, and the work stops before that. Each resource is handed
 * the fence of its own lock.
 *
 * Goes well: two processes that name the two in opposite order count up a number under both
 * locks, and none is missing. Then one of two names is taken away by force, and both are
 * free again. Goes wrong: any of that is not so, and the program ends with 1.
 *
 * The first store is that of HOLDFAST_URL, the other one a folder of its own.
 */
#include <holdfast/holdfast.h>
#include <holdfast/tool.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 25, WAIT_MS = 60000 };

struct spot { /* a name, and where */
    hf_client *client;
    const char *name;
};

struct both {
    struct spot at[2]; /* in the order in which they are taken */
    hf_lease *lease[2];
};

static int by_store_and_name(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    int order = strcmp(hf_client_url(x->client), hf_client_url(y->client));

    return order ? order : strcmp(x->name, y->name);
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* 0, or HF_ELOST: stop working. Ask it before each step that must not happen twice. */
static int both_check(const struct both *b)
{
    int rc = hf_lease_check(b->lease[0]);

    return rc < 0 ? rc : hf_lease_check(b->lease[1]);
}

static void both_release(struct both *b)
{
    hf_release(b->lease[1], NULL);
    hf_release(b->lease[0], NULL);
    b->lease[0] = b->lease[1] = NULL;
}

static int both_acquire(struct both *b, struct spot x, struct spot y, int64_t wait_ms,
                        hf_error *e)
{
    int64_t end = now_ms() + wait_ms;
    int rc;

    *b = (struct both){ .at = { x, y } };
    qsort(b->at, 2, sizeof *b->at, by_store_and_name);
    rc = hf_acquire(b->at[0].client, b->at[0].name, wait_ms, NULL, &b->lease[0], e);
    if (rc < 0)
        return rc;
    rc = hf_acquire(b->at[1].client, b->at[1].name, end - now_ms(), NULL, &b->lease[1], e);
    if (rc == 0 && (rc = both_check(b)) < 0) {
        memset(e, 0, sizeof *e);
        e->code = rc;
        snprintf(e->text, sizeof e->text, "%s was lost while waiting for %s", b->at[0].name,
                 b->at[1].name);
    }
    if (rc < 0)
        both_release(b);
    return rc;
}

/* Sleeps until one is at risk or lost, or the time is over (0). At risk is not lost: there
 * is time to stop. */
static int both_wait(struct both *b, int timeout_ms, hf_error *e)
{
    struct pollfd p[] = { { .fd = hf_lease_fd(b->lease[0], e), .events = POLLIN },
                          { .fd = hf_lease_fd(b->lease[1], e), .events = POLLIN } };

    if (p[0].fd < 0 || p[1].fd < 0)
        return e->code;
    return poll(p, 2, timeout_ms) > 0 ? HF_ELOST : 0;
}

/* ---- two processes, in opposite order ------------------------------------------------ */

static int fail(const char *what, const hf_error *e)
{
    fprintf(stderr, "%s: %s: %s\n", what, hf_errname(e->code), e->text);
    return 1;
}

struct stores {
    hf_client *first, *second;
};

/* PROMPT: that somebody has taken a name away is to be known at once. */
static int stores_open(struct stores *s, const char *url, const char *other)
{
    const hf_options *options = HF_OPTIONS(.drive = HF_DRIVE_PROMPT);
    hf_error e;

    if (hf_open(url, options, &s->first, &e) < 0 ||
        hf_open(other, options, &s->second, &e) < 0)
        return fail("open", &e);
    return 0;
}

static void stores_close(struct stores *s)
{
    hf_close(s->first);
    hf_close(s->second);
}

static int worker(const char *url, const char *other, bool reverse, volatile int *number)
{
    struct stores s;
    struct both b;
    hf_error e;

    if (stores_open(&s, url, other))
        return 1;
    struct spot stock = { s.first, "stock" }, ledger = { s.second, "ledger" };
    for (int i = 0; i < ROUNDS; i++) {
        if (both_acquire(&b, reverse ? ledger : stock, reverse ? stock : ledger, WAIT_MS,
                         &e) < 0)
            return fail("acquire", &e);
        int seen = *number;
        usleep(1000); /* long enough for another to come between if it could */
        if (both_check(&b) == 0)
            *number = seen + 1;
        both_release(&b);
    }
    stores_close(&s);
    return 0;
}

static int opposite_order(const char *url, const char *other, volatile int *number)
{
    int rc = 0, status;

    for (int i = 0; i < 2; i++) {
        pid_t pid = fork(); /* before hf_open, never after (rule 7) */
        if (pid < 0)
            return 1;
        if (pid == 0)
            exit(worker(url, other, i == 1, number));
    }
    while (wait(&status) > 0)
        rc |= status != 0;
    printf("%d of %d rounds\n", *number, 2 * ROUNDS);
    return rc || *number != 2 * ROUNDS;
}

/* ---- one of both is lost ------------------------------------------------------------- */

static int lose_one(const char *url, const char *other)
{
    struct stores s;
    struct both b;
    hf_lease *again[2];
    hf_error e;
    int rc;

    if (stores_open(&s, url, other))
        return 1;
    if (both_acquire(&b, (struct spot){ s.second, "ledger" },
                     (struct spot){ s.first, "stock" }, WAIT_MS, &e) < 0)
        return fail("acquire", &e);
    printf("holds %s of %s and %s of %s\n", b.at[0].name, hf_client_url(b.at[0].client),
           b.at[1].name, hf_client_url(b.at[1].client));
    /* as `holdfast break --now` does it */
    if (hf_evict(b.at[1].client, b.at[1].name, hf_lease_ticket(b.lease[1]), HF_EVICT_NOW,
                 &e) < 0)
        return fail("evict", &e);
    rc = both_wait(&b, WAIT_MS, &e);
    printf("%s was taken away: %s\n", b.at[1].name, rc == HF_ELOST ? "told" : "not told");
    both_release(&b);
    for (int i = 0; i < 2; i++) {
        if (hf_acquire(b.at[i].client, b.at[i].name, WAIT_MS, NULL, &again[i], &e) < 0)
            return fail("not free again", &e);
        printf("%s is free again\n", b.at[i].name);
        hf_release(again[i], NULL);
    }
    stores_close(&s);
    return rc != HF_ELOST;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL"), *tmp = getenv("TMPDIR");
    char dir[4000], other[4096], remove[4096];
    int *number = mmap(NULL, sizeof *number, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    snprintf(dir, sizeof dir, "%s/two-stores-XXXXXX", tmp ? tmp : "/tmp");
    if (number == MAP_FAILED || !mkdtemp(dir))
        return 1;
    snprintf(other, sizeof other, "local://%s", dir);
    int rc = opposite_order(url ? url : "local:", other, number);
    rc |= lose_one(url ? url : "local:", other);
    snprintf(remove, sizeof remove, "rm -r '%s'", dir);
    return rc || system(remove) != 0;
}
