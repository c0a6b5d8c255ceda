/* record.c: what stands in the node of a ticket: who it is. Text, so that it can be read
 * with any tool, and by other programs:
 *
 *   holdfast 1
 *   broken                     only if it is to end (holdfast break)
 *   owner 3f2a...e1 17         the owner: its process's random number in hex, and a
 *                              number there
 *   host NAME
 *   pid 1234
 *   since 1763190000123        when it joined, ms since 1970 by its own clock
 *   ttl 30000                  ms: the time-out of its session
 *   token 0123...ef            with mode=ephemeral: such nodes have no name of their own
 *   fence 4294967301           only if the node is not its first (it has become shared)
 *   holds NAME                 at most 16; '%', controls as %HH
 *   note TEXT                  to the end
 *
 * The first line counts; the others may come in any order, but for the note. What
 * another program has written, or what cannot be read, says nothing. */
#include "driver/zookeeper/zookeeper.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "holdfast 1\n", mark[] = "broken\n";

static size_t put_name(char *to, const char *name)
{
    size_t n = 0;

    for (; *name; name++)
        if (*name == '%' || (unsigned char)*name < 0x20)
            n += (size_t)sprintf(to + n, "%%%02X", (unsigned)(unsigned char)*name);
        else
            to[n++] = *name;
    return n;
}

size_t hf__zk_record_write(char to[RECORD_MAX], const struct zk *z, const struct ticket *t,
                           uint64_t fence, bool broken)
{
    size_t n = (size_t)sprintf(
        to,
        "%s%sowner %016" PRIx64 " %" PRIu64 "\nhost %s\npid %" PRId64 "\nsince %" PRId64
        "\nttl %d\n",
        head, broken ? mark : "", t->owner.process, t->owner.number, z->open.host,
        z->open.pid, z->store.env->wall(z->store.env) / 1000, z->session.timeout_ms);

    if (z->alone) {
        n += (size_t)sprintf(to + n, "token ");
        hf__hex(to + n, t->token, HF_TOKEN);
        n += 2 * HF_TOKEN;
        to[n++] = '\n';
    }
    if (fence > 0)
        n += (size_t)sprintf(to + n, "fence %" PRIu64 "\n", fence);
    for (size_t i = 0; i < t->hints_len; i += strlen(t->hints + i) + 1) {
        n += (size_t)sprintf(to + n, "holds ");
        n += put_name(to + n, t->hints + i);
        to[n++] = '\n';
    }
    if (t->note[0]) {
        n += (size_t)sprintf(to + n, "note ");
        memcpy(to + n, t->note, strlen(t->note));
        n += strlen(t->note);
    }
    return n;
}

static void read_hint(struct record *rec, const char *s, size_t len)
{
    size_t n = rec->hints_len;

    if (len == 0 || len > 3 * HF_NAME_MAX)
        return;
    for (size_t i = 0; i < len; i++) {
        int byte = s[i] == '%' ? hf__zk_byte(s + i + 1, len - i - 1) : s[i];

        if (n + 1 >= sizeof rec->hints || n - rec->hints_len == HF_NAME_MAX)
            return;
        if (s[i] == '%' && byte <= 0)
            return;
        rec->hints[n++] = (char)byte;
        i += s[i] == '%' ? 2 : 0;
    }
    rec->hints[n++] = '\0';
    rec->hints_len = n;
}

static void read_field(struct record *rec, const char *line, size_t len)
{
    char text[300];

    if (len >= 6 && memcmp(line, "holds ", 6) == 0) {
        read_hint(rec, line + 6, len - 6);
        return;
    }
    if (len >= sizeof text)
        return;
    memcpy(text, line, len);
    text[len] = '\0';
    if (strcmp(text, "broken") == 0)
        rec->broken = true;
    else if (sscanf(text, "owner %" SCNx64 " %" SCNu64, &rec->owner.process,
                    &rec->owner.number) == 2)
        return;
    else if (strncmp(text, "host ", 5) == 0)
        snprintf(rec->host, sizeof rec->host, "%.255s", text + 5);
    else if (strncmp(text, "token ", 6) == 0)
        rec->has_token = hf__unhex(rec->token, HF_TOKEN, text + 6);
    else if (sscanf(text, "pid %" SCNd64, &rec->pid) == 1 ||
             sscanf(text, "ttl %" SCNd64, &rec->ttl_ms) == 1 ||
             sscanf(text, "fence %" SCNu64, &rec->fence) == 1)
        return;
}

void hf__zk_record_read(struct record *rec, const char *data, size_t len)
{
    const char *end = data + len;

    memset(rec, 0, sizeof *rec);
    rec->ttl_ms = -1;
    if (len < sizeof head - 1 || memcmp(data, head, sizeof head - 1) != 0)
        return;
    for (const char *at = data + sizeof head - 1; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);

        if ((size_t)(end - at) >= 5 && memcmp(at, "note ", 5) == 0) {
            n = (size_t)(end - at) - 5;
            if (n <= HF_NOTE_MAX && !memchr(at + 5, '\0', n))
                memcpy(rec->note, at + 5, n);
            break;
        }
        read_field(rec, at, n);
        at += n + 1;
    }
}

size_t hf__zk_record_mark(char to[RECORD_MAX], const char *data, size_t len)
{
    size_t first = sizeof head - 1;

    if (len < first || memcmp(data, head, first) != 0 || len + sizeof mark > RECORD_MAX)
        return 0;
    memcpy(to, data, first);
    memcpy(to + first, mark, sizeof mark - 1);
    memcpy(to + first + sizeof mark - 1, data + first, len - first);
    return len + sizeof mark - 1;
}
