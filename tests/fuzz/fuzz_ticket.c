/* fuzz_ticket.c: what a ticket says of itself (kit/ticket_record.h), from any bytes: what
 * is read keeps the line's promises, and a line that is set is read again, while nothing
 * else of the record changes. */
#include "kit/ticket_record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void must(int ok)
{
    if (!ok)
        abort();
}

static void sound(const struct ticket_record *r)
{
    must(r->capacity > 0 && r->weight > 0 && r->weight <= r->capacity);
    must(r->kept_ms >= 0 && r->hints_len <= sizeof r->hints);
    must(r->hints_len == 0 || r->hints[r->hints_len - 1] == '\0');
    must(memchr(r->host, '\0', sizeof r->host) && memchr(r->note, '\0', sizeof r->note));
    must(r->ours || (r->kind == LINE_LOCK && r->weight == HF_FULL && !r->kept_ms));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct ticket_record first, then;
    static char text[RECORD_MAX];
    size_t n;

    hf__record_read(&first, data, len);
    sound(&first);
    n = hf__record_set(text, data, len, "broken\n");
    must(n <= RECORD_MAX && (n == 0 || first.ours));
    if (n == 0)
        return 0;
    hf__record_read(&then, text, n);
    sound(&then);
    must(then.ours && then.broken && then.kind == first.kind &&
         then.weight == first.weight);
    must(strcmp(then.note, first.note) == 0 && then.kept_ms == first.kept_ms);
    n = hf__record_set(text, data, len, "kept 77\n");
    hf__record_read(&then, text, n);
    must(n == 0 || (then.kept_ms == 77 && then.broken == first.broken));
    return 0;
}
