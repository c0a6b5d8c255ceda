/* local.c: the least that one machine takes for the same: flock(2) lock and unlock on a
 * descriptor of one's own, and of a hand-off one byte there and back over a unix socket:
 * two wake-ups, as two hand-offs need. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int flock_open(struct worker *w)
{
    char path[sizeof w->bench->dir + 16];

    snprintf(path, sizeof path, "%s/flock", w->bench->dir);
    w->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (w->fd >= 0)
        return 0;
    cli_say("%s: %s", path, strerror(errno));
    return EXIT_SYSTEM;
}

static void flock_close(struct worker *w)
{
    if (w->fd >= 0)
        close(w->fd);
}

static int flock_pair(struct worker *w)
{
    if (flock(w->fd, LOCK_EX) == 0 && flock(w->fd, LOCK_UN) == 0)
        return 0;
    cli_say("flock: %s", strerror(errno));
    return EXIT_SYSTEM;
}

static int socket_turns(struct worker *w, int64_t until)
{
    int64_t start = bench_now(), now = start;
    char byte = 'p';

    while (byte == 'p') {
        int64_t begin = now;

        /* the server echoes; the asker ends the game with another byte */
        if (w->index == 1 && read(w->fd, &byte, 1) != 1)
            return bench_lost_peer();
        if (w->index == 0 && now >= until)
            byte = 'q';
        if (write(w->fd, &byte, 1) != 1 || (w->index == 0 && read(w->fd, &byte, 1) != 1))
            return bench_lost_peer();
        now = bench_now();
        if (w->index == 0) {
            w->slice->pairs++;
            samples_add(&w->slice->samples, (double)(now - begin) / 1e3);
        }
    }
    w->slice->ns = now - start;
    return 0;
}

static bool serves(const char *url)
{
    return strncmp(url, "local:", 6) == 0;
}

const struct bench_raw bench_raw_local = { .serves = serves,
                                           .open = flock_open,
                                           .close = flock_close,
                                           .pair = flock_pair,
                                           .turns = socket_turns,
                                           .pair_most = 2.5,
                                           .turns_most = 1.5 };
