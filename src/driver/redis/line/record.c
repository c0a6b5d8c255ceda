/* record.c: what stands in a stored ticket behind the fields that the scripts know: who it
 * is.
 *
 *   1 format  8 process  8 owner's number  8 pid  1 length, host  2 length, note  2 length,
 *     hints
 *
 * All numbers big-endian. It is read by strangers' clients too, so every length is checked.
 * */
#include "driver/redis/redis.h"

#include <string.h>

enum { RECORD_FORMAT = 1, FIXED = 1 + 8 + 8 + 8 };

static unsigned char *put(unsigned char *p, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(number >> 8 * (bytes - 1 - i));
    return p + bytes;
}

static uint64_t get(const unsigned char *p, size_t bytes)
{
    uint64_t number = 0;

    for (size_t i = 0; i < bytes; i++)
        number = number << 8 | p[i];
    return number;
}

static unsigned char *put_text(unsigned char *p, const char *text, size_t len, size_t bytes)
{
    p = put(p, len, bytes);
    if (len > 0)
        memcpy(p, text, len);
    return p + len;
}

size_t hf__redis_record_write(unsigned char *to, const struct redis *r,
                              const struct ticket *t)
{
    unsigned char *p = to;

    *p++ = RECORD_FORMAT;
    p = put(p, t->owner.process, 8);
    p = put(p, t->owner.number, 8);
    p = put(p, (uint64_t)r->open.pid, 8);
    p = put_text(p, r->open.host, strlen(r->open.host), 1);
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
    len = (size_t)get(*p, bytes);
    *p += bytes;
    if ((size_t)(end - *p) < len)
        return false;
    *ret = (const char *)*p;
    *ret_len = len;
    *p += len;
    return true;
}

int hf__redis_record_read(struct redis_record *rec, const void *bytes, size_t len)
{
    const unsigned char *p = bytes, *end = p + len;

    if (len < FIXED || p[0] != RECORD_FORMAT)
        return HF_EDAMAGED;
    rec->owner.process = get(p + 1, 8);
    rec->owner.number = get(p + 9, 8);
    rec->pid = (int64_t)get(p + 17, 8);
    p += FIXED;
    if (!take_text(&p, end, 1, &rec->host, &rec->host_len) ||
        !take_text(&p, end, 2, &rec->note, &rec->note_len) ||
        !take_text(&p, end, 2, &rec->hints, &rec->hints_len) ||
        rec->note_len > HF_NOTE_MAX ||
        (rec->hints_len > 0 && rec->hints[rec->hints_len - 1] != '\0'))
        return HF_EDAMAGED;
    return 0;
}
