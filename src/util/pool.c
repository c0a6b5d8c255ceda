/* pool.c: see pool.h. */
#include "util/pool.h"

#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                 \
    __has_feature(memory_sanitizer)
#define WATCHED 1
#endif
#endif
#if defined(WATCHED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||   \
    defined(HF_SIM)
enum { MOST = 0 };
#else
enum { MOST = 64 }; /* as many as are often in flight at once */
#endif

enum { GRAIN = 16, TRIES = 4 };

struct spare { /* at the beginning of a spare block */
    struct spare *next;
    size_t size;
};

/* To the end of the piece that the allocator takes for it, which has a word of its own. */
static size_t rounded(size_t size)
{
    return (size + sizeof(size_t) + GRAIN - 1) / GRAIN * GRAIN - sizeof(size_t);
}

void hf__pool_init(struct pool *p)
{
    *p = (struct pool){ .most = MOST };
}

void hf__pool_done(struct pool *p)
{
    while (p->first) {
        struct spare *s = p->first;

        p->first = s->next;
        free(s);
    }
    p->n = p->most = 0;
}

void *hf__pool_get(struct pool *p, size_t size)
{
    struct spare **at = &p->first, *s;

    for (int i = 0; i < TRIES && (s = *at) != NULL; i++, at = &s->next)
        if (s->size >= size) {
            *at = s->next;
            p->n--;
            return memset(s, 0, size);
        }
    return calloc(1, rounded(size));
}

void hf__pool_put(struct pool *p, void *block, size_t size)
{
    struct spare *s = block;

    if (p->n >= p->most || !block || size < sizeof *s) {
        free(block);
        return;
    }
    *s = (struct spare){ .next = p->first, .size = rounded(size) };
    p->first = s;
    p->n++;
}
