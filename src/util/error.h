/* error.h: the one way to fill an hf_error. */
#ifndef HF_UTIL_ERROR_H
#define HF_UTIL_ERROR_H

#include <holdfast/holdfast.h>

#include <stdarg.h>

/* Fills *err (may be NULL) and returns code. The text is escaped; `where` may be NULL. */
int hf__fail(hf_error *err, int code, int sys, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

int hf__vfail(hf_error *err, int code, int sys, const char *where, const char *fmt, va_list)
    __attribute__((format(printf, 5, 0)));

#endif
