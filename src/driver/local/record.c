/* record.c: bytes to structs and back, for whatever bytes are there.
 *
 * The store is mapped writable by every member program, so a stray pointer in one of them
 * may leave any bytes in a record. Decoding therefore trusts nothing: lengths are checked
 * before they are used, sums cannot overflow, and a line whose holders weigh more than
 * its capacity is damaged, not "full". Goes wrong: HF_EDAMAGED, or HF_EVERSION for a
 * newer format; the caller then changes nothing (G11). tests/fuzz/fuzz_record.c feeds it
 * anything.
 */
#include "driver/local/record.h"

#include <stdlib.h>
#include <string.h>

struct cut {
    const unsigned char *p;
    size_t left;
};

static bool take(struct cut *c, void *to, size_t n)
{
    if (c->left < n)
        return false;
    memcpy(to, c->p, n);
    c->p += n;
    c->left -= n;
    return true;
}

static bool take_text(struct cut *c, const char **text, size_t n)
{
    if (c->left < n)
        return false;
    *text = (const char *)c->p;
    c->p += n;
    c->left -= n;
    return true;
}

static int format_of(uint32_t format)
{
    return format == RECORD_FORMAT ? 0 : format > RECORD_FORMAT ? HF_EVERSION : HF_EDAMAGED;
}

static int more_room(struct local_line *l, size_t n)
{
    size_t room = l->room ? l->room : 4;
    struct local_holder *h;

    if (n <= l->room)
        return 0;
    while (room < n)
        room *= 2;
    h = realloc(l->holders, room * sizeof *h);
    if (!h)
        return HF_ENOMEM;
    l->holders = h;
    l->room = room;
    return 0;
}

static bool holder_sound(const struct local_holder *h, const struct local_line *l)
{
    return h->f.weight > 0 && h->f.weight <= l->f.capacity &&
           h->f.note_len <= HF_NOTE_MAX && h->f.weight <= l->f.capacity - l->sum;
}

int hf__local_line_decode(struct local_line *l, const void *data, size_t len)
{
    struct cut c = { data, len };
    int rc;

    l->sum = 0;
    if (!take(&c, &l->f, sizeof l->f))
        return HF_EDAMAGED;
    if ((rc = format_of(l->f.format)) < 0)
        return rc;
    if (l->f.kind > LINE_PERMITS || l->f.capacity < 1 || l->f.capacity > HF_FULL ||
        !take_text(&c, &l->name, l->f.name_len) ||
        l->f.nholders > c.left / sizeof(struct holder_fix))
        return HF_EDAMAGED;
    if ((rc = more_room(l, l->f.nholders)) < 0)
        return rc;
    for (size_t i = 0; i < l->f.nholders; i++) {
        struct local_holder *h = &l->holders[i];

        if (!take(&c, &h->f, sizeof h->f) || !holder_sound(h, l) ||
            !take_text(&c, &h->note, h->f.note_len))
            return HF_EDAMAGED;
        l->sum += h->f.weight;
    }
    return c.left == 0 ? 0 : HF_EDAMAGED;
}

size_t hf__local_line_size(const struct local_line *l)
{
    size_t n = sizeof l->f + l->f.name_len;

    for (size_t i = 0; i < l->f.nholders; i++)
        n += sizeof l->holders[i].f + l->holders[i].f.note_len;
    return n;
}

static unsigned char *give(unsigned char *p, const void *from, size_t n)
{
    if (n > 0)
        memcpy(p, from, n);
    return p + n;
}

void hf__local_line_encode(const struct local_line *l, void *to)
{
    unsigned char *p = give(to, &l->f, sizeof l->f);

    p = give(p, l->name, l->f.name_len);
    for (size_t i = 0; i < l->f.nholders; i++) {
        const struct local_holder *h = &l->holders[i];

        p = give(p, &h->f, sizeof h->f);
        p = give(p, h->note, h->f.note_len);
    }
}

int hf__local_line_add(struct local_line *l, const struct local_holder *h)
{
    int rc = more_room(l, l->f.nholders + (size_t)1);

    if (rc < 0)
        return rc;
    l->holders[l->f.nholders++] = *h;
    l->sum += h->f.weight;
    return 0;
}

void hf__local_line_drop(struct local_line *l, size_t i)
{
    l->sum -= l->holders[i].f.weight;
    l->f.nholders--;
    memmove(&l->holders[i], &l->holders[i + 1], (l->f.nholders - i) * sizeof *l->holders);
}

struct local_holder *hf__local_line_find(const struct local_line *l,
                                         const unsigned char *token)
{
    for (size_t i = 0; i < l->f.nholders; i++)
        if (memcmp(l->holders[i].f.token, token, HF_TOKEN) == 0)
            return &l->holders[i];
    return NULL;
}

void hf__local_line_done(struct local_line *l)
{
    free(l->holders);
    l->holders = NULL;
    l->room = 0;
}

int hf__local_waiter_decode(struct local_waiter *w, const void *data, size_t len)
{
    struct cut c = { data, len };
    int rc;

    if (!take(&c, &w->f, sizeof w->f))
        return HF_EDAMAGED;
    if ((rc = format_of(w->f.format)) < 0)
        return rc;
    if (w->f.weight < 1 || w->f.weight > HF_FULL || w->f.note_len > HF_NOTE_MAX ||
        !take_text(&c, &w->note, w->f.note_len) ||
        !take_text(&c, &w->hints, w->f.hints_len) ||
        (w->f.hints_len > 0 && w->hints[w->f.hints_len - 1] != '\0'))
        return HF_EDAMAGED;
    return c.left == 0 ? 0 : HF_EDAMAGED;
}

size_t hf__local_waiter_size(const struct local_waiter *w)
{
    return sizeof w->f + w->f.note_len + w->f.hints_len;
}

void hf__local_waiter_encode(const struct local_waiter *w, void *to)
{
    unsigned char *p = give(to, &w->f, sizeof w->f);

    p = give(p, w->note, w->f.note_len);
    give(p, w->hints, w->f.hints_len);
}

int hf__local_process_decode(struct process_fix *p, const void *data, size_t len)
{
    if (len != sizeof *p)
        return HF_EDAMAGED;
    memcpy(p, data, sizeof *p);
    return format_of(p->format);
}

int hf__local_life_decode(struct life_fix *v, const void *data, size_t len)
{
    if (len != sizeof *v)
        return HF_EDAMAGED;
    memcpy(v, data, sizeof *v);
    return v->ttl_ms > 0 ? 0 : HF_EDAMAGED;
}

int hf__local_cell_decode(struct cell_record *r, const void *data, size_t len)
{
    struct cut c = { data, len };
    const char *value;
    int rc;

    if (!take(&c, &r->f, sizeof r->f))
        return HF_EDAMAGED;
    if ((rc = format_of(r->f.format)) < 0)
        return rc;
    if (r->f.value_len > HF_CELL_MAX || !take_text(&c, &r->name, r->f.name_len) ||
        !take_text(&c, &value, r->f.value_len))
        return HF_EDAMAGED;
    r->value = (const unsigned char *)value;
    return c.left == 0 ? 0 : HF_EDAMAGED;
}
