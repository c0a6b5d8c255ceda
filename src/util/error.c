/* error.c: the texts of the error list in holdfast.h, and the one way to fill an hf_error.
 * Everything that goes into a message passes hf__escape: names and notes come from
 * strangers, and a message must not drive a terminal (G11). Secrets are kept out by the
 * callers: they pass struct url's `shown`, never the URL. */
#include "util/error.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *hf_strerror(int code)
{
    switch (code) {
    case 0:
        return "success";
#define HF_X(symbol, number, text, retry)                                                  \
    case symbol:                                                                           \
        return text;
        HF_ERRORS(HF_X)
#undef HF_X
    default:
        return "unknown error";
    }
}

const char *hf_errname(int code)
{
    switch (code) {
    case 0:
        return "HF_OK";
#define HF_X(symbol, number, text, retry)                                                  \
    case symbol:                                                                           \
        return #symbol;
        HF_ERRORS(HF_X)
#undef HF_X
    default:
        return "HF_E?";
    }
}

static uint32_t worth_retrying(int code)
{
    switch (code) {
#define HF_X(symbol, number, text, retry)                                                  \
    case symbol:                                                                           \
        return retry;
        HF_ERRORS(HF_X)
#undef HF_X
    default:
        return 0;
    }
}

int hf__vfail(hf_error *err, int code, int sys, const char *where, const char *fmt,
              va_list ap)
{
    char text[1024];
    int n;

    if (code == HF_ESYS && sys == ENOMEM)
        code = HF_ENOMEM;
    if (!err)
        return code;
    memset(err, 0, sizeof *err);
    err->code = code;
    err->sys = sys;
    err->retry = worth_retrying(code);
    if (where)
        hf__escape(err->where, sizeof err->where, where, strlen(where));
    n = vsnprintf(text, sizeof text, fmt, ap);
    if (n >= 0 && sys) {
        size_t used = strlen(text);

        snprintf(text + used, sizeof text - used, ": %s", strerror(sys));
    }
    hf__escape(err->text, sizeof err->text, text, strlen(text));
    return code;
}

int hf__fail(hf_error *err, int code, int sys, const char *where, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    code = hf__vfail(err, code, sys, where, fmt, ap);
    va_end(ap);
    return code;
}

const char *hf_version(void)
{
    return HF_VERSION_TEXT;
}
