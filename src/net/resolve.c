/* resolve.c: names to addresses, off the loop.
 *
 * getaddrinfo may take minutes and cannot be interrupted, so a name is looked up by a
 * thread of its own. Goes well: hf__resolve_begin queues a job and sees that a thread is
 * there; the thread takes jobs until none is queued, writes to the job's eventfd, which
 * the loop watches, and ends. At most THREADS_MAX threads work in a process: more names
 * wait in the queue. A thread whose job was cancelled may hang for long and does not count
 * any more, or a few names that nobody answers for would hold up all others; it ends with
 * that job. There are at most STUCK_MAX of those.
 *
 * A job is freed by the loop's side, unless that cancels while a thread is at work on it;
 * then the thread frees it. `mutex` guards the queue, the count and the state of every job.
 * A thread never touches a stream or a loop.
 *
 * Fork: the threads do not exist in the child. The handlers of pthread_atfork make queue
 * and count whole there and empty, so that the child may look names up itself; a job of the
 * parent then belongs to the stream alone, which frees it without the mutex
 * (hf__resolve_forked).
 *
 * Signals are blocked in these threads: handlers of the application run on its own.
 */
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { THREADS_MAX = 4, STUCK_MAX = 60, STACK_SIZE = 512 * 1024, ADDRESSES_MAX = 16 };

/* ORPHAN: cancelled while a thread is at work on it, which then frees it. STUCK: so, too,
 * but the thread ends with it. */
enum job_state { JOB_QUEUED, JOB_RUNS, JOB_ORPHAN, JOB_STUCK, JOB_DONE };

/* One name to look up. The thread uses host, port, found, gai and sys while it RUNS; the
 * loop's side reads them once fd is readable. */
struct resolve {
    enum job_state state;
    struct list node; /* in the queue */
    int fd;           /* eventfd: it is done */
    uint16_t port;
    int gai, sys; /* of getaddrinfo, and errno */
    struct addrinfo *found;
    /* the loop's side */
    struct env *env;
    struct watch watch;
    resolve_done *done;
    void *user;
    char host[];
};

static struct {
    pthread_mutex_t mutex;
    pthread_once_t once;
    struct list queue;
    unsigned threads; /* without those that are stuck */
    unsigned stuck;
} pool = { .mutex = PTHREAD_MUTEX_INITIALIZER,
           .once = PTHREAD_ONCE_INIT,
           .queue = { &pool.queue, &pool.queue } };

static void before_fork(void)
{
    pthread_mutex_lock(&pool.mutex);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&pool.mutex);
}

static void in_child(void)
{
    list_init(&pool.queue);
    pool.threads = pool.stuck = 0;
    after_fork();
}

static void set_handlers(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- addresses ------------------------------------------------------------------- */

static int ask(const char *host, int flags, struct addrinfo **found)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = flags };

    return getaddrinfo(host, NULL, &hints, found);
}

static struct addresses *copy(const struct addrinfo *found, uint16_t port)
{
    struct addresses *list = calloc(1, sizeof *list + ADDRESSES_MAX * sizeof *list->a);

    for (; list && found && list->n < ADDRESSES_MAX; found = found->ai_next) {
        struct address *a = &list->a[list->n];

        if (found->ai_family != AF_INET && found->ai_family != AF_INET6)
            continue;
        memcpy(&a->at, found->ai_addr, found->ai_addrlen);
        a->len = found->ai_addrlen;
        if (found->ai_family == AF_INET)
            ((struct sockaddr_in *)&a->at)->sin_port = htons(port);
        else
            ((struct sockaddr_in6 *)&a->at)->sin6_port = htons(port);
        list->n++;
    }
    return list;
}

int hf__resolve_numeric(struct addresses **ret, const char *host, uint16_t port)
{
    struct addrinfo *found;
    struct addresses *list;

    if (ask(host, AI_NUMERICHOST, &found) != 0)
        return HF_ENOENT;
    list = copy(found, port);
    freeaddrinfo(found);
    if (!list)
        return HF_ENOMEM;
    *ret = list;
    return 0;
}

/* ---- the thread ------------------------------------------------------------------ */

static void job_free(struct resolve *job)
{
    if (job->found)
        freeaddrinfo(job->found);
    if (job->fd >= 0)
        close(job->fd);
    free(job);
}

/* Under the mutex, so that the loop's side does not free the job before it is told. Says
 * whether the thread may go on. */
