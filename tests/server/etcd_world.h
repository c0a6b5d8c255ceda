/* etcd_world.h: a loop, a connection of the wire layer to one member of a real etcd, and
 * calls that wait for their answers. What the link and the watch streams tell is kept. */
#ifndef HF_TESTS_ETCD_WORLD_H
#define HF_TESTS_ETCD_WORLD_H

#include "check.h"
#include "driver/etcd/wire.h"
#include "proxy.h"
#include "rig.h"
#include "setup_etcd.h"

enum { CONNECT_MS = 8000, EVENTS = 4096, KEY = 64 };

struct seen_event {
    int64_t watch_id;
    bool deleted;
    char key[KEY];
    int64_t revision, prev_len, value_len;
};

extern struct etcd_place *etcd;

extern struct world {
    struct env env;
    struct loop loop;
    struct list dirty;
    struct etcd_conn c;
    char shown[32];
    int64_t limit_ms;
    bool no_up; /* greet does not declare UP */
    int ups, downs, losses;
    int order; /* of the last down: calls that were unanswered before it */
    int unanswered;
    hf_error why;
    struct seen_event events[EVENTS];
    size_t nevents, responses, fragments, progress;
    int64_t canceled_id, compact_revision; /* canceled_id: -2 none */
    char cancel_reason[128];
} w;

void world_begin(int port); /* in the clear, and up */
void world_open(int port, const struct tls_module *, struct tls_context *);
void world_end(void);
void turn(void); /* one of the loop, of at most 10 ms */

#define UNTIL(cond)                                                                        \
    do {                                                                                   \
        int64_t until_ = now_ms() + LIMIT_MS;                                              \
        while (!(cond)) {                                                                  \
            if (now_ms() > until_)                                                         \
                check_failed(__FILE__, __LINE__, "never came true: %s (%s)", #cond,        \
                             w.why.text);                                                  \
            turn();                                                                        \
        }                                                                                  \
    } while (0)

/* A call of a test: its answer is kept as the packed message. */
struct asked {
    struct etcd_call call;
    struct reply *to;
};

struct reply {
    int answers;  /* how often */
    bool nothing; /* no answer will come */
    int status;
    char text[128];
    int64_t at_ms;
    void *body; /* a copy; of the answer's type */
};

void ask(struct reply *, enum etcd_rpc, const void *request); /* does not wait */
void ask_within(struct reply *, enum etcd_rpc, const void *request, int64_t ms);
/* Waits for the answer; the body of OK lives until the next call of it. */
const struct reply *asked(enum etcd_rpc, const void *request);
const void *ok(enum etcd_rpc, const void *request); /* the body */
void reply_done(struct reply *);

ProtobufCBinaryData bytes(const char *);
int64_t put(const char *key, const char *value, int64_t lease); /* the revision */
int64_t grant(int64_t ttl);
int64_t alive(int64_t lease); /* the ttl that a keep-alive answers; 0: it is gone */
int64_t count_of(const char *key);
int64_t watch(const char *key, const char *end, int64_t from, bool fragment); /* its id */

#endif
