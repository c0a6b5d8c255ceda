/* listing.h: a list of lines in the making: the names that are still to be read, the
 * requests under way, the first failure. A driver embeds a struct listing and asks its
 * store; rows may come in any order, and with a limit a few more than it: the core sorts
 * and cuts (seam.h, look.limit). */
#ifndef HF_KIT_LISTING_H
#define HF_KIT_LISTING_H

#include "kit/query.h"

/* Names, each once. They are added in any order; settling brings them in order. Settling
 * after a few additions costs a binary search for each, after many one sort of all. */
struct name_set {
    char **at;               /* first .. n; those before `first` were taken */
    size_t first, sorted, n; /* at[first .. sorted) is in order */
    size_t room;
    size_t most; /* only the least so many are kept; 0: all */
    bool cut;    /* so one was dropped */
};

bool hf__names_add(struct name_set *, const char *, size_t len); /* false: no memory */
void hf__names_settle(struct name_set *);
char *
hf__names_take(struct name_set *); /* the first one; the caller's. NULL: there is none */
void hf__names_done(struct name_set *); /* leaves an empty one */

struct listing {
    struct query query;
    struct name_set names;
    size_t open, shown; /* requests under way; rows */
    int rc;             /* of the first failure */
    hf_error err;
    size_t prefix_len; /* of the names that are asked for: the look may end first */
    char prefix[HF_NAME_MAX];
};

/* Of a struct that starts with a listing; NULL: no memory, and the core was told. */
void *hf__listing_new(size_t size, struct look *);
void hf__listing_begin(struct listing *, struct look *);
/* Does this name begin with the prefix? */
bool hf__listing_names(const struct listing *, const char *name, size_t len);
void hf__listing_answered(struct listing *); /* one of `open` is not any more */
void hf__listing_row(struct listing *, const struct row *);
void hf__listing_fail(struct listing *, int rc, const hf_error *);
void hf__listing_no_memory(struct listing *);
void hf__listing_end(struct listing *); /* tells, frees what is inside */

static inline bool listing_goes_on(const struct listing *l)
{
    return l->query.look && l->rc == 0;
}

#endif
