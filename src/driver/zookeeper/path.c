/* path.c: names of nodes: where a line is, and what the name of a ticket's node says.
 *
 * A line is the node <root>/<name>; slashes in the name make levels. Its tickets are
 * children:
 *
 *   _c_<uuid>-lock-<seq>               exclusive
 *   _c_<uuid>-read-lock-<seq>          shared
 *   _c_<uuid>-permits.K.N-lock-<seq>   K of N permits
 *   _c_<uuid>-__WRIT__<seq>, _c_<uuid>-__READ__<seq>     with names=rw
 *
 * All of these, and kazoo's __lock__ and __rlock__, are read whatever we write: a form
 * that we failed to count would be a lock granted twice (G1). Other children are
 * ignored.
 *
 * A level of a name must be none of them, and must not stand in the way of other
 * programs. Curator's mutex sorts all children by what follows the last "lock-", or by
 * the whole name: a child that sorts before the numbers makes it wait for ever. So a
 * level is escaped (=HH) where it holds such a mark, and where its first byte is a digit
 * or less, or '_' (our other children). An empty level is "=", and a namespace is one
 * level that begins with "=n", which no name gives. */
#include "driver/zookeeper/zookeeper.h"
#include "util/text.h"

#include <stdio.h>
#include <string.h>

static const char *const marks[] = { "lock-", "__READ__", "__WRIT__", "__lock__",
                                     "__rlock__" };
enum { MARKS = sizeof marks / sizeof marks[0] };

/* ---- levels ---------------------------------------------------------------------- */

static bool mark_at(const char *s, size_t len)
{
    for (size_t i = 0; i < MARKS; i++)
        if (len >= strlen(marks[i]) && memcmp(s, marks[i], strlen(marks[i])) == 0)
            return true;
    return false;
}

/* The bytes of the character here; *bad: the server would not take it. */
static size_t character(const char *s, size_t len, bool *bad)
{
    uint32_t code = 0;
    size_t n = hf__utf8_char(s, len, &code);

    *bad = n == 0 || code < 0x20 || (code >= 0x7f && code <= 0x9f) ||
           (code >= 0xd800 && code <= 0xf8ff) || code >= 0xfff0;
    return n > 0 ? n : 1;
}

static size_t put_level(char *dst, const char *s, size_t len)
{
    size_t to = 0, n;
    bool bad;

    if (len == 0)
        dst[to++] = '=';
    for (size_t i = 0; i < len; i += n) {
        n = character(s + i, len - i, &bad);
        if (bad || s[i] == '=' || s[i] == '/' || mark_at(s + i, len - i) ||
            (i == 0 && (s[0] == '_' || ((unsigned char)s[0] <= '9')))) {
            for (size_t k = 0; k < n; k++)
                to += (size_t)sprintf(dst + to, "=%02X", (unsigned char)s[i + k]);
        } else {
            memcpy(dst + to, s + i, n);
            to += n;
        }
    }
    return to;
}

/* Only what put_level gives is a level of ours: two nodes never mean the same name. */
bool hf__zk_level(char *dst, size_t *ret, const char *level, size_t len)
{
    char again[3 * HF_NAME_MAX + 1];
    size_t n = 0;

    if (len == 0 || len >= sizeof again)
        return false;
    for (size_t i = len == 1 && level[0] == '='; i < len; i++) {
        int byte;

        if (n == HF_NAME_MAX)
            return false;
        if (level[i] != '=') {
            dst[n++] = level[i];
            continue;
        }
        byte = hf__hex_byte(level + i + 1, len - i - 1);
        if (byte < 0)
            return false;
        dst[n++] = (char)byte;
        i += 2;
    }
    *ret = n;
    return !memchr(dst, '/', n) && !memchr(dst, '\0', n) && hf__utf8_valid(dst, n) &&
           put_level(again, dst, n) == len && memcmp(again, level, len) == 0;
}

size_t hf__zk_dir(const struct zk *z, char path[DIR_MAX], const char *name, size_t len)
{
    size_t to = z->root_len, n;

    memcpy(path, z->root, to);
    for (size_t i = 0; i <= len; i += n + 1) {
        const char *slash = memchr(name + i, '/', len - i);

        n = slash ? (size_t)(slash - (name + i)) : len - i;
        path[to++] = '/';
        to += put_level(path + to, name + i, n);
    }
    return to;
}

size_t hf__zk_path(char path[NODE_PATH_MAX], const char *dir, size_t dir_len,
                   const char *node, size_t len)
{
    if (len > NODE_MAX - 1)
        len = NODE_MAX - 1;
    memmove(path, dir, dir_len);
    if (len == 0)
        return dir_len;
    path[dir_len] = '/';
    memcpy(path + dir_len + 1, node, len);
    return dir_len + 1 + len;
}

