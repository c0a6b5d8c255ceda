/* paused.h: what the examples fence-*.c have in common: a holder that is paused for longer
 * than its lock lasts, and the one who holds the name after it.
 *
 *   first    holds "report", writes, and is stopped (as by a debugger, by swapping, or with
 *            its virtual machine)
 *   second   waits until the ttl of the first is over, holds the name, writes
 *   first    runs again and writes at once, as a program does that was paused between
 *            hf_lease_check() and its write: refused
 *   second   writes again, with the same fence: taken
 *
 * The last step is why the rule of a resource (G2) says "not smaller", and not "greater": a
 * holder has one fence for all that it writes. Ends with 0 if all went so.
 */
#ifndef EXAMPLE_PAUSED_H
#define EXAMPLE_PAUSED_H

#include <holdfast/holdfast.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What an example has to supply. Each process opens it for itself. */
struct resource;
struct resource *resource_open(void); /* NULL: it has said why */
int resource_write(struct resource *, uint64_t fence, const char *text); /* 1: taken; 0 */
void resource_read(struct resource *, char *text, size_t size);
void resource_close(struct resource *);

struct holder {
    hf_client *client;
    hf_lease *lease;
    struct resource *resource;
    const char *who;
};

static inline bool holder_open(struct holder *h, const char *url, const char *who)
{
    hf_error e;

    *h = (struct holder){ .who = who, .resource = resource_open() };
    if (!h->resource)
        return false;
    /* the ttl of the client, not of the request: ZooKeeper has one for a whole session */
    if (hf_open(url, HF_OPTIONS(.ttl_ms = 5000), &h->client, &e) == 0 &&
        hf_acquire(h->client, "report", 60000, NULL, &h->lease, &e) == 0)
        return true;
    fprintf(stderr, "%s: %s: %s\n", who, hf_errname(e.code), e.text);
    return false;
}

static inline bool holder_write(struct holder *h, const char *text)
{
    bool taken = resource_write(h->resource, hf_lease_fence(h->lease), text) == 1;

    printf("%s: fence %llu, writes '%s': %s\n", h->who,
           (unsigned long long)hf_lease_fence(h->lease), text, taken ? "taken" : "refused");
    fflush(stdout);
    return taken;
}

static inline void holder_close(struct holder *h)
{
    hf_release(h->lease, NULL);
    hf_close(h->client);
    resource_close(h->resource);
}

static inline int paused_first(const char *url)
{
    struct holder h;

    if (!holder_open(&h, url, "first") || !holder_write(&h, "one"))
        return 1;
    raise(SIGSTOP);
    bool late = holder_write(&h, "late");
    printf("first: hf_lease_check says %s\n",
           hf_lease_check(h.lease) < 0 ? "lost" : "held");
    holder_close(&h);
    return late ? 1 : 0;
}

static inline bool paused_second(const char *url, pid_t first)
{
    struct holder h;
    char text[64];
    int status;

    if (!holder_open(&h, url, "second") || !holder_write(&h, "two"))
        return false;
    kill(first, SIGCONT);
    bool good = waitpid(first, &status, 0) == first && status == 0;
    good = holder_write(&h, "three") && good;
    resource_read(h.resource, text, sizeof text);
    printf("the report says: %s\n", text);
    holder_close(&h);
    return good && strcmp(text, "three") == 0;
}

static inline int paused_main(const char *url)
{
    int status;
    pid_t first = fork(); /* before hf_open, never after (rule 7) */

    if (first == 0)
        exit(paused_first(url ? url : "local:"));
    if (first < 0 || waitpid(first, &status, WUNTRACED) != first || !WIFSTOPPED(status))
        return 1;
    if (paused_second(url ? url : "local:", first))
        return 0;
    if (waitpid(first, &status, WNOHANG) == 0) /* else the number may be another's now */
        kill(first, SIGKILL);
    return 1;
}

#endif
