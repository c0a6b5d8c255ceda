/* opening.h: what the URL of every networked store says, read once, and kept for as long as
 * the store is open: where to connect, as whom, with which TLS, for how long, and who we
 * are. A driver embeds a struct opening and reads its own parameters itself. */
#ifndef HF_KIT_OPENING_H
#define HF_KIT_OPENING_H

#include "kit/login.h"
#include "seam/seam.h"

struct tls_module;
struct tls_context;

struct opening_host {
    char *host;
    uint16_t port;
    char shown[300]; /* "host:port", "[::1]:port" */
};

struct opening {
    char *shown; /* the URL without secrets: where an error comes from */
    struct login login;
    int64_t connect_ms;
    struct opening_host *hosts;
    size_t nhosts;
    const struct tls_module *tls; /* NULL: in the clear */
    struct tls_context *tls_context;
    char host[256]; /* this machine and process, for the records of tickets */
    int64_t pid;
};

struct opening_rules {
    const char *params;      /* that the driver knows, besides tls_*: separated by spaces;
                                among them password_file, if it logs in with a password */
    uint16_t port, tls_port; /* of hosts that name none */
    bool tls;                /* the scheme asks for it */
    const char *tls_schemes; /* for a message: "rediss:// or redlocks://" */
    bool shuffle;            /* any host will do: clients spread over them */
};

/* 0 or HF_E*; then hf__opening_done is still to be called. `o` is zeroed before. */
int hf__opening_read(struct opening *, const struct url *, struct env *,
                     const struct opening_rules *, hf_error *);
void hf__opening_done(struct opening *); /* takes a zeroed one */

/* The refusal of a ticket whose line is in use with another kind or capacity, which are
 * given. `where`: the store. */
int hf__mismatch(hf_error *, const char *where, const char *name, enum line_kind,
                 int64_t capacity);

#endif
