/* wire.c: Redis's commands and replies on a bare connection (stores/link.c). Goes
 * wrong: says why and returns an exit status. */
#include "stores/wire.h"

#include "stores/link.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- commands -------------------------------------------------------------------- */

void wire_put(struct wire_text *t, const void *bytes, size_t n)
{
    if (n > sizeof t->bytes - t->len) /* the bench's own commands are all short */
        abort();
    memcpy(t->bytes + t->len, bytes, n);
    t->len += n;
}

static void put_count(struct wire_text *t, char mark, size_t number)
{
    char text[32];

    wire_put(t, text, (size_t)snprintf(text, sizeof text, "%c%zu\r\n", mark, number));
}

void wire_command(struct wire_text *t, size_t args)
{
    put_count(t, '*', args);
}

void wire_arg(struct wire_text *t, const void *bytes, size_t n)
{
    put_count(t, '$', n);
    wire_put(t, bytes, n);
    wire_put(t, "\r\n", 2);
}

void wire_word(struct wire_text *t, const char *word)
{
    wire_arg(t, word, strlen(word));
}

void wire_words(struct wire_text *t, const char *words)
{
    size_t n = 1;

    for (const char *p = words; *p; p++)
        n += *p == ' ';
    wire_command(t, n);
    while (n-- > 0) {
        size_t len = strcspn(words, " ");

        wire_arg(t, words, len);
        words += len + (n > 0);
    }
}

/* ---- replies --------------------------------------------------------------------- */

size_t wire_reply(const char *p, size_t n)
{
    const char *end = n > 0 ? memchr(p, '\n', n) : NULL;
    size_t line = end ? (size_t)(end - p) + 1 : 0, total = line;
    long count;

    if (!end || (*p != '$' && *p != '*'))
        return line;
    count = strtol(p + 1, NULL, 10);
    if (*p == '$')
        total += count < 0 ? 0 : (size_t)count + 2;
    for (; *p == '*' && count > 0; count--) {
        size_t one = wire_reply(p + total, n - total);

        if (one == 0)
            return 0;
        total += one;
    }
    return total <= n ? total : 0;
}

int wire_send(struct wire *w, const void *bytes, size_t len)
{
    return link_send(w->fd, bytes, len);
}

int wire_flush(struct wire *w)
{
    int status = wire_send(w, w->out.bytes, w->out.len);

    w->out.len = 0;
    return status;
}

int wire_take(struct wire *w, const char **ret, size_t *ret_len)
{
    size_t len, more;

    while ((len = wire_reply(w->in + w->at, w->len - w->at)) == 0) {
        int status;

        if (w->at > 0) {
            memmove(w->in, w->in + w->at, w->len - w->at);
            w->len -= w->at;
            w->at = 0;
        }
        status = link_more(w->fd, w->in + w->len, sizeof w->in - w->len, &more);
        if (status)
            return status;
        w->len += more;
    }
    *ret = w->in + w->at;
    *ret_len = len;
    w->at += len;
    return 0;
}

int wire_expect(struct wire *w, const char *start)
{
    const char *reply;
    size_t len, n = strlen(start);
    int status = wire_take(w, &reply, &len);

    if (status || (len >= n && memcmp(reply, start, n) == 0))
        return status;
    cli_say("bench: the server answered %.*s", (int)strcspn(reply, "\r\n"), reply);
    return *reply == '-' ? EXIT_REFUSED : EXIT_UNREACHABLE;
}

/* The text of INFO about something; NULL: it has said why not. */
static const char *info(struct wire *w, const char *command)
{
    const char *reply;
    size_t len;

    wire_words(&w->out, command);
    if (wire_flush(w) || wire_take(w, &reply, &len))
        return NULL;
    w->in[w->at - 1] = '\0'; /* in place of its last byte, which is taken */
    return reply;
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at ? strtod(at + strlen(key), NULL) : 0;
}

static double usec_of(const char *stats, const char *command)
{
    const char *at = strstr(stats, command);

    return at ? number_after(at, "usec=") : 0;
}

int wire_spent(struct wire *w, struct wire_spent *ret)
{
    const char *text = info(w, "INFO commandstats");

    if (!text)
        return EXIT_UNREACHABLE;
    ret->script_us = usec_of(text, "cmdstat_evalsha:");
    ret->scripts = number_after(text, "cmdstat_evalsha:calls=");
    ret->del_us = usec_of(text, "cmdstat_del:");
    text = info(w, "INFO cpu");
    if (!text)
        return EXIT_UNREACHABLE;
    ret->cpu_us = (number_after(text, "used_cpu_sys_main_thread:") +
                   number_after(text, "used_cpu_user_main_thread:")) *
                  1e6;
    return 0;
}

/* ---- connecting ------------------------------------------------------------------ */

bool wire_possible(const char *url)
{
    return strncmp(url, "redis://", 8) == 0 || strncmp(url, "redis+unix:", 11) == 0;
}

static int ask_ok(struct wire *w)
{
    int status = wire_flush(w);

    return status ? status : wire_expect(w, "+OK");
}

/* What is answered may contain the password. */
static int logged_in(struct wire *w)
{
    const char *reply;
    size_t len;
    int status = wire_take(w, &reply, &len);

    if (status || (len >= 3 && memcmp(reply, "+OK", 3) == 0))
        return status;
    cli_say("bench: the login was refused");
    return EXIT_REFUSED;
}

static int greet(struct wire *w, const struct link_target *t, const char *db)
{
    int status = 0;

    if (t->password[0]) {
        wire_command(&w->out, t->user[0] ? 3 : 2);
        wire_word(&w->out, "AUTH");
        if (t->user[0])
            wire_word(&w->out, t->user);
        wire_word(&w->out, t->password);
        status = wire_flush(w);
        if (status == 0)
            status = logged_in(w);
    }
    if (status == 0 && db[0]) {
        wire_command(&w->out, 2);
        wire_word(&w->out, "SELECT");
        wire_word(&w->out, db);
        status = ask_ok(w);
    }
    return status;
}

int wire_open(struct wire **ret, const char *url)
{
    struct wire *w = calloc(1, sizeof *w);
    struct link_target t;
    char db[16] = "";
    int status;

    if (!w) {
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    w->fd = -1;
    if (link_read(&t, url, "6379"))
        status = link_open(&t, &w->fd);
    else
        status = link_broken("a URL that it cannot read");
    if (status == 0 && t.host[0] && strlen(t.path) > 1)
        snprintf(db, sizeof db, "%.15s", t.path + 1);
    else if (status == 0)
        link_option(url, "db", db, sizeof db);
    if (status == 0)
        status = greet(w, &t, db);
    explicit_bzero(&t, sizeof t);
    if (status == 0)
        *ret = w;
    else
        wire_close(w);
    return status;
}

void wire_close(struct wire *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    explicit_bzero(w, sizeof *w); /* it has sent the password */
    free(w);
}
