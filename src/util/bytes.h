/* bytes.h: numbers in stored records and messages: big-endian, of any width up to 8. */
#ifndef HF_UTIL_BYTES_H
#define HF_UTIL_BYTES_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t bytes_get(const void *at, size_t width)
{
    const unsigned char *p = at;
    uint64_t number = 0;

    for (size_t i = 0; i < width; i++)
        number = number << 8 | p[i];
    return number;
}

/* Returns what is behind it. */
static inline unsigned char *bytes_put(unsigned char *to, uint64_t number, size_t width)
{
    for (size_t i = 0; i < width; i++)
        to[i] = (unsigned char)(number >> 8 * (width - 1 - i));
    return to + width;
}

#endif
