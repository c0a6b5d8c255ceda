/* url.c: scheme:[//[user[:password]@]host[:port][,host...]][/path][?key=value&...]
 *
 * Strict on purpose: a URL with a typing error must not open another store than the one
 * meant. So bad escapes, empty hosts, unknown and repeated keys are refused, and the text
 * says which. A refusal never quotes the whole URL, not even less its secrets: in one that
 * is mistyped they may stand where nobody expects them (redis:/:secret@h, ?pasword=secret).
 * Hosts and options are named by their number too, for where a quote could give one away.
 */
#include "core/url.h"

#include "core/spin.h"
#include "util/secret.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_MS = 5000, NAMESPACE_MAX = 64 };

/* Decodes [s, e) into a new string; what names the part in the error. */
static int decode(char **ret, const char *s, const char *e, const char *what, hf_error *err)
{
    char *out = malloc((size_t)(e - s) + 1), *o = out;

    if (!out)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for the URL");
    for (; s < e; s++) {
        int c = (unsigned char)*s;

        if (c == '%') {
            c = hf__hex_byte(s + 1, (size_t)(e - s) - 1);
            s += 2;
        }
        if (c <= 0) { /* %00 too: the parts are strings */
            free(out);
            return hf__fail(err, HF_EINVAL, 0, NULL, "URL: bad %%-escape in the %s", what);
        }
        *o++ = (char)c;
    }
    *o = '\0';
    if (!hf__utf8_valid(out, (size_t)(o - out))) {
        free(out);
        return hf__fail(err, HF_EINVAL, 0, NULL, "URL: the %s is not UTF-8", what);
    }
    *ret = out;
    return 0;
}

static int take_scheme(struct url *u, const char **p, hf_error *err)
{
    const char *colon = strchr(*p, ':');
    size_t n = colon ? (size_t)(colon - *p) : 0;

    if (n == 0 || n > 32 || strspn(*p, "abcdefghijklmnopqrstuvwxyz0123456789+.-") != n)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "URL: must start with a scheme such as local: or redis://");
    u->scheme = strndup(*p, n);
    if (!u->scheme)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for the URL");
    *p = colon + 1;
    return 0;
}

static int parse_port(const char *s, const char *e, uint16_t *ret)
{
    unsigned n = 0;

    if (s == e || e - s > 5)
        return -1;
    for (; s < e; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        n = n * 10 + (unsigned)(*s - '0');
    }
    if (n == 0 || n > 65535)
        return -1;
    *ret = (uint16_t)n;
    return 0;
}

static int take_host(struct url *u, const char *s, const char *e, hf_error *err)
{
    struct url_host *hosts = realloc(u->hosts, (u->nhosts + 1) * sizeof *hosts), *h;
    const char *he = e, *port = NULL;
    char what[48];
    int rc;

    if (!hosts)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for the URL");
    u->hosts = hosts;
    h = &hosts[u->nhosts];
    memset(h, 0, sizeof *h);
    if (s < e && *s == '[') {
        const char *close = memchr(s, ']', (size_t)(e - s));

        if (!close || (close + 1 < e && close[1] != ':'))
            return hf__fail(err, HF_EINVAL, 0, NULL, "URL: bad [address] as host %zu",
                            u->nhosts + 1);
        port = close + 1 < e ? close + 2 : NULL;
        s++;
        he = close;
    } else {
        const char *colon = memchr(s, ':', (size_t)(e - s));

        if (colon) {
            he = colon;
            port = colon + 1;
        }
    }
    if (s == he)
        return hf__fail(err, HF_EINVAL, 0, NULL, "URL: host %zu is empty", u->nhosts + 1);
    /* what stands there may be a password in which a '/' was not escaped */
    if (port && parse_port(port, e, &h->port) < 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "URL: bad port number after host %zu%s",
                        u->nhosts + 1,
                        strchr(e, '@') ? "; in a password '/' is written as %2F" : "");
    snprintf(what, sizeof what, "name of host %zu", u->nhosts + 1);
    rc = decode(&h->host, s, he, what, err);
    if (rc == 0)
        u->nhosts++;
    return rc;
}

static int take_authority(struct url *u, const char *s, const char *e, hf_error *err)
{
    const char *at = NULL;
    int rc = 0;

    for (const char *p = s; p < e; p++)
        if (*p == '@')
            at = p; /* the last one: a password may have one that was not escaped */
    if (at) {
        const char *colon = memchr(s, ':', (size_t)(at - s));

        rc = decode(&u->user, s, colon ? colon : at, "user", err);
        if (rc == 0 && colon)
            rc = decode(&u->password, colon + 1, at, "password", err);
        s = at + 1;
        if (rc == 0 && s == e && *e != '/') /* user@/path: a socket, say */
            return hf__fail(err, HF_EINVAL, 0, NULL, "URL: no host after the user");
    }
    while (rc == 0 && s < e) {
        const char *comma = memchr(s, ',', (size_t)(e - s));

        rc = take_host(u, s, comma ? comma : e, err);
        s = comma ? comma + 1 : e;
        if (rc == 0 && comma && s == e)
            rc = hf__fail(err, HF_EINVAL, 0, NULL, "URL: host %zu is empty", u->nhosts + 1);
    }
    return rc;
}