static bool finish(struct resolve *job)
{
    const uint64_t one = 1;

    if (job->state == JOB_STUCK || job->state == JOB_ORPHAN) {
        bool stuck = job->state == JOB_STUCK;

        job_free(job);
        return !stuck;
    }
    job->state = JOB_DONE;
    while (write(job->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    return true;
}

static void *work(void *unused)
{
    struct list *n;

    pthread_mutex_lock(&pool.mutex);
    while ((n = list_pop(&pool.queue)) != NULL) {
        struct resolve *job = container_of(n, struct resolve, node);
        struct addrinfo *found = NULL;
        int gai, sys;

        job->state = JOB_RUNS;
        pthread_mutex_unlock(&pool.mutex);
        gai = ask(job->host, 0, &found);
        sys = errno;
        pthread_mutex_lock(&pool.mutex);
        job->gai = gai;
        job->sys = sys;
        job->found = gai == 0 ? found : NULL;
        if (!finish(job)) {
            pool.stuck--;
            pthread_mutex_unlock(&pool.mutex);
            return unused;
        }
    }
    pool.threads--;
    pthread_mutex_unlock(&pool.mutex);
    return unused;
}

static int start_thread(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int rc = pthread_attr_init(&attr);

    if (rc)
        return rc;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* ---- the loop's side ------------------------------------------------------------- */

static void tell(struct resolve *job)
{
    struct addresses *list = job->gai == 0 ? copy(job->found, job->port) : NULL;
    hf_error err = { 0 };

    if (job->gai == EAI_SYSTEM)
        hf__fail(&err, HF_EUNREACHABLE, job->sys, NULL, "cannot find the address of %s",
                 job->host);
    else if (job->gai)
        hf__fail(&err, HF_EUNREACHABLE, 0, NULL, "cannot find the address of %s: %s",
                 job->host, gai_strerror(job->gai));
    else if (!list || list->n == 0)
        hf__fail(&err, HF_EUNREACHABLE, list ? 0 : ENOMEM, NULL,
                 "no address of %s can be used", job->host);
    if (err.code) {
        free(list);
        list = NULL;
    }
    job->env->unwatch(job->env, &job->watch);
    job->done(job->user, list, &err);
    job_free(job);
}

static void on_done(struct watch *w, uint32_t events)
{
    struct resolve *job = container_of(w, struct resolve, watch);
    bool done;

    (void)events;
    pthread_mutex_lock(&pool.mutex);
    done = job->state == JOB_DONE;
    pthread_mutex_unlock(&pool.mutex);
    if (done)
        tell(job);
}

/* 0, or why no thread could be started for it. */
static int enqueue(struct resolve *job)
{
    int sys = 0;

    pthread_mutex_lock(&pool.mutex);
    list_push(&pool.queue, &job->node);
    if (pool.threads < THREADS_MAX) {
        sys = start_thread();
        if (sys == 0)
            pool.threads++;
        else if (pool.threads > 0)
            sys = 0; /* one of those will come to it */
        else
            list_remove(&job->node);
    }
    pthread_mutex_unlock(&pool.mutex);
    return sys;
}

int hf__resolve_begin(struct resolve **ret, struct env *env, const char *host,
                      uint16_t port, resolve_done *done, void *user, hf_error *err)
{
    size_t len = strlen(host);
    struct resolve *job = calloc(1, sizeof *job + len + 1);
    int sys;

    if (!job)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory to look up %s", host);
    pthread_once(&pool.once, set_handlers);
    job->env = env;
    job->port = port;
    job->done = done;
    job->user = user;
    memcpy(job->host, host, len + 1);
    watch_init(&job->watch, on_done);
    job->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->fd < 0 || env->watch(env, &job->watch, job->fd, EPOLLIN) < 0) {
        sys = errno;
    } else {
        sys = enqueue(job);
        if (sys == 0) {
            *ret = job;
            return 0;
        }
        env->unwatch(env, &job->watch); /* no thread has seen the job */
    }
    job_free(job);
    return hf__fail(err, HF_EUNREACHABLE, sys, NULL, "cannot look up %s", host);
}

void hf__resolve_cancel(struct resolve *job)
{
    bool ours = true;

    if (!job)
        return;
    job->env->unwatch(job->env, &job->watch);
    pthread_mutex_lock(&pool.mutex);
    if (job->state == JOB_QUEUED) {
        list_remove(&job->node);
    } else if (job->state == JOB_RUNS) {
        bool idle = list_empty(&pool.queue);

        ours = false;
        job->state = JOB_ORPHAN;
        if (pool.stuck < STUCK_MAX && (idle || start_thread() == 0)) {
            job->state = JOB_STUCK; /* another thread does its work, if there is any */
            pool.stuck++;
            pool.threads -= idle;
        }
    }
    pthread_mutex_unlock(&pool.mutex);
    if (ours)
        job_free(job);
}

void hf__resolve_forked(struct resolve *job)
{
    if (job)
        job_free(job);
}
