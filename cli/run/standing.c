/* standing.c: who holds a name: the line that a waiting run shows, and what one says that
 * has waited in vain.
 *
 * How it goes well: follows the line of each name; on a terminal one line is rewritten at
 * each change and each second, elsewhere (-v) one line is said per change. Of several
 * names that one is shown in whose line we stand. How it goes wrong: a store that cannot
 * be followed shows nothing; waiting does not depend on this. While the store is
 * unreachable the line says so instead, with the reason: what was known of the holder may
 * be over. Names and notes are escaped: they must not drive the terminal (G11).
 */
#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The first holder of a name, as its line was last seen. */
struct holder {
    size_t holders;
    bool kept;
    int64_t pid, age_ms, ends_ms, seen_at;
    char host[65], note[128];
};

/* One name that is waited for. */
struct place {
    struct standing *standing;
    const char *name;
    hf_op *op; /* NULL: has ended */
    struct holder holder;
    uint32_t position; /* ours; 0: not in it, or not shown by this store */
};

/* The shown line; `dirty`: something has changed since it was written. */
struct standing {
    hf_client *client;
    int64_t down_at; /* since when the store is unreachable; 0: it is not */
    bool terminal, dirty;
    char host[65];
    char shown[2048];
    size_t nplaces;
    struct place places[];
};

static const int64_t ms = 1000000;
enum { LOOK_MS = 2000 };

static void copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static void note_holder(struct holder *h, const hf_line *line)
{
    h->holders = 0;
    h->seen_at = guard_now();
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);
        if (hf_ticket_position(t) > 0 || h->holders++ > 0)
            continue;
        h->kept = hf_ticket_kept(t);
        h->pid = hf_ticket_pid(t);
        h->age_ms = hf_ticket_age_ms(t);
        h->ends_ms = hf_ticket_expires_ms(t);
        copy(h->host, sizeof h->host, hf_ticket_host(t));
        copy(h->note, sizeof h->note, hf_ticket_note(t));
    }
}

/* "held by pid 24603 on web3 for 4 min (nightly, to tape)". Without `times` it stays the
 * same while nothing changes. Returns the length. */
static size_t put_holder(char *buf, size_t size, const struct holder *h, bool times)
{
    char host[260], note[520], age[32], more[32] = "";
    int64_t since = (guard_now() - h->seen_at) / ms, left = h->ends_ms - since;
    if (h->holders > 1)
        snprintf(more, sizeof more, " and %zu more", h->holders - 1);
    cli_text(host, sizeof host, h->host);
    int n = h->kept ? snprintf(buf, size, "kept by no process%s, from %s", more, host)
                    : snprintf(buf, size, "held by pid %" PRId64 " on %s%s", h->pid, host,
                               more);
    if (times && h->kept)
        n += snprintf(buf + n, size - (size_t)n, ", for %s more",
                      cli_age(age, sizeof age, left > 0 ? left : 0));
    else if (times && h->age_ms >= 0)
        n += snprintf(buf + n, size - (size_t)n, " for %s",
                      cli_age(age, sizeof age, h->age_ms + since));
    if (h->note[0])
        n += snprintf(buf + n, size - (size_t)n, " (%s)",
                      cli_text(note, sizeof note, h->note));
    return (size_t)n;
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
    note_holder(&p->holder, line);
    p->position = 0;
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);
        if (hf_ticket_position(t) > 0 && hf_ticket_pid(t) == getpid() &&
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
        if (s->places[i].holder.holders && !held)
            held = &s->places[i];
    }
    return held;
}

/* The place comes first: a narrow terminal cuts the end. Elsewhere it is said once per
 * change, without the age. */
static void describe(const struct standing *s, const struct place *p, char *buf,
                     size_t size)
{
    char name[CLI_TEXT], holder[900], store[CLI_TEXT];
    size_t n = 0;
    if (p->position)
        n = (size_t)snprintf(buf, size, "number %" PRIu32 " in line for ", p->position);
    else
        n = (size_t)snprintf(buf, size, "waiting for ");
    n +=
        (size_t)snprintf(buf + n, size - n, "%.512s", cli_text(name, sizeof name, p->name));
    put_holder(holder, sizeof holder, &p->holder, s->terminal);
    if (p->holder.holders)
        n += (size_t)snprintf(buf + n, size - n, ": %s", holder);
    snprintf(buf + n, size - n, ", in %.256s",
             cli_text(store, sizeof store, hf_client_url(s->client)));
}

