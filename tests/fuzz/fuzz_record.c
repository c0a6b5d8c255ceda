/* fuzz_record.c: the records of the embedded store, from any bytes. What decodes must
 * keep the line's promises and give the same bytes when encoded again. */
#include "driver/local/record.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

static void must(int ok)
{
    if (!ok)
        abort();
}

static void lines(const uint8_t *data, size_t len)
{
    static struct local_line l;
    int64_t sum = 0;
    void *again;

    if (hf__local_line_decode(&l, data, len) < 0)
        return;
    for (size_t i = 0; i < l.f.nholders; i++) {
        must(hf__local_line_find(&l, l.holders[i].f.token) != NULL);
        sum += l.holders[i].f.weight;
    }
    must(sum == l.sum && sum <= l.f.capacity);
    must(hf__local_line_size(&l) == len);
    must((again = malloc(len)) != NULL);
    hf__local_line_encode(&l, again);
    must(memcmp(again, data, len) == 0);
    free(again);
    while (l.f.nholders > 0)
        hf__local_line_drop(&l, l.f.nholders / 2);
    must(l.sum == 0);
}

static void waiters(const uint8_t *data, size_t len)
{
    struct local_waiter w;
    void *again;

    if (hf__local_waiter_decode(&w, data, len) < 0)
        return;
    must(w.f.weight > 0 && hf__local_waiter_size(&w) == len);
    for (size_t at = 0; at < w.f.hints_len; at += strlen(w.hints + at) + 1)
        ; /* never beyond the end */
    must((again = malloc(len)) != NULL);
    hf__local_waiter_encode(&w, again);
    must(memcmp(again, data, len) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct process_fix process;
    struct cell_record cell;
    struct life_fix life;
    uint8_t kind;

    if (len < 1)
        return 0;
    kind = *data++;
    len--;
    switch (kind % 5) {
    case 0:
        lines(data, len);
        break;
    case 1:
        waiters(data, len);
        break;
    case 2:
        hf__local_process_decode(&process, data, len);
        break;
    case 3:
        hf__local_life_decode(&life, data, len);
        break;
    default:
        if (hf__local_cell_decode(&cell, data, len) == 0)
            must(cell.f.value_len <= HF_CELL_MAX &&
                 sizeof cell.f + cell.f.name_len + cell.f.value_len == len);
        break;
    }
    return 0;
}
