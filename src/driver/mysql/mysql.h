/* mysql.h: the objects of the mysql driver and what its files offer each other.
 *
 * mysql    one opened store: struct sql, what the URL said, its connections
 * my_conn  one connection: MariaDB Connector/C, not blocking, as the transport of a link
 * waker    a connection that waits for the user lock of somebody in front
 *
 * Reading order: schema.sql, ../sql/sql.h, conn.c, greet.c, wake.c, driver.c. */
#ifndef HF_MYSQL_H
#define HF_MYSQL_H

#include "driver/sql/sql.h"
#include "net/net.h"
#include "util/text.h"

#include <mysql.h>
/* Macros of the library; ours are functions. */
#undef list_push
#undef list_pop

struct mysql;

/* Statements of our own, besides those of the verbs. */
enum my_verb {
    MY_HELLO = SQL_VERBS, /* which server it is, how it is set, who we are */
    MY_END,               /* ends the session of our connection before this one */
    MY_OWN,               /* takes the lock that tells our session */
    MY_SHAPE,             /* the version of the schema */
    MY_MAKE,              /* may we make it? */
    MY_MADE,
    MY_AWAIT,   /* waits for a user lock */
    MY_NOTICES, /* what others have revoked */
    MY_SCRIPT,  /* a part of schema.sql; cannot be prepared */
    MY_VERBS
};

extern const char hf__mysql_schema[]; /* schema.sql */

/* What the library does for this connection; only one thing at a time. */
enum my_step {
    STEP_NONE,
    STEP_CONNECT,
    STEP_PREPARE,
    STEP_EXECUTE,
    STEP_FETCH,
    STEP_NEXT,
    STEP_QUERY,
    STEP_ROLLBACK
};

struct my_span {
    size_t at, len;
};

struct my_rows { /* of an answer: every value as a text */
    size_t rows, columns, room, used;
    struct my_span *spans;
    char *bytes;
    size_t nspans;
};

enum { COLUMNS_MAX = 24 };

struct my_conn {
    struct link link;
    struct mysql *of;
    MYSQL *my; /* NULL: closed, or a name is being looked up */
    struct watch watch;
    struct timer connect_timer;
    int64_t connect_by;
    struct resolve *resolve;
    bool up;           /* the library says so */
    enum my_step step; /* != STEP_NONE: it waits for the socket, for `events` */
    int events, ret;
    MYSQL *connected;       /* what STEP_CONNECT gives */
    char *password, ip[64]; /* it reads them until then */
    MYSQL_STMT *stmts[MY_VERBS];
    uint32_t prepared;
    struct sql_call *call; /* that the library has */
    bool begun, busy;      /* busy: its answer is being given, too */
    bool running;          /* inside run() */
    /* sql_call.call.node, for when it is answered: joins, and what goes before them */
    struct list backlog[2];
    MYSQL_BIND binds[SQL_ARGS];
    unsigned long lengths[SQL_ARGS];
    size_t nargs;
    char *args; /* the bytes of the arguments, and how many there is room for */
    size_t args_room;
    struct my_rows rows;
    unsigned long lengths_of[COLUMNS_MAX]; /* of the row that is read */
    my_bool nulls[COLUMNS_MAX];
    unsigned error; /* of the call; 0: none */
    char error_text[400];
    int64_t limit_ms;
    void (*greet)(struct my_conn *);
};

enum { MY_WAKERS = 8 };
enum my_tls { TLS_IF_OFFERED, TLS_OFF, TLS_ON, TLS_VERIFY };

struct waker {
    struct my_conn conn;
    int64_t line; /* that it waits in; 0: none */
    unsigned char token[HF_TOKEN], front[HF_TOKEN];
    int64_t since;
};

struct mysql {
    struct sql sql;
    struct list dirty;
    struct my_conn commands;
    struct waker wakers[MY_WAKERS];
    bool polls;             /* wake=poll, or user locks mean nothing here */
    bool owned, unended;    /* the session has its lock; a session before had not */
    bool making, made;      /* we own the lock for making the schema; and have */
    int64_t old;            /* the session of our connection before this one; 0: none */
    unsigned turn;          /* counts attempts: another host and address each time */
    struct address address; /* of the server that the commands go to */
    const struct opening_host *host;
    struct timer look_timer; /* for who waits, and no waker is left */
    struct timer notice_timer;
    int64_t noticed; /* until then we know what was revoked, by the server's clock */
    unsigned char (*lookers)[HF_TOKEN];
    size_t nlookers, lookers_room;
    char *database, *socket;
    enum my_tls tls;
    char *ssl_ca, *ssl_cert, *ssl_key; /* NULL: none */
    unsigned warned;
};

static inline struct mysql *mysql_of(struct sql *s)
{
    return container_of(s, struct mysql, sql);
}

extern const struct hf_driver hf__driver_mysql;

/* conn.c */
extern const struct sql_wire hf__mysql_wire;
void hf__mysql_conn_init(struct my_conn *, struct mysql *, void (*greet)(struct my_conn *));
void hf__mysql_conn_done(struct my_conn *);
void hf__mysql_conn_forked(struct my_conn *);
void hf__mysql_send(struct my_conn *, struct sql_call *);
void hf__mysql_flush(struct mysql *); /* sends what was asked for */

/* greet.c */
void hf__mysql_greet(struct my_conn *);
const char *hf__mysql_script(const struct sql_call *, size_t *ret_len); /* of MY_SCRIPT */

/* wake.c */
void hf__mysql_wake_init(struct mysql *);
void hf__mysql_wake_done(struct mysql *);
void hf__mysql_news(struct mysql *, const char *text, size_t len);
void hf__mysql_wake_down(struct mysql *, const hf_error *);
void hf__mysql_waker_lost(struct my_conn *);
void hf__mysql_notices(struct mysql *); /* somebody waits, or has held for a while */

#endif
