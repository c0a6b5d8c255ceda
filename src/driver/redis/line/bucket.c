/* bucket.c: names of keys and channels.
 *
 * A name belongs to one of 1,024 buckets; the bucket is the hash tag of every key that the
 * name has, and of the mark from which its fences come, so they share a slot of a cluster,
 * and what is left behind for ever is one mark per bucket, not one per name. The namespace
 * stands in front, escaped so that no namespace and name together read like another pair.
 */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <string.h>

/* FNV-1a, folded: it is part of the stored form and never changes. */
unsigned hf__redis_bucket(const char *name, size_t len)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    return (h ^ h >> 10 ^ h >> 20) % BUCKETS;
}

/* CRC-16 (XMODEM) of the tag, as a cluster computes it. */
unsigned hf__redis_bucket_slot(unsigned bucket)
{
    char tag[4];
    unsigned crc = 0;

    snprintf(tag, sizeof tag, "%03x", bucket % BUCKETS);
    for (size_t i = 0; i < 3; i++) {
        crc ^= (unsigned)(unsigned char)tag[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
    }
    return crc % SLOTS;
}

static size_t put_bucket(const struct redis *r, char *key, unsigned bucket)
{
    static const char digits[] = "0123456789abcdef";
    char *p = key + r->prefix_len;

    memcpy(key, r->prefix, r->prefix_len);
    *p++ = '{';
    *p++ = digits[bucket >> 8 & 15];
    *p++ = digits[bucket >> 4 & 15];
    *p++ = digits[bucket & 15];
    *p++ = '}';
    *p++ = ':';
    return (size_t)(p - key);
}

size_t hf__redis_bucket_key(const struct redis *r, char key[KEY_MAX], char kind,
                            const char *name, size_t len)
{
    size_t n = put_bucket(r, key, hf__redis_bucket(name, len));

    key[n++] = kind;
    key[n++] = ':';
    memcpy(key + n, name, len);
    return n + len;
}

size_t hf__redis_bucket_mark(const struct redis *r, char key[KEY_MAX], unsigned bucket)
{
    size_t n = put_bucket(r, key, bucket);

    key[n++] = 'm';
    return n;
}

size_t hf__redis_bucket_wake(const struct redis *r, char key[KEY_MAX], unsigned bucket)
{
    size_t n = r->prefix_len;

    if (r->topology == TOPOLOGY_CLUSTER)
        n = put_bucket(r, key, bucket);
    else
        memcpy(key, r->prefix, n);
    key[n++] = '@';
    return n;
}

const char *hf__redis_bucket_name(const struct redis *r, const char *key, size_t len,
                                  size_t *ret)
{
    char again[KEY_MAX];
    size_t skip = r->prefix_len + 8; /* {xyz}:l: */

    if (len <= skip || len - skip > HF_NAME_MAX)
        return NULL;
    if (hf__redis_bucket_key(r, again, 'l', key + skip, len - skip) != len ||
        memcmp(again, key, len) != 0)
        return NULL;
    *ret = len - skip;
    return key + skip;
}

int hf__redis_bucket_escape(char *dst, size_t size, const char *ns)
{
    size_t n = 0;

    for (const unsigned char *p = (const unsigned char *)ns; *p; p++) {
        bool plain = *p > ' ' && *p != 0x7f && !strchr("{}:%*?[]\\^@", *p);

        if (n + 4 > size)
            return HF_EINVAL;
        if (plain)
            dst[n++] = (char)*p;
        else
            n += (size_t)snprintf(dst + n, size - n, "%%%02x", *p);
    }
    dst[n] = '\0';
    return 0;
}
