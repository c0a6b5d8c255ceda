/* waiters.c: see waiters.h. */
#include "waiters.h"

struct one one;

void one_granted(hf_op *op, int rc, hf_lease *l, const hf_error *err, void *user)
{
    (void)err;
    (void)user;
    hf_op_free(op);
    if (rc == HF_ECLOSED)
        return;
    CHECK_RC(rc, 0);
    one.held = l;
    one.granted++;
}

void one_until_granted(int n)
{
    while (one.granted < n)
        CHECK(hf_client_wait(one.client, 1000) >= 0);
}

void one_waits(int64_t tickets, const hf_request *req)
{
    hf_op *op;

    CHECK_RC(hf_open(rig.place->url, HF_OPTIONS(.drive = HF_DRIVE_APP), &one.client, E()),
             0);
    for (int64_t i = 0; i < tickets; i++)
        CHECK_RC(hf_acquire_start(one.client, nm("n"), HF_FOREVER, req, one_granted, NULL,
                                  &op, E()),
                 0);
}

void one_hands_over(int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_RC(hf_release_start(one.held, NULL, NULL, NULL, E()), 0);
        one_until_granted(one.granted + 1);
    }
}
