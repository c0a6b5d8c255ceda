/* brief.c: how much of a line is taken: one list of its children, from which everybody can
 * compute who holds (kit/ordered.h), and nothing else. No sync goes before it: a server
 * that lags behind the others answers with an older line. With mode=ephemeral: whether the
 * one node is there. */
#include "driver/zookeeper/zookeeper.h"

#include <string.h>

struct zk_brief {
    struct request q;
    struct query query;
};

static struct zk_brief *of(struct request *q)
{
    return container_of(q, struct zk_brief, q);
}

static int read_children(struct look *look, struct jute_reply *reply, hf_error *err)
{
    struct ordered_entry **entries = NULL;
    size_t n = 0;

    if (!hf__zk_line_read(&reply->body, &entries, &n))
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a look");
    if (n > 0) {
        struct row row = hf__ordered_row(look->name, look->name_len, entries, n);

        ev_row(look, &row);
    }
    hf__ordered_entries_free(entries, n);
    return 0;
}

static void show_alone(struct look *look)
{
    struct row row = { .name = look->name,
                       .name_len = look->name_len,
                       .kind = LINE_LOCK,
                       .capacity = HF_FULL,
                       .weight = HF_FULL,
                       .holders = 1,
                       .oldest_ms = -1 };

    ev_row(look, &row);
}

static void answer(struct zk *z, struct request *q, struct jute_reply *reply)
{
    struct look *look = of(q)->query.look;
    hf_error err;
    int rc = 0;

    if (!look)
        return;
    if (!reply || (reply->err != 0 && reply->err != JUTE_NO_NODE))
        rc = hf__zk_error(z, reply, &err);
    else if (reply->err == 0 && z->alone)
        show_alone(look);
    else if (reply->err == 0)
        rc = read_children(look, reply, &err);
    hf__query_end(&of(q)->query, rc, &err);
}

void hf__zk_brief(struct zk *z, struct look *look)
{
    static const char node[] = "/_ephemeral";
    struct request *q = hf__zk_try_request(answer, sizeof(struct zk_brief));
    char path[NODE_PATH_MAX];
    size_t len;

    if (!q) {
        hf__query_refuse(look, NULL, HF_ENOMEM, NULL, "no memory for a look");
        return;
    }
    hf__query_begin(&of(q)->query, look, NULL);
    len = hf__zk_dir(z, path, look->name, look->name_len);
    if (z->alone)
        memcpy(path + len, node, sizeof node);
    hf__zk_send_path(z, q, z->alone ? JUTE_EXISTS : JUTE_GET_CHILDREN2, path,
                     z->alone ? len + sizeof node - 1 : len);
}
