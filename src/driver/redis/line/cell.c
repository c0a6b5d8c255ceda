/* cell.c: one small record per name beside its line, by one script per verb. A verb that
 * changes something and is not answered is HF_EUNREACHABLE: it may or may not have
 * happened. */
#include "driver/redis/redis.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void build(struct redis *r, const struct redis_query *k, struct command *c)
{
    static const char *const verbs[] = { "get", "put", "add", "del" };
    const struct cell *cell = k->query.cell;
    char key[KEY_MAX];

    hf__redis_request_script(c, &k->q, SCRIPT_CELL, 2, 6);
    hf__redis_command_arg(c, key, hf__redis_bucket_key(r, key, 'c', k->name, k->name_len));
    hf__redis_command_arg(c, key, hf__redis_bucket_mark(r, key, k->q.bucket));
    hf__redis_command_text(c, hf__redis_node_sharded(k->q.at) ? "SPUBLISH" : "PUBLISH");
    hf__redis_command_text(c, verbs[cell->verb]);
    if (cell->if_any)
        hf__redis_command_text(c, "");
    else
        hf__redis_command_number(c, (int64_t)cell->if_version);
    hf__redis_command_number(c, cell->add);
    hf__redis_command_number(c, cell->ttl_ms);
    hf__redis_command_arg(c, cell->value, cell->verb == CELL_PUT ? cell->value_len : 0);
}

static bool whole(const redisReply *reply)
{
    return hf__redis_reply_text(reply, 2) && reply->elements == 4 &&
           reply->element[2]->len <= HF_CELL_MAX;
}

static int read_cell(struct redis *r, struct cell *cell, const redisReply *reply,
                     hf_error *err)
{
    const redisReply *data;

    if (!whole(reply))
        return hf__redis_reply_error(r, reply, err);
    data = reply->element[2];
    memcpy(cell->value, data->str, data->len);
    cell->value_len = data->len;
    cell->version = (uint64_t)hf__redis_reply_number(reply, 1);
    if (cell->verb == CELL_ADD)
        cell->number = strtoll(data->str, NULL, 10);
    switch (hf__redis_reply_number(reply, 0)) {
    case 0:
        return 0;
    case -1:
        return hf__fail(err, HF_EBUSY, 0, r->open.shown, "the cell has another version");
    default:
        return hf__fail(err, HF_EINVAL, 0, r->open.shown,
                        "the cell holds no number, or the sum is too great");
    }
}

static int read_answer(struct redis *r, struct redis_query *k, const redisReply *reply,
                       hf_error *err)
{
    struct cell *cell = k->query.cell;
    int rc = read_cell(r, cell, reply, err);

    cell->again_at =
        hf__redis_follow_next(r, rc == 0 ? hf__redis_reply_number(reply, 3) : -1, true);
    return rc;
}

void hf__redis_cell(struct store *s, struct cell *cell)
{
    static const struct query_type type = { build, read_answer };

    if (cell->follow)
        hf__redis_follow_start(redis_of(s), NULL, cell);
    hf__redis_query_send(redis_of(s), &type, NULL, cell);
}
