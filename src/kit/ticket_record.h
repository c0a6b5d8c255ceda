/* ticket_record.h: what a ticket says of itself where the store keeps it as one value:
 * text, so that it can be read with any tool, and by other programs.
 *
 *   holdfast 1
 *   broken                     only if it is to end (holdfast break)
 *   kept 1763190030123         nobody's any more; the store ends it then, ms since 1970
 *   lock 2147483648            the weight, of HF_FULL; or: permits WEIGHT CAPACITY; only
 *                              where the name of the node does not say it
 *   owner 3f2a...e1 17         the owner: its process's random number in hex, and a
 *                              number there
 *   host NAME
 *   pid 1234
 *   since 1763190000123        when it joined, ms since 1970 by its own clock
 *   ttl 30000                  ms
 *   token 0123...ef            likewise
 *   fence 4294967301           only if it is not that of the node
 *   holds NAME                 at most 16; '%', controls as %HH
 *   note TEXT                  to the end
 *
 * The first line counts; the others may come in any order, but for the note. What another
 * program has written, or what cannot be read, says nothing: it is an exclusive ticket. */
#ifndef HF_KIT_TICKET_RECORD_H
#define HF_KIT_TICKET_RECORD_H

#include "seam/seam.h"

struct ticket_record {
    bool ours, broken;
    int64_t kept_ms; /* 0: not kept; the time when it ends, ms since 1970 */
    bool has_token;
    unsigned char token[HF_TOKEN];
    enum line_kind kind;
    int64_t weight, capacity;
    struct owner owner;
    int64_t pid, since_ms, ttl_ms;
    uint64_t fence; /* 0: that of the node */
    char host[256], note[HF_NOTE_MAX + 1], hints[HF_HINTS_MAX * (HF_NAME_MAX + 1)];
    size_t hints_len;
};

struct ticket_facts { /* what is not in the ticket */
    const char *host;
    int64_t pid, since_ms, ttl_ms;
    bool form, token, broken; /* whether it has these lines */
    int64_t kept_ms;          /* likewise, if it is not 0 */
    uint64_t fence;           /* likewise */
};

enum { RECORD_MAX = 768 + 256 + HF_NOTE_MAX + HF_HINTS_MAX * (3 * HF_NAME_MAX + 8) };

size_t hf__record_write(char to[RECORD_MAX], const struct ticket *,
                        const struct ticket_facts *);
void hf__record_read(struct ticket_record *, const void *, size_t);
/* What it says of itself, in a row; the texts stay in the record. */
void hf__record_row(struct row *, const struct ticket_record *);
/* The same text with this line, which ends with a newline and replaces those that begin
 * with the same word. 0: it is not ours, or too long. */
size_t hf__record_set(char to[RECORD_MAX], const void *, size_t, const char *line);

#endif