static int add_param(struct url *u, char *key, char *value, hf_error *err)
{
    struct url_param *params;

    if (hf__url_param(u, key))
        return hf__fail(err, HF_EINVAL, 0, NULL, "URL: option '%s' is given twice", key);
    params = realloc(u->params, (u->nparams + 1) * sizeof *params);
    if (!params)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for the URL");
    u->params = params;
    params[u->nparams++] = (struct url_param){ key, value };
    return 0;
}

/* One option of the query, [s, e), and how a refusal names it. */
struct option {
    const char *s, *eq, *e; /* eq: NULL if there is none */
    char label[96];         /* "option 2 ('ttl')" */
};

/* Behind a secret only the number is shown: the text may be the rest of a password with a
 * bare
 * '&' in it. So it is where no '=' tells the name from the value. */
static void next_option(struct option *o, const char *s, unsigned number, bool after_secret)
{
    char name[64];
    const char *end;

    o->s = s;
    o->e = s + strcspn(s, "&");
    o->eq = memchr(s, '=', (size_t)(o->e - s));
    end = o->eq ? o->eq : o->e;
    hf__escape(name, sizeof name, s, (size_t)(end - s));
    if (end == s || after_secret ||
        (!o->eq &&
         (hf__secret_name(s, (size_t)(end - s)) || memchr(s, '@', (size_t)(end - s)))))
        snprintf(o->label, sizeof o->label, "option %u", number);
    else
        snprintf(o->label, sizeof o->label, "option %u ('%s')", number, name);
}

static int take_option(struct url *u, const struct option *o, hf_error *err)
{
    char what[128], *key = NULL, *value = NULL;
    int rc;

    if (o->e == o->s || o->eq == o->s)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "URL: %s has no name: options have the form key=value, with '&' "
                        "between them",
                        o->label);
    if (!o->eq)
        return hf__fail(err, HF_EINVAL, 0, NULL, "URL: %s: options have the form key=value",
                        o->label);
    snprintf(what, sizeof what, "name of %s", o->label);
    rc = decode(&key, o->s, o->eq, what, err);
    /* hf__url_known looks for keys among words with spaces between them */
    if (rc == 0 && strchr(key, ' '))
        rc = hf__fail(err, HF_EINVAL, 0, NULL, "URL: %s: no option is called so", o->label);
    snprintf(what, sizeof what, "value of %s", o->label);
    if (rc == 0)
        rc = decode(&value, o->eq + 1, o->e, what, err);
    if (rc == 0)
        rc = add_param(u, key, value, err);
    if (rc < 0) {
        free(key);
        free(value);
    }
    return rc;
}

static int take_query(struct url *u, const char *s, hf_error *err)
{
    bool after_secret = false;
    struct option o;
    int rc = 0;

    for (unsigned number = 1; rc == 0 && *s; number++) {
        next_option(&o, s, number, after_secret);
        rc = take_option(u, &o, err);
        after_secret =
            after_secret || (rc == 0 && hf__secret_name(o.s, (size_t)(o.eq - o.s)));
        s = *o.e ? o.e + 1 : o.e;
    }
    return rc;
}

/* Takes one parameter out of the list; NULL: not given. The caller frees it. */
static char *pull(struct url *u, const char *key)
{
    for (size_t i = 0; i < u->nparams; i++)
        if (strcmp(u->params[i].key, key) == 0) {
            char *value = u->params[i].value;

            free(u->params[i].key);
            u->nparams--;
            memmove(&u->params[i], &u->params[i + 1],
                    (u->nparams - i) * sizeof u->params[0]);
            return value;
        }
    return NULL;
}

static int pull_time(struct url *u, const char *key, int64_t *ret, hf_error *err)
{
    char *text = pull(u, key);
    int rc = 0;

    if (text && (!hf__parse_time(text, ret) || *ret <= 0))
        rc = hf__fail(err, HF_EINVAL, 0, NULL,
                      "URL: %s=%s: wants a time such as 500ms, 30s, 5m; at most 366 days",
                      key, text);
    free(text);
    return rc;
}

