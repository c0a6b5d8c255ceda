/* query.c: the beginning and the end of a question. Both pointers, from the question to the
 * driver's object and back, are set together and cleared together, so neither is ever left
 * behind when the other side is freed. */
#include "kit/query.h"

#include "util/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void point(struct look *look, struct cell *cell, struct query *to)
{
    if (look)
        look->drv_ptr = to;
    else if (cell)
        cell->drv_ptr = to;
}

void hf__query_begin(struct query *q, struct look *look, struct cell *cell)
{
    q->look = look;
    q->cell = cell;
    point(look, cell, q);
}

void hf__query_end(struct query *q, int rc, const hf_error *err)
{
    struct query was = *q;

    if (!query_wanted(q))
        return;
    point(q->look, q->cell, NULL);
    *q = (struct query){ NULL, NULL };
    ev_done(was.look, was.cell, rc, rc < 0 ? err : NULL);
}

void hf__query_stop(struct look *look, struct cell *cell)
{
    struct query *q = look ? look->drv_ptr : cell->drv_ptr;

    if (!q)
        return;
    *q = (struct query){ NULL, NULL };
    point(look, cell, NULL);
}

void hf__query_refuse(struct look *look, struct cell *cell, int code, const char *where,
                      const char *fmt, ...)
{
    hf_error err;
    va_list ap;

    va_start(ap, fmt);
    hf__vfail(&err, code, 0, where, fmt, ap);
    va_end(ap);
    ev_done(look, cell, code, &err);
}

size_t hf__cell_sum(struct cell *cell, const void *at, size_t len, void *sum)
{
    char text[HF_CELL_MAX + 1], *end = text;
    int64_t number = 0;

    if (at) {
        memcpy(text, at, len);
        text[len] = '\0';
        errno = 0;
        number = strtoll(text, &end, 10);
        if (len == 0 || *end != '\0' || errno != 0)
            return 0;
    }
    if (__builtin_add_overflow(number, cell->add, &number))
        return 0;
    cell->number = number;
    return (size_t)snprintf(sum, HF_CELL_MAX, "%" PRId64, number);
}
