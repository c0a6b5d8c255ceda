/* secret.c: see secret.h. Errs on the side of hiding: a name too long for any option that
 * we know counts as secret, and everything up to the last '@' before the path as the
 * login, as url.c reads it. */
#include "util/secret.h"

#include "util/text.h"

#include <stdlib.h>
#include <string.h>

bool hf__secret_name(const char *key, size_t n)
{
    static const char *const words[] = { "pass", "auth", "secret", "token", "pwd" };
    char name[64];
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)key[i];

        if (c == '%' && hf__hex_byte(key + i + 1, n - i - 1) >= 0) {
            c = hf__hex_byte(key + i + 1, n - i - 1);
            i += 2;
        }
        if (len + 1 == sizeof name)
            return true; /* nothing that we know */
        name[len++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    name[len] = '\0';
    if (len > 5 && strcmp(name + len - 5, "_file") == 0)
        return false; /* where it is, not what it is */
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        if (strstr(name, words[w]))
            return true;
    return false;
}

/* Where the host begins: behind the login, at the '@'. *ret_end is where what may be shown
 * of the login ends. NULL: no login, and *ret_end stays. */
static const char *behind_login(const char *url, const char **ret_end)
{
    const char *s = strchr(url, ':'), *at, *colon;

    if (!s || strncmp(s, "://", 3) != 0)
        return NULL;
    s += 3;
    at = memrchr(s, '@', strcspn(s, "/?"));
    if (!at)
        return NULL;
    colon = memchr(s, ':', (size_t)(at - s));
    *ret_end = colon ? colon : at;
    return at;
}

char *hf__without_secrets(const char *url)
{
    char *out = malloc(2 * strlen(url) + 1), *o = out; /* "?pwd=x" becomes "?pwd=***" */
    const char *end = url, *rest = behind_login(url, &end), *p;
    size_t len;

    if (!out)
        return NULL;
    o = mempcpy(o, url, (size_t)(end - url));
    rest = rest ? rest : url;
    p = rest + strcspn(rest, "?");
    o = mempcpy(o, rest, (size_t)(p - rest));
    for (; *p; p += len) { /* at the '?' or '&' before an option */
        size_t name = strcspn(p + 1, "=&");

        len = strcspn(p + 1, "&") + 1;
        if (name + 2 < len && hf__secret_name(p + 1, name)) {
            o = mempcpy(o, p, name + 2);
            o = mempcpy(o, "***", 3);
        } else {
            o = mempcpy(o, p, len);
        }
    }
    *o = '\0';
    return out;
}
