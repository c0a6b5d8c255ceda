/* ticket_record.c: writing and reading the text of ticket_record.h. What is read may be
 * anything. */
#include "kit/ticket_record.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "holdfast 1\n";
enum { HEAD = sizeof head - 1 };

/* ---- writing --------------------------------------------------------------------- */

static size_t put_name(char *to, const char *name)
{
    size_t n = 0;

    for (; *name; name++)
        if (*name == '%' || (unsigned char)*name < 0x20)
            n += (size_t)sprintf(to + n, "%%%02X", (unsigned)(unsigned char)*name);
        else
            to[n++] = *name;
    return n;
}

size_t hf__record_write(char to[RECORD_MAX], const struct ticket *t,
                        const struct ticket_facts *f)
{
    size_t n = (size_t)sprintf(to, "%s%s", head, f->broken ? "broken\n" : "");

    if (f->kept_ms > 0)
        n += (size_t)sprintf(to + n, "kept %" PRId64 "\n", f->kept_ms);
    if (f->form && t->kind == LINE_PERMITS)
        n += (size_t)sprintf(to + n, "permits %" PRId64 " %" PRId64 "\n", t->weight,
                             t->capacity);
    else if (f->form)
        n += (size_t)sprintf(to + n, "lock %" PRId64 "\n", t->weight);
    n += (size_t)sprintf(to + n,
                         "owner %016" PRIx64 " %" PRIu64 "\nhost %.255s\npid %" PRId64
                         "\nsince %" PRId64 "\nttl %" PRId64 "\n",
                         t->owner.process, t->owner.number, f->host, f->pid, f->since_ms,
                         f->ttl_ms);
    if (f->token) {
        n += (size_t)sprintf(to + n, "token ");
        hf__hex(to + n, t->token, HF_TOKEN);
        n += 2 * HF_TOKEN;
        to[n++] = '\n';
    }
    if (f->fence > 0)
        n += (size_t)sprintf(to + n, "fence %" PRIu64 "\n", f->fence);
    for (size_t i = 0; i < t->hints_len; i += strlen(t->hints + i) + 1) {
        n += (size_t)sprintf(to + n, "holds ");
        n += put_name(to + n, t->hints + i);
        to[n++] = '\n';
    }
    if (t->note[0])
        n += (size_t)sprintf(to + n, "note %s", t->note);
    return n;
}

/* ---- reading --------------------------------------------------------------------- */

static void read_hint(struct ticket_record *rec, const char *s, size_t len)
{
    size_t n = rec->hints_len;

    for (size_t i = 0; i < len; i++) {
        int byte = s[i] == '%' ? hf__hex_byte(s + i + 1, len - i - 1) : (unsigned char)s[i];

        if (byte <= 0 || n + 1 >= sizeof rec->hints || n - rec->hints_len == HF_NAME_MAX)
            return;
        rec->hints[n++] = (char)byte;
        i += s[i] == '%' ? 2 : 0;
    }
    if (n == rec->hints_len)
        return;
    rec->hints[n++] = '\0';
    rec->hints_len = n;
}

/* A weight that no ticket of ours has would let others in: then it is exclusive. */
static void read_form(struct ticket_record *rec, const char *text)
{
    int64_t weight, capacity;

    if (sscanf(text, "permits %" SCNd64 " %" SCNd64, &weight, &capacity) == 2 &&
        weight > 0 && weight <= capacity && capacity <= HF_FULL) {
        rec->kind = LINE_PERMITS;
        rec->weight = weight;
        rec->capacity = capacity;
    } else if (strcmp(text, "lock 1") == 0) {
        rec->weight = 1;
    }
}

/* The word, and behind it what it says; NULL: it is another one. */
static const char *after(const char *text, const char *word)
{
    size_t n = strlen(word);

    return strncmp(text, word, n) == 0 && text[n] == ' ' ? text + n + 1 : NULL;
}

static void read_number(int64_t *to, const char *text)
{
    int64_t n = strtoll(text, NULL, 10);

    *to = n > 0 ? n : 0;
}

