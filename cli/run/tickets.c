/* tickets.c: what it takes to end the tickets of a run, and the program that does.
 *
 * The supervisor writes it at the grant, for its guard (guard.c says when that uses it):
 * the URL, which may hold a password, the ttl, until when --at-least keeps the names, and
 * name and id of each ticket, all ended by NUL. It is a memfd, which no path leads to,
 * sealed, so that what the guard got is what was written.
 *
 * How it goes well: the tickets are ended, with the names free for the next at once; with
 * --at-least they become kept places, which the store ends when that time has come. If
 * something of the command may be left they are only kept, for a ttl at least: nobody gets
 * in sooner than without it. How it goes wrong: a store that cannot be reached is tried
 * until the ttl is over. One that cannot keep a place: they are ended when the time of
 * --at-least has come, or by the ttl if that is sooner. A ticket that has ended, a lack of
 * memory: the ttl decides. There is nobody to tell.
 */
#include "run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const int64_t ms = 1000000, second = 1000000000;
enum { AGAIN_MS = 100 };
static const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

/* ---- in the supervisor ----------------------------------------------------------- */

int tickets_write(const struct run *r, const char *url)
{
    int fd = memfd_create("tickets", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *f = copy < 0 ? NULL : fdopen(copy, "w");
    int64_t until = r->opt.at_least_ms ? r->granted_at + r->opt.at_least_ms * ms : 0;
    if (f)
        fprintf(f, "%s%c%lld%c%lld%c", url, 0, (long long)hf_lease_ttl_ms(r->lease), 0,
                (long long)until, 0);
    for (size_t i = 0; f && i < hf_lease_count(r->lease); i++) {
        const char *id = hf_lease_ticket_at(r->lease, i);
        fprintf(f, "%s%c%s%c", hf_lease_name_at(r->lease, i), 0, id ? id : "", 0);
    }
    if (!f && copy >= 0)
        close(copy);
    if (f && fclose(f) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* ---- the program ------------------------------------------------------------------ */

/* The text that begins at *at; moves it behind. NULL: no more. */
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at;
    if (text >= end)
        return NULL;
    *at = text + strlen(text) + 1;
    return text;
}

static void sleep_until(int64_t at)
{
    struct timespec t = { .tv_sec = at / second, .tv_nsec = at % second };
    clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &t, NULL);
}

/* What to do with the tickets; times are CLOCK_BOOTTIME ns. */
struct end {
    hf_client *client;
    int64_t ttl_ms;
    int64_t until; /* of --at-least; 0 */
    int64_t over;  /* once the ttl is over there is nothing left to end */
    bool certain;  /* nothing of the command is left */
};

static int try_once(const struct end *e, bool keep, const char *name, const char *id,
                    hf_error *err)
{
    int64_t rest = (e->until - guard_now()) / ms;
    if (!keep)
        return hf_evict(e->client, name, id, HF_EVICT_NOW, err);
    if (rest < 1)
        rest = 1;
    return hf_keep_orphan(e->client, name, id,
                          e->certain || rest > e->ttl_ms ? rest : e->ttl_ms, err);
}

/* Also of a store that is slow or unreachable just now. */
static int try_on(const struct end *e, bool keep, const char *name, const char *id)
{
    hf_error err;
    int rc;
    while ((rc = try_once(e, keep, name, id, &err)) < 0 && err.retry &&
           guard_now() + AGAIN_MS * ms < e->over)
        sleep_until(guard_now() + AGAIN_MS * ms);
    return rc;
}

static int end_one(const struct end *e, const char *name, const char *id)
{
    int rc = e->until ? try_on(e, true, name, id) : HF_ENOTSUP;
    if (rc != HF_ENOTSUP || !e->certain || e->until > e->over)
        return rc;
    sleep_until(e->until);
    return try_on(e, false, name, id);
}

static int end_them(const char *at, const char *end, bool certain)
{
    const char *url = next_text(&at, end), *ttl = next_text(&at, end), *name, *id;
    const char *until = next_text(&at, end);
    struct end e = { .certain = certain };
    int rc = 0;
    if (!until)
        return EXIT_USAGE;
    e.until = strtoll(until, NULL, 10);
    e.ttl_ms = strtoll(ttl, NULL, 10);
    e.over = guard_now() + e.ttl_ms * ms;
    if (!certain && !e.until)
        return 0;
    if (hf_open(url, NULL, &e.client, NULL) < 0)
        return EXIT_UNREACHABLE;
    while ((name = next_text(&at, end)) && (id = next_text(&at, end)))
        rc = end_one(&e, name, id);
    hf_close(e.client);
    return cli_exit_of(rc);
}

int tickets_end(bool certain)
{
    struct stat st;
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "hf-guard");
    if (fcntl(GUARD_TICKETS_FD, F_GET_SEALS) != seals || fstat(GUARD_TICKETS_FD, &st) < 0)
        return EXIT_USAGE;
    size_t size = (size_t)st.st_size;
    const char *text = mmap(NULL, size + 1, PROT_READ, MAP_PRIVATE, GUARD_TICKETS_FD, 0);
    if (text == MAP_FAILED || size == 0 || text[size - 1])
        return EXIT_USAGE;
    return end_them(text, text + size, certain);
}
