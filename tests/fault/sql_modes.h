/* sql_modes.h: what goes wrong with the modes of a database that have no line, for every
 * database alike. A database says how it is started, asked and broken. */
#ifndef HF_TESTS_SQL_MODES_H
#define HF_TESTS_SQL_MODES_H

#include "proxy.h"
#include "rig.h"

enum { WITH_SESSIONS = 2, ALL_MODES = 3 };

struct two { /* one holds, one waits; each with a client of its own */
    hf_client *a, *b;
    hf_lease *held;
    struct pend *waits;
    uint64_t fence; /* of held */
};

struct database {
    const char *modes[ALL_MODES];    /* the first WITH_SESSIONS have a session per ticket */
    int64_t short_ms;                /* a ttl that ends within a test */
    void (*use)(const char *params); /* a server, and the URL of rig.place */
    void (*use_proxied)(const char *params); /* the same through `proxy` */
    void (*use_small)(void);                 /* one with few connections */
    void (*done)(void);
    struct proxy **proxy;
    void (*direct)(char *url, size_t size, const char *mode); /* past the proxy */
    void (*crash)(void);                                      /* killed and started again */
    void (*lower_limits)(void);                               /* for new sessions */
    /* How many wait; sessions that are ended, and their number. */
    bool (*waits)(int mode, int64_t n);
    int64_t (*end_holder)(int mode), (*end_control)(int mode), (*end_waiter)(void);
    bool (*nothing_left)(void); /* no session has a lock */
};

extern const struct database db;
extern const struct test_case sql_mode_cases[];

void use_mode(int i);
const char *name_of(int i);
struct two begin_two(int i, int64_t ttl_ms);
/* The other has it now, and when it gives it back nothing is left. */
void end_two(int i, struct two *);

#endif