/* The root as the URL gives it, which is not escaped: it may be another program's. */
int hf__zk_root(char root[ROOT_MAX], const char *path, const char *ns)
{
    size_t n = strlen(path);
    bool bad;

    while (n > 0 && path[n - 1] == '/')
        n--;
    if (n == 0) {
        path = "/holdfast";
        n = strlen(path);
    }
    if (n + 3 * strlen(ns) + 4 > ROOT_MAX || path[0] != '/' || !hf__utf8_valid(path, n))
        return -1;
    for (size_t i = 0; i < n; i += character(path + i, n - i, &bad)) {
        size_t len = strcspn(path + i + 1, "/");

        character(path + i, n - i, &bad);
        if (bad || (path[i] == '/' && (len == 0 || strncmp(path + i + 1, ".", len) == 0 ||
                                       strncmp(path + i + 1, "..", len) == 0)))
            return -1;
    }
    memcpy(root, path, n);
    if (*ns) {
        memcpy(root + n, "/=n", 3);
        n += 3;
        n += put_level(root + n, ns, strlen(ns));
    }
    return (int)n;
}

/* ---- tickets --------------------------------------------------------------------- */

size_t hf__zk_node(const struct zk *z, char node[NODE_MAX], const struct ticket *t)
{
    bool full = t->weight == HF_FULL;
    const char *mark =
        z->names_rw ? (full ? "__WRIT__" : "__READ__") : (full ? "lock-" : "read-lock-");
    static const unsigned char groups[] = { 4, 2, 2, 2, 6 }; /* of a uuid */
    size_t n = 3, at = 0;

    memcpy(node, "_c_", 3);
    for (size_t i = 0; i < sizeof groups; i++) {
        hf__hex(node + n, t->token + at, groups[i]);
        n += 2 * (size_t)groups[i];
        node[n++] = '-';
        at += groups[i];
    }
    if (t->kind == LINE_PERMITS)
        return n + (size_t)snprintf(node + n, NODE_MAX - n, "permits.%lld.%lld-lock-",
                                    (long long)t->weight, (long long)t->capacity);
    memcpy(node + n, mark, strlen(mark));
    return n + strlen(mark);
}

static bool ends(const char *s, size_t len, const char *with)
{
    size_t n = strlen(with);

    return len >= n && memcmp(s + len - n, with, n) == 0;
}

/* "permits.K.N" at the end of what precedes "-lock-". What cannot be right is exclusive. */
static void read_permits(struct form *f, const char *s, size_t len)
{
    char text[64];
    long long k, n;
    int used = 0;
    size_t from = len;

    while (from > 0 && s[from - 1] != '-')
        from--;
    if (from == 0 || len - from >= sizeof text || s[from] != 'p')
        return;
    memcpy(text, s + from, len - from);
    text[len - from] = '\0';
    if (sscanf(text, "permits.%lld.%lld%n", &k, &n, &used) != 2 || text[used] != '\0' ||
        k < 1 || n < k || n > UINT32_MAX)
        return;
    f->place.kind = LINE_PERMITS;
    f->place.weight = k;
    f->place.capacity = n;
    f->renames = false;
}

/* What stands before the number. */
static bool read_mark(struct form *f, const char *s, size_t len)
{
    f->place.kind = LINE_LOCK;
    f->place.weight = f->place.capacity = HF_FULL;
    f->renames = ends(s, len, "-lock-");
    if (ends(s, len, "-read-lock-") || ends(s, len, "__READ__") ||
        ends(s, len, "__rlock__")) {
        f->place.weight = 1;
        f->renames = false;
    } else if (f->renames) {
        read_permits(f, s, len - 6);
    } else {
        return ends(s, len, "__WRIT__") || ends(s, len, "__lock__") ||
               (len == 5 && ends(s, len, "lock-"));
    }
    return true;
}

/* The number is ten digits, or after 2^31 tickets a negative one that is as wide. */
bool hf__zk_form(struct form *f, const char *node, size_t len)
{
    size_t at = len;
    int64_t seq = 0;

    while (at > 0 && len - at < 10 && node[at - 1] >= '0' && node[at - 1] <= '9')
        at--;
    for (size_t i = at; i < len; i++)
        seq = seq * 10 + (node[i] - '0');
    f->digits = at;
    f->place.seq = seq;
    if (len - at == 10 && read_mark(f, node, at))
        return true;
    if (len - at >= 9 && at > 0 && node[at - 1] == '-' && read_mark(f, node, at - 1)) {
        f->digits = at - 1;
        f->place.seq = -seq;
        return true;
    }
    return false;
}

/* What names a ticket in a look, also one of another program. */
void hf__zk_form_token(unsigned char token[HF_TOKEN], const char *node, size_t len)
{
    char digits[2 * HF_TOKEN + 1];
    size_t n = 0, at = len > 3 && memcmp(node, "_c_", 3) == 0 ? 3 : 0;
    uint64_t hash;

    for (; at < len && n < 2 * HF_TOKEN; at++)
        if (node[at] != '-')
            digits[n++] = node[at];
    digits[n] = '\0';
    if (n == 2 * HF_TOKEN && hf__unhex(token, HF_TOKEN, digits))
        return;
    hash = hf__hash(node, len);
    memcpy(token, &hash, sizeof hash);
    hash = hf__hash(token, sizeof hash) ^ len;
    memcpy(token + sizeof hash, &hash, sizeof hash);
}
