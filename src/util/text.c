/* text.c: see text.h. */
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t hf__utf8_char(const char *s, size_t left, uint32_t *ret)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    uint32_t c = p[0];

    *ret = c;
    if (n == 1)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n > left)
        return 0;
    c &= 0x7fu >> n;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if ((n == 3 && c < 0x800) || (n == 4 && (c < 0x10000 || c > 0x10ffff)) ||
        (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *ret = c;
    return n;
}

bool hf__utf8_valid(const char *s, size_t len)
{
    uint32_t c;

    while (len > 0) {
        size_t n = hf__utf8_char(s, len, &c);

        if (n == 0)
            return false;
        s += n;
        len -= n;
    }
    return true;
}

char *hf__escape(char *dst, size_t size, const char *src, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = (const unsigned char *)src;
    size_t out = 0, safe = 0; /* safe: where "..." still fits */

    while (len > 0) {
        uint32_t c;
        size_t n = hf__utf8_char((const char *)p, len, &c), need;
        bool c1 = n == 2 && c < 0xa0;
        bool raw = n > 0 && !c1 && c >= 0x20 && c != 0x7f;
        size_t take = raw || c1 ? n : 1;

        need = raw ? n : 4 * take;
        if (out + need + 1 > size) {
            out = safe;
            for (int i = 0; i < 3 && out + 1 < size; i++)
                dst[out++] = '.';
            break;
        }
        for (size_t i = 0; i < take; i++) {
            if (raw) {
                dst[out++] = (char)p[i];
            } else {
                dst[out++] = '\\';
                dst[out++] = 'x';
                dst[out++] = digits[p[i] >> 4];
                dst[out++] = digits[p[i] & 15];
            }
        }
        if (out + 4 <= size)
            safe = out;
        p += take;
        len -= take;
    }
    if (size > 0)
        dst[out] = '\0';
    return dst;
}

/* A number, rounded up to milliseconds, and its unit, as an index: later ones are smaller.
 * False: there is none. */
static bool parse_part(const char **text, int64_t most, int64_t *ret_ms, size_t *ret_unit)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 },
                  { "s", 1000 },     { "ms", 1 },      { "", 1000 } };
    int64_t whole = 0, part = 0, scale = 1, more = 0; /* more: digits beyond the ninth */
    const char *s = *text;
    bool digits = false;
    size_t len;

    for (; *s >= '0' && *s <= '9' && whole <= most; s++, digits = true)
        whole = whole * 10 + (*s - '0');
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++, digits = true) {
            if (scale == 1000000000) {
                more = more || *s > '0';
                continue;
            }
            part = part * 10 + (*s - '0');
            scale *= 10;
        }
    len = strspn(s, "dhms");
    for (size_t i = 0; digits && i < sizeof units / sizeof *units; i++)
        if (strlen(units[i].unit) == len && strncmp(s, units[i].unit, len) == 0 &&
            whole <= most / units[i].ms) {
            *ret_ms = whole * units[i].ms + (part * units[i].ms + more + scale - 1) / scale;
            *ret_unit = i;
            *text = s + len;
            return true;
        }
    return false;
}

bool hf__parse_time(const char *s, int64_t *ret_ms)
{
    const int64_t most = (int64_t)366 * 24 * 3600000;
    const char *start = s;
    int64_t total = 0, ms;
    size_t unit, before = 0;

    do {
        const char *part = s;

        if (!parse_part(&s, most, &ms, &unit) || (total += ms) > most)
            return false;
        /* 1h30m: each part of a smaller unit, only the last with a fraction */
        if (part != start && (unit <= before || s[-1] < 'd'))
            return false;
        if (*s && memchr(part, '.', (size_t)(s - part)))
            return false;
        before = unit;
    } while (*s);
    *ret_ms = total;
    return true;
}

size_t hf__decimal(char dst[20], uint64_t number)
{
    char digits[20], *p = digits + sizeof digits;
    size_t n;

    do
        *--p = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    n = (size_t)(digits + sizeof digits - p);
    memcpy(dst, p, n);
    return n;
}

int hf__hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int hf__hex_byte(const char *digits, size_t left)
{
    int high = left < 2 ? -1 : hf__hex_digit(digits[0]);
    int low = high < 0 ? -1 : hf__hex_digit(digits[1]);

    return low < 0 ? -1 : high << 4 | low;
}

void hf__hex(char *dst, const void *src, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = src;

    for (size_t i = 0; i < len; i++) {
        *dst++ = digits[p[i] >> 4];
        *dst++ = digits[p[i] & 15];
    }
    *dst = '\0';
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool hf__unhex(void *dst, size_t len, const char *src)
{
    unsigned char *p = dst;

    for (size_t i = 0; i < len; i++) {
        int hi = digit(src[2 * i]), lo = hi < 0 ? -1 : digit(src[2 * i + 1]);

        if (lo < 0)
            return false;
        p[i] = (unsigned char)(hi << 4 | lo);
    }
    return src[2 * len] == '\0';
}

void hf__text_add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    size_t room;
    char *buf;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    room = t->len + (size_t)(n < 0 ? 0 : n) + 1;
    if (room > t->room) {
        room *= 2;
        buf = t->failed ? NULL : realloc(t->buf, room);
        if (!buf) {
            t->failed = true;
            return;
        }
        t->buf = buf;
        t->room = room;
    }
    va_start(ap, fmt);
    vsnprintf(t->buf + t->len, t->room - t->len, fmt, ap);
    va_end(ap);
    t->len += (size_t)(n < 0 ? 0 : n);
}

char *hf__text_take(struct text *t)
{
    char *buf = t->buf;

    if (t->failed) {
        free(buf);
        buf = NULL;
    }
    *t = (struct text){ 0 };
    return buf;
}
