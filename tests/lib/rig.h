/* rig.h: what a case stands on: face, store, names, and the calls every case makes.
 *
 * A case has a process of its own, so there is one rig and it is global.
 */
#ifndef HF_TESTS_RIG_H
#define HF_TESTS_RIG_H

#include "check.h"
#include "face.h"
#include "kid.h"
#include "setup.h"

struct rig {
    const struct face *face;
    const struct setup *setup;
    struct place *place;
    const char *base; /* start of every name of this case: no two cases meet */
    bool all;         /* --all: nothing is shortened */
};
extern struct rig rig;

enum { ON_BLOCKING = 1, ON_CALLBACK = 2, ON_FOREIGN = 4, ON_ASYNC = 6, ON_ALL = 7 };
enum {
    CASE_OWN_STORE = 1 << 0, /* it stops processes or counts work: not beside others */
    CASE_LONG = 1 << 1,      /* started first, twice the time limit; with --all more */
    CASE_TOPOLOGY = 1 << 2   /* also worth running on every way of setting a store up */
};

struct test_case {
    const char *name;
    void (*run)(void);
    unsigned faces; /* ON_* */
    uint32_t needs; /* HF_CAP_*: a missing one runs the negative instead */
    unsigned flags; /* CASE_* */
};

/* tables of cases, each ending with name NULL; tables[] itself ends with NULL */
extern const struct test_case *const tables[];

void negative_run(uint32_t missing); /* HF_ENOTSUP, and nothing changed */

int run_cases(int argc, char **argv);

/* For a request: so many ms, or the client's own ttl where a request cannot name one. */
int64_t ttl_of(int64_t ms);

/* A name of this case; lives until the case ends. */
const char *nm(const char *suffix);

/* All of these must succeed, or the case fails. */
hf_client *opened(void);
hf_client *opened_with(const hf_options *);
hf_client *
prompted(void); /* HF_DRIVE_PROMPT: loss is told at once also when nobody calls */
void closed(hf_client *);
hf_lease *taken(hf_client *, const char *name,
                const hf_request *); /* waits up to LIMIT_MS */
void given(hf_lease *);              /* release must be 0 */

/* A try; a lease that came of it is given back. Returns the try's result. */
int tried(hf_client *, const char *name, const hf_request *);

bool line_is(hf_client *, const char *name, size_t holders, size_t waiters);
void await_line(hf_client *, const char *name, size_t holders, size_t waiters);

/* One ticket of a line, copied out. */
struct seen {
    char id[64], owner[256], host[256], note[1100];
    uint64_t fence;
    uint32_t position, permits;
    int mode, broken, kept;
    int64_t pid, age_ms, expires_ms;
};
bool see(hf_client *, const char *name, size_t i,
         struct seen *); /* false: no such ticket */

/* Background acquires. `begun` starts one; with `queued` it also stands in line when the
 * call returns, at the end of `waiters` waiters. */
struct pend *begun(hf_client *, const char *name, int64_t wait_ms, const hf_request *);
struct pend *queued(hf_client *, const char *name, size_t waiters, const hf_request *);
bool pend_done(struct pend *);
int pend_end(struct pend *,
             hf_lease **); /* waits for it, frees it; its error is last_error() */
hf_lease *pend_granted(struct pend *); /* must have been or become a grant */

/* Threads that must all come back. */
void in_threads(int n, void *(*body)(void *), void *arg);
void *in_thread(void *(*body)(void *), void *arg); /* one, and its result */

#endif
