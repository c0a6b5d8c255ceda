/* mysql.h: the objects of the mysql driver and what its files offer each other.
 *
 * mysql    one opened store: struct sql, what the URL said, its connections
 * my_conn  one connection: MariaDB Connector/C, not blocking, as the library of a sql_conn
 * waker    a connection that waits for the user lock of somebody in front
 *
 * Reading order: schema.sql, ../sql/sql.h, ../sql/conn.h, statement.c, conn.c, connect.c,
 * rows.c, short.c, greet.c, wake.c, crash.c, driver.c. */
#ifndef HF_MYSQL_H
#define HF_MYSQL_H

#include "driver/sql/conn.h"
#include "util/text.h"

#include <mysql.h>
/* Macros of the library; ours are functions. */
#undef list_push
#undef list_pop

/* Statements of our own, besides those of the verbs. */
enum my_verb {
    MY_HELLO = SQL_VERBS, /* which server it is, how it is set, who we are */
    MY_END,               /* ends the session of our connection before this one */
    MY_OWN,               /* takes the lock that tells our session */
    MY_SHAPE,             /* the version of the schema */
    MY_MAKE,              /* may we make it? */
    MY_MADE,
    MY_ATTACH,  /* which session it is, for one of a ticket */
    MY_TAKE,    /* a join, the short way; no verb of a call */
    MY_GIVE,    /* a leave, the short way */
    MY_AWAIT,   /* waits for a user lock */
    MY_NOTICES, /* what others have revoked */
    MY_SCRIPT,  /* a part of schema.sql; cannot be prepared */
    MY_VERBS
};
_Static_assert(MY_VERBS <= 32, "sql_conn.prepared has a bit for each");

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

enum { COLUMNS_MAX = 24, MY_NUMBERS = 3 + SQL_RENEW_MOST };

struct my_conn {
    struct sql_conn c;
    MYSQL *my; /* NULL: closed, or a name is being looked up */
    int64_t connect_by;
    enum my_step step; /* != STEP_NONE: it waits for the socket, for `events` */
    int events, ret;
    MYSQL *connected;           /* what STEP_CONNECT gives */
    char *password, ip[SQL_IP]; /* it reads them until then */
    MYSQL_STMT *stmts[MY_VERBS];
    struct sql_call *call; /* that the library has */
    unsigned verb;         /* its verb, or MY_TAKE or MY_GIVE for it */
    uint32_t crc;          /* of a join or leave: the hash of its name */
    bool begun;
    bool running; /* inside run() */
    MYSQL_BIND binds[SQL_ARGS];
    unsigned long lengths[SQL_ARGS];
    char *args; /* the bytes of the arguments, and how many there is room for */
    size_t args_room;
    struct my_rows rows;
    unsigned long lengths_of[COLUMNS_MAX]; /* of the row that is read */
    my_bool nulls[COLUMNS_MAX];
    unsigned error; /* of the call; 0: none */
    char error_text[400];
};

enum { MY_WAKERS = 8, MY_CROWDED = 16 };
enum my_tls { TLS_IF_OFFERED, TLS_OFF, TLS_ON, TLS_VERIFY };

struct waker {
    struct my_conn conn;
    int64_t line; /* that it waits in; 0: none */
    unsigned char token[HF_TOKEN], front[HF_TOKEN];
    unsigned char
        later[HF_TOKEN]; /* joined since: whether its answer knows of it is open */
    bool joined;         /* there is such a one */
    int64_t since;       /* the line's last fence before its ticket waited */
};

struct mysql {
    struct sql sql;
    struct my_conn commands;
    struct waker wakers[MY_WAKERS];
    uint64_t crowded[MY_CROWDED]; /* names that are not free, by hash */
    bool fast;                    /* crash=fast */
    int fast_fd;                  /* the socket of its commands, or -1 */
    struct list fast_node;
    bool polls;             /* wake=poll, or user locks mean nothing here */
    bool owned, unended;    /* the session has its lock; a session before had not */
    bool making, made;      /* we own the lock for making the schema; and have */
    const char *script;     /* from where on schema.sql is still to be run */
    int64_t old;            /* the session of our connection before this one; 0: none */
    unsigned turn;          /* counts attempts: another host and address each time */
    struct address address; /* of the server that the commands go to */
    const struct opening_host *host;
    struct timer look_timer; /* for who waits, and no waker is left */
    struct timer notice_timer;
    int64_t noticed; /* until then we know what was revoked, by the server's clock */
    unsigned char (*lookers)[HF_TOKEN];
    size_t nlookers, lookers_room;
    const char *socket; /* NULL: by TCP */
    enum my_tls tls;
};

