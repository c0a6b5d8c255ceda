/* record.c: see record.h. */
#include "kit/record.h"

#include "util/bytes.h"

#include <string.h>

enum { RECORD_FORMAT = 1, FIXED = 1 + 8 + 8 + 8 };

static unsigned char *put_text(unsigned char *p, const char *text, size_t len, size_t bytes)
{
    p = bytes_put(p, len, bytes);
    if (len > 0)
        memcpy(p, text, len);
    return p + len;
}

size_t hf__owner_record_write(unsigned char to[OWNER_RECORD_MAX], const struct opening *o,
                              const struct ticket *t)
{
    unsigned char *p = to;

    *p++ = RECORD_FORMAT;
    p = bytes_put(p, t->owner.process, 8);
    p = bytes_put(p, t->owner.number, 8);
    p = bytes_put(p, (uint64_t)o->pid, 8);
    p = put_text(p, o->host, strlen(o->host), 1);
    p = put_text(p, t->note, strlen(t->note), 2);
    p = put_text(p, t->hints, t->hints_len, 2);
    return (size_t)(p - to);
}

static bool take_text(const unsigned char **p, const unsigned char *end, size_t bytes,
                      const char **ret, size_t *ret_len)
{
    size_t len;

    if ((size_t)(end - *p) < bytes)
        return false;
    len = (size_t)bytes_get(*p, bytes);
    *p += bytes;
    if ((size_t)(end - *p) < len)
        return false;
    *ret = (const char *)*p;
    *ret_len = len;
    *p += len;
    return true;
}

int hf__owner_record_read(struct owner_record *rec, const void *bytes, size_t len)
{
    const unsigned char *p = bytes, *end = p + len;

    if (len < FIXED || p[0] != RECORD_FORMAT)
        return HF_EDAMAGED;
    rec->owner.process = bytes_get(p + 1, 8);
    rec->owner.number = bytes_get(p + 9, 8);
    rec->pid = (int64_t)bytes_get(p + 17, 8);
    p += FIXED;
    if (!take_text(&p, end, 1, &rec->host, &rec->host_len) ||
        !take_text(&p, end, 2, &rec->note, &rec->note_len) ||
        !take_text(&p, end, 2, &rec->hints, &rec->hints_len) ||
        rec->note_len > HF_NOTE_MAX ||
        (rec->hints_len > 0 && rec->hints[rec->hints_len - 1] != '\0'))
        return HF_EDAMAGED;
    return 0;
}
