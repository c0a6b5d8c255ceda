/* postgres.h: the objects of the postgres driver and what its files offer each other.
 *
 * postgres   one opened store: struct sql, what the URL said, two connections
 * pg_conn    one connection: libpq in pipeline mode as the transport of a link
 *
 * Reading order: schema.sql, ../sql/sql.h, conn.c, greet.c, driver.c. */
#ifndef HF_POSTGRES_H
#define HF_POSTGRES_H

#include "driver/sql/sql.h"
#include "net/net.h"
#include "util/text.h"

#include <libpq-fe.h>

struct postgres;

/* Statements of our own, besides those of the verbs. */
enum pg_verb {
    PG_HELLO = SQL_VERBS, /* which server and session it is, and how it is set */
    PG_ATTACH,            /* the same, for a session of one ticket */
    PG_SHAPE,             /* the version of the schema */
    PG_LISTEN,
    PG_NOTIFY,
    PG_PREPARE, /* not a statement: makes one of the others ready */
    PG_VERBS
};

extern const char hf__postgres_schema[]; /* schema.sql */

struct pg_conn {
    struct link link;
    struct postgres *of;
    PGconn *pg; /* NULL: closed, or names are being looked up */
    struct watch watch;
    struct timer connect_timer;
    struct resolve *resolve;
    size_t next_host;                    /* that is looked up next */
    size_t naddresses;                   /* found so far */
    size_t turn;                         /* of the address that is tried first */
    size_t silent;                       /* how many in a row did not answer in time */
    struct text hosts, addresses, ports; /* for libpq, with commas between them */
    bool up;                             /* libpq says so */
    bool making;                         /* schema.sql runs, outside pipeline mode */
    size_t flying;                       /* calls that libpq has */
    /* sql_call.call.node, for when it has fewer: joins, and what goes before them */
    struct list backlog[2];
    PGresult *result;  /* of the oldest call; its transaction goes on */
    uint32_t prepared; /* verbs */
    bool direct;       /* the session is ours alone: no pooler is between */
    void (*greet)(struct pg_conn *);
    struct pg_attached *attached; /* that it is part of; NULL: of none */
};

struct pg_attached { /* one connection for one ticket at a time */
    struct sql_session ses;
    struct pg_conn conn;
};

struct pg_session { /* a backend, as the server names it */
    int64_t pid, started;
};

struct postgres {
    struct sql sql;
    struct list dirty;
    struct pg_conn commands, messages;
    struct pg_session session, old; /* of commands; old: pid 0: there is none */
    int ends;                       /* how often `old` was to be ended */
    bool polls;                     /* wake=poll */
    bool heard;                     /* something came over this connection for messages */
    struct timer hello_timer;       /* no message has come in time */
    char channel[3 + 2 * SQL_CLIENT + 1];
    const char *dbname; /* from the URL's path */
    char *path;
    struct url_param *params; /* keywords of libpq */
    size_t nparams;
    unsigned warned;
};

static inline struct postgres *postgres_of(struct sql *s)
{
    return container_of(s, struct postgres, sql);
}

extern const struct hf_driver hf__driver_postgres;

/* conn.c */
extern const struct sql_wire hf__postgres_wire;
void hf__postgres_conn_init(struct pg_conn *, struct postgres *,
                            void (*greet)(struct pg_conn *));
void hf__postgres_conn_done(struct pg_conn *);
void hf__postgres_conn_forked(struct pg_conn *);
void hf__postgres_send(struct pg_conn *, struct sql_call *);
void hf__postgres_flush(struct postgres *); /* sends what was asked for */
void hf__postgres_bury(struct postgres *);  /* frees sessions that are over */
bool hf__postgres_make(struct pg_conn *);   /* runs schema.sql; false: it broke */
/* The code for a SQLSTATE, and whether the connection is as good as gone. */
int hf__postgres_code(const char *state);

/* greet.c */
void hf__postgres_greet(struct pg_conn *);
void hf__postgres_made(struct pg_conn *, const char *state, const char *why);
void hf__postgres_listen_greet(struct pg_conn *);
void hf__postgres_attach_greet(struct pg_conn *);
void hf__postgres_notified(struct postgres *, const char *text);
void hf__postgres_hello_fired(struct timer *);
void hf__postgres_test(struct postgres *);    /* whether messages come */
void hf__postgres_unheard(struct postgres *); /* the connection for messages is down */

#endif
