/* mem.c: the core's memory: size classes with free lists. Each block belongs to the
 * process whose code asked for it, so that a kill takes all of it, a leak is seen, and
 * a process can be told that there is no more. A block with a ticket that the driver
 * still knows must not be freed (G7): that is seen here too. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { CLASS = 64, CLASSES = 96 };

/* Under the sanitizer every block is its own, so that it sees each wrong access. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SANITIZED)
enum { POOLED = 0 };
#else
enum { POOLED = 1 };
#endif

struct block {
    struct list on;
    size_t room;
    struct block *next;
    uint8_t proc;
    bool live, hold, known;
    _Alignas(16) char data[];
};

void *sim_malloc(size_t);
void *sim_calloc(size_t, size_t);
void *sim_realloc(void *, size_t);
void sim_free(void *);
char *sim_strdup(const char *);
char *sim_strndup(const char *, size_t);

static struct block *pools[CLASSES];

static struct block *block_of(void *p)
{
    return container_of(p, struct block, data);
}

void *sim_malloc(size_t n)
{
    size_t class = (n + CLASS - 1) / CLASS;
    struct block *b;
    struct proc *p = &w.procs[w.current < 0 ? 0 : w.current];

    if (w.current >= 0 && p->no_memory_until > w.now && draw(3) == 0) {
        tally_sight(S_NO_MEMORY);
        return NULL;
    }
    if (class < CLASSES && pools[class]) {
        b = pools[class];
        pools[class] = b->next;
    } else if ((b = malloc(sizeof *b + (POOLED ? class * CLASS : n))) == NULL) {
        abort();
    }
    b->room = POOLED ? class * CLASS : n;
    b->proc = (uint8_t)(p - w.procs);
    b->hold = b->known = false;
    b->live = true;
    list_push(&p->blocks, &b->on);
    p->nblocks++;
    return b->data;
}

void *sim_calloc(size_t n, size_t size)
{
    void *p = sim_malloc(n * size);

    return p ? memset(p, 0, n * size) : NULL;
}

static void put_back(struct block *b)
{
    list_remove(&b->on);
    w.procs[b->proc].nblocks--;
    b->live = false;
    if (POOLED && b->room / CLASS < CLASSES) {
        b->next = pools[b->room / CLASS];
        pools[b->room / CLASS] = b;
    } else {
        free(b);
    }
}

void sim_free(void *data)
{
    struct block *b;

    if (!data)
        return;
    b = block_of(data);
    if (!b->live) {
        violate("memory", "the core frees something twice");
        return;
    }
    if (b->hold) {
        oracle_freed(data, b->known || ((struct hold *)data)->t.drv_ptr);
        if (w.broke)
            return; /* somebody may still look at it */
    }
    put_back(b);
}

void *sim_realloc(void *old, size_t n)
{
    void *p;

    if (old && block_of(old)->room >= n)
        return old;
    p = sim_malloc(n);
    if (p && old) {
        memcpy(p, old, block_of(old)->room);
        sim_free(old);
    }
    return p;
}

char *sim_strndup(const char *s, size_t most)
{
    size_t n = strnlen(s, most);
    char *p = sim_malloc(n + 1);

    if (p) {
        memcpy(p, s, n);
        p[n] = '\0';
    }
    return p;
}

char *sim_strdup(const char *s)
{
    return sim_strndup(s, strlen(s));
}

void mem_ticket(void *hold, bool known)
{
    block_of(hold)->known = known;
    block_of(hold)->hold = true;
}

void mem_drop(struct proc *p)
{
    struct list *n;

    while ((n = list_first(&p->blocks)) != NULL)
        put_back(container_of(n, struct block, on));
}

void mem_reset(void)
{
    for (int i = 0; i < PROCS; i++)
        if (w.procs[i].blocks.next)
            mem_drop(&w.procs[i]);
}