static int pull_spin(struct url *u, hf_error *err)
{
    char *text = pull(u, "spin");
    size_t n = text ? strlen(text) : 0;
    int rc = 0;

    if (text && strcmp(text, "auto") != 0) {
        if (n > 0 && n <= 6 && strspn(text, "0123456789") == n)
            u->spin_us = strtol(text, NULL, 10);
        else
            u->spin_us = SPIN_MOST_US + 1;
        if (u->spin_us == 0)
            u->spin_us = HF_SPIN_NEVER;
        if (u->spin_us > SPIN_MOST_US)
            rc =
                hf__fail(err, HF_EINVAL, 0, NULL,
                         "URL: spin=%s: wants auto, 0, or µs up to %d", text, SPIN_MOST_US);
    }
    free(text);
    return rc;
}

static int take_common(struct url *u, hf_error *err)
{
    int rc;

    u->connect_ms = CONNECT_MS;
    rc = pull_time(u, "ttl", &u->ttl_ms, err);
    if (rc == 0)
        rc = pull_time(u, "connect_timeout", &u->connect_ms, err);
    if (rc == 0)
        rc = pull_spin(u, err);
    if (rc < 0)
        return rc;
    u->ns = pull(u, "namespace");
    if (!u->ns)
        u->ns = strdup("");
    if (!u->ns)
        return hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for the URL");
    if (strlen(u->ns) > NAMESPACE_MAX)
        return hf__fail(err, HF_EINVAL, 0, NULL, "URL: namespace= is longer than %d bytes",
                        NAMESPACE_MAX);
    return 0;
}

static int parse(struct url *u, const char *text, hf_error *err)
{
    const char *p = text;
    size_t path;
    int rc;

    if (strlen(text) > HF_URL_MAX)
        return hf__fail(err, HF_EINVAL, 0, NULL, "URL: longer than %d bytes", HF_URL_MAX);
    rc = take_scheme(u, &p, err);
    if (rc == 0 && strchr(p, '#'))
        rc = hf__fail(err, HF_EINVAL, 0, NULL, "URL: '#' must be written as %%23");
    if (rc == 0 && strncmp(p, "//", 2) == 0) {
        size_t n = strcspn(p + 2, "/?");

        rc = take_authority(u, p + 2, p + 2 + n, err);
        p += 2 + n;
    }
    if (rc < 0)
        return rc;
    path = strcspn(p, "?");
    /* The rest of a password with a bare '/' in it, of which a part was taken for a host?
     * It would be shown wherever the store is named. */
    if (u->nhosts && memchr(p, '@', path))
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "URL: '@' behind the host: in a password '/' must be written as "
                        "%%2F, in a path '@' as %%40");
    rc = decode(&u->path, p, p + path, "path", err);
    if (rc == 0 && p[path] == '?')
        rc = take_query(u, p + path + 1, err);
    if (rc == 0) {
        u->shown = hf__without_secrets(text);
        rc = u->shown ? take_common(u, err)
                      : hf__fail(err, HF_ENOMEM, 0, NULL, "no memory for the URL");
    }
    return rc;
}

int hf__url_parse(struct url *u, const char *text, hf_error *err)
{
    int rc;

    memset(u, 0, sizeof *u);
    if (!text)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the URL is NULL");
    rc = parse(u, text, err);
    if (rc < 0)
        hf__url_done(u);
    return rc;
}

void hf__url_refused(const struct url *u, hf_error *err)
{
    size_t n = strlen(u->scheme);

    if (err && err->code == HF_EINVAL && strncmp(err->where, u->scheme, n) == 0 &&
        err->where[n] == ':')
        err->where[0] = '\0';
}

void hf__url_done(struct url *u)
{
    for (size_t i = 0; i < u->nhosts; i++)
        free(u->hosts[i].host);
    for (size_t i = 0; i < u->nparams; i++) {
        free(u->params[i].key);
        if (u->params[i].value)
            explicit_bzero(u->params[i].value, strlen(u->params[i].value));
        free(u->params[i].value);
    }
    if (u->password)
        explicit_bzero(u->password, strlen(u->password));
    free(u->scheme);
    free(u->user);
    free(u->password);
    free(u->path);
    free(u->hosts);
    free(u->params);
    free(u->ns);
    free(u->shown);
    memset(u, 0, sizeof *u);
}

const char *hf__url_param(const struct url *u, const char *key)
{
    for (size_t i = 0; i < u->nparams; i++)
        if (strcmp(u->params[i].key, key) == 0)
            return u->params[i].value;
    return NULL;
}

int hf__url_known(const struct url *u, const char *keys, hf_error *err)
{
    for (size_t i = 0; i < u->nparams; i++) {
        const char *key = u->params[i].key, *p = keys;
        size_t n = strlen(key);

        while ((p = strstr(p, key)) != NULL) {
            if ((p == keys || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
                break;
            p++;
        }
        if (!p)
            return hf__fail(
                err, HF_EINVAL, 0, u->shown, "URL: %s: has no option '%s'%s%s", u->scheme,
                key, *keys ? "; it has: namespace ttl connect_timeout spin " : "", keys);
    }
    return 0;
}
