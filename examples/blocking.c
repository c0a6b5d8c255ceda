/* blocking.c: two threads take turns on one name.
 *
 * Goes well: the first holds and works, the second is told "busy" when it does not want
 * to wait, then waits and is admitted by the release. Goes wrong: each step asks
 * hf_lease_check() first, and stops when the lease was lost.
 *
 *     cc blocking.c $(pkg-config --cflags --libs holdfast) -pthread && ./a.out
 */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int fail(const char *what, const hf_error *e)
{
    fprintf(stderr, "%s: %s: %s\n", what, hf_errname(e->code), e->text);
    return 1;
}

static int work(hf_lease *lease, const char *who)
{
    for (int step = 1; step <= 3; step++) {
        if (hf_lease_check(lease) < 0) {
            fprintf(stderr, "%s: lost the lock, stopping before step %d\n", who, step);
            return 1;
        }
        printf("%s: step %d under fence %llu\n", who, step,
               (unsigned long long)hf_lease_fence(lease));
        usleep(50 * 1000);
    }
    return 0;
}

static void *second(void *user)
{
    hf_client *client = user;
    hf_lease *lease;
    hf_error e;

    int rc = hf_acquire(client, "jobs/42", 0, NULL, &lease, &e);
    if (rc != HF_EBUSY) {
        fprintf(stderr, "second: expected HF_EBUSY, got %d\n", rc);
        return user;
    }
    printf("second: busy (%s); now waits up to 5 s\n", e.text);
    if (hf_acquire(client, "jobs/42", 5000, NULL, &lease, &e) < 0) {
        fail("second: acquire", &e);
        return user;
    }
    int bad = work(lease, "second");
    if (hf_release(lease, &e) < 0)
        bad = fail("second: release", &e);
    return bad ? user : NULL;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    hf_client *client;
    hf_lease *lease;
    hf_error e;
    pthread_t thread;
    void *bad;

    if (!url)
        url = "local:";
    if (hf_open(url, NULL, &client, &e) < 0)
        return fail("open", &e);
    if (hf_acquire(client, "jobs/42", HF_FOREVER, HF_REQUEST(.note = "nightly build"),
                   &lease, &e) < 0)
        return fail("acquire", &e);
    printf("first: holds %s\n", hf_lease_name(lease));
    if (pthread_create(&thread, NULL, second, client) != 0)
        return 1;
    int rc = work(lease, "first");
    if (hf_release(lease, &e) < 0)
        rc = fail("release", &e);
    pthread_join(thread, &bad);
    hf_close(client);
    return rc || bad;
}
