/* record.h: the bytes of a line, a waiter and the small records, and their meaning.
 *
 * Numbers are in the machine's own order: a store never leaves its machine and its boot.
 * Keys are big-endian, so that they sort. */
#ifndef HF_LOCAL_RECORD_H
#define HF_LOCAL_RECORD_H

#include "seam/seam.h"

enum { RECORD_FORMAT = 1 };

enum { HOLDER_BROKEN = 1 };
enum { WAITER_BARGE = 1, WAITER_TOLD = 2 }; /* TOLD: knows all whom it must watch as head */

struct holder_fix {
    unsigned char token[HF_TOKEN];
    uint64_t process, member; /* process 0: kept, ends by its expiry only */
    int64_t weight;
    uint64_t fence;
    int64_t expires_at, joined_at, granted_at;
    struct owner owner;
    uint32_t pid;
    uint16_t note_len;
    uint8_t flags, zero;
};

struct local_holder {
    struct holder_fix f;
    const char *note;
};

struct line_fix {
    uint8_t format, kind;
    uint16_t name_len; /* 0: the key holds the whole name */
    uint32_t nholders;
    int64_t capacity;
    uint64_t id, next_seq, waiters; /* id 0: nobody has waited here yet */
};

struct local_line {
    struct line_fix f;
    const char *name;
    struct local_holder *holders;
    size_t room;
    int64_t sum; /* of the holders' weights */
    bool stored; /* there is a record of it */
};

struct waiter_fix {
    uint8_t format, flags;
    uint16_t note_len, hints_len, zero;
    uint32_t pid, zero2;
    unsigned char token[HF_TOKEN];
    uint64_t process, member, life;
    int64_t weight, joined_at;
    struct owner owner;
    uint64_t watch; /* the process whose death it will see; 0: none */
};

struct local_waiter {
    struct waiter_fix f;
    uint64_t seq; /* from the key */
    const char *note, *hints;
};

struct process_fix {
    uint32_t format, pid;
    uint64_t start; /* field 22 of /proc/PID/stat; 0: not known */
    uint64_t pid_ns;
};

struct life_fix {
    int64_t expires_at, ttl_ms;
};

struct inbox_fix {
    uint64_t value;
    int64_t expires_at;
};

struct cell_fix {
    uint32_t format;
    uint16_t name_len, value_len;
    uint64_t version;
    int64_t expires_at; /* 0: never */
};

struct cell_record {
    struct cell_fix f;
    const char *name;
    const unsigned char *value;
};

/* Each returns 0, HF_EDAMAGED, HF_EVERSION (a newer format) or HF_ENOMEM (only the line,
 * whose array of holders may have to grow), for any bytes at any address. Texts point
 * into `data`. */
int hf__local_line_decode(struct local_line *, const void *data, size_t len);
int hf__local_waiter_decode(struct local_waiter *, const void *data, size_t len);
int hf__local_process_decode(struct process_fix *, const void *data, size_t len);
int hf__local_life_decode(struct life_fix *, const void *data, size_t len);
int hf__local_cell_decode(struct cell_record *, const void *data, size_t len);

size_t hf__local_line_size(const struct local_line *);
/* exactly hf__local_line_size bytes */
void hf__local_line_encode(const struct local_line *, void *);
size_t hf__local_waiter_size(const struct local_waiter *);
void hf__local_waiter_encode(const struct local_waiter *, void *);

int hf__local_line_add(struct local_line *,
                       const struct local_holder *); /* 0 or HF_ENOMEM */
/* keeps the order of the others */
void hf__local_line_drop(struct local_line *, size_t i);
/* or NULL */
struct local_holder *hf__local_line_find(const struct local_line *,
                                         const unsigned char *token);
void hf__local_line_done(struct local_line *);

#endif
