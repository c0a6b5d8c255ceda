/* options.c: what an application passes is checked here, once, before anything is changed
 * (G11).
 *
 * Structures begin with their size, as the header that the program was compiled with has
 * it. Shorter than ours: an older header; the fields it does not have are zero, which is
 * their default. Longer: a newer header, which is fine if all that we do not know is zero.
 * What version 0.1 had is the least (HF_..._SIZE_0_1). The rules that keep this true, for
 * whoever adds a field:
 *
 * - It goes to the end, never into what was padding at the end of an older form: the
 *   program that has that form may leave anything in its padding. hf_options of 0.1 has
 *   such padding where pointers have 4 bytes and int64_t is aligned to 8, as on armhf.
 * - Its size is a multiple of 8, with a reserved field if need be: no new padding.
 * - The assertions below then fail, and get the new fields; the sizes of 0.1 stay.
 */
#include "core/core.h"
#include "core/spin.h"
#include "util/text.h"

#include <inttypes.h>
#include <string.h>

#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
#define FOLLOWS(type, field, before) (offsetof(type, field) == END_OF(type, before))

_Static_assert(FOLLOWS(hf_options, drive, size) && FOLLOWS(hf_options, ttl_ms, drive) &&
                   FOLLOWS(hf_options, log, ttl_ms) && FOLLOWS(hf_options, user, log) &&
                   FOLLOWS(hf_options, owner, user) &&
                   offsetof(hf_options, spin_us) == HF_OPTIONS_SIZE_0_1,
               "no holes in hf_options");
_Static_assert(FOLLOWS(hf_request, mode, size) && FOLLOWS(hf_request, flags, mode) &&
                   FOLLOWS(hf_request, permits, flags) &&
                   FOLLOWS(hf_request, capacity, permits) &&
                   FOLLOWS(hf_request, reserved, capacity) &&
                   FOLLOWS(hf_request, ttl_ms, reserved) &&
                   FOLLOWS(hf_request, max_hold_ms, ttl_ms) &&
                   FOLLOWS(hf_request, owner, max_hold_ms) &&
                   FOLLOWS(hf_request, note, owner) && FOLLOWS(hf_request, cancel, note),
               "no holes in hf_request");
_Static_assert(sizeof(hf_options) == HF_OPTIONS_SIZE_0_1 + sizeof(int64_t),
               "fields after spin_us: see above");
_Static_assert(sizeof(hf_request) == HF_REQUEST_SIZE_0_1, "fields after cancel: see above");

enum { SIZE_MOST = 4096 };

/* The size of every structure with a pointer in it is a multiple of a pointer's alignment;
 * another one is no header's, and would give us a part of a field. */
bool hf__copy_sized(void *to, size_t known, const void *from, size_t size, size_t least)
{
    const unsigned char *p = from;

    if (size < least || size > SIZE_MOST || (size < known && size % _Alignof(void *) != 0))
        return false;
    for (size_t i = known; i < size; i++)
        if (p[i] != 0)
            return false;
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return true;
}

void hf__fill_sized(void *to, uint32_t size, const void *from, size_t known)
{
    memcpy(to, from, size < known ? size : known);
    memcpy(to, &size, sizeof size);
}

int hf__check_options(const hf_options *in, hf_options *out, hf_error *err)
{
    memset(out, 0, sizeof *out);
    if (!in)
        return 0;
    if (!hf__copy_sized(out, sizeof *out, in, in->size, HF_OPTIONS_SIZE_0_1))
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_options: size %" PRIu32 " or unknown bytes in it", in->size);
    if ((out->drive & ~(uint32_t)HF_OPEN_EXISTING) > HF_DRIVE_APP)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_options: drive %" PRIu32, out->drive);
    if (out->ttl_ms < 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_options: ttl_ms is negative");
    if (out->spin_us < HF_SPIN_NEVER || out->spin_us > SPIN_MOST_US)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_options: spin_us %" PRId64,
                        out->spin_us);
    return 0;
}

/* A text of the caller's, of at most so many bytes; a refusal shows where it begins. */
static int check_text(const char *what, const char *text, size_t most, hf_error *err)
{
    size_t n = strnlen(text, most + 1);
    char shown[48];

    if (n <= most && hf__utf8_valid(text, n))
        return 0;
    hf__escape(shown, sizeof shown, text, n);
    if (n > most)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the %s '%s' is longer than %zu bytes",
                        what, shown, most);
    return hf__fail(err, HF_EINVAL, 0, NULL, "the %s '%s' is not UTF-8", what, shown);
}

int hf__check_name(const struct client *c, const char *name, hf_error *err)
{
    size_t most =
        c->store->name_max < HF_NAME_MAX ? c->store->name_max : (size_t)HF_NAME_MAX;

    if (!name || !*name)
        return hf__fail(err, HF_EINVAL, 0, NULL, "the name is %s", name ? "empty" : "NULL");
    return check_text("name", name, most, err);
}

int hf__check_note(const char *note, hf_error *err)
{
    return note ? check_text("note", note, HF_NOTE_MAX, err) : 0;
}

int hf__check_keep(const struct client *c, int64_t keep_ms, hf_error *err)
{
    if (keep_ms <= 0 || keep_ms > c->most_ttl_ms)
        return hf__fail(err, HF_EINVAL, 0, NULL, "keep_ms %" PRId64 " is out of range",
                        keep_ms);
    if (!(c->caps & HF_CAP_KEEP))
        return hf__fail(err, HF_ENOTSUP, 0, c->url.shown,
                        "this store cannot end a place by itself");
    return 0;
}

int hf__check_id(const char *id, unsigned char token[HF_TOKEN], hf_error *err)
{
    if (!id || !hf__unhex(token, HF_TOKEN, id))
        return hf__fail(err, HF_EINVAL, 0, NULL, "not the id of a ticket");
    return 0;
}

