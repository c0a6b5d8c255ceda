/* query.h: a look, a cell or an eviction that is under way. What a driver needs for it (a
 * request, a job of several) embeds a struct query, to which look.drv_ptr or cell.drv_ptr
 * points from begin to end. Either ends first: the answer (hf__query_end), or the question,
 * when the core calls `stop`; then the answer finds nobody who wants it. */
#ifndef HF_KIT_QUERY_H
#define HF_KIT_QUERY_H

#include "seam/seam.h"

struct query { /* one of the two; both NULL: stopped, or ended */
    struct look *look;
    struct cell *cell;
};

void hf__query_begin(struct query *, struct look *, struct cell *);
void hf__query_end(struct query *, int rc, const hf_error *); /* ev_done, if it is wanted */
void hf__query_stop(struct look *, struct cell *);
/* Ends what was not begun: ev_done at once. */
void hf__query_refuse(struct look *, struct cell *, int code, const char *where,
                      const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* CELL_ADD of a store that cannot add by itself. at: the number that the cell holds; NULL:
 * there is no cell. Sets cell.number, and writes its digits to `sum`, which has room for
 * HF_CELL_MAX bytes; returns how many. 0: it holds no number, or the sum is too great. */
size_t hf__cell_sum(struct cell *, const void *at, size_t len, void *sum);

static inline bool query_wanted(const struct query *q)
{
    return q->look || q->cell;
}

#endif
