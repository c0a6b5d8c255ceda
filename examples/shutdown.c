/* shutdown.c: a service with threads that ends in order when it gets SIGTERM.
 *
 * Goes well: the signal handler calls hf_client_stop(). Whoever waits for a lock is told
 * HF_ECLOSED and ends; whoever holds one finishes its work under the lock, which is renewed
 * until it is released. main() joins the threads and then closes the client. Goes wrong: a
 * lock that was lost meanwhile shows at the next hf_lease_check(), as ever.
 *
 * Here the service sends the signal to itself, after a moment.
 *
 *     cc shutdown.c $(pkg-config --cflags --libs holdfast) -pthread && ./a.out
 */
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS = 3, STEPS = 5 };

static hf_client *client;

static void on_sigterm(int sig)
{
    (void)sig;
    hf_client_stop(client);
}

static int work(hf_lease *lease, int who)
{
    for (int step = 1; step <= STEPS; step++) {
        if (hf_lease_check(lease) < 0) {
            fprintf(stderr, "worker %d: lost the lock before step %d\n", who, step);
            return 1;
        }
        usleep(20 * 1000);
    }
    printf("worker %d: a job is done under fence %llu\n", who,
           (unsigned long long)hf_lease_fence(lease));
    return 0;
}

static void *worker(void *arg)
{
    int who = (int)(size_t)arg, bad = 0;
    hf_lease *lease;
    hf_error e;

    while (!bad && hf_acquire(client, "jobs", HF_FOREVER, NULL, &lease, &e) == 0) {
        bad = work(lease, who);
        if (hf_release(lease, &e) < 0) {
            fprintf(stderr, "worker %d: release: %s\n", who, e.text);
            bad = 1;
        }
    }
    if (!bad && e.code != HF_ECLOSED) {
        fprintf(stderr, "worker %d: acquire: %s\n", who, e.text);
        bad = 1;
    }
    printf("worker %d: ends\n", who);
    return bad ? arg : NULL;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    struct sigaction sa = { .sa_handler = on_sigterm };
    pthread_t threads[WORKERS];
    int failed = 0;
    hf_error e;

    if (hf_open(url ? url : "local:", NULL, &client, &e) < 0) {
        fprintf(stderr, "open: %s\n", e.text);
        return 1;
    }
    sigaction(SIGTERM, &sa, NULL);
    for (size_t i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)(i + 1)) != 0)
            return 1;
    usleep(250 * 1000);
    kill(getpid(), SIGTERM); /* somebody else's part, usually */
    for (size_t i = 0; i < WORKERS; i++) {
        void *bad;

        pthread_join(threads[i], &bad);
        failed |= bad != NULL;
    }
    signal(SIGTERM, SIG_IGN); /* no handler may use the client from here on */
    hf_close(client);
    return failed;
}
