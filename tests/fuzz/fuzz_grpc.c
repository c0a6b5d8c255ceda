/* fuzz_grpc.c: the codec of gRPC under a server that says anything. The input is a list of
 * steps: header blocks, headers, pieces of DATA. Messages do not depend on where pieces
 * begin and end; nothing is OK that was not said to be; nothing is read beyond its end. */
#include "proto/grpc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *, size_t);

enum { WHOLE = 1 << 16 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static const char *const names[] = { ":status", "content-type", "grpc-status",
                                     "grpc-message", "grpc-encoding" };
static const char *const values[] = { "200", "application/grpc", "0", "14", "%41%", "503" };

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static struct input part(struct input *in)
{
    size_t n = byte(in);
    struct input p = { in->at, n < in->left ? n : in->left };

    in->at += p.left;
    in->left -= p.left;
    return p;
}

static void header(struct grpc_in *g, struct input *in)
{
    uint8_t what = byte(in);
    const char *name = names[what % 5];
    struct input value = part(in);

    if (what & 64)
        value =
            (struct input){ (const uint8_t *)values[what % 6], strlen(values[what % 6]) };
    if (what & 128) /* any name */
        hf__grpc_header(g, value.at, value.left, value.at, value.left);
    else
        hf__grpc_header(g, name, strlen(name), value.at, value.left);
    must(memchr(g->text, 0, sizeof g->text) != NULL);
}

/* The messages of `whole`, given at once, are those that came in pieces. */
static void same(const unsigned char *whole, size_t len, const unsigned char *sum,
                 size_t sum_len)
{
    struct grpc_in g = { 0 };
    struct grpc_message m;
    size_t n = 0;

    must(hf__grpc_data(&g, whole, len) == 0);
    while (hf__grpc_next(&g, &m)) {
        must(n + m.len <= sum_len && memcmp(sum + n, m.at, m.len) == 0);
        n += m.len;
    }
    must(n == sum_len);
    hf__grpc_done(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static unsigned char whole[WHOLE], sum[WHOLE];
    struct input in = { bytes, len }, p;
    size_t whole_len = 0, sum_len = 0;
    struct grpc_in g = { 0 };
    struct grpc_message m;
    char timeout[GRPC_TIMEOUT_MAX];
    bool web = false; /* DATA came that is none of gRPC */
    uint8_t last = 0;

    while (in.left > 0 && whole_len < WHOLE - 256)
        switch ((last = byte(&in)) % 4) {
        case 0:
            hf__grpc_block(&g);
            break;
        case 1:
            header(&g, &in);
            break;
        default:
            p = part(&in);
            web = web || (g.seen && !g.grpc);
            must(hf__grpc_data(&g, p.at, p.left) == 0);
            memcpy(whole + whole_len, p.at, p.left);
            whole_len += p.left;
            while (hf__grpc_next(&g, &m)) {
                memcpy(sum + sum_len, m.at, m.len);
                sum_len += m.len;
            }
        }
    if (!web)
        same(whole, whole_len, sum, sum_len);
    hf__grpc_end(&g, last & 128, last);
    must(g.status >= 0 && g.status < GRPC_STATUSES);
    must(g.status != GRPC_OK || (!g.bad && g.has_status && g.grpc && g.at == g.len));
    must(*hf__grpc_status_name(g.status) != '\0');
    hf__grpc_timeout(timeout, (int64_t)(whole_len * len * len * 7919));
    must(strlen(timeout) < sizeof timeout);
    hf__grpc_done(&g);
    return 0;
}
