/* waiters.h: very many that wait in one process, on one name: a client that the case drives
 * itself. */
#ifndef HF_TESTS_WAITERS_H
#define HF_TESTS_WAITERS_H

#include "rig.h"

#include <holdfast/async.h>

struct one {
    hf_client *client;
    hf_lease *held; /* the last grant */
    int granted;
};
extern struct one one;

void one_granted(hf_op *, int rc, hf_lease *, const hf_error *, void *user);
void one_until_granted(int n); /* drives it */

/* So many tickets begin to stand in line. */
void one_waits(int64_t tickets, const hf_request *);
void one_hands_over(int n); /* to the next, so many times */

#endif
