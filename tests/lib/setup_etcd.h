/* setup_etcd.h: etcd for tests: the distribution's, one member or three, with TLS, with
 * logins.
 *
 * The servers of a place lie in memory that cases share with the runner. */
#ifndef HF_TESTS_SETUP_ETCD_H
#define HF_TESTS_SETUP_ETCD_H

#include "server.h"
#include "setup.h"

enum { ETCD_SERVERS = 3 };

struct etcd_place {
    struct server servers[ETCD_SERVERS]; /* the port 10,000 above is for the others */
    size_t n;
    bool tls;                    /* clients need a certificate */
    int peer_port[ETCD_SERVERS]; /* where the others reach it; 0: there */
    int health[ETCD_SERVERS], health_fd[ETCD_SERVERS]; /* in the clear, HTTP/1 */
    int dead_port, dead_fd;                            /* nobody listens there */
};

struct etcd_place *etcd_place_new(size_t members); /* starts nothing */
/* TLS for its clients, with the certificates that are in the folder of the first. */
void etcd_secure(struct etcd_place *);
void etcd_run(struct etcd_place *, size_t i);
void etcd_await(struct etcd_place *, size_t i); /* it serves, and there is a leader */
void etcd_start_all(struct etcd_place *);
size_t etcd_leader(struct etcd_place *);
void etcd_place_stop(struct etcd_place *); /* kills and removes all */

/* The sum of the numbers of all lines of /metrics that begin so. */
int64_t etcd_number(struct etcd_place *, size_t i, const char *metric);
/* "etcd://a,b,c" and `tail` */
void etcd_url(const struct etcd_place *, char *url, size_t size, const char *tail);

/* etcdctl, which must end with 0. */
void etcd_ctl(const struct etcd_place *, const char *args);
/* From now on logins are needed: root, and `locker`, who may do what the library tells an
 * administrator for etcd://HOST/locks; the password of both is s3cr@t. */
void etcd_auth(const struct etcd_place *);
void etcd_auth_slash(const struct etcd_place *); /* who may do all below /locks instead */

#endif
