/* postgres.h: the objects of the postgres driver and what its files offer each other.
 *
 * postgres   one opened store: struct sql, what the URL said, two connections
 * pg_conn    one connection: libpq in pipeline mode as the library of a sql_conn
 *
 * Reading order: schema.sql, ../sql/sql.h, ../sql/conn.h, statement.c, conn.c, connect.c,
 * greet.c, driver.c. */
#ifndef HF_POSTGRES_H
#define HF_POSTGRES_H

#include "driver/sql/conn.h"
#include "util/text.h"

#include <libpq-fe.h>

/* Statements of our own, besides those of the verbs. */
enum pg_verb {
    PG_HELLO = SQL_VERBS, /* which server and session it is, and how it is set */
    PG_ATTACH,            /* the same, for a session of one ticket */
    PG_SHAPE,             /* the version of the schema */
    PG_LISTEN,
    PG_NOTIFY,
    /* Those below are prepared. */
    PG_BEGIN, /* mode=pessimistic: before SQL_TRY and SQL_LOCK, with one of the next two */
    PG_TRY_ROW,
    PG_LOCK_ROW,
    PG_TRY_SHARED, /* mode=advisory */
    PG_LOCK_SHARED,
    PG_RELEASE_SHARED,
    PG_VERBS
};
_Static_assert(PG_VERBS <= 32, "sql_conn.prepared has a bit for each");

extern const char hf__postgres_schema[]; /* schema.sql */

struct pg_address {
    const struct opening_host *host;
    char ip[SQL_IP];
};

struct pg_conn {
    struct sql_conn c;
    PGconn *pg;                   /* NULL: closed, or names are being looked up */
    size_t next_host;             /* that is looked up next */
    struct pg_address *addresses; /* found so far */
    size_t naddresses;
    size_t turn;      /* of the address that is tried first */
    size_t silent;    /* how many in a row did not answer in time */
    bool making;      /* schema.sql runs, outside pipeline mode */
    PGresult *result; /* of the oldest call; its transaction goes on */
    bool direct;      /* the session is ours alone: no pooler is between */
};

struct pg_session { /* a backend, as the server names it */
    int64_t pid, started;
};

struct postgres {
    struct sql sql;
    struct pg_conn commands, messages;
    struct pg_session session, old; /* of commands; old: pid 0: there is none */
    int ends;                       /* how often `old` was to be ended */
    bool polls;                     /* wake=poll */
    bool heard;                     /* something came over this connection for messages */
    struct timer hello_timer;       /* no message has come in time */
    char channel[3 + 2 * SQL_CLIENT + 1];
};

static inline struct postgres *postgres_of(struct sql *s)
{
    return container_of(s, struct postgres, sql);
}

static inline struct pg_conn *pg_conn_of(struct sql_conn *c)
{
    return container_of(c, struct pg_conn, c);
}

extern const struct hf_driver hf__driver_postgres;

/* statement.c */
extern const char *const *const hf__postgres_texts[];

/* conn.c */
extern const struct sql_wire hf__postgres_wire;
void hf__postgres_make(struct pg_conn *); /* runs schema.sql; hf__postgres_made */

struct pg_kind {
    int code;
    enum sql_fate fate;
};
struct pg_kind hf__postgres_kind(const char *state); /* what a SQLSTATE means */

/* connect.c */
/* What libpq would take from the URL, a service file, the environment and its defaults;
 * NULL, and `err` says why. */
PQconninfoOption *hf__postgres_settings(const struct sql *, hf_error *);
int hf__postgres_connect(struct sql_conn *, int64_t ms, hf_error *);
int hf__postgres_found(struct sql_conn *, struct addresses *, hf_error *);
bool hf__postgres_due(struct sql_conn *);
void hf__postgres_connect_step(struct pg_conn *);
void hf__postgres_lost(struct pg_conn *); /* by what libpq says */
/* The first line, without what verbosity has put around it. */
void hf__postgres_first_line(char *to, size_t size, const char *text);

/* greet.c */
void hf__postgres_greet(struct sql_conn *);
void hf__postgres_made(struct pg_conn *, const char *state, const char *why);
void hf__postgres_listen_greet(struct sql_conn *);
void hf__postgres_attach_greet(struct sql_conn *);
void hf__postgres_down(struct sql_conn *, const hf_error *);
void hf__postgres_notified(struct postgres *, const char *text);
void hf__postgres_hello_fired(struct timer *);
void hf__postgres_listen(struct sql *);

/* driver.c */
int hf__postgres_read_url(struct sql *, const struct url *, hf_error *);
void hf__postgres_begin(struct sql *);
void hf__postgres_end(struct sql *);

#endif
