/* jute.h: a bare session with a ZooKeeper server, for limits that owe nothing to the
 * library. Requests are put together and sent in one go; every one has its answer, in
 * order, and events come in between. */
#ifndef HF_BENCH_JUTE_H
#define HF_BENCH_JUTE_H

#include "bench.h"

#include "proto/jute.h" /* a pure codec, compiled in: no symbol of the library */

struct jute_link {
    int fd;
    bool private_;         /* nodes for the creator only, as the library's are then */
    unsigned owed, events; /* answers to come; events that have come and are not used */
    struct jute_out out;
    size_t at, len; /* of in: taken so far, there */
    char in[65536];
};

/* Connected, logged in; the root that the URL names, or "". Returns an exit status. */
int jute_open(struct jute_link **ret, const char *url, char *root, size_t size);
void jute_close(struct jute_link *); /* takes NULL; ends the session */

void jute_delete(struct jute_link *, const char *path, size_t len);
void jute_read(struct jute_link *, const char *path, size_t len, bool watch);
void jute_create(struct jute_link *, const char *path, size_t len, enum jute_mode);
int jute_flush(struct jute_link *);

/* The next message is an event, which is counted, or the answer to the oldest request. */
int jute_hear(struct jute_link *, struct jute_reply *);
/* The next answer; `may` is an error that is none. */
int jute_answer(struct jute_link *, struct jute_reply *, int32_t may);
int jute_answers(struct jute_link *,
                 int32_t may);                /* flushes, and takes all that are owed */
bool jute_has_more(const struct jute_link *); /* a whole message is there */

#endif
