/* crowd.h: very many that wait: 50 processes with 20 tickets each, mixed in one line, so
 * that each process knows nothing of most tickets before its own. What a hand-off costs
 * then is counted by who includes this: it is told to those that it may let in, and read by
 * them, not by every process, and not once for each ticket that waits. */
#ifndef HF_TESTS_CROWD_H
#define HF_TESTS_CROWD_H

#include "rig.h"

enum { PROCESSES = 50, WAITERS = 20, HANDS = 100 };

struct crowd { /* pipes between the processes */
    const hf_request *req;
    int next[2]; /* a byte in it: whoever holds and reads it releases */
    int told[2]; /* a byte for each grant */
    int end[2];  /* readable when all is over */
    pid_t pids[PROCESSES];
};

/* All of them stand in line, and so many hold; `looker` is a client of the case. */
void crowd_start(struct crowd *, const hf_request *, size_t holders, hf_client *looker);
void crowd_hand_over(const struct crowd *); /* HANDS times, one after the other */
void crowd_end(struct crowd *);

#endif