/* Empty while the store can be reached. */
static void describe_outage(struct standing *s, char *buf, size_t size)
{
    char age[32], reason[CLI_TEXT];
    hf_error err;
    *buf = 0;
    if (hf_connect(s->client, 0, &err) == 0) {
        if (s->down_at && !s->terminal)
            cli_say("the store answers again, after %s",
                    cli_age(age, sizeof age, (guard_now() - s->down_at) / ms));
        s->down_at = 0;
        return;
    }
    if (!s->down_at)
        s->down_at = guard_now();
    int n = snprintf(buf, size, "the store does not answer");
    if (s->terminal)
        n += snprintf(buf + n, size - (size_t)n, " (%s)",
                      cli_age(age, sizeof age, (guard_now() - s->down_at) / ms));
    snprintf(buf + n, size - (size_t)n, ": %.700s",
             cli_text(reason, sizeof reason, err.text));
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
    if (!s)
        return;
    s->dirty = false;
    describe_outage(s, text, sizeof text);
    if (!*text && p)
        describe(s, p, text, sizeof text);
    if (!*text)
        return;
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
    s->client = r->client;
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

/* ---- in vain ---------------------------------------------------------------------- */

struct sight {
    struct holder holder;
    int64_t next_ms; /* of --rate: when the next start is possible; -1: not known */
    bool done;
};

/* Who stands in line comes first, so that nobody knows. */
static int64_t next_start(const hf_line *line)
{
    int64_t next = -1;
    for (size_t i = 0; line && i < hf_line_tickets(line); i++) {
        const hf_ticket *t = hf_line_ticket(line, i);
        int64_t ends = hf_ticket_expires_ms(t);
        if (hf_ticket_position(t) > 0)
            return -1;
        if (hf_ticket_kept(t) && ends >= 0 && (next < 0 || ends < next))
            next = ends;
    }
    return next;
}

static void on_sight(hf_op *op, int rc, const hf_list *list, const hf_error *err,
                     void *user)
{
    struct sight *s = user;
    (void)op;
    (void)err;
    s->done = true;
    if (rc < 0)
        return;
    note_holder(&s->holder, hf_list_at(list, 0));
    s->next_ms = next_start(hf_list_at(list, 0));
}

/* Not for longer than a moment: the store may be unreachable by now. */
static void look_once(struct run *r, const char *name, struct sight *s)
{
    int64_t end = guard_now() + LOOK_MS * ms;
    hf_op *op = NULL;
    if (hf_look_start(r->client, name, on_sight, s, &op, NULL) < 0)
        return;
    while (!s->done && guard_now() < end)
        run_turn(r, end);
    hf_op_free(op);
}

void standing_say_starts(struct run *r)
{
    struct sight s = { .next_ms = -1 };
    char name[CLI_TEXT], per[32], next[32];
    if (r->opt.quiet)
        return;
    look_once(r, r->opt.names[0], &s);
    run_say(r, "%s: no start left of %" PRIu32 " in %s%s%s",
            cli_text(name, sizeof name, r->opt.names[0]), r->opt.rate,
            cli_age(per, sizeof per, r->opt.per_ms),
            s.next_ms < 0 ? "" : "; the next is possible in ",
            s.next_ms < 0 ? "" : cli_age(next, sizeof next, s.next_ms));
}

bool standing_say_who(struct run *r, const char *why)
{
    char name[CLI_TEXT], holder[900], store[CLI_TEXT];
    bool said = false;
    for (size_t i = 0; i < r->opt.nnames && !r->opt.quiet; i++) {
        struct sight s = { .done = false };
        look_once(r, r->opt.names[i], &s);
        if (!s.holder.holders)
            continue;
        put_holder(holder, sizeof holder, &s.holder, true);
        run_say(r, "%s: %s%s, in %s", cli_text(name, sizeof name, r->opt.names[i]), why,
                holder, cli_text(store, sizeof store, hf_client_url(r->client)));
        said = true;
    }
    return said || r->opt.quiet;
}
