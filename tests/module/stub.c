/* stub.c: a driver that is never reachable, as a module: what the loader is tested with.
 *
 * Goes well: open answers HF_EUNREACHABLE with a text of its own, through hf__fail of the
 * library that loaded it, which shows that private symbols bind. It opens nothing, so no
 * other verb is ever called.
 */
#include "seam/seam.h"

extern const struct hf_driver hf__driver_stub;

static int stub_open(struct store **ret, const struct url *url, struct env *env,
                     hf_error *err)
{
    (void)ret;
    (void)env;
    return hf__fail(err, HF_EUNREACHABLE, 0, url->shown, "the stub is never reachable");
}

const struct hf_driver hf__driver_stub = {
    .name = "stub",
    .schemes = "stub stub+variant",
    .open = stub_open,
};
