/* record.h: who a ticket is, in bytes, as stores keep it that do not care what it says:
 *
 *   1 format  8 process  8 owner's number  8 pid  1 length, host  2 length, note
 *   2 length, hints
 *
 * All numbers big-endian. Others write it, too, so every length is checked. */
#ifndef HF_KIT_RECORD_H
#define HF_KIT_RECORD_H

#include "kit/opening.h"

struct owner_record {
    struct owner owner;
    int64_t pid;
    const char *host, *note, *hints; /* not terminated */
    size_t host_len, note_len, hints_len;
};

enum { OWNER_RECORD_MAX = 32 + 256 + HF_NOTE_MAX + 1100 };
/* Returns its length. */
size_t hf__owner_record_write(unsigned char to[OWNER_RECORD_MAX], const struct opening *,
                              const struct ticket *);
int hf__owner_record_read(struct owner_record *, const void *, size_t); /* or HF_EDAMAGED */

#endif
