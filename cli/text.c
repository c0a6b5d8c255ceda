/* text.c: text of strangers on a terminal and in JSON.
 *
 * Names, notes and host names come from whoever uses the store. On a terminal they must
 * not move the cursor, change colours or reorder the line, so control characters (C0,
 * DEL, C1), line separators, bidirectional overrides and bytes that are not UTF-8 are
 * shown as escapes, and a backslash is doubled so that an escape cannot be forged. JSON
 * stays valid whatever comes: broken bytes become U+FFFD, and the same characters are
 * written as \uXXXX (G11). */
#include "util/text.h"
#include "cli.h"

#include <inttypes.h>
#include <string.h>

enum { CHAR_MOST = 4 }; /* the NUL ends a character that is not whole */

static bool harmful(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x200e || c == 0x200f ||
           c == 0x2028 || c == 0x2029 || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

/* Writes the form of the character at p into out; returns how many bytes of p it stands
 * for. */
static size_t show_char(const unsigned char *p, char out[16])
{
    uint32_t c;
    size_t n = hf__utf8_char((const char *)p, CHAR_MOST, &c);

    if (n == 0) {
        snprintf(out, 16, "\\x%02x", p[0]);
        return 1;
    }
    if (c == '\\')
        strcpy(out, "\\\\");
    else if (c == '\n' || c == '\t' || c == '\r')
        snprintf(out, 16, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
    else if (harmful(c))
        snprintf(out, 16, c < 0x80 ? "\\x%02" PRIx32 : "\\u%04" PRIx32, c);
    else {
        memcpy(out, p, n);
        out[n] = '\0';
    }
    return n;
}

const char *cli_text(char *buf, size_t size, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t used = 0;

    while (*p) {
        char one[16];
        size_t took = show_char(p, one), len = strlen(one);

        if (used + len + 1 > size)
            break;
        memcpy(buf + used, one, len);
        used += len;
        p += took;
    }
    buf[used] = '\0';
    return buf;
}

const char *cli_age(char *buf, size_t size, int64_t ms)
{
    int64_t s = ms / 1000;

    if (ms < 0)
        snprintf(buf, size, "?");
    else if (s < 10)
        snprintf(buf, size, "%" PRId64 ".%" PRId64 " s", s, ms % 1000 / 100);
    else if (s < 120)
        snprintf(buf, size, "%" PRId64 " s", s);
    else if (s < 3600)
        snprintf(buf, size, "%" PRId64 " min", s / 60);
    else if (s < 86400)
        snprintf(buf, size, "%" PRId64 " h %" PRId64 " min", s / 3600, s / 60 % 60);
    else
        snprintf(buf, size, "%" PRId64 " d %" PRId64 " h", s / 86400, s / 3600 % 24);
    return buf;
}

void json_string(FILE *out, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    putc('"', out);
    while (*p) {
        uint32_t c;
        size_t n = hf__utf8_char((const char *)p, CHAR_MOST, &c);

        if (n == 0)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (char)c);
        else if (harmful(c))
            fprintf(out, "\\u%04" PRIx32, c);
        else
            fwrite(p, 1, n, out);
        p += n ? n : 1;
    }
    putc('"', out);
}

void json_number_or_null(FILE *out, int64_t n)
{
    if (n < 0)
        fputs("null", out);
    else
        fprintf(out, "%" PRId64, n);
}

const char *cli_word(char *buf, size_t size, const char *text)
{
    char shown[CLI_TEXT];

    if (strchr(text, ':') && strpbrk(text, "@/"))
        snprintf(buf, size, "a URL (it goes before the verb: holdfast -u URL VERB ...)");
    else
        snprintf(buf, size, "'%s'", cli_text(shown, sizeof shown, text));
    return buf;
}
