/* tally.c: how often each thing has happened. A fault that never comes proves nothing:
 * in ./check a run of two minutes must have seen every kind of act and of event at least
 * once. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t acts[ACT_KINDS], sights[SIGHTS];
static const char *const words[SIGHTS] = {
#define HF_X(name, word) [S_##name] = word,
    SIM_SIGHTS(HF_X)
#undef HF_X
};

void tally_act(enum act_kind k)
{
    acts[k]++;
}

void tally_sight(enum sight s)
{
    sights[s]++;
}

void tally_tell(void)
{
    printf("# done:");
    for (int i = 0; i < ACT_KINDS; i++)
        printf("%s %s %" PRIu64, i ? "," : "", act_word((enum act_kind)i), acts[i]);
    printf("\n# seen:");
    for (int i = 0; i < SIGHTS; i++)
        printf("%s %s %" PRIu64, i ? "," : "", words[i], sights[i]);
    printf("\n");
}

bool tally_missing(void)
{
    bool any = false;

    for (int i = 0; i < ACT_KINDS; i++)
        if (acts[i] == 0)
            any = true, printf("# never done: %s\n", act_word((enum act_kind)i));
    for (int i = 0; i < SIGHTS; i++)
        if (sights[i] == 0)
            any = true, printf("# never seen: %s\n", words[i]);
    return any;
}
