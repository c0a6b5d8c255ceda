/* races.h: two transactions on one line of an SQL store, stopped where they meet. Each race
 * is run on the schema as it is, and on copies of it in which one lock or condition is
 * missing: those must be caught. */
#ifndef HF_TESTS_RACES_H
#define HF_TESTS_RACES_H

#include "rig.h"

enum { RACE_TTL_MS = 500, RACE_LONG_MS = 60000 };
enum { LEVEL_READ_COMMITTED = 1, LEVEL_REPEATABLE_READ = 2, LEVEL_SERIALIZABLE = 4 };
#define LEVELS_ALL 7u

struct race {
    const char *name;
    bool (*run)(void); /* true: all is well */
};

struct mutation {
    const char *name, *what, *with;
    unsigned levels; /* where it matters */
};

/* How a store is asked. Statements answer one number. */
struct race_store {
    const char *(*join)(char token, int ttl_ms, int flags); /* 0: it holds, 2: busy */
    const char *(*leave)(char token);
    const char *(*renew)(char token, int sent, int ttl_ms);
    const char *sweep;
    /* in one of two sessions; what the server undoes is sent again */
    int (*asked)(int session, const char *statement);
    void (*begin)(const char *); /* by the first session, which does not commit */
    int (*come)(const char *);   /* by the second; what it gets when the first commits */
    int64_t (*number)(const char *query);
    void (*clear)(void); /* nobody is in any line */
    bool (*lines_whole)(void);
    const char *left_ms, *tickets, *holders, *line_fence, *ticket_fence; /* queries */
    const char *to_sweep; /* the line is old, and its fence an hour ahead of the clock */
    void (*make)(const char *schema);
    void (*go)(int way); /* of several ways to join and leave; NULL: there is one */
    int ways;
    const struct race *more;
    const struct mutation *mutations; /* both end with a NULL name */
};

void races_run(const struct race_store *, unsigned level, const char *schema);

#endif
