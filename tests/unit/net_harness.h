/* net_harness.h: a loop, a stream that counts what it is told, and peers on loopback. */
#ifndef HF_TESTS_NET_HARNESS_H
#define HF_TESTS_NET_HARNESS_H

#include "unit.h"

#include "net/net.h"

#include "check.h"

/* A stream and all that was told about it. `hook` is called at the end of each callback.
 */
struct probe {
    struct stream s;
    int ups, downs, reads; /* reads: calls of on->data */
    size_t got;            /* bytes */
    char text[64];         /* the first of them */
    uint32_t sum;          /* of all of them */
    hf_error err;
    void (*hook)(struct probe *, char what); /* 'u' up, 'd' data, 'x' down */
};

extern struct env net_env;
extern struct loop net_loop;
extern void (*net_pump)(void); /* what else is to be done in each step */
extern int net_fail_watch;     /* n > 0: the n-th call of env->watch fails */
extern int net_fail_alloc;     /* n > 0: the n-th allocation of the library fails */
extern int net_fail_socket, net_fail_thread; /* the n-th socket, the n-th thread */
extern bool net_signals_blocked; /* in the thread that looked up the last made-up name */
extern int net_sends, net_recvs, net_watches; /* system calls of the library */
extern bool net_block_send;                   /* the library finds no room to send */
extern bool net_meet_itself;                  /* connect() ends at its own port */

/* Names that the tests make up; every other one is looked up for real. A blocked lookup
 * waits until net_unblock(). */
void net_name(const char *name, const char *addresses, int gai, bool blocked); /* "a b" */
void net_unblock(void);
int net_lookups(int *most); /* how many are under way now, and were at once */

bool net_fails(int *countdown);

int net_setup(void **);
int net_teardown(void **); /* nothing may be left: descriptors, timers, watches, SIGPIPE */
void net_step(void);       /* one turn of the loop, of at most a few ms, and the pump */

#define UNTIL(cond)                                                                        \
    do {                                                                                   \
        int64_t until_ = now_ms() + LIMIT_MS;                                              \
        while (!(cond)) {                                                                  \
            if (now_ms() > until_)                                                         \
                fail_msg("%s:%d: never came true: %s", __FILE__, __LINE__, #cond);         \
            net_step();                                                                    \
        }                                                                                  \
    } while (0)

void probe_init(struct probe *);
struct stream_target to_host(const char *host, uint16_t number);
struct stream_target to_path(const char *path);
void probe_open(struct probe *, const struct stream_target *); /* nothing is told inside */
void probe_done(struct probe *);                               /* and nothing after */
uint32_t sum_of(uint32_t sum, const void *, size_t);

int serve(const char *address, uint16_t *ret_port,
          int backlog); /* *ret_port 0: any; returns its fd */
int serve_path(const char *path, int backlog);
int take(int listener); /* waits for a connection, drives the loop meanwhile */
int full_server(const char *address, uint16_t *ret_port,
                int *fillers); /* answers to nobody */
/* A stream that is up, and its peer. */
extern struct probe p;
extern uint16_t port;
extern int server, peer;

void connect_pair(void);
void part_pair(void);
void say(int fd, const char *text);
void hear(int fd, const char *text);
void send_now(const char *text);
/* Opens a stream, which must go down for this reason. */
void expect_failure(const struct stream_target *, int sys, const char *text);

const char *socket_path(void);
const char *net_folder(void); /* of this test; emptied after it */

#endif
