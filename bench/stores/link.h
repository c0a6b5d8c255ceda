/* link.h: a bare connection to a server, for limits that owe nothing to the
 * library: where a URL leads to, and plain blocking calls. */
#ifndef HF_BENCH_LINK_H
#define HF_BENCH_LINK_H

#include "bench.h"

struct link_target {
    char user[256], password[256];
    char host[256], port[8]; /* host "": a unix socket */
    char path[1024];         /* with its first slash, or "" */
};

/* What a URL says, decoded; `port` if it names none. False: it cannot be read here. */
bool link_read(struct link_target *, const char *url, const char *port);
/* An option of a URL; false: it is not there, or too long. */
bool link_option(const char *url, const char *key, char *to, size_t size);

int link_broken(const char *what); /* says it; returns an exit status */
int link_open(const struct link_target *, int *ret_fd);
int link_send(int fd, const void *, size_t);
int link_more(int fd, void *to, size_t room, size_t *ret); /* at least one byte */

#endif
