/* wrong.c: bad input. Whatever state a client is in, what must be refused is refused, with
 * a text that says why, and changes nothing: no message, no ticket, no hold (G11). It is
 * given beside the plan's other acts and draws nothing at random, so it changes no run. */
#include "sim.h"

#include <string.h>

static char too_long[HF_NAME_MAX + 2], long_note[HF_NOTE_MAX + 2];

static const struct wrong {
    const char *what, *name;
    hf_request r;
} wrongs[] = {
    { "no name", NULL, HF_REQUEST_INIT },
    { "an empty name", "", HF_REQUEST_INIT },
    { "a name that is not UTF-8", "n\xff", HF_REQUEST_INIT },
    { "a long name", too_long, HF_REQUEST_INIT },
    { "a request of no size", "n0", { .size = 3 } },
    { "another mode", "n0", { .size = sizeof(hf_request), .mode = HF_PERMITS + 1 } },
    { "another flag", "n0", { .size = sizeof(hf_request), .flags = 1u << 31 } },
    { "bytes that mean nothing", "n0", { .size = sizeof(hf_request), .reserved = 1 } },
    { "permits of a lock",
      "n0",
      { .size = sizeof(hf_request), .permits = 1, .capacity = 2 } },
    { "no permits",
      "n0",
      { .size = sizeof(hf_request), .mode = HF_PERMITS, .capacity = 2 } },
    { "more permits than there are",
      "n0",
      { .size = sizeof(hf_request), .mode = HF_PERMITS, .permits = 3, .capacity = 2 } },
    { "a negative ttl", "n0", { .size = sizeof(hf_request), .ttl_ms = -1 } },
    { "a ttl without end", "n0", { .size = sizeof(hf_request), .ttl_ms = INT64_MAX } },
    { "a negative time to hold", "n0", { .size = sizeof(hf_request), .max_hold_ms = -1 } },
    { "a note that is not UTF-8",
      "n0",
      { .size = sizeof(hf_request), .note = "\xc0\x80" } },
    { "a long note", "n0", { .size = sizeof(hf_request), .note = long_note } },
};
enum { WRONGS = sizeof wrongs / sizeof wrongs[0] };

static int ask_for(struct sim_client *c, const struct wrong *x, hf_error *err)
{
    struct acquire_spec r;
    int rc = hf__check_name(&c->core, x->name, err);

    return rc < 0 ? rc : hf__check_request(&c->core, &x->r, false, &r, err);
}

static int evict(struct sim_client *c, hf_error *err)
{
    unsigned char token[HF_TOKEN];

    (void)c;
    return hf__check_id("0123456789abcdef is not an id", token, err);
}

void wrong_act(struct sim_client *c, uint32_t rnd)
{
    const struct wrong *x =
        rnd % (WRONGS + 1) < WRONGS ? &wrongs[rnd % (WRONGS + 1)] : NULL;
    const char *what = x ? x->what : "a ticket that cannot be";
    const struct list *last = c->core.holds.prev;
    uint64_t before = w.seq + w.joins + c->sent;
    hf_error err = { 0 };
    int rc;

    memset(too_long, 'n', sizeof too_long - 1);
    memset(long_note, 'n', sizeof long_note - 1);
    rc = x ? ask_for(c, x, &err) : evict(c, &err);
    tally_sight(S_WRONG);
    if (rc >= 0)
        violate("G11", "client %u: %s is taken", c->id, what);
    else if (err.code != rc || err.text[0] == '\0')
        violate("G11", "client %u: %s is refused without saying why", c->id, what);
    if (w.seq + w.joins + c->sent != before || c->core.holds.prev != last)
        violate("G11", "client %u: %s is refused, and something has changed", c->id, what);
}
