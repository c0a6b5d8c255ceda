/* rig.c: the calls every case makes, each with its check.
 *
 * Nothing here has a retry: what should work works the first time. G11: names of one case
 * start with a part that no other case has, so cases may share a store.
 */
#include "rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rig rig;

/* The same suffix gives the same pointer, so a name may be asked for wherever it is
 * used. */
const char *nm(const char *suffix)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char names[256][640];
    char name[640];
    size_t i;

    snprintf(name, sizeof(name), "%s/%s", rig.base, suffix);
    pthread_mutex_lock(&lock);
    for (i = 0; names[i][0] && strcmp(names[i], name) != 0; i++)
        CHECK(i + 1 < sizeof(names) / sizeof(names[0]));
    if (!names[i][0]) /* others may read the ones that are there */
        strcpy(names[i], name);
    pthread_mutex_unlock(&lock);
    return names[i];
}

int64_t ttl_of(int64_t ms)
{
    return rig.setup->caps & HF_CAP_TTL ? ms : 0;
}

hf_client *opened_with(const hf_options *options)
{
    hf_client *c = NULL;

    CHECK_RC(rig.face->open(rig.place->url, options, &c, E()), 0);
    CHECK(c);
    return c;
}

hf_client *opened(void)
{
    return opened_with(NULL);
}

hf_client *prompted(void)
{
    return opened_with(HF_OPTIONS(.drive = HF_DRIVE_PROMPT));
}

void closed(hf_client *c)
{
    rig.face->close(c);
}

hf_lease *taken(hf_client *c, const char *name, const hf_request *req)
{
    hf_lease *lease = NULL;

    CHECK_RC(rig.face->acquire(c, name, LIMIT_MS, req, &lease, E()), 0);
    CHECK(lease);
    CHECK_RC(hf_lease_check(lease), 0);
    return lease;
}

void given(hf_lease *lease)
{
    CHECK_RC(rig.face->release(lease, E()), 0);
}

int tried(hf_client *c, const char *name, const hf_request *req)
{
    hf_lease *lease = NULL;
    int rc = rig.face->acquire(c, name, 0, req, &lease, E());

    CHECK(!lease == (rc < 0));
    if (lease)
        given(lease);
    return rc;
}

struct counts {
    size_t holders, waiters;
};

static void count(const hf_list *list, void *user)
{
    const hf_line *line = hf_list_at(list, 0);
    struct counts *n = user;

    n->holders = line ? hf_line_holders(line) : 0;
    n->waiters = line ? hf_line_waiters(line) : 0;
}

static struct counts counted(hf_client *c, const char *name)
{
    struct counts n = { 0, 0 };

    CHECK_RC(rig.face->look(c, name, count, &n, E()), 0);
    return n;
}

bool line_is(hf_client *c, const char *name, size_t holders, size_t waiters)
{
    struct counts n = counted(c, name);

    return n.holders == holders && n.waiters == waiters;
}

void await_line(hf_client *c, const char *name, size_t holders, size_t waiters)
{
    AWAIT(line_is(c, name, holders, waiters));
}

static void copy_text(char *dst, size_t size, const char *src)
{
    CHECK(src);
    CHECK(strlen(src) < size);
    strcpy(dst, src);
}

struct sight {
    size_t i;
    struct seen *seen; /* NULL afterwards: there is none */
};

static void copy_ticket(const hf_list *list, void *user)
{
    struct sight *at = user;
    const hf_line *line = hf_list_at(list, 0);
    const hf_ticket *t = line ? hf_line_ticket(line, at->i) : NULL;
    struct seen *s = at->seen;

    if (!t) {
        at->seen = NULL;
        return;
    }
    copy_text(s->id, sizeof(s->id), hf_ticket_id(t));
    copy_text(s->owner, sizeof(s->owner), hf_ticket_owner(t));
    copy_text(s->host, sizeof(s->host), hf_ticket_host(t));
    copy_text(s->note, sizeof(s->note), hf_ticket_note(t));
    s->fence = hf_ticket_fence(t);
    s->position = hf_ticket_position(t);
    s->permits = hf_ticket_permits(t);
    s->mode = hf_ticket_mode(t);
    s->broken = hf_ticket_broken(t);
    s->kept = hf_ticket_kept(t);
    s->pid = hf_ticket_pid(t);
    s->age_ms = hf_ticket_age_ms(t);
    s->expires_ms = hf_ticket_expires_ms(t);
}

bool see(hf_client *c, const char *name, size_t i, struct seen *s)
{
    struct sight at = { i, s };

    CHECK_RC(rig.face->look(c, name, copy_ticket, &at, E()), 0);
    return at.seen != NULL;
}

struct pend *begun(hf_client *c, const char *name, int64_t wait_ms, const hf_request *req)
{
    static const hf_request plain = HF_REQUEST_INIT;
    struct pend *p = calloc(1, sizeof(*p));

    CHECK(p);
    p->client = c;
    p->name = strdup(name);
    p->wait_ms = wait_ms;
    p->req = req ? *req : plain;
    if (p->req.note)
        p->req.note = p->note = strdup(p->req.note);
    outcome_init(&p->out);
    rig.face->begin(p);
    return p;
}

struct pend *queued(hf_client *c, const char *name, size_t waiters, const hf_request *req)
{
    struct pend *p = begun(c, name, HF_FOREVER, req);

    AWAIT(counted(c, name).waiters >= waiters);
    return p;
}

bool pend_done(struct pend *p)
{
    return outcome_done(&p->out);
}

int pend_end(struct pend *p, hf_lease **ret)
{
    int rc;

    AWAIT(outcome_done(&p->out));
    rig.face->join(p);
    rc = p->out.rc;
    *E() = p->out.err;
    CHECK(!p->out.lease == (rc < 0));
    if (ret)
        *ret = p->out.lease;
    else
        CHECK(!p->out.lease);
    outcome_fini(&p->out);
    free(p->name);
    free(p->note);
    free(p);
    return rc;
}

hf_lease *pend_granted(struct pend *p)
{
    hf_lease *lease = NULL;

    CHECK_RC(pend_end(p, &lease), 0);
    return lease;
}

void in_threads(int n, void *(*body)(void *), void *arg)
{
    pthread_t *threads = calloc((size_t)n, sizeof(*threads));

    CHECK(threads);
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], NULL, body, arg) == 0);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    free(threads);
}

void *in_thread(void *(*body)(void *), void *arg)
{
    pthread_t thread;
    void *result;

    CHECK(pthread_create(&thread, NULL, body, arg) == 0);
    pthread_join(thread, &result);
    return result;
}