static void read_field(struct ticket_record *rec, const char *line, size_t len)
{
    const char *is;
    char text[300];

    if (len >= 6 && memcmp(line, "holds ", 6) == 0) {
        read_hint(rec, line + 6, len - 6);
        return;
    }
    if (len >= sizeof text)
        return;
    memcpy(text, line, len);
    text[len] = '\0';
    if (strcmp(text, "broken") == 0)
        rec->broken = true;
    else if (after(text, "lock") || after(text, "permits"))
        read_form(rec, text);
    else if ((is = after(text, "host")) != NULL)
        snprintf(rec->host, sizeof rec->host, "%.255s", is);
    else if ((is = after(text, "token")) != NULL)
        rec->has_token = hf__unhex(rec->token, HF_TOKEN, is);
    else if ((is = after(text, "owner")) != NULL)
        sscanf(is, "%" SCNx64 " %" SCNu64, &rec->owner.process, &rec->owner.number);
    else if ((is = after(text, "kept")) != NULL)
        read_number(&rec->kept_ms, is);
    else if ((is = after(text, "pid")) != NULL)
        read_number(&rec->pid, is);
    else if ((is = after(text, "since")) != NULL)
        read_number(&rec->since_ms, is);
    else if ((is = after(text, "ttl")) != NULL)
        read_number(&rec->ttl_ms, is);
    else if ((is = after(text, "fence")) != NULL)
        rec->fence = strtoull(is, NULL, 10);
}

static bool is_ours(const char *data, size_t len)
{
    return len >= HEAD && memcmp(data, head, HEAD) == 0;
}

/* The end of the line that begins here. */
static const char *line_end(const char *at, const char *end)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));

    return stop ? stop : end;
}

static bool is_note(const char *at, const char *end)
{
    return end - at >= 5 && memcmp(at, "note ", 5) == 0;
}

void hf__record_read(struct ticket_record *rec, const void *value, size_t len)
{
    const char *data = len > 0 ? value : "", *end = data + len, *stop;

    memset(rec, 0, offsetof(struct ticket_record, host));
    rec->host[0] = rec->note[0] = '\0';
    rec->hints_len = 0;
    rec->ttl_ms = -1;
    rec->weight = rec->capacity = HF_FULL;
    rec->ours = is_ours(data, len);
    if (!rec->ours)
        return;
    for (const char *at = data + HEAD; at < end; at = stop + 1) {
        size_t n = (size_t)(end - at) - 5;

        stop = line_end(at, end);
        if (!is_note(at, end)) {
            read_field(rec, at, (size_t)(stop - at));
            continue;
        }
        if (n <= HF_NOTE_MAX && !memchr(at + 5, '\0', n)) {
            memcpy(rec->note, at + 5, n);
            rec->note[n] = '\0';
        }
        break;
    }
}

size_t hf__record_set(char to[RECORD_MAX], const void *value, size_t len, const char *line)
{
    const char *data = len > 0 ? value : "", *end = data + len, *next;
    size_t word = strcspn(line, " \n"), n = HEAD + strlen(line);

    if (!is_ours(data, len) || len + strlen(line) > RECORD_MAX)
        return 0;
    memcpy(to, data, HEAD);
    memcpy(to + HEAD, line, strlen(line));
    for (const char *at = data + HEAD; at < end; at = next) {
        bool note = is_note(at, end);

        next = note ? end : line_end(at, end);
        next += next < end;
        if (!note && (size_t)(next - at) > word && memcmp(at, line, word) == 0 &&
            (at[word] == ' ' || at[word] == '\n'))
            continue;
        memcpy(to + n, at, (size_t)(next - at));
        n += (size_t)(next - at);
    }
    return n;
}

void hf__record_row(struct row *row, const struct ticket_record *rec)
{
    row->has_ticket = true;
    row->owner = rec->owner;
    row->host = rec->host;
    row->pid = rec->pid;
    row->expires_ms = rec->ttl_ms; /* if it died now; its last renewal nobody can see */
    row->broken = rec->broken;
    row->note = rec->note;
    row->hints = rec->hints;
    row->hints_len = rec->hints_len;
}
