/* greet.c: what is said on a new connection for commands before the node is up.
 *
 *   AUTH (login.c), SELECT, CLIENT SETNAME, CLIENT ID, INFO, CONFIG GET of two settings, of
 *   three under Sentinel; for redlock COMMAND INFO of what deletes a key with a certain
 *   value; then CLIENT KILL of the connection before this one, if it is still the same run
 *   of the server: the numbers of connections start anew with each run, and another client
 *   would be hit
 *
 * A refused login or database ends it with its own error. A replica is waited out, but not
 * at first by redlock. Rights
 * that are missing for the rest cost a warning, no more. Settings that break locks are told
 * through the log, and so is what could not be checked. */
#include "driver/redis/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum stage { SELECT, SETNAME, ID, INFO, FSYNC, KNOWS, MINIMUM, SAVE, KILL, LOAD };

struct greeting {
    struct redis_call q;
    enum stage stage;
    const struct script *script; /* LOAD */
};

/* Settings are told once for each run of a server, which may have been given others, or be
 * another server by now. What we may not see or do is told once. */
enum {
    WARN_EVICTION = 1 << 0,
    WARN_FORGETS = 1 << 1,
    WARN_MINIMUM = 1 << 2,
    WARN_ONCE = 1 << 3, /* from here on */
    WARN_NO_INFO = 1 << 3,
    WARN_NO_SAVE = 1 << 4,
    WARN_NO_MINIMUM = 1 << 5,
    WARN_NO_KILL = 1 << 6
};

static void warn(struct node *n, unsigned which, const char *text)
{
    struct env *env = n->redis->store.env;
    unsigned *told = which >= WARN_ONCE ? &n->redis->warned : &n->warned;
    char line[700];

    if (*told & which)
        return;
    *told |= which;
    snprintf(line, sizeof line, "%s: %s", n->shown, text);
    env->log(env, HF_LOG_WARN, NULL, line);
}

/* The value of a line "name:value" of INFO, or "". */
static const char *info(const char *text, const char *name, char *buf, size_t size)
{
    size_t len = strlen(name);
    const char *p = text;

    buf[0] = '\0';
    while (p && *p) {
        if (strncmp(p, name, len) == 0 && p[len] == ':') {
            snprintf(buf, size, "%.*s", (int)strcspn(p + len + 1, "\r\n"), p + len + 1);
            break;
        }
        p = strchr(p, '\n');
        p = p ? p + 1 : NULL;
    }
    return buf;
}

static bool info_is(const char *text, const char *name, const char *value)
{
    char found[48];

    return strcmp(info(text, name, found, sizeof found), value) == 0;
}

/* In seconds, at least. The server counts the whole seconds of its clock that began since
 * its start:
 * 1 may be a moment. */
static int64_t age(const char *text)
{
    char value[48];
    int64_t s = strtoll(info(text, "uptime_in_seconds", value, sizeof value), NULL, 10);

    return s > 0 ? s - 1 : 0;
}

/* A replica may be so because of a failover: its name or address will lead to the new
 * master, and is looked up again for every connection; what Sentinel says of a master may
 * be old. So it counts as unreachable: callers wait, and are told the reason when
 * connect_timeout is over. Redlock wants independent masters: there it is a mistake, unless
 * it was one before. */
static int replica_code(const struct redis *r)
{
    return r->served || r->topology != TOPOLOGY_REDLOCK ? HF_EUNREACHABLE : HF_ENOTSUP;
}

/* Refuses it if it is not a server for us. */
static bool unfit(struct node *n, const char *text)
{
    const struct redis *r = n->redis;
    unsigned a = 0, b = 0, c = 0;
    char value[48];

    sscanf(info(text, "redis_version", value, sizeof value), "%u.%u.%u", &a, &b, &c);
    n->version = a << 16 | b << 8 | c;
    if (n->version != 0 && n->version < 0x060200)
        hf__redis_node_fail(n, HF_ENOTSUP,
                            "Redis %u.%u.%u is too old: 6.2 or later is needed", a, b, c);
    else if (r->topology != TOPOLOGY_CLUSTER && /* there it knows the map */
             info_is(text, "role", "slave"))
        hf__redis_node_fail(n, replica_code(r),
                            "it is a read-only replica: locks need the master");
    else if (r->topology != TOPOLOGY_CLUSTER && info_is(text, "cluster_enabled", "1"))
        hf__redis_node_fail(n, HF_ENOTSUP,
                            "it is a node of a cluster: use redis+cluster://");
    else
        return false;
    return true;
}

