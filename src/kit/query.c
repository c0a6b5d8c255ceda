/* query.c: the beginning and the end of a question. Both pointers, from the question to the
 * driver's object and back, are set together and cleared together, so neither is ever left
 * behind when the other side is freed. */
#include "kit/query.h"

#include <stdarg.h>
#include <stdio.h>

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
    char text[sizeof((hf_error *)NULL)->text];
    hf_error err;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hf__fail(&err, code, 0, where, "%s", text);
    ev_done(look, cell, code, &err);
}
