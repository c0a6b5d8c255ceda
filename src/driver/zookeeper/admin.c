/* admin.c: the nodes that must be there where clients may not make them, and the rights on
 * the last of them, as lines for zkCli.sh. Whoever has a login makes nodes for itself only,
 * so the root is given to that login; its password is left to be filled in. */
#include "driver/zookeeper/zookeeper.h"
#include "util/text.h"

#include <string.h>

/* As zkCli.sh reads a word: quoted if there is a space in it. */
static void add_line(struct text *t, const char *word, const char *path, size_t len,
                     const char *rest)
{
    bool plain = strcspn(path, " \t'\"") >= len;
    const char *quote = plain ? "" : memchr(path, '\'', len) ? "\"" : "'";

    hf__text_add(t, "%s %s%.*s%s%s\n", word, quote, (int)len, path, quote, rest);
}

char *hf__zk_admin(const struct url *url, hf_error *err)
{
    const char *auth = hf__url_param(url, "auth"), *login = auth ? auth : url->user;
    char root[ROOT_MAX], *made;
    int n = hf__zk_root(root, url->path, url->ns);
    struct text t = { 0 };

    if (n < 0) {
        hf__fail(err, HF_EINVAL, 0, url->shown,
                 "URL: '%s' is not a path of ZooKeeper, or too long", url->path);
        return NULL;
    }
    if (login)
        hf__text_add(&t, "addauth digest %.*s:PASSWORD\n", (int)strcspn(login, ":"), login);
    for (size_t i = 1, len = (size_t)n; i <= len; i++)
        if (i == len || root[i] == '/')
            add_line(&t, "create", root, i, "");
    add_line(&t, "setAcl", root, (size_t)n, login ? " auth::cra" : " world:anyone:cr");
    made = hf__text_take(&t);
    if (!made)
        hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for a text");
    return made;
}
