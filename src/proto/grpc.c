/* grpc.c: framing, headers and status of gRPC; see grpc.h.
 *
 * A status counts only where it may stand: in the last header block, with nothing behind
 * it. One in front of DATA is forgotten: a stream that is cut after a promise of OK was not
 * answered with OK. */
#include "proto/grpc.h"

#include "util/text.h"

#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_FIRST = 256, ROOM_KEPT = 4096 };

#define NAME(name) #name,
static const char *const names[GRPC_STATUSES] = { GRPC_STATUS(NAME) };

const char *hf__grpc_status_name(int status)
{
    return status >= 0 && status < GRPC_STATUSES ? names[status] : names[GRPC_UNKNOWN];
}

static void refuse(struct grpc_in *in, int status, const char *text)
{
    if (in->bad)
        return;
    in->bad = true;
    in->status = status;
    snprintf(in->text, sizeof in->text, "%s", text);
}

/* ---- headers --------------------------------------------------------------------- */

static int number_of(const char *digits, size_t len, int most)
{
    int n = 0;

    if (len == 0 || len > 3)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return -1;
        n = n * 10 + (digits[i] - '0');
    }
    return n <= most ? n : -1;
}

/* What is no escape stays as it is, and so does %00; a text that is too long is cut. */
static void decode(char *dst, size_t size, const char *src, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len && n < size - 1; n++) {
        unsigned char byte = (unsigned char)src[i];
        int high = i + 2 < len && byte == '%' ? hf__hex_digit(src[i + 1]) : -1;
        int low = high >= 0 ? hf__hex_digit(src[i + 2]) : -1;

        if (low >= 0 && high * 16 + low > 0) {
            byte = (unsigned char)(high * 16 + low);
            i += 2;
        }
        dst[n] = (char)byte;
        i++;
    }
    dst[n] = '\0';
}

void hf__grpc_block(struct grpc_in *in)
{
    in->http = 0;
    in->has_status = false;
    if (!in->bad)
        in->text[0] = '\0';
}

static bool is(const char *name, const void *at, size_t len)
{
    return len == strlen(name) && memcmp(name, at, len) == 0;
}

/* application/grpc, with a "+proto" or a ";parameter" behind it */
static bool is_grpc(const char *type, size_t len)
{
    static const char want[] = "application/grpc";
    size_t n = sizeof want - 1;

    return len >= n && memcmp(type, want, n) == 0 &&
           (len == n || type[n] == '+' || type[n] == ';');
}

void hf__grpc_header(struct grpc_in *in, const void *name, size_t name_len,
                     const void *value, size_t value_len)
{
    if (is(":status", name, name_len)) {
        in->seen = true;
        in->http = number_of(value, value_len, 999);
    } else if (is("content-type", name, name_len)) {
        in->grpc = is_grpc(value, value_len);
    } else if (in->bad) {
        return;
    } else if (is("grpc-status", name, name_len)) {
        in->has_status = true;
        in->status = number_of(value, value_len, GRPC_STATUSES - 1);
        if (in->status < 0)
            in->status = GRPC_UNKNOWN;
    } else if (is("grpc-message", name, name_len)) {
        decode(in->text, sizeof in->text, value, value_len);
    }
}

/* ---- messages -------------------------------------------------------------------- */

