/* standing.c: the line in which a waiting run says who holds the name and where it stands.
 *
 * How it goes well: follows the line of each name; on a terminal one line is rewritten at
 * each change and each second, elsewhere (-v) one line is said per change. Of several
 * names that one is shown in whose line we stand. How it goes wrong: a store that cannot
 * be followed shows nothing; waiting does not depend on this. Names and notes are
 * escaped: they must not drive the terminal (G11).
 */
#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* One name: the first holder, as its line was last seen. */
struct place {
    struct standing *standing;
    const char *name;
    hf_op *op; /* NULL: has ended */
    size_t holders;
    uint32_t position; /* ours; 0: not in it, or not shown by this store */
    int64_t pid, age_ms, seen_at;
    char host[65], note[128];
};

/* The shown line; `dirty`: something has changed since it was written. */
struct standing {
    bool terminal, dirty;
    char host[65];
    char shown[1024];
    size_t nplaces;
    struct place places[];
};

static const int64_t ms = 1000000;

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static void on_seen(hf_op *op, int rc, const hf_list *list, const hf_error *err, void *user)
{
    struct place *p = user;
    (void)err;
    if (rc < 0) {
        p->op = NULL;
        hf_op_free(op);
        return;
    }
    const hf_line *line = hf_list_at(list, 0);
    p->holders = 0;
    p->position = 0;
    p->seen_at = guard_now();
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);
        bool holds = hf_ticket_position(t) == 0;
        if (holds && p->holders++ == 0) {
            p->pid = hf_ticket_pid(t);
            p->age_ms = hf_ticket_age_ms(t);
            copy(p->host, sizeof p->host, hf_ticket_host(t));
            copy(p->note, sizeof p->note, hf_ticket_note(t));
        }
        if (!holds && hf_ticket_pid(t) == getpid() &&
            strcmp(hf_ticket_host(t), p->standing->host) == 0)
            p->position = hf_ticket_position(t);
    }
    p->standing->dirty = true;
}

static const struct place *where_we_wait(const struct standing *s)
{
    const struct place *held = NULL;
    for (size_t i = 0; i < s->nplaces; i++) {
        if (s->places[i].position)
            return &s->places[i];
        if (s->places[i].holders && !held)
            held = &s->places[i];
    }
    return held;
}

/* The age is left out where a line is said only once. */
static void describe(const struct standing *s, const struct place *p, char *buf,
                     size_t size)
{
    char name[CLI_TEXT], host[260], note[520], age[32];
    size_t n =
        (size_t)snprintf(buf, size, "waiting for %s", cli_text(name, sizeof name, p->name));
    if (p->holders && n < size)
        n += (size_t)snprintf(buf + n, size - n, ": held by pid %" PRId64 " on %s", p->pid,
                              cli_text(host, sizeof host, p->host));
    if (p->holders > 1 && n < size)
        n += (size_t)snprintf(buf + n, size - n, " and %zu more", p->holders - 1);
    if (p->holders && s->terminal && n < size)
        n += (size_t)snprintf(
            buf + n, size - n, " for %s",
            cli_age(age, sizeof age, p->age_ms + (guard_now() - p->seen_at) / ms));
    if (p->holders && p->note[0] && n < size)
        n += (size_t)snprintf(buf + n, size - n, " (%s)",
                              cli_text(note, sizeof note, p->note));
    if (p->position && n < size)
        snprintf(buf + n, size - n, "; you are number %" PRIu32 " in line", p->position);
}

/* A line that wraps could not be rewritten. Cut between characters, not inside one. */
static void fit(char *text)
{
    struct winsize w;
    size_t room = 79, at = 0, columns = 0;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1)
        room = w.ws_col - 1u;
    room = room > 10 ? room - 10 : 0; /* "holdfast: " */
    while (text[at] && columns < room) {
        at++;
        while (((unsigned char)text[at] & 0xc0) == 0x80)
            at++;
        columns++;
    }
    text[at] = 0;
}

void standing_tick(struct standing *s)
{
    char text[sizeof s->shown];
    const struct place *p = s ? where_we_wait(s) : NULL;
    if (!p)
        return;
    s->dirty = false;
    describe(s, p, text, sizeof text);
    if (s->terminal)
        fit(text);
    if (strcmp(text, s->shown) == 0)
        return;
    copy(s->shown, sizeof s->shown, text);
    if (s->terminal)
        fprintf(stderr, "\r\033[Kholdfast: %s", text);
    else
        cli_say("%s", text);
    fflush(stderr);
}

bool standing_changed(const struct standing *s)
{
    return s && s->dirty;
}

struct standing *standing_open(struct run *r)
{
    size_t n = r->opt.nnames;
    struct standing *s = calloc(1, sizeof *s + n * sizeof *s->places);
    if (!s)
        return NULL;
    s->terminal = isatty(STDERR_FILENO);
    s->nplaces = n;
    gethostname(s->host, sizeof s->host - 1);
    for (size_t i = 0; i < n; i++) {
        s->places[i].standing = s;
        s->places[i].name = r->opt.names[i];
        if (hf_watch_start(r->client, r->opt.names[i], on_seen, &s->places[i],
                           &s->places[i].op, NULL) < 0)
            s->places[i].op = NULL;
    }
    return s;
}

void standing_close(struct standing *s)
{
    for (size_t i = 0; s && i < s->nplaces; i++)
        hf_op_free(s->places[i].op);
    if (s && s->terminal && s->shown[0]) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
    free(s);
}