/* Of a server that is refused nothing is remembered: behind the same address there may be
 * the one of before again, with our old connection on it. */
static void learn_info(struct node *n, const redisReply *reply)
{
    const char *text = reply->str;
    char value[48], line[300];

    if (reply->type != REDIS_REPLY_STRING)
        warn(n, WARN_NO_INFO,
             "INFO is refused: it was not checked which version it is, whether it is a "
             "master, whether it has persistence, and whether it evicts locks");
    if (reply->type != REDIS_REPLY_STRING || unfit(n, text))
        return;
    info(text, "run_id", value, sizeof value);
    n->same_run = value[0] != '\0' && strcmp(value, n->run_id) == 0;
    if (value[0] != '\0' && !n->same_run) {
        n->old_id = n->echo.lost_ms = 0; /* what was under way ended with the server */
        n->warned = 0;
    }
    snprintf(n->run_id, sizeof n->run_id, "%s", value);
    info(text, "maxmemory_policy", value, sizeof value);
    if (value[0] != '\0' && strcmp(value, "noeviction") != 0 &&
        !info_is(text, "maxmemory", "0")) {
        snprintf(line, sizeof line,
                 "maxmemory-policy is %s: Redis may throw locks away; set it to noeviction",
                 value);
        warn(n, WARN_EVICTION, line);
    }
    n->may_look = true;
    n->started_at = redis_now(n->redis) - 1000000 * age(text);
    n->aof = info_is(text, "aof_enabled", "1");
}

/* In an answer to CONFIG GET the second is the value; without one it is refused, or unknown
 * to the server. */
enum { SETTING = 1 };

static void learn_fsync(struct node *n, const redisReply *reply)
{
    const char *value = hf__redis_reply_text(reply, SETTING);

    n->always = n->aof && value && strcmp(value, "always") == 0;
}

/* With replicas=N we ask for replicas ourselves. */
static void learn_minimum(struct node *n, const redisReply *reply)
{
    const char *value = hf__redis_reply_text(reply, SETTING);

    if (n->redis->replicas > 0)
        return;
    if (!value)
        warn(n, WARN_NO_MINIMUM,
             "CONFIG GET is refused: min-replicas-to-write was not checked");
    else if (strcmp(value, "0") == 0)
        warn(n, WARN_MINIMUM,
             "min-replicas-to-write is 0: a master that was cut off and replaced goes on "
             "granting the same locks; set it to 1 or more, or use replicas=N");
}

static void learn_commands(struct node *n, const redisReply *reply)
{
    bool whole = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2;

    n->frees = FREES_BY_SCRIPT;
    if (whole && reply->element[1]->type == REDIS_REPLY_ARRAY)
        n->frees = FREES_BY_DELEX;
    if (whole && reply->element[0]->type == REDIS_REPLY_ARRAY)
        n->frees = FREES_BY_DELIFEQ;
}

/* Joins of the old connection may still come to be executed, and we may not prevent it. */
static void echoes(struct node *n)
{
    echo_up(&n->echo, redis_now(n->redis));
    warn(n, WARN_NO_KILL,
         "an old connection cannot be ended, because INFO, CLIENT ID or CLIENT KILL is "
         "refused: giving up after a lost connection takes one ttl");
}

static void finish(struct node *n)
{
    n->old_id = n->echo.lost_ms = 0;
    hf__redis_node_ready(n);
}

static void say(struct conn *, enum stage, const struct script *);

static void check_save(struct node *n, const char *value)
{
    if (n->aof || !n->may_look)
        return;
    if (!value)
        warn(n, WARN_NO_SAVE,
             "CONFIG GET is refused: it was not checked whether the server has "
             "persistence, or forgets every lock when it is restarted");
    else if (value[0] == '\0')
        warn(n, WARN_FORGETS,
             "it has no persistence: a restart forgets every lock while its holder "
             "believes in it");
}

