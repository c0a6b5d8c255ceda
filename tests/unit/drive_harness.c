/* drive_harness.c: see drive_harness.h. */
#include "drive_harness.h"

#include <dirent.h>
#include <time.h>

char url[64];
hf_client *c, *other;

static char folder[] = "/tmp/hf-drive-XXXXXX";

int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(url, sizeof url, "local://%s", folder);
    return 0;
}

int remove_folder(void **state)
{
    char cmd[128];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
    return system(cmd);
}

static int open_with(uint32_t drive)
{
    hf_options o = HF_OPTIONS_INIT;

    o.drive = drive;
    return hf_open(url, &o, &c, NULL) < 0 || hf_open(url, NULL, &other, NULL) < 0 ? -1 : 0;
}

int setup(void **state)
{
    (void)state;
    return open_with(HF_DRIVE_CALLER);
}

int setup_prompt(void **state)
{
    (void)state;
    return open_with(HF_DRIVE_PROMPT);
}

int setup_app(void **state)
{
    (void)state;
    return open_with(HF_DRIVE_APP);
}

int teardown(void **state)
{
    (void)state;
    hf_close(c);
    hf_close(other);
    c = other = NULL;
    return 0;
}

static int64_t ms_of(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int64_t now_ms(void)
{
    return ms_of(CLOCK_MONOTONIC);
}

int64_t cpu_ms(void)
{
    return ms_of(CLOCK_PROCESS_CPUTIME_ID);
}

void nap(void)
{
    poll(NULL, 0, 2);
}

size_t threads(void)
{
    DIR *d = opendir("/proc/self/task");
    size_t n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static size_t waiters(const char *name)
{
    hf_list *l;
    size_t n;

    assert_int_equal(hf_look(other, name, &l, NULL), 0);
    n = hf_line_waiters(hf_list_at(l, 0));
    hf_list_free(l);
    return n;
}

void until_waiters(const char *name, size_t n)
{
    AWAIT(waiters(name) == n);
}

hf_lease *hold(hf_client *by, const char *name, int64_t ttl_ms)
{
    hf_lease *l;
    hf_error e;

    if (hf_acquire(by, name, 0, HF_REQUEST(.ttl_ms = ttl_ms), &l, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    return l;
}

void evict(const char *name, uint32_t flags)
{
    hf_list *list;

    assert_int_equal(hf_look(other, name, &list, NULL), 0);
    assert_int_equal(hf_evict(other, name,
                              hf_ticket_id(hf_line_ticket(hf_list_at(list, 0), 0)), flags,
                              NULL),
                     0);
    hf_list_free(list);
}

void *run_call(void *arg)
{
    struct call *k = arg;
    int64_t start = now_ms();
    hf_request req = HF_REQUEST_INIT;

    req.cancel = k->cancel;
    k->rc = hf_acquire(c, k->name, k->wait_ms, &req, &k->lease, &k->err);
    k->took_ms = now_ms() - start;
    return NULL;
}

void begin(struct call *k)
{
    assert_int_equal(pthread_create(&k->thread, NULL, run_call, k), 0);
}

void granted(hf_op *op, int rc, hf_lease *l, const hf_error *e, void *user)
{
    struct call *k = user;

    (void)op;
    (void)e;
    k->rc = rc;
    k->lease = l;
    k->took_ms = 1;
}
