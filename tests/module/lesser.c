/* lesser.c: the embedded store, as a module that can do less and whose URL has more: no
 * place ends by itself (no HF_CAP_KEEP), and lesser://USER:PASSWORD@HOST/FOLDER?KEY=VALUE
 * is taken. What the command does on such stores is tested with it, without a server.
 */
#include "seam/seam.h"

#include <stddef.h>

extern const struct hf_driver hf__driver_lesser, hf__driver_local;

static int lesser_open(struct store **ret, const struct url *url, struct env *env,
                       hf_error *err)
{
    struct url mine = *url;
    int rc;

    mine.user = mine.password = NULL;
    mine.nhosts = mine.nparams = 0;
    rc = hf__driver_local.open(ret, &mine, env, err);
    if (rc == 0)
        (*ret)->caps &= ~(uint32_t)HF_CAP_KEEP;
    return rc;
}

const struct hf_driver hf__driver_lesser = {
    .name = "lesser",
    .schemes = "lesser",
    .open = lesser_open,
};