/* The last answer. Is there an old connection whose requests may still be executed? */
static void learn_save(struct node *n, const redisReply *reply)
{
    check_save(n, hf__redis_reply_text(reply, SETTING));
    if (n->old_id != 0 && n->same_run) {
        say(&n->commands, KILL, NULL);
        return;
    }
    if (n->echo.lost_ms > 0 && (!n->may_look || n->same_run || !n->run_id[0]))
        echoes(n);
    finish(n);
}

static void learn_kill(struct node *n, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR && n->echo.lost_ms > 0)
        echoes(n);
    finish(n);
}

static void learn_id(struct node *n, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        n->id = reply->integer;
}

/* ---- asking ---------------------------------------------------------------------- */

static const struct {
    const char *words;
    void (*learn)(struct node *, const redisReply *); /* NULL: nothing */
} stages[] = {
    [SELECT] = { "SELECT", NULL },
    [SETNAME] = { "CLIENT SETNAME holdfast", NULL },
    [ID] = { "CLIENT ID", learn_id },
    [INFO] = { "INFO", learn_info },
    [FSYNC] = { "CONFIG GET appendfsync", learn_fsync },
    [KNOWS] = { "COMMAND INFO DELIFEQ DELEX", learn_commands }, /* Valkey 9.0, Redis 8.4 */
    [MINIMUM] = { "CONFIG GET min-replicas-to-write", learn_minimum },
    [SAVE] = { "CONFIG GET save", learn_save },
    [KILL] = { "CLIENT KILL ID", learn_kill },
    [LOAD] = { "SCRIPT LOAD", NULL },
};

static void build(struct redis *r, struct redis_call *q, struct command *c)
{
    const struct greeting *g = container_of(q, struct greeting, q);

    hf__redis_command_words(c, stages[g->stage].words,
                            g->stage == SELECT || g->stage == KILL || g->stage == LOAD);
    if (g->stage == SELECT)
        hf__redis_command_number(c, r->db);
    if (g->stage == KILL)
        hf__redis_command_number(c, q->at->old_id);
    if (g->stage == LOAD)
        hf__redis_command_arg(c, g->script->text, g->script->len);
}

static bool fatal(enum stage stage, const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR &&
           (stage == SELECT || reply_starts(reply, "LOADING") ||
            reply_starts(reply, "NOAUTH") || strstr(reply->str, "max number of clients"));
}

static void answer(struct redis *r, struct redis_call *q, const redisReply *reply)
{
    enum stage stage = container_of(q, struct greeting, q)->stage;
    hf_error err;
    int code;

    if (!reply)
        return;
    if (fatal(stage, reply)) {
        code = hf__redis_reply_error(r, reply, &err);
        if (code == HF_EPROTO)
            code = stage == SELECT ? HF_EINVAL : HF_EUNREACHABLE;
        hf__redis_node_fail(q->at, code, "%s", reply->str);
    } else if (stages[stage].learn) {
        stages[stage].learn(q->at, reply);
    }
}

static void say(struct conn *conn, enum stage stage, const struct script *script)
{
    static const struct request_type type = { .build = build, .answer = answer };
    struct redis_call *q = hf__redis_request_new(&type, sizeof(struct greeting), 0);

    if (!q) {
        hf__redis_node_fail(conn->node, HF_ENOMEM, "no memory for a connection");
        return;
    }
    container_of(q, struct greeting, q)->stage = stage;
    container_of(q, struct greeting, q)->script = script;
    hf__redis_conn_send(conn, q);
}

static bool wanted(const struct redis *r, enum stage s)
{
    return (s != SELECT || r->db > 0) && (s != KNOWS || r->topology == TOPOLOGY_REDLOCK) &&
           (s != MINIMUM || r->topology == TOPOLOGY_SENTINEL);
}

/* Redlock loads its scripts before it uses them: it does not wait for the answers of all
 * nodes, and a NOSCRIPT that nobody reads would leave a key behind. */
void hf__redis_greet(struct conn *conn)
{
    const struct redis *r = conn->node->redis;

    conn->node->may_look = conn->node->same_run = false;
    for (enum stage s = SELECT; s < KILL; s++)
        if (wanted(r, s))
            say(conn, s, NULL);
    for (enum script_id i = SCRIPT_LOCK; i <= SCRIPT_FREE; i++)
        if (r->topology == TOPOLOGY_REDLOCK)
            say(conn, LOAD, &hf__redis_scripts[i]);
}
