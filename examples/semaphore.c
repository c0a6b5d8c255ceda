/* semaphore.c: at most two of five workers at a time.
 *
 * Goes well: each worker takes one of two permits, works, gives it back; never more than
 * two are inside. Goes wrong: a third one inside, or a failed call, ends the program
 * with 1.
 */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS = 5, PERMITS = 2 };

struct worker {
    hf_client *client;
    int number;
    pthread_t thread;
};

static atomic_int inside, bad;

static void *run(void *user)
{
    struct worker *w = user;
    hf_lease *lease;
    hf_error e;
    const hf_request *one =
        HF_REQUEST(.mode = HF_PERMITS, .permits = 1, .capacity = PERMITS);

    if (hf_acquire(w->client, "downloads", HF_FOREVER, one, &lease, &e) < 0) {
        fprintf(stderr, "worker %d: %s: %s\n", w->number, hf_errname(e.code), e.text);
        bad = 1;
        return NULL;
    }
    int now = atomic_fetch_add(&inside, 1) + 1;
    printf("worker %d works, %d of %d permits taken\n", w->number, now, PERMITS);
    if (now > PERMITS)
        bad = 1;
    usleep(100 * 1000);
    atomic_fetch_sub(&inside, 1);
    hf_release(lease, NULL);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    struct worker workers[WORKERS];
    hf_client *client;
    hf_error e;
    int started = 0;

    if (!url)
        url = "local:";
    if (hf_open(url, NULL, &client, &e) < 0) {
        fprintf(stderr, "open: %s: %s\n", hf_errname(e.code), e.text);
        return 1;
    }
    for (; started < WORKERS; started++) {
        workers[started] = (struct worker){ .client = client, .number = started + 1 };
        if (pthread_create(&workers[started].thread, NULL, run, &workers[started]) != 0) {
            bad = 1;
            break;
        }
    }
    while (started > 0)
        pthread_join(workers[--started].thread, NULL);
    hf_close(client);
    return bad;
}
