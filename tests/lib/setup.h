/* setup.h: a store to test against, started for the suite.
 *
 * One file per store (setup_NAME.c) and a line in contract/setups.c. Everything that
 * differs between stores is here: what it must be able to do, how it is started, stopped,
 * restarted, blocked.
 */
#ifndef HF_TESTS_SETUP_H
#define HF_TESTS_SETUP_H

#include <stdint.h>
#include <sys/types.h>

enum {
    SETUP_SEES_DEATH = 1 << 0, /* a killed owner is out at once, not by its ttl (G5) */
    SETUP_DEATH_SOON = 1 << 2, /* with SETUP_SEES_DEATH: not at once, but within a second */
    SETUP_TOPOLOGY = 1 << 1    /* only the cases tagged `topology` run by default */
};

struct place { /* one started store */
    char url[512];
    char dir[256];
    pid_t pid; /* a process of the setup's, or 0 */
    void *own; /* the setup's, shared with forked cases */
};

struct setup {
    const char *name;
    uint32_t caps;   /* HF_CAP_* it must have, no more and no less; asserted by a case */
    unsigned traits; /* SETUP_* */
    void (*start)(struct place *); /* fills it; a failure ends the program */
    void (*stop)(struct place *);
    void (*restart)(
        struct place *);           /* its memory must survive what it promises to survive */
    void (*block)(struct place *); /* from now on calls find nobody who answers */
    void (*unblock)(struct place *);
    void (*unusable)(struct place *, char *url, size_t size); /* a URL that cannot work */
    pid_t (*leader)(struct place *); /* the server that leads the others; NULL: none does */
    int64_t (*work)(struct place *); /* how many commands or transactions it has done */
    int waiters;                     /* of ten-thousand-waiters without --all; 0: 10,000 */
    const char *server;  /* the environment variable that names a newer server, or NULL */
    uint32_t newer_caps; /* what it has besides `caps` then */
};

extern const struct setup setup_local;
extern const struct setup setup_mysql, setup_mysql_fast, setup_mysql_optimistic,
    setup_mysql_pessimistic, setup_mysql_named;
extern const struct setup setup_postgres, setup_postgres_optimistic,
    setup_postgres_pessimistic, setup_postgres_advisory;
extern const struct setup setup_redis, setup_redis_unix, setup_redis_tls, setup_redis_acl,
    setup_redis_sentinel, setup_redis_cluster;
extern const struct setup setup_zookeeper, setup_zookeeper_three, setup_zookeeper_tls,
    setup_zookeeper_auth, setup_zookeeper_rw, setup_zookeeper_ephemeral;
extern const struct setup setup_etcd, setup_etcd_three, setup_etcd_tls, setup_etcd_auth;

/* Of the program; ends with NULL, and the first is taken if none is named. */
extern const struct setup setup_redlock, setup_redlock_three, setup_redis_plain;
extern const struct setup *const setups[];

#endif
