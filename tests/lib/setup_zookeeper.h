/* setup_zookeeper.h: ZooKeeper servers for tests: the distribution's, one or three, with
 * TLS.
 *
 * The servers of a place lie in memory that cases share with the runner. */
#ifndef HF_TESTS_SETUP_ZOOKEEPER_H
#define HF_TESTS_SETUP_ZOOKEEPER_H

#include "server.h"
#include "setup.h"

enum { ZK_SERVERS = 3, ZK_TICK_MS = 500 };

struct zk_place {
    struct server servers[ZK_SERVERS];
    size_t n;
    bool tls; /* on the port 10,000 above */
    int quorum[ZK_SERVERS],
        quorum_fd[ZK_SERVERS]; /* and the port 10,000 above: elections */
    int dead_port, dead_fd;    /* where nobody listens */
    /* [i][k]: where i finds the ports of k for the quorum, and for elections; 0: where they
     * are */
    int seen[ZK_SERVERS][ZK_SERVERS], elects[ZK_SERVERS][ZK_SERVERS];
};

extern const char zk_class_path[]; /* the distribution's, for programs beside us */
const char *zk_server_path(void);  /* the class path of the servers */

struct zk_place *zk_place_new(struct place *, size_t servers);
void zk_config(struct server *, const char *line, ...)
    __attribute__((format(printf, 2, 3)));
void zk_ensemble(struct zk_place *); /* writes who is who; after `seen` was set */
/* The one server by TLS, too, with the certificate of `who`; clients must have one. The
 * authority and the certificates are in its folder (certificates_make). */
void zk_secure(struct zk_place *, const char *who);
void zk_run(struct zk_place *, size_t i); /* starts it; does not await it */
bool zk_serves(const struct server *);
void zk_await(struct zk_place *, size_t i); /* it serves */
void zk_start_all(struct zk_place *);
void zk_use_once(const char *url); /* until it answers */
void zk_place_stop(struct place *);
void zk_url(const struct zk_place *, char *url, size_t size, const char *tail);

/* The answer to a four-letter word; "": it does not answer. Valid until the next. */
const char *zk_word(const struct server *, const char *word);
size_t zk_leader(struct zk_place *); /* its index */
int64_t zk_number(const struct server *, const char *word, const char *field);

#endif
