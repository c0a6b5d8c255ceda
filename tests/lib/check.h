/* check.h: assertions, time and patience for test programs.
 *
 * A failed check says where and what, and ends the process with status 1: each case has
 * a process of its own, so nothing needs to be unwound. Nothing here sleeps to let
 * something happen: AWAIT looks again and again until the condition holds or patience
 * ends.
 */
#ifndef HF_TESTS_CHECK_H
#define HF_TESTS_CHECK_H

#include "sanitizer.h"

#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdint.h>

#define LIMIT_MS ((int64_t)30000 * TEST_SLOW) /* how long anything awaited may take */

int64_t now_ms(void); /* CLOCK_BOOTTIME, as leases count */
void nap(void);       /* between two looks: 2 ms */

_Noreturn void check_failed(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Also printed by a check that fails: what servers said. One function; `check_tell` calls
 * it. */
void check_tell_on_failure(void (*tell)(void));
void check_tell(void);

/* The error of this thread's last call: pass E() as the hf_error argument, and a failing
 * CHECK_RC prints it. E() clears it first. */
hf_error *E(void);
const hf_error *last_error(void);

void check_rc(const char *file, int line, const char *what, int rc, int want);
void check_num(const char *file, int line, const char *what, bool ok, long long a,
               long long b);
void check_within(const char *file, int line, const char *what, int64_t took, int64_t ms);
void check_str(const char *file, int line, const char *what, const char *a, const char *b);

#define CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, "%s", #cond))
#define CHECK_RC(call, want) check_rc(__FILE__, __LINE__, #call, (call), (want))
#define CHECK_NUM(a, op, b)                                                                \
    do {                                                                                   \
        long long a_ = (long long)(a), b_ = (long long)(b);                                \
        check_num(__FILE__, __LINE__, #a " " #op " " #b, a_ op b_, a_, b_);                \
    } while (0)
/* How long something took. On a busy machine that may fail by itself, so tools/run-tests
 * gives a program that failed by nothing else a second run, alone. */
#define CHECK_WITHIN(since, ms)                                                            \
    check_within(__FILE__, __LINE__, #ms " ms after " #since, now_ms() - (since), (ms))
#define CHECK_STR(a, b) check_str(__FILE__, __LINE__, #a " is " #b, (a), (b))

#define AWAIT(cond)                                                                        \
    do {                                                                                   \
        int64_t until_ = now_ms() + LIMIT_MS;                                              \
        while (!(cond)) {                                                                  \
            if (now_ms() > until_)                                                         \
                check_failed(__FILE__, __LINE__, "never came true: %s", #cond);            \
            nap();                                                                         \
        }                                                                                  \
    } while (0)

/* The opposite: must stay true for a while. Only for things that must not happen. */
#define STAYS(cond, ms)                                                                    \
    do {                                                                                   \
        int64_t until_ = now_ms() + (ms);                                                  \
        do {                                                                               \
            if (!(cond))                                                                   \
                check_failed(__FILE__, __LINE__, "did not stay: %s", #cond);               \
            nap();                                                                         \
        } while (now_ms() < until_);                                                       \
    } while (0)

int open_fds(void); /* descriptors of this process */

#endif
