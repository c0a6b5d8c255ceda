/* fuzz_jute.c: whatever a server sends: frames, greetings, answers and their bodies,
 * names of nodes and what stands in them. Nothing is read beyond its end, and names that
 * are taken for levels of ours are exactly those that we would write. */
#include "driver/zookeeper/zookeeper.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void message(const uint8_t *bytes, size_t len)
{
    struct jute_session session;
    struct jute_reply reply;
    struct jute_stat stat;
    struct jute_in body;
    struct jute_text text;

    hf__jute_connected(bytes, len, &session);
    if (!hf__jute_reply(bytes, len, &reply))
        return;
    body = reply.body;
    hf__jute_multi_error(&body);
    body = reply.body;
    text = hf__jute_text(&body);
    if (text.len > 0 && (text.at[0] ^ text.at[text.len - 1]) == 0x7f)
        hf__jute_int(&body);
    hf__jute_stat(&body, &stat);
    body = reply.body;
    for (size_t n = hf__jute_count(&body, 4); n > 0 && !body.bad; n--)
        hf__jute_text(&body);
}

static void name(const char *bytes, size_t len)
{
    char level[HF_NAME_MAX], path[DIR_MAX];
    unsigned char token[HF_TOKEN];
    static struct zk z;
    struct form form;
    size_t n, m;

    if (hf__zk_form(&form, bytes, len)) {
        if (form.digits > len || form.place.weight < 1 ||
            form.place.weight > form.place.capacity)
            abort();
        hf__zk_form_token(token, bytes, len);
        if (hf__zk_level(level, &n, bytes, len))
            abort(); /* a ticket is never a level */
    }
    if (hf__zk_level(level, &n, bytes, len)) {
        m = hf__zk_dir(&z, path, level, n);
        if (m != len + 1 || memcmp(path + 1, bytes, len) != 0)
            abort();
    }
    if (len <= HF_NAME_MAX && len > 0 && hf__utf8_valid(bytes, len) &&
        !memchr(bytes, 0, len)) {
        m = hf__zk_dir(&z, path, bytes, len);
        for (size_t at = 1, end; at <= m;
             at = end + 1) { /* every level means itself again */
            for (end = at; end < m && path[end] != '/'; end++)
                ;
            if (!hf__zk_level(level, &n, path + at, end - at) ||
                hf__zk_form(&form, path + at, end - at))
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static char marked[RECORD_MAX];
    static struct ticket_record rec;
    int64_t n = hf__jute_length(bytes, len);

    message(bytes, len);
    if (n >= 4 && (size_t)n <= len)
        message(bytes + 4, (size_t)n - 4);
    name((const char *)bytes, len);
    hf__record_read(&rec, (const char *)bytes, len);
    if (rec.hints_len > sizeof rec.hints)
        abort();
    hf__record_set(marked, (const char *)bytes, len, "broken\n");
    return 0;
}
