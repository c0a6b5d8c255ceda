/* drive_harness.h: two clients of one embedded store in a temporary folder, and threads
 * that call: what all tests of src/api stand on. `c` is the client under test, `other` is
 * another one of the same store. */
#ifndef HF_TESTS_DRIVE_HARNESS_H
#define HF_TESTS_DRIVE_HARNESS_H

#include "sanitizer.h"
#include "unit.h"

#include <holdfast/async.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A ttl or a wait that ends within a test, and not before a busy machine has seen it begin;
 * and how long anything awaited may take. */
enum { SOON_MS = 2000, PATIENCE_MS = 20000 * TEST_SLOW };

extern char url[64];
extern hf_client *c, *other;

int make_folder(void **state);
int remove_folder(void **state);

int setup(void **state); /* HF_DRIVE_CALLER */
int setup_prompt(void **state);
int setup_app(void **state);
int teardown(void **state);

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define PROMPT(f) cmocka_unit_test_setup_teardown(f, setup_prompt, teardown)
#define APP(f) cmocka_unit_test_setup_teardown(f, setup_app, teardown)

int64_t now_ms(void);
int64_t cpu_ms(void); /* processor time of the process */
void nap(void);

/* Looks again and again until the condition holds, for at most PATIENCE_MS. */
#define AWAIT(cond)                                                                        \
    do {                                                                                   \
        for (int64_t end_ = now_ms() + PATIENCE_MS; !(cond) && now_ms() < end_;)           \
            nap();                                                                         \
        assert_true(cond);                                                                 \
    } while (0)

size_t threads(void);                           /* of this process */
void until_waiters(const char *name, size_t n); /* the line has so many */
hf_lease *hold(hf_client *, const char *name, int64_t ttl_ms);
void evict(const char *name, uint32_t flags); /* the holder, by `other` */

struct call { /* an acquire by `c` in a thread of its own */
    const char *name;
    int64_t wait_ms;
    hf_cancel *cancel;
    int rc;
    hf_error err;
    hf_lease *lease;
    int64_t took_ms;
    pthread_t thread;
};
void *run_call(void *call);
void begin(struct call *);

/* A callback of hf_acquire_start: `user` is a struct call, took_ms becomes 1. */
void granted(hf_op *, int rc, hf_lease *, const hf_error *, void *user);

#endif
