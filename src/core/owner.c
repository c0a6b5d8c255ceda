/* owner.c: who an owner is (G9).
 *
 * identity = (process, number), never used for anybody else: `process` is random per
 * process, made anew in a forked child, and its two lowest bits say what the number counts
 * (threads, or the application's own numbers), so that they cannot meet. Thread numbers
 * come from a counter, not from the system, which would give a dead thread's number to a
 * new one.
 *
 * Two process-wide variables, the counter and the random number; both only ever set up. */
#include "core/core.h"
#include "util/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { OF_THREAD = 1, OF_NUMBER = 2 };

static _Atomic uint64_t process_id;
static _Atomic uint64_t threads;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void renumber(void)
{
    uint64_t id = 0;

    if (getrandom(&id, sizeof id, GRND_NONBLOCK) != (ssize_t)sizeof id) {
        struct timespec ts; /* before the kernel has collected randomness, early at boot */

        clock_gettime(CLOCK_BOOTTIME, &ts);
        id = hf__hash(&ts, sizeof ts) ^ (uint64_t)getpid() << 32;
    }
    atomic_store(&process_id, (id | 4) & ~(uint64_t)3);
}

static void first(void)
{
    renumber();
    pthread_atfork(NULL, NULL, renumber);
}

static struct owner owner_of(uint64_t class, uint64_t number)
{
    pthread_once(&once, first);
    return (struct owner){ atomic_load(&process_id) | class, number };
}

uint64_t hf__thread_number(void)
{
    static _Thread_local uint64_t mine;

    if (mine == 0)
        mine = atomic_fetch_add(&threads, 1) + 1;
    return mine;
}

struct owner hf__owner_of_thread(uint64_t number)
{
    return owner_of(OF_THREAD, number);
}

struct owner hf__owner_of_number(uint64_t number)
{
    return owner_of(OF_NUMBER, number);
}

void hf__owner_text(char *buf, size_t size, struct owner o)
{
    if (owner_none(o))
        snprintf(buf, size, "%s", "");
    else
        snprintf(buf, size, "%016" PRIx64 "-%" PRIx64, o.process, o.number);
}

bool hf__owner_parse(struct owner *ret, const char *s, size_t len)
{
    char text[40], again[40];
    struct owner o;

    if (len >= sizeof text)
        return false;
    memcpy(text, s, len);
    text[len] = '\0';
    if (sscanf(text, "%16" SCNx64 "-%16" SCNx64, &o.process, &o.number) != 2)
        return false;
    hf__owner_text(again, sizeof again, o);
    if (owner_none(o) || strcmp(text, again) != 0)
        return false;
    *ret = o;
    return true;
}