static int check_weight(const hf_request *in, struct acquire_spec *out, hf_error *err)
{
    if (in->mode != HF_PERMITS) {
        if (in->permits != 0 || in->capacity != 0)
            return hf__fail(err, HF_EINVAL, 0, NULL,
                            "permits and capacity are for HF_PERMITS only");
        out->kind = LINE_LOCK;
        out->capacity = HF_FULL;
        out->weight = in->mode == HF_READ ? 1 : HF_FULL;
        return 0;
    }
    if (in->permits == 0 || in->capacity == 0 || in->permits > in->capacity)
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "%" PRIu32 " permits of %" PRIu32 ": must be 1 to the capacity",
                        in->permits, in->capacity);
    if (in->capacity > HF_FULL) /* what a line can count, in every store */
        return hf__fail(err, HF_EINVAL, 0, NULL, "a capacity of %" PRIu32 ": at most %lld",
                        in->capacity, (long long)HF_FULL);
    out->kind = LINE_PERMITS;
    out->capacity = in->capacity;
    out->weight = in->permits;
    return 0;
}

static uint32_t needs_of(const struct client *c, const hf_request *in)
{
    uint32_t needs = 0;

    if (in->mode == HF_READ)
        needs |= HF_CAP_SHARED;
    if (in->mode == HF_PERMITS)
        needs |= HF_CAP_PERMITS;
    if (in->flags & HF_BARGE)
        needs |= HF_CAP_BARGE;
    if (in->flags & HF_NEED_DEADLINE)
        needs |= HF_CAP_DEADLINE;
    if (in->ttl_ms > 0 && in->ttl_ms != c->ttl_ms)
        needs |= HF_CAP_TTL;
    return needs;
}

int hf__check_needs(const struct client *c, uint32_t needs, int64_t ttl_ms, hf_error *err)
{
    static const struct {
        uint32_t cap;
        const char *what;
    } names[] = { { HF_CAP_SHARED, "shared locks" },
                  { HF_CAP_PERMITS, "permits" },
                  { HF_CAP_BARGE, "barging" },
                  { HF_CAP_DEADLINE, "a certain deadline" },
                  { HF_CAP_LINE, "lines that can be looked at" },
                  { HF_CAP_KEEP, "places that outlast their owner" },
                  { HF_CAP_CELL, "cells" },
                  { HF_CAP_TTL, "a ttl per request (set ttl= in the URL)" } };
    int64_t least = c->least_ttl_ms, most = c->most_ttl_ms;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (needs & ~c->caps & names[i].cap)
            return hf__fail(err, HF_ENOTSUP, 0, c->url.shown, "this store does not have %s",
                            names[i].what);
    if (ttl_ms < least || ttl_ms > most)
        return hf__fail(err, HF_ENOTSUP, 0, c->url.shown,
                        "ttl %" PRId64 " ms: this store takes %" PRId64 " to %" PRId64
                        " ms",
                        ttl_ms, least, most);
    return 0;
}

static int check_times(const struct client *c, const hf_request *in,
                       struct acquire_spec *out, hf_error *err)
{
    if (in->ttl_ms < 0 || in->max_hold_ms < 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "%s is negative",
                        in->ttl_ms < 0 ? "ttl_ms" : "max_hold_ms");
    out->ttl_ms = in->ttl_ms ? in->ttl_ms : c->ttl_ms;
    out->max_hold_ms = in->max_hold_ms;
    out->needs = needs_of(c, in);
    return hf__check_needs(c, out->needs, out->ttl_ms, err);
}

/* Whose ticket it is. For the walk an ownerless blocking call belongs to its thread, an
 * ownerless asynchronous one to nobody, unless the client acts for an owner elsewhere. */
static void set_owner(const struct client *c, const hf_request *in, bool blocking,
                      struct acquire_spec *out)
{
    out->reentrant = in->owner != HF_OWNER_CALL;
    if (in->owner == HF_OWNER_THREAD) {
        out->owner = hf__owner_of_thread(hf__thread_number());
    } else if (in->owner != HF_OWNER_CALL) {
        out->owner = hf__owner_of_number(in->owner);
    } else if (blocking) {
        out->thread = hf__thread_number();
        out->owner = hf__owner_of_thread(out->thread);
    }
    if (in->owner == HF_OWNER_CALL && !owner_none(c->acts_for))
        out->owner = c->acts_for;
}

int hf__check_request(const struct client *c, const hf_request *given, bool blocking,
                      struct acquire_spec *out, hf_error *err)
{
    static const hf_request none = HF_REQUEST_INIT;
    hf_request in = none;
    int rc;

    memset(out, 0, sizeof *out);
    /* the caller's header may be older (shorter) or newer: then what we do not know must be
     * 0 */
    if (given && !hf__copy_sized(&in, sizeof in, given, given->size, HF_REQUEST_SIZE_0_1))
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_request: size %" PRIu32 " or unknown bytes in it", given->size);
    if (in.mode > HF_PERMITS || in.reserved != 0 ||
        (in.flags & ~(uint32_t)(HF_BARGE | HF_NO_RENEW | HF_NEED_DEADLINE)))
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_request: mode %" PRIu32 ", flags %" PRIx32 ": not known",
                        in.mode, in.flags);
    rc = check_weight(&in, out, err);
    if (rc == 0)
        rc = hf__check_note(in.note, err);
    if (rc == 0)
        rc = check_times(c, &in, out, err);
    if (rc < 0)
        return rc;
    out->barge = in.flags & HF_BARGE;
    out->no_renew = in.flags & HF_NO_RENEW;
    out->note = in.note ? in.note : "";
    set_owner(c, &in, blocking, out);
    return 0;
}