static inline struct mysql *mysql_of(struct sql *s)
{
    return container_of(s, struct mysql, sql);
}

static inline struct my_conn *my_conn_of(struct sql_conn *c)
{
    return container_of(c, struct my_conn, c);
}

extern const struct hf_driver hf__driver_mysql;

/* statement.c */
extern const char *const *const hf__mysql_texts[];
int hf__mysql_bind(struct my_conn *, unsigned verb, struct sql_args *); /* 0, HF_ENOMEM */
static inline bool hf__mysql_locks_row(const struct my_conn *c, unsigned verb)
{
    return c->c.sql->mode == SQL_PESSIMISTIC && (verb == SQL_TRY || verb == SQL_LOCK);
}

/* rows.c */
int64_t hf__mysql_number(const struct sql_reply *, size_t row, size_t column);
const void *hf__mysql_bytes(const struct sql_reply *, size_t row, size_t column, size_t *n);
bool hf__mysql_bind_row(struct my_conn *, MYSQL_STMT *); /* before the first is fetched */
bool hf__mysql_read_row(struct my_conn *, MYSQL_STMT *); /* that was fetched */
size_t hf__mysql_numbers(const char *text, int64_t numbers[MY_NUMBERS]);
void hf__mysql_forget_rows(struct my_rows *);
/* An answer of this number instead of rows; false: no memory. */
bool hf__mysql_put_number(struct my_rows *, uint64_t number);
/* `old` with room for so many of this size, as it is or anew; NULL: no memory. */
void *hf__mysql_grown(void *old, size_t *room, size_t need, size_t size);

/* conn.c */
extern const struct sql_wire hf__mysql_wire;
void hf__mysql_keep_error(struct my_conn *, unsigned error, const char *text);

/* connect.c */
int hf__mysql_connect(struct sql_conn *, int64_t ms, hf_error *);
int hf__mysql_found(struct sql_conn *, struct addresses *, hf_error *);
int hf__mysql_connect_start(struct my_conn *); /* as begin() in conn.c */
void hf__mysql_forget_password(struct my_conn *);
void hf__mysql_keep_alive(int fd);

/* greet.c */
void hf__mysql_greet(struct sql_conn *);
void hf__mysql_attach_greet(struct sql_conn *);
void hf__mysql_down(struct sql_conn *, const hf_error *);
const char *hf__mysql_script(const struct mysql *, size_t *ret_len); /* of MY_SCRIPT */

/* driver.c */
int hf__mysql_read_url(struct sql *, const struct url *, hf_error *);
void hf__mysql_begin(struct sql *);
void hf__mysql_end(struct sql *);

/* short.c */
/* The verb that is sent for this one, with the arguments that it takes. */
unsigned hf__mysql_shorten(struct my_conn *, unsigned verb, struct sql_args *);
void hf__mysql_missed(struct my_conn *);
/* Of one that was not missed: numbers as the procedure answers them. Returns how many. */
size_t hf__mysql_short_answer(struct my_conn *, uint64_t inserted, int64_t *numbers);
void hf__mysql_joined(struct my_conn *, int64_t answer);

/* crash.c */
int hf__mysql_read_crash(struct mysql *, const struct url *, hf_error *);
int hf__mysql_life_fds(struct store *);
void hf__mysql_fast_up(struct mysql *);   /* there is a connection for commands */
void hf__mysql_fast_down(struct mysql *); /* it is about to be closed */
void hf__mysql_fast_done(struct mysql *);
/* Before the core hears that the store is down. */
void hf__mysql_session_gone(struct mysql *);

/* wake.c */
void hf__mysql_wake_init(struct mysql *);
void hf__mysql_wake_done(struct sql *);
void hf__mysql_news(struct mysql *, const char *text, size_t len);
void hf__mysql_wake_down(struct mysql *, const hf_error *);
void hf__mysql_waker_lost(struct sql_conn *);
void hf__mysql_notices(struct mysql *); /* somebody waits, or has held for a while */
void hf__mysql_listen(struct sql *);

#endif