static size_t body_length(const unsigned char *p)
{
    return (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
}

/* The first message that was not taken, with its prefix; 0: not known yet. */
static size_t length_of(struct grpc_in *in)
{
    size_t len;

    if (in->bad || in->len - in->at < GRPC_PREFIX)
        return 0;
    len = body_length(in->buf + in->at);
    if (in->buf[in->at] != 0)
        refuse(in, GRPC_INTERNAL, "a compressed message");
    else if (len > GRPC_MESSAGE_MAX)
        refuse(in, GRPC_RESOURCE_EXHAUSTED, "a message of more than 16 MiB");
    return in->bad ? 0 : GRPC_PREFIX + len;
}

static bool make_room(struct grpc_in *in, size_t n)
{
    size_t room = in->room ? in->room : ROOM_FIRST;
    unsigned char *buf;

    if (in->at > 0) {
        memmove(in->buf, in->buf + in->at, in->len - in->at);
        in->len -= in->at;
        in->at = 0;
    }
    while (room - in->len < n)
        room *= 2;
    if (room == in->room)
        return true;
    buf = realloc(in->buf, room);
    if (!buf)
        return false;
    in->buf = buf;
    in->room = room;
    return true;
}

int hf__grpc_data(struct grpc_in *in, const void *bytes, size_t n)
{
    in->has_status = false;
    if (in->bad || n == 0 || (in->seen && !in->grpc)) /* a page of HTML, perhaps */
        return 0;
    if (n > GRPC_PREFIX + GRPC_MESSAGE_MAX + GRPC_READ_MAX - (in->len - in->at)) {
        refuse(in, GRPC_RESOURCE_EXHAUSTED, "more than 16 MiB");
        return 0;
    }
    if (in->room - in->len < n && !make_room(in, n))
        return HF_ENOMEM;
    memcpy(in->buf + in->len, bytes, n);
    in->len += n;
    length_of(in); /* refuses early what will be too long */
    return 0;
}

bool hf__grpc_next(struct grpc_in *in, struct grpc_message *ret)
{
    size_t whole = length_of(in);

    if (whole == 0 || whole > in->len - in->at)
        return false;
    ret->at = in->buf + in->at + GRPC_PREFIX;
    ret->len = whole - GRPC_PREFIX;
    in->at += whole;
    return true;
}

void hf__grpc_rest(struct grpc_in *in)
{
    if (in->at < in->len || in->room <= ROOM_KEPT)
        return;
    free(in->buf);
    in->buf = NULL;
    in->at = in->len = in->room = 0;
}

/* ---- the end --------------------------------------------------------------------- */

static const struct meaning {
    uint32_t code;
    int status;
} of_http[] = { { 400, GRPC_INTERNAL },          { 401, GRPC_UNAUTHENTICATED },
                { 403, GRPC_PERMISSION_DENIED }, { 404, GRPC_UNIMPLEMENTED },
                { 429, GRPC_UNAVAILABLE },       { 502, GRPC_UNAVAILABLE },
                { 503, GRPC_UNAVAILABLE },       { 504, GRPC_UNAVAILABLE } },
  of_reset[] = { { GRPC_RESET_REFUSED, GRPC_UNAVAILABLE },
                 { GRPC_RESET_CANCEL, GRPC_CANCELLED },
                 { GRPC_RESET_CALM, GRPC_RESOURCE_EXHAUSTED },
                 { GRPC_RESET_SECURITY, GRPC_PERMISSION_DENIED } };

static int status_of(const struct meaning *table, size_t n, uint32_t code, int other)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].code == code)
            return table[i].status;
    return other;
}

/* What was not taken ends with the end of a message. */
static bool ends_whole(const struct grpc_in *in)
{
    size_t left = in->len - in->at;

    while (left >= GRPC_PREFIX) {
        size_t len = body_length(in->buf + in->len - left);

        if (len > left - GRPC_PREFIX)
            break;
        left -= GRPC_PREFIX + len;
    }
    return left == 0;
}

void hf__grpc_end(struct grpc_in *in, bool reset, uint32_t code)
{
    char text[64];
    int status = GRPC_UNKNOWN;

    if (in->has_status && in->grpc && !reset) {
        if (in->status == GRPC_OK && !ends_whole(in))
            refuse(in, GRPC_INTERNAL, "half a message");
        return;
    }
    if (in->seen && !in->grpc) {
        status = status_of(of_http, sizeof of_http / sizeof *of_http, (uint32_t)in->http,
                           GRPC_UNKNOWN);
        snprintf(text, sizeof text, "no gRPC, HTTP status %d", in->http);
    } else if (reset) {
        status =
            status_of(of_reset, sizeof of_reset / sizeof *of_reset, code, GRPC_INTERNAL);
        snprintf(text, sizeof text, "the stream was reset, code %lu", (unsigned long)code);
    } else {
        snprintf(text, sizeof text, "an answer without a status");
    }
    refuse(in, status, text);
}

void hf__grpc_done(struct grpc_in *in)
{
    free(in->buf);
    memset(in, 0, sizeof *in);
}

/* ---- out ------------------------------------------------------------------------- */

void hf__grpc_prefix(unsigned char at[GRPC_PREFIX], size_t len)
{
    at[0] = 0;
    at[1] = (unsigned char)(len >> 24);
    at[2] = (unsigned char)(len >> 16);
    at[3] = (unsigned char)(len >> 8);
    at[4] = (unsigned char)len;
}

void hf__grpc_timeout(char ret[GRPC_TIMEOUT_MAX], int64_t ms)
{
    const int64_t most = 99999999;
    int64_t seconds = ms / 1000 < most ? ms / 1000 : most;

    if (ms < 1)
        ms = 1;
    snprintf(ret, GRPC_TIMEOUT_MAX, "%d%c", (int)(ms <= most ? ms : seconds),
             ms <= most ? 'm' : 'S');
}
