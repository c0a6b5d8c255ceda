/* fence.c: a resource that checks fences, and a holder that slept too long.
 *
 * The lease of the first holder ends while it sleeps, and a second holder takes over. The
 * first wakes up and writes without asking hf_lease_check(), as a program does that was
 * paused between the check and the write. Goes well: the resource refuses the write. Goes
 * wrong: if the late write were taken, the program ends with 1. On ZooKeeper, where a lease
 * lasts as long as its session, it only says so.
 *
 * The rule of the resource (G2): it accepts an exclusive holder whose fence is not
 * smaller than the last one it saw, and remembers that fence. Keep it where the data is:
 * a column of the row, a header of the file; and compare and write in one atomic step.
 */
#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct resource {
    uint64_t last; /* the greatest fence that ever wrote */
    char value[32];
};

static bool resource_write(struct resource *r, uint64_t fence, const char *value)
{
    if (fence < r->last)
        return false;
    r->last = fence;
    snprintf(r->value, sizeof(r->value), "%s", value);
    return true;
}

static int fail(const char *what, const hf_error *e)
{
    fprintf(stderr, "%s: %s: %s\n", what, hf_errname(e->code), e->text);
    return 1;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    struct resource file = { 0, "" };
    hf_client *first, *second;
    hf_lease *slow, *quick;
    hf_error e;

    if (!url)
        url = "local:";
    if (hf_open(url, NULL, &first, &e) < 0 || hf_open(url, NULL, &second, &e) < 0)
        return fail("open", &e);
    if (hf_connect(first, 10000, &e) < 0)
        return fail("connect", &e);
    if (!(hf_client_caps(first) & HF_CAP_TTL)) {
        printf("this store has no ttl per request: nothing to be shown\n");
        hf_close(first);
        hf_close(second);
        return 0;
    }
    /* HF_NO_RENEW stands for a holder that is cut off: nothing renews its lease. */
    if (hf_acquire(first, "file", 5000, HF_REQUEST(.flags = HF_NO_RENEW, .ttl_ms = 500),
                   &slow, &e) < 0)
        return fail("first", &e);
    bool taken = resource_write(&file, hf_lease_fence(slow), "from the first");
    printf("first: fence %llu, writes: %s\n", (unsigned long long)hf_lease_fence(slow),
           taken ? "ok" : "refused");

    if (hf_acquire(second, "file", 5000, NULL, &quick, &e) < 0)
        return fail("second", &e);
    taken &= resource_write(&file, hf_lease_fence(quick), "from the second");
    printf("second: waited for the first one's ttl; fence %llu, writes: %s\n",
           (unsigned long long)hf_lease_fence(quick), taken ? "ok" : "refused");

    printf("first: hf_lease_check says %s\n",
           hf_lease_check(slow) == HF_ELOST ? "lost" : "held");
    bool late = resource_write(&file, hf_lease_fence(slow), "late, from the first");
    printf("first: writes nevertheless: %s\n", late ? "ok" : "refused");
    printf("the file says: %s\n", file.value);

    bool ok = taken && !late && hf_lease_check(slow) == HF_ELOST &&
              hf_lease_fence(quick) > hf_lease_fence(slow) &&
              strcmp(file.value, "from the second") == 0;
    hf_release(slow, NULL);
    hf_release(quick, NULL);
    hf_close(first);
    hf_close(second);
    return ok ? 0 : 1;
}
