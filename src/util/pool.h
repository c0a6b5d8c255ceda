/* pool.h: spare blocks of one kind, kept by whoever allocates and frees one per call.
 *
 * Used under its owner's lock. A block is malloc'ed, so free() is also a way to end it (the
 * child of a fork does that). No block is larger than what was asked for, rounded up as the
 * allocator does: ten thousand waiters count. A spare one serves whoever asks for as much
 * or less; names are mostly alike in length, so one of the first few fits. A zeroed pool,
 * or one that is done with, keeps nothing.
 *
 * Nothing is kept in builds with a sanitizer and in the simulator, which watches what is
 * freed: a block that is used again would hide a use after its end. */
#ifndef HF_UTIL_POOL_H
#define HF_UTIL_POOL_H

#include <stddef.h>

struct pool {
    unsigned n, most; /* how many are spare, and may be */
    struct spare *first;
};

void hf__pool_init(struct pool *);
void hf__pool_done(struct pool *);
void *hf__pool_get(struct pool *, size_t size);        /* zeroed; NULL: no memory */
void hf__pool_put(struct pool *, void *, size_t size); /* as it was asked for; takes NULL */

#endif
