/* ordered_mutants.h: deliberate defects of this part, as src/core/mutate.h has them of the
 * core: only in the simulator's build, and one at a time. */
#ifndef HF_KIT_ORDERED_MUTANTS_H
#define HF_KIT_ORDERED_MUTANTS_H

#ifdef HF_SIM
#define HF_ORDERED_MUTANTS(X)                                                              \
    X(STALE_DECIDES, "stale-decides", "a view that lacks something decides")               \
    X(EARLY_VIEW, "early-view", "a view of before our own create decides")                 \
    X(OLD_LIST, "old-list", "a list that is older than our own create decides")            \
    X(OWN_UNSEEN, "own-unseen", "a grant does not need that our own node was seen")        \
    X(NOT_FOUND, "not-found", "the node of an unanswered create counts as another's")      \
    X(NO_LOOK, "no-look", "a watch that was lost is not set again")                        \
    X(GONE_WITH_NAME, "gone-with-name",                                                    \
      "an exclusive ticket that has another name now counts as gone")                      \
    X(LEFT_UNSEEN, "left-unseen", "a leave without answer ends the ticket in the view")
enum ordered_mutant {
    MUTANT_ORDERED_BEGIN = 200,
#define HF_X(name, word, text) MUTANT_##name,
    HF_ORDERED_MUTANTS(HF_X)
#undef HF_X
};
extern int hf__mutant;
#define ORDERED_MUTANT(name) (hf__mutant == MUTANT_##name)
#else
#define ORDERED_MUTANT(name) 0
#endif

#endif
