/* text.h: what names, notes and messages may contain. */
#ifndef HF_UTIL_TEXT_H
#define HF_UTIL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of the valid UTF-8 character at the first of `left` bytes, and its number; 0:
 * there is none. */
size_t hf__utf8_char(const char *, size_t left, uint32_t *ret);
bool hf__utf8_valid(const char *, size_t);

/* Copies `len` bytes of text into dst as one line: control characters, DEL, C1 controls and
 * bytes that are not UTF-8 become \xHH; always ends with NUL, never cuts inside a character
 * or an escape; what does not fit ends in "...". Returns dst. */
char *hf__escape(char *dst, size_t size, const char *src, size_t len);

/* "2.5" (seconds), "500ms", "30s", "5m", "1h" to milliseconds; false: not a time, or beyond
 * a year. A fraction of a millisecond is rounded up: only a written zero is 0. */
bool hf__parse_time(const char *, int64_t *ret_ms);

/* The digits of a number, without NUL; returns how many. No printf: requests are built with
 * it. */
size_t hf__decimal(char dst[20], uint64_t);

int hf__hex_digit(char); /* of either case; -1: none */
/* The byte that the first two of `left` characters give as digits; -1: they are none. */
int hf__hex_byte(const char *, size_t left);
void hf__hex(char *dst, const void *src, size_t len);   /* 2 * len digits and NUL */
bool hf__unhex(void *dst, size_t len, const char *src); /* exactly 2 * len digits and NUL */

/* A text that grows. Zeroed it is empty; take gives its bytes away, to be freed, or NULL if
 * there was no memory for some of them. */
struct text {
    char *buf;
    size_t len, room;
    bool failed;
};

void hf__text_add(struct text *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
char *hf__text_take(struct text *);

#endif
