/* wire.h: a bare connection to a Redis server, for limits that owe nothing to the
 * library: plain blocking calls, one buffer out, one buffer in. */
#ifndef HF_BENCH_WIRE_H
#define HF_BENCH_WIRE_H

#include "bench.h"

struct wire_text { /* bytes that are being put together: one command or many */
    size_t len;
    char bytes[131072];
};

struct wire {
    int fd;
    struct wire_text out;
    size_t at, len; /* of in: taken so far, there */
    char in[65536];
};

/* Whether there is a bare way in: one server, no TLS. */
bool wire_possible(const char *url);

/* Connected, logged in, database chosen. Returns an exit status, having said why. */
int wire_open(struct wire **ret, const char *url);
void wire_close(struct wire *); /* takes NULL */

/* A command: the number of its arguments, then each of them. */
void wire_command(struct wire_text *, size_t args);
void wire_arg(struct wire_text *, const void *, size_t);
void wire_put(struct wire_text *, const void *, size_t); /* as it is */
void wire_word(struct wire_text *, const char *);
void wire_words(struct wire_text *, const char *words); /* a whole one, split at spaces */

int wire_send(struct wire *, const void *, size_t);
int wire_flush(struct wire *); /* sends out, and empties it */
/* The next reply, whole, valid until the next call. */
int wire_take(struct wire *, const char **ret, size_t *ret_len);
/* The same; it must begin so. */
int wire_expect(struct wire *, const char *start);

/* The bytes of a whole reply at the start of these; 0: not all are there. */
size_t wire_reply(const char *, size_t);

/* What the server says it has spent, since it runs: in scripts, in DEL by itself or in
 * scripts, and its main thread in all. */
struct wire_spent {
    double script_us, scripts, del_us, cpu_us;
};
int wire_spent(struct wire *, struct wire_spent *);

/* ---- redis.c --------------------------------------------------------------------- */

/* Join and leave of a line that nobody else uses, ready to be sent again and again. */
struct raw_line {
    size_t join_len, leave_len;
    char join[1536], leave[1024];
};

/* The scripts are loaded; worker and slot make the line one's own. */
int raw_scripts(struct wire *);
void raw_line_make(struct raw_line *, struct wire *, const struct bench *, int worker,
                   int slot);
int raw_line_pair(struct raw_line *, struct wire *); /* there and back, twice */
void raw_line_forget(struct wire *, const struct bench *, int worker);

#endif
