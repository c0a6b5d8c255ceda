/* slow.c: the stub once more, in a module that is still being loaded while the test does
 * something else: what its constructor does is what the constructors of a large client
 * library would do. HF_TEST_SLOW has two descriptors: it writes a byte to the first when it
 * has begun, and goes on when it can read one from the second, or after a second.
 */
#include "seam/seam.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern const struct hf_driver hf__driver_slow;

__attribute__((constructor)) static void linger(void)
{
    const char *fds = getenv("HF_TEST_SLOW");
    struct pollfd go = { .events = POLLIN };
    int begun;

    if (fds && sscanf(fds, "%d %d", &begun, &go.fd) == 2 && write(begun, "", 1) == 1)
        poll(&go, 1, 1000);
}

static int slow_open(struct store **ret, const struct url *url, struct env *env,
                     hf_error *err)
{
    (void)ret;
    (void)env;
    return hf__fail(err, HF_EUNREACHABLE, 0, url->shown, "never reachable");
}

const struct hf_driver hf__driver_slow = {
    .name = "slow",
    .schemes = "slow",
    .open = slow_open,
};
