/* check.c: what a failed check prints, clocks, and the count of descriptors.
 *
 * Goes well: silent. Goes wrong: one line on stderr with place, text and the last
 * hf_error of the thread, then _exit(1) without running anything else, because other
 * threads may still be inside the library.
 */
#include "check.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Thread_local hf_error last;

hf_error *E(void)
{
    memset(&last, 0, sizeof(last));
    return &last;
}

const hf_error *last_error(void)
{
    return &last;
}

static void (*teller)(void);

void check_tell_on_failure(void (*tell)(void))
{
    teller = tell;
}

void check_tell(void)
{
    if (teller)
        teller();
}

int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void nap(void)
{
    nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
}

void check_failed(const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    dprintf(2, "%s:%d: pid %d: %s\n", file, line, (int)getpid(), text);
    if (last.code)
        dprintf(2, "    last error: %s: %s (%s)\n", hf_errname(last.code), last.text,
                last.where);
    check_tell();
    _exit(1);
}

void check_rc(const char *file, int line, const char *what, int rc, int want)
{
    if (rc != want)
        check_failed(file, line, "%s\n    gave %d %s, expected %d %s", what, rc,
                     rc < 0 ? hf_errname(rc) : "", want, want < 0 ? hf_errname(want) : "");
}

void check_num(const char *file, int line, const char *what, bool ok, long long a,
               long long b)
{
    if (!ok)
        check_failed(file, line, "%s\n    with %lld and %lld", what, a, b);
}

void check_within(const char *file, int line, const char *what, int64_t took, int64_t ms)
{
    if (took >= ms)
        check_failed(file, line, "late: %s\n    with %lld and %lld", what, (long long)took,
                     (long long)ms);
}

void check_str(const char *file, int line, const char *what, const char *a, const char *b)
{
    if (!a || !b || strcmp(a, b) != 0)
        check_failed(file, line, "%s\n    with \"%s\" and \"%s\"", what, a ? a : "(null)",
                     b ? b : "(null)");
}

int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    CHECK(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 3; /* ".", ".." and the folder itself */
}
