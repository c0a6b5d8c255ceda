/* conn.h: one connection to an SQL database: a link (kit/link.h) whose transport is the
 * database's client library, with a socket of its own. Here is what does not depend on the
 * library: looking up names, the time limit of connecting, calls that wait for their turn,
 * what becomes of answers, and of the connection when it is lost. */
#ifndef HF_SQL_CONN_H
#define HF_SQL_CONN_H

#include "driver/sql/sql.h"
#include "net/net.h"

enum { SQL_TURNS = 3 };

struct sql_conn { /* the struct of a database begins with it */
    struct link link;
    struct list all; /* sql.conns */
    struct sql *sql;
    struct watch watch; /* of the library's socket */
    struct timer timer; /* while it connects */
    struct resolve *resolve;
    bool up;       /* the library says so */
    bool spare;    /* it can be done without: if it fails often, it is tried seldom */
    size_t flying; /* calls that the library has */
    /* sql_call.call.node, for when it has fewer: renewals, others, joins */
    struct list backlog[SQL_TURNS];
    uint32_t prepared; /* verbs */
    int64_t limit_ms;  /* for connecting, and for an answer */
    void (*greet)(struct sql_conn *);
    struct sql_session *session; /* that it belongs to; NULL: to none */
};

enum { SQL_IP = 64 };
#define SQL_TO_ADMINISTRATOR "what an administrator runs is printed by 'holdfast schema'"

static inline struct sql_conn *sql_conn_at(const struct link *k)
{
    return container_of(k, struct sql_conn, link);
}

static inline struct env *sql_env(const struct sql_conn *c)
{
    return c->sql->store.env;
}

/* `c` is zeroed; hf__sql_conn_done takes one that was not made. */
void hf__sql_conn_init(struct sql_conn *, struct sql *, void (*greet)(struct sql_conn *));
void hf__sql_conn_done(struct sql_conn *);
void hf__sql_conn_send(struct sql_conn *, struct sql_call *);
/* A call of nothing but its type; the connection fails if there is no memory. */
void hf__sql_conn_say(struct sql_conn *, const struct sql_type *);
void hf__sql_say_later(struct sql *, const struct sql_type *, int64_t us); /* commands */

/* From the library. */
int hf__sql_conn_watch(struct sql_conn *, uint32_t events); /* 0 or HF_ESYS */
void hf__sql_conn_more(struct sql_conn *); /* sends what has its turn now */
/* The oldest call: err, fate and rows are set. The library counts `flying` down. */
void hf__sql_conn_answered(struct sql_conn *, struct sql_reply *);
void hf__sql_conn_lost(struct sql_conn *, const hf_error *); /* not in open, send, close */
const char *hf__sql_text(const struct sql_conn *, unsigned verb);

/* The addresses of a host. 0, and NULL in `ret` if sql_wire.found will be told; or HF_E*.
 */
int hf__sql_look_up(struct sql_conn *, const struct opening_host *, struct addresses **ret,
                    hf_error *);
bool hf__sql_ip(char ip[SQL_IP], const struct address *); /* false: it is no such address */

/* For greetings: whether it is a good answer with one row. If not, the connection is given
 * up; an answer that did not come needs nothing. */
bool hf__sql_is_row(struct sql_conn *, const struct sql_reply *);
void hf__sql_conn_refused(struct sql_conn *, const struct sql_reply *);
/* A server that cannot be used now: it is waited out if it could be once, or if there are
 * others. */
int hf__sql_passing(const struct sql *);
/* The answer has the version of the schema, and how many of its routines there are: are
 * they those that this program needs? If not, the connection is given up. */
bool hf__sql_is_shape(struct sql_conn *, const struct sql_reply *, int64_t format,
                      int64_t routines);

/* The greeting of the commands connection has ended well. `echoes`: the connection before
 * could not be ended, and its joins may still come to be executed. */
void hf__sql_greeted(struct sql *, bool echoes);
#define SQL_NO_END                                                                         \
    "an old connection could not be ended: giving up after a lost connection takes one "   \
    "ttl"

/* A connection of its own for this session; NULL: no memory. */
struct sql_conn *hf__sql_conn_attach(struct sql_session *);

#endif
