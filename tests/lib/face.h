/* face.h: the three ways of calling the library, behind one table.
 *
 * Case code is written once, as if every call blocked. The faces differ in who drives:
 *   blocking  hf_acquire() and friends
 *   callback  *_start() on a client of HF_DRIVE_APP, a thread per client in
 *             hf_client_wait()
 *   foreign   *_start() on such a client, a thread per client with a poll(2) loop of its
 *             own around hf_client_fd() and hf_client_process()
 * The driving threads sleep without a limit: a wake-up that the library forgets is a hang
 * here, not a delay. Calls that exist only in blocking form, and calls on clients that a
 * case has opened without its face, are made as such in every face, beside the driving
 * thread.
 */
#ifndef HF_TESTS_FACE_H
#define HF_TESTS_FACE_H

#include <holdfast/async.h>
#include <holdfast/tool.h>
#include <pthread.h>
#include <stdbool.h>

struct pend;

typedef void show_list(const hf_list *, void *user);

struct face {
    const char *name;
    bool async;
    int (*open)(const char *url, const hf_options *, hf_client **, hf_error *);
    void (*close)(hf_client *);
    int (*acquire)(hf_client *, const char *name, int64_t wait_ms, const hf_request *,
                   hf_lease **, hf_error *);
    int (*acquire_all)(hf_client *, const char *const *names, size_t n, int64_t wait_ms,
                       const hf_request *, hf_lease **, hf_error *);
    int (*release)(hf_lease *, hf_error *);
    int (*release_after)(hf_lease *, int64_t keep_ms, hf_error *);
    int (*renew)(hf_lease *, int64_t ttl_ms, hf_error *);
    int (*note)(hf_lease *, const char *, hf_error *);
    int (*downgrade)(hf_lease *, hf_error *);
    /* The list is shown once and is gone then. */
    int (*look)(hf_client *, const char *name, show_list *, void *user, hf_error *);
    int (*ls)(hf_client *, const char *prefix, size_t limit, show_list *, void *user,
              hf_error *);
    int (*state)(hf_client *, const char *name, hf_error *);
    int (*evict)(hf_client *, const char *name, const char *id, uint32_t flags, hf_error *);
    void (*begin)(struct pend *);
    void (*join)(struct pend *); /* after its end: gives threads and ops back */
};

extern const struct face face_blocking, face_callback, face_foreign;

/* How an asynchronous call ended. */
struct outcome {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    int rc;
    hf_lease *lease;
    hf_error err;
};

void outcome_init(struct outcome *);
void outcome_set(struct outcome *, int rc, hf_lease *, const hf_error *);
void outcome_wait(struct outcome *);
bool outcome_done(struct outcome *);
void outcome_fini(struct outcome *);

/* An acquire under way in the background: in a thread, or as an operation. */
struct pend {
    hf_client *client;
    char *name;
    int64_t wait_ms;
    hf_request req; /* its note must outlive the start only in the blocking face */
    char *note;
    struct outcome out;
    int64_t ended_ms; /* when the end was seen */
    pthread_t thread; /* blocking */
    hf_op *op;        /* async */
};

#endif
