/* mutate.h: deliberate defects of the kit, as core/mutate.h has them of the core: switched
 * on at run time in the simulator's build, and 0 in every other. */
#ifndef HF_KIT_MUTATE_H
#define HF_KIT_MUTATE_H

#ifdef HF_SIM
#define HF_LINK_MUTANTS(X)                                                                 \
    X(INSIDE_SEND, "inside-send",                                                          \
      "a call that cannot be sent is told so inside its sending")                          \
    X(BEFORE_DOWN, "before-down", "what has no answer is told before DOWN is raised")      \
    X(LOST_CALL, "lost-call", "a call is forgotten when its connection is lost")           \
    X(STAYS_CLOSED, "stays-closed", "a connection that was lost is not opened again")      \
    X(LATE_UNREAD, "late-unread", "an answer is called late without reading first")        \
    X(SAME_PAUSE, "same-pause", "pauses between attempts to connect do not grow")          \
    X(LONG_PAUSE, "long-pause", "pauses between attempts to connect grow without end")
#define HF_SCRIPTED_MUTANTS(X)                                                             \
    X(OUTDATED, "outdated", "a grant counts from a request that came after it")            \
    X(OVERTAKES, "leave-overtakes", "a leave does not wait for the answer to its join")    \
    X(NO_ECHO, "no-echo", "a join that was lost with its connection is forgotten")         \
    X(MIXED_LIVES, "mixed-lives", "waiting lives of different ttls are taken for one")     \
    X(NOT_WOKEN, "not-woken", "a message that comes before the join's answer is dropped")  \
    X(NOT_AGAIN, "not-again", "a message that comes while a look is under way is dropped") \
    X(REFUSED_LEAVE, "refused-leave",                                                      \
      "a leave that waits for a join which is then refused is forgotten")                  \
    X(LEFT_BLIND, "left-blind",                                                            \
      "a leave without answer counts as one that settled nothing")                         \
    X(SENT_FORGOTTEN, "sent-forgotten",                                                    \
      "a join without answer counts as one that was never sent")                           \
    X(ASKED_STAYS, "asked-stays", "a look without answer counts as under way for ever")    \
    X(LATE_LOOK, "late-look", "a look's answer is believed of a ticket that is leaving")
#define HF_ORDERED_MUTANTS(X)                                                              \
    X(STALE_DECIDES, "stale-decides", "a view that lacks something decides")               \
    X(EARLY_VIEW, "early-view", "a view of before our own create decides")                 \
    X(OLD_LIST, "old-list", "a list that is older than our own create decides")            \
    X(OWN_UNSEEN, "own-unseen", "a grant does not need that our own node was seen")        \
    X(OLD_CONFIRM, "old-confirm",                                                          \
      "our own node is believed to be there by a read older than what was told")           \
    X(NOT_FOUND, "not-found", "the node of an unanswered create counts as another's")      \
    X(NO_LOOK, "no-look", "a watch that was lost is not set again")                        \
    X(GONE_WITH_NAME, "gone-with-name",                                                    \
      "an exclusive ticket that has another name now counts as gone")                      \
    X(LEFT_UNSEEN, "left-unseen", "a leave without answer ends the ticket in the view")
enum kit_mutant {
    MUTANT_KIT_BEGIN = 200,
#define HF_X(name, word, text) MUTANT_##name,
    HF_LINK_MUTANTS(HF_X) HF_SCRIPTED_MUTANTS(HF_X) HF_ORDERED_MUTANTS(HF_X)
#undef HF_X
};
extern int hf__mutant;
#define MUTANT(name) (hf__mutant == MUTANT_##name)
#else
#define MUTANT(name) 0
#endif

#endif
