/* zookeeper_broken.c: what broken.h says, on one ZooKeeper server. */
#include "broken.h"
#include "zookeeper_fault.h"

#include "proto/jute.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static void release_is_under_way(void)
{
    hf_client *direct;

    use_one_by_proxy(BROKEN_TIMEOUT);
    direct = opened_directly(0);
    release_breaks(&proxy, 1, direct);
    closed(direct);
    done();
}

static void timeout_is_short(void)
{
    use_one_by_proxy(SHORT_TIMEOUT);
    short_timeout(proxy);
    done();
}

static atomic_int error;

static bool receive(int fd, unsigned char *in, size_t size, size_t *ret)
{
    int64_t len;

    if (recv(fd, in, 4, MSG_WAITALL) != 4)
        return false;
    len = hf__jute_length(in, 4) - 4;
    CHECK(len >= 8 && (size_t)len < size);
    *ret = (size_t)len;
    return recv(fd, in, (size_t)len, MSG_WAITALL) == len;
}

/* Takes every session, and knows that it lives; all else is refused. */
static void talk(int fd)
{
    enum { REPLY = 4 + 16 };
    static const unsigned char greeting[41] = {
        [3] = 37, [10] = 0x0f, 0xa0, [19] = 5, [23] = 16
    };
    unsigned char in[8192], out[REPLY] = { [3] = REPLY - 4 };
    size_t len;

    if (receive(fd, in, sizeof(in), &len))
        send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL);
    while (receive(fd, in, sizeof(in), &len)) {
        bool proof = in[7] == JUTE_MULTI || in[7] == JUTE_SYNC;
        uint32_t code = proof ? 0 : (uint32_t)error;

        memcpy(out + 4, in, 4); /* its number */
        for (int i = 0; i < 4; i++)
            out[16 + i] = (unsigned char)(code >> 8 * (3 - i));
        send(fd, out, REPLY, MSG_NOSIGNAL);
    }
}

static void errors_only(void)
{
    static const struct {
        int error, code;
    } cases[] = { { JUTE_NO_AUTH, HF_EAUTH }, { JUTE_QUOTA, HF_EFULL }, { -1, HF_EPROTO } };
    struct fake *f = fake_new(talk);
    char url[128];

    snprintf(url, sizeof(url), "zk://127.0.0.1:%d/x?ttl=4s&" BROKEN_TIMEOUT, fake_port(f));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        error = cases[i].error;
        only_errors(url, cases[i].code);
    }
    fake_free(f);
}

const struct test_case zookeeper_broken_cases[] = {
    { "release-breaks", release_is_under_way, ON_ALL, 0, 0 },
    { "short-timeout", timeout_is_short, ON_ALL, 0, 0 },
    { "errors-only", errors_only, ON_ALL, 0, 0 },
    { NULL, NULL, 0, 0, 0 },
};
