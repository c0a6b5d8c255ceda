/* tickets.c: what it takes to end the tickets of a run, and the program that does.
 *
 * The supervisor writes it at the grant, for its guard (guard.c says when that uses it):
 * the URL, which may hold a password, the ttl, until when --at-least keeps the names, and
 * name and id of each ticket, all ended by NUL. It is a memfd, which no path leads to,
 * sealed, so that what the guard got is what was written.
 *
 * How it goes well: the tickets are ended, with the names free for the next at once; with
 * --at-least when that time has come. How it goes wrong: a store that cannot be reached is
 * tried until the ttl is over. A ticket that has ended, a lack of memory: the ttl decides.
 * There is nobody to tell.
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

/* Also of a store that is slow or unreachable just now; once the ttl is over there is
 * nothing left to end. */
static int end_one(hf_client *client, const char *name, const char *id, int64_t over)
{
    hf_error err;
    int rc;
    while ((rc = hf_evict(client, name, id, HF_EVICT_NOW, &err)) < 0 && err.retry &&
           guard_now() + AGAIN_MS * ms < over)
        sleep_until(guard_now() + AGAIN_MS * ms);
    return rc;
}

static int end_them(const char *at, const char *end)
{
    const char *url = next_text(&at, end), *ttl = next_text(&at, end), *name, *id;
    const char *until = next_text(&at, end);
    hf_client *client;
    int rc = 0;
    if (!until)
        return EXIT_USAGE;
    int64_t when = strtoll(until, NULL, 10);
    int64_t over = guard_now() + strtoll(ttl, NULL, 10) * ms;
    if (when > over)
        return 0; /* until then the ttl has ended them */
    if (when)
        sleep_until(when);
    if (hf_open(url, NULL, &client, NULL) < 0)
        return EXIT_UNREACHABLE;
    while ((name = next_text(&at, end)) && (id = next_text(&at, end)))
        rc = end_one(client, name, id, over);
    hf_close(client);
    return cli_exit_of(rc);
}

int tickets_end(void)
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
    return end_them(text, text + size);
}
