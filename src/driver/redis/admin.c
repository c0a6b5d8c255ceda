/* admin.c: the rights that a user of the server needs, as holdfast-url(7) has them: the
 * line for redis-cli that gives them. What a server may not know (commands that came with
 * Redis 7) stands in a line of its own, because an unknown command makes a line fail. A URL
 * without a user gets a placeholder: the user `default` is all who do not log in, and would
 * be left with nothing else. */
#include "driver/redis/redis.h"
#include "util/text.h"

#include <ctype.h>
#include <string.h>

static const char of_lines[] =
    "-@all +auth +select +client|id +client|kill +client|setname +info +config|get +wait"
    " +evalsha +eval +time +exists +del +set +hset +hget +hmget +hgetall +hdel +hincrby"
    " +zadd +zrem +zrange +zrank +pexpireat +persist +pttl +publish +subscribe +unsubscribe"
    " +scan";
static const char of_cluster[] = " +cluster|slots +asking";
static const char of_shards[] = "+spublish +ssubscribe +sunsubscribe";
static const char of_redlock[] =
    "-@all +auth +select +evalsha +eval +script|load +get +set +del +hmget +hset +pexpire"
    " +pttl +type +publish +subscribe +unsubscribe +info +config|get +client|id "
    "+client|kill"
    " +client|setname +command|info";

/* As redis-cli reads a word. */
static void add_user(struct text *t, const char *user)
{
    bool plain = true;

    for (const char *p = user; *p; p++)
        plain = plain && (isalnum((unsigned char)*p) || strchr("_-.@:", *p));
    hf__text_add(t, "ACL SETUSER %s", plain ? "" : "\"");
    for (; *user; user++)
        if (plain || isalnum((unsigned char)*user))
            hf__text_add(t, "%c", *user);
        else
            hf__text_add(t, "\\x%02x", (unsigned)(unsigned char)*user);
    hf__text_add(t, plain ? " " : "\" ");
}

char *hf__redis_admin(const struct url *url, hf_error *err)
{
    const char *user = url->user && url->user[0] ? url->user : "USER", *colon;
    bool cluster = strstr(url->scheme, "+cluster") != NULL;
    char ns[PREFIX_MAX - 16], *made;
    struct text t = { 0 };

    if (hf__redis_bucket_escape(ns, sizeof ns, url->ns) < 0) {
        hf__fail(err, HF_EINVAL, 0, url->shown, "URL: the namespace is too long");
        return NULL;
    }
    add_user(&t, user);
    colon = ns[0] ? ":" : "";
    if (hf__redis_wants_redlock(url)) /* its keys are the names */
        hf__text_add(&t, "on ~%s%s* ~holdfast:redlock:* &%s%s* &holdfast:redlock:* %s\n",
                     ns, colon, ns, colon, of_redlock);
    else
        hf__text_add(&t, "on ~holdfast:%s:* &holdfast:%s:* %s%s\n", ns, ns, of_lines,
                     cluster ? of_cluster : "");
    if (cluster) {
        add_user(&t, user);
        hf__text_add(&t, "%s\n", of_shards);
    }
    made = hf__text_take(&t);
    if (!made)
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a text");
    return made;
}
