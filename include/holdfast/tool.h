/* tool.h: calls for tools that stand around holdfast: supervisors, monitors, the command itself.
 * An application that takes and gives back locks needs none of them.
 */
#ifndef HOLDFAST_TOOL_H
#define HOLDFAST_TOOL_H

#include <holdfast/holdfast.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- supervising --------------------------------------------------------------------- */

/* The descriptors whose last close tells the store that this process died. A guard that
 * keeps copies of them holds back that news. Writes at most n, returns how many there are;
 * 0 where the store sees death by ttl only. They stay the client's. HF_ESYS: errno says
 * why. */
int hf_client_life_fds(hf_client *, int *fds, size_t n);

/* The ttl that requests ask for which name none: hf_options.ttl_ms, the URL's ttl=, or 30 s. The
 * store may give less: hf_lease_ttl_ms. */
int64_t hf_client_ttl_ms(const hf_client *);

/* The owner as text, for hf_options.owner of a process that acts for it, with the names it
 * holds. Returns the length needed, as snprintf does. */
int hf_lease_owner(const hf_lease *, char *buf, size_t size);

/* ---- tickets ------------------------------------------------------------------------ */

/* The id of its ticket, as hf_ticket_id shows it and hf_evict takes it; several names: of the
 * first by bytes, or the i-th. Lives as long as the lease. NULL: no memory, beyond the end. */
const char *hf_lease_ticket(const hf_lease *);
const char *hf_lease_ticket_at(const hf_lease *, size_t i);

/* Lets a place that hf_release_after left be taken for `keep_ms` from now instead, in one step;
 * also for less than was left. Whoever knows the id may do it; fence and place stay. HF_ENOENT
 * if it has ended, was broken, or is not such a place: a ticket with which somebody holds or
 * waits is not touched. HF_ENOTSUP without HF_CAP_KEEP and HF_CAP_LINE, HF_EINVAL ... */
int hf_keep_renew(hf_client *, const char *name, const char *ticket_id, int64_t keep_ms,
                  hf_error *);

/* The same, and a ticket with which somebody holds becomes such a place: its owner is dead, and
 * the name is to stay taken. An owner that lives loses its lease, and may end the place. Of
 * a broken one: HF_ENOENT. */
int hf_keep_orphan(hf_client *, const char *name, const char *ticket_id, int64_t keep_ms,
                   hf_error *);

/* ---- stores ------------------------------------------------------------------------- */

enum { HF_BACKEND_BUILTIN = 0, HF_BACKEND_MODULE = 1, HF_BACKEND_MISSING = 2 };

typedef struct hf_backend {
    uint32_t size;       /* sizeof(hf_backend), set by the caller */
    uint32_t state;      /* HF_BACKEND_* */
    const char *name;    /* "local"; static */
    const char *schemes; /* "local"; words; static */
    char detail[256];    /* where it is, or why it is not there */
} hf_backend;

/* The i-th driver this library knows of; HF_ENOENT beyond the last. Writes no more than
 * ret->size bytes; what a newer header has beyond what this library knows stays as it is. */
int hf_backend_at(size_t i, hf_backend *ret);

/* What an administrator would run so that the store of this URL can be used: lines for the
 * store's tool (redis-cli, zkCli.sh, a shell), without a password. Nothing is opened. The
 * caller frees the text. */
int hf_admin_text(const char *url, char **ret, hf_error *);

#ifdef __cplusplus
}
#endif
#endif
