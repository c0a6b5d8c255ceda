/* key.c: keys: where a line, its tickets, a cell lie.
 *
 *   <base><name>/<lease in hex>.<number>         a ticket, see ticket.c. etcdctl and Go's
 *                                                Mutex make <base><name>/<lease in hex>
 *   <base>/cell/<name>                           a cell
 *   <base>/client/<lease in hex>                 see lease.c
 *   <base>/ns/<namespace>/...                    the same three of a namespace
 *
 * The base is the URL's path without the slash before it, and one behind it. Of a line
 * every key counts that begins with <base><name>/, as it does for the others. So '/' and
 * '%' in a name are escaped (%2f, %25): the lines a and a/b are strangers. With names=raw
 * they are not: then the line a/b lies inside of the line a, as it does for etcdctl. A name
 * is never empty, so what lies below <base>/ is in nobody's line. */
#include "driver/etcd/etcd.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void hf__etcd_key_add(struct etcd_key *k, const char *text, size_t len)
{
    memcpy(k->at + k->len, text, len);
    k->len += len;
}

static void add_name(struct etcd_key *k, bool raw, const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (raw || (name[i] != '/' && name[i] != '%'))
            k->at[k->len++] = name[i];
        else
            hf__etcd_key_add(k, name[i] == '/' ? "%2f" : "%25", 3);
}

static void begin(struct etcd_key *k, const struct etcd *e, const char *below)
{
    k->len = 0;
    hf__etcd_key_add(k, e->base, e->base_len);
    hf__etcd_key_add(k, below, strlen(below));
}

int hf__etcd_base(struct etcd *e, const struct url *url, hf_error *err)
{
    const char *path = url->path;
    size_t len;
    struct etcd_key k = { .len = 0 };

    while (*path == '/')
        path++;
    len = strlen(path);
    while (len > 0 && path[len - 1] == '/')
        len--;
    if (len + 3 * strlen(url->ns) + 8 > BASE_MAX)
        return hf__fail(err, HF_EINVAL, 0, url->shown, "URL: the path is too long");
    hf__etcd_key_add(&k, path, len);
    if (len > 0)
        hf__etcd_key_add(&k, "/", 1);
    if (url->ns[0]) {
        hf__etcd_key_add(&k, "/ns/", 4);
        add_name(&k, false, url->ns, strlen(url->ns));
        hf__etcd_key_add(&k, "/", 1);
    }
    memcpy(e->base, k.at, k.len);
    e->base_len = k.len;
    return 0;
}

void hf__etcd_line_key(struct etcd_key *k, const struct etcd *e, const char *name,
                       size_t len)
{
    begin(k, e, "");
    add_name(k, e->raw, name, len);
    hf__etcd_key_add(k, "/", 1);
}

void hf__etcd_cell_key(struct etcd_key *k, const struct etcd *e, const char *name,
                       size_t len)
{
    begin(k, e, "/cell/");
    add_name(k, false, name, len);
}

void hf__etcd_epoch_key(struct etcd_key *k, const struct etcd *e, int64_t lease)
{
    begin(k, e, "/client/");
    k->len += (size_t)sprintf(k->at + k->len, "%" PRIx64, (uint64_t)lease);
}

size_t hf__etcd_node(char *node, int64_t lease, uint64_t number)
{
    return (size_t)sprintf(node, "%" PRIx64 ".%" PRIu64, (uint64_t)lease, number);
}

bool hf__etcd_line_name(const struct etcd *e, const ProtobufCBinaryData *key, char *name,
                        size_t *ret_len)
{
    const char *at = (const char *)key->data + e->base_len;
    const char *end = memchr(at, '/', key->len - e->base_len);
    size_t n = 0;

    if (!end || end == at)
        return false;
    for (; at < end && n < HF_NAME_MAX; at++) {
        char digits[3] = { 0 };

        if (*at != '%') {
            name[n++] = *at;
            continue;
        }
        memcpy(digits, at + 1, end - at > 2 ? 2 : 0);
        if (!hf__unhex(name + n, 1, digits) || (name[n] != '/' && name[n] != '%'))
            return false; /* no name of ours */
        n++;
        at += 2;
    }
    name[n] = '\0';
    *ret_len = n;
    return at == end && hf__utf8_valid(name, n);
}

/* Another program's tickets have none: one that everybody makes the same from the name. */
void hf__etcd_token(unsigned char token[HF_TOKEN], const struct ticket_record *rec,
                    const char *node, size_t len)
{
    uint64_t two[2] = { hf__hash(node, len), ~len };

    if (rec->has_token) {
        memcpy(token, rec->token, HF_TOKEN);
        return;
    }
    two[1] ^= hf__hash(two, sizeof two);
    memcpy(token, two, HF_TOKEN);
}
