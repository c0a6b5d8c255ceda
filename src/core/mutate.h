/* mutate.h: deliberate defects, to prove that the simulator finds them. In the simulator's
 * build one of them may be switched on at run time; in every other build MUTANT() is 0 and
 * nothing of this is left. tests/sim and docs/verification.md say what each one breaks.
 * Besides, the one moment that the simulator cannot see from outside. */
#ifndef HF_CORE_MUTATE_H
#define HF_CORE_MUTATE_H

#ifdef HF_SIM
#define HF_CORE_MUTANTS(X)                                                                 \
    X(RECEIPT, "receipt", "a renewal counts from the receipt of its answer")               \
    X(GRANT_MOVES, "grant-moves", "a grant by another's release counts from its receipt")  \
    X(NO_DRIFT, "no-drift", "the deadline allows no drift of clocks")                      \
    X(THIN, "thin", "a grant with little or no time left is not confirmed first")          \
    X(LATE_LOSS, "late-loss", "loss is told at the store's expiry, after the deadline")    \
    X(LATE_GRANT, "late-grant", "a grant that comes after giving up is kept")              \
    X(FORGET_JOIN, "forget-join", "giving up an unanswered join leaves nothing behind")    \
    X(FIRST_HANDLE, "first-handle", "the ticket leaves with the first of its handles")     \
    X(NO_HINTS, "no-hints", "tickets do not say what their owners hold")                   \
    X(ONE_READING, "one-reading", "the deadlock walk reads the lines once")                \
    X(NO_RESTART, "no-restart",                                                            \
      "a grant to an owner that waits elsewhere does not restart its walk")                \
    X(PERMITS_CYCLE, "permits-cycle", "a cycle through permits counts as a deadlock")      \
    X(SUM32, "sum32", "weights are summed in 32 bits, here and in the store")              \
    X(SKIP_RENEW, "skip-renew", "a renewal is skipped while another is unanswered")        \
    X(UP_FORGETS, "up-forgets", "nothing is repeated when the store is back")              \
    X(BACK_FORGETS, "back-forgets", "nothing is repeated when a part of it is back")       \
    X(BACK_UNTIMED, "back-untimed",                                                        \
      "a leave is forgotten a ttl after UP, though a part of the store was lost since")    \
    X(CAPS_AT_CALL, "caps-at-call",                                                        \
      "what a store cannot do is known at its first UP, and granted all the same")         \
    X(ALL_KEEPS, "all-keeps", "a failed acquire of several names keeps those it has")      \
    X(RETRY_AT_ONCE, "retry-at-once",                                                      \
      "a ticket that must wait before it joins again joins at once")                       \
    X(RETRY_FORGOTTEN, "retry-forgotten",                                                  \
      "a ticket that must wait before it joins again never joins")                         \
    X(STOP_RELEASES, "stop-releases", "a client that is stopped gives up what it holds")   \
    X(STOP_NO_RENEW, "stop-no-renew", "a client that is stopped does not renew any more")  \
    X(STOP_STARTS, "stop-starts", "a client that is stopped still takes places in lines")  \
    X(SPIN_FREE, "spin-free", "polling in vain costs nothing of the budget")
enum mutant {
    MUTANT_NONE,
#define HF_X(name, word, text) MUTANT_##name,
    HF_CORE_MUTANTS(HF_X)
#undef HF_X
        MUTANT_CORE_END
};
extern int hf__mutant;
#define MUTANT(name) (hf__mutant == MUTANT_##name)
struct hold;
void hf__sim_read_once(const struct hold *); /* a deadlock walk has read every line once */
#else
#define MUTANT(name) 0
#define hf__sim_read_once(hold) ((void)(hold))
#endif

#endif
