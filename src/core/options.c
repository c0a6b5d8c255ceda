/* options.c: what an application passes is checked here, once, before anything is changed
 * (G11). Size-first structs: a caller built against a newer header passes a greater size, which is
 * fine if all that we do not know is zero. No older header exists. */
#include "core/core.h"
#include "util/text.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(sizeof(hf_options) == 2 * 4 + 8 + 3 * sizeof(void *), "no holes in hf_options");
_Static_assert(sizeof(hf_request) == 6 * 4 + 3 * 8 + 2 * sizeof(void *), "no holes in hf_request");

enum { SIZE_MOST = 4096 };

bool hf__size_ok(const void *given, size_t size, size_t known)
{
    const unsigned char *p = given;

    if (size < known || size > SIZE_MOST)
        return false;
    for (size_t i = known; i < size; i++)
        if (p[i] != 0)
            return false;
    return true;
}

int hf__check_options(const hf_options *in, hf_options *out, hf_error *err)
{
    memset(out, 0, sizeof *out);
    if (!in)
        return 0;
    if (!hf__size_ok(in, in->size, sizeof *in))
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_options: size %" PRIu32 " or unknown bytes in it", in->size);
    *out = *in;
    if (out->drive > HF_DRIVE_APP)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_options: drive %" PRIu32, out->drive);
    if (out->ttl_ms < 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_options: ttl_ms is negative");
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
        return hf__fail(err, HF_EINVAL, 0, NULL, "keep_ms %" PRId64 " is out of range", keep_ms);
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

static int check_weight(const hf_request *in, struct request *out, hf_error *err)
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

static int check_caps(const struct client *c, const hf_request *in, hf_error *err)
{
    uint32_t caps = c->caps;
    const char *what = NULL;

    if (in->mode == HF_READ && !(caps & HF_CAP_SHARED))
        what = "shared locks";
    else if (in->mode == HF_PERMITS && !(caps & HF_CAP_PERMITS))
        what = "permits";
    else if ((in->flags & HF_BARGE) && !(caps & HF_CAP_BARGE))
        what = "barging";
    else if ((in->flags & HF_NEED_DEADLINE) && !(caps & HF_CAP_DEADLINE))
        what = "a certain deadline";
    else if (in->ttl_ms > 0 && in->ttl_ms != c->ttl_ms && !(caps & HF_CAP_TTL))
        what = "a ttl per request (set ttl= in the URL)";
    if (what)
        return hf__fail(err, HF_ENOTSUP, 0, c->url.shown, "this store does not have %s", what);
    return 0;
}

static int check_times(const struct client *c, const hf_request *in, struct request *out,
                       hf_error *err)
{
    if (in->ttl_ms < 0 || in->max_hold_ms < 0)
        return hf__fail(err, HF_EINVAL, 0, NULL, "%s is negative",
                        in->ttl_ms < 0 ? "ttl_ms" : "max_hold_ms");
    out->ttl_ms = in->ttl_ms ? in->ttl_ms : c->ttl_ms;
    out->max_hold_ms = in->max_hold_ms;
    if (out->ttl_ms < c->store->least_ttl_ms || out->ttl_ms > c->store->most_ttl_ms)
        return hf__fail(err, HF_ENOTSUP, 0, c->url.shown,
                        "ttl %" PRId64 " ms: this store takes %" PRId64 " to %" PRId64 " ms",
                        out->ttl_ms, c->store->least_ttl_ms, c->store->most_ttl_ms);
    return 0;
}

/* Whose ticket it is. For the walk an ownerless blocking call belongs to its thread, an
 * ownerless asynchronous one to nobody, unless the client acts for an owner elsewhere. */
static void set_owner(const struct client *c, const hf_request *in, bool blocking,
                      struct request *out)
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
                      struct request *out, hf_error *err)
{
    static const hf_request none = HF_REQUEST_INIT;
    hf_request in = none;
    int rc;

    memset(out, 0, sizeof *out);
    if (given && !hf__size_ok(given, given->size, sizeof *given))
        return hf__fail(err, HF_EINVAL, 0, NULL,
                        "hf_request: size %" PRIu32 " or unknown bytes in it", given->size);
    if (given)
        in = *given;
    if (in.mode > HF_PERMITS || in.reserved != 0 ||
        (in.flags & ~(uint32_t)(HF_BARGE | HF_NO_RENEW | HF_NEED_DEADLINE)))
        return hf__fail(err, HF_EINVAL, 0, NULL, "hf_request: mode %" PRIu32
                        ", flags %" PRIx32 ": not known", in.mode, in.flags);
    rc = check_weight(&in, out, err);
    if (rc == 0)
        rc = hf__check_note(in.note, err);
    if (rc == 0)
        rc = check_caps(c, &in, err);
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
