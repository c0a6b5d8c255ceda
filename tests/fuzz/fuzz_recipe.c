/* fuzz_recipe.c: the records of the recipes, from any bytes. What is read must give the
 * same bytes when it is written again. */
#include "recipes/recipe.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const tags[] = { "once", "latch", "barrier" };
    static struct cell cell, again;
    uint64_t numbers[RECORD_MOST];
    int64_t number;

    if (len > HF_CELL_MAX)
        return 0;
    cell.version = 1;
    cell.value_len = len;
    memcpy(cell.value, data, len);
    if (hf__recipe_number(&cell, &number) && number < 0)
        abort();
    for (size_t i = 0; i < RECORD_MOST; i++)
        if (hf__recipe_read(&cell, tags[i], numbers, i + 1)) {
            hf__recipe_write(&again, tags[i], numbers, i + 1);
            if (again.value_len != len || memcmp(again.value, data, len) != 0)
                abort();
        }
    return 0;
}
