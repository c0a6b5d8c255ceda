/* Redlock's protocol at random (round_world.h), and single verdicts.
 *
 * The same schedules refuse what is wrong: INCR on each node and the greatest of the votes;
 * nodes that count though they have just been started; marks of an earlier run that are
 * believed; a renewal that counts what it has just given, after its time; requests that are
 * repeated whatever has happened since; nodes that are seeded by a round that is older than
 * the run of their server, or for one bucket of names only.
 *
 * HF_SEED=N repeats a run; HF_ROUNDS=N plays so many schedules. */
#include "round_world.h"

#include <sys/random.h>

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 0) : otherwise;
}

static uint64_t first_seed(void)
{
    static uint64_t seed;

    if (seed == 0) {
        assert_int_equal(getrandom(&seed, sizeof seed, 0), sizeof seed);
        seed = number("HF_SEED", seed >> 16 | 1);
        print_message("# seed: HF_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

static void holds_with(bool clocks)
{
    uint64_t seed = first_seed(), rounds = number("HF_ROUNDS", 1500);
    size_t grants = 0, restarts = 0, seconds = 0, seeded = 0, renewed = 0, spread_to = 0,
           repeated = 0;

    for (uint64_t i = 0; i < rounds; i++) {
        struct world *w = world_play(seed + i, SOUND, clocks);

        if (w->wrong)
            fail_msg("%s: HF_SEED=%llu HF_ROUNDS=1", w->wrong,
                     (unsigned long long)(seed + i));
        grants += w->ngiven;
        restarts += w->restarts;
        seconds += w->seconds;
        seeded += w->seeded;
        renewed += w->renewed;
        spread_to += w->spread;
        repeated += w->repeated;
        world_end(w);
    }
    print_message("# %zu grants, %zu in two phases, %zu restarts, %zu marks seeded, "
                  "%zu renewals, %zu keys given later, %zu requests repeated\n",
                  grants, seconds, restarts, seeded, renewed, spread_to, repeated);
    if (rounds >= 100) {
        assert_true(grants > rounds * 10);
        assert_true(seconds > rounds && restarts > rounds && seeded > rounds);
        assert_true(seconds < grants);
        assert_true(renewed > rounds && spread_to > rounds && repeated > rounds);
    }
}

static void sound_without_clocks(void **state)
{
    (void)state;
    holds_with(false);
}

static void sound_with_skewed_clocks(void **state)
{
    (void)state;
    holds_with(true);
}

static void refused(enum variant variant)
{
    uint64_t seed = first_seed();

    for (uint64_t i = 0; i < 20000; i++) {
        struct world *w = world_play(seed + i, variant, false);
        const char *wrong = w->wrong;

        world_end(w);
        if (wrong) {
            print_message("# %s, in schedule %llu\n", wrong, (unsigned long long)i + 1);
            return;
        }
    }
    fail_msg("nothing was found");
}

static void naive_fails(void **state)
{
    (void)state;
    refused(NAIVE);
}

static void no_guard_fails(void **state)
{
    (void)state;
    refused(NO_GUARD);
}

static void old_marks_fail(void **state)
{
    (void)state;
    refused(OLD_MARKS);
}

static void counted_fails(void **state)
{
    (void)state;
    refused(COUNTED);
}

static void repeated_fails(void **state)
{
    (void)state;
    refused(REPEATED);
}

/* Too rare to be met by chance. */
static void refused_with(enum variant variant, uint64_t seed)
{
    struct world *wrong = world_play(seed, variant, false),
                 *sound = world_play(seed, SOUND, false);

    assert_non_null(wrong->wrong);
    assert_null(sound->wrong);
    world_end(wrong);
    world_end(sound);
}

static void floorless_fails(void **state)
{
    (void)state;
    refused_with(FLOORLESS, UINT64_C(12730912960397));
}

static void seeded_later_fails(void **state)
{
    (void)state;
    refused_with(SEEDED, UINT64_C(5025154));
}

/* ---- who may be seeded ----------------------------------------------------------- */

static struct round voted(unsigned n, const char *votes)
{
    struct round r;

    hf__redis_round_init(&r, n, 100);
    for (unsigned i = 0; i < n; i++)
        switch (votes[i]) {
        case 'm': /* a mark that is not lower */
            hf__redis_round_vote(&r, i, ANSWER_YES, MARK_OWN, 200 + i, 250);
            break;
        case 't':
            hf__redis_round_vote(&r, i, ANSWER_YES, MARK_TAKEN, 100, 500);
            break;
        case 'o':
            hf__redis_round_vote(&r, i, ANSWER_YES, MARK_OLD, 300, 350);
            break;
        case 'x': /* no mark, and started just now */
            r.nodes[i].counts = false;
            /* fall through */
        case 'b':
            hf__redis_round_vote(&r, i, ANSWER_YES, MARK_NONE, 0, 0);
            break;
        case 'n':
            hf__redis_round_vote(&r, i, ANSWER_NO, MARK_OWN, 400, 450);
            break;
        case 'f':
            hf__redis_round_vote_failed(&r, i);
            break;
        default:
            break;
        }
    return r;
}

static void check_voted(const char *votes, enum round_verdict verdict, uint64_t candidate,
                        unsigned asked)
{
    struct round r = voted((unsigned)strlen(votes), votes);
    unsigned n = 0;

    assert_int_equal(hf__redis_round_verdict(&r), verdict);
    for (unsigned i = 0; i < r.n; i++)
        n += r.nodes[i].asked;
    if (verdict == ROUND_RAISE)
        assert_int_equal(n, asked);
    if (verdict == ROUND_RAISE || verdict == ROUND_WON)
        assert_int_equal(r.candidate, candidate);
}

static void verdicts(void **state)
{
    (void)state;
    check_voted("tt...", ROUND_WAITS, 0, 0);
    check_voted("ttt..", ROUND_WON, 100, 0);
    check_voted("ttm..", ROUND_RAISE, 203, 3);
    check_voted("nnn..", ROUND_LOST, 0, 0);
    check_voted("ttnnf", ROUND_LOST, 0, 0);
    check_voted("tttnn", ROUND_WON, 100, 0);
    check_voted("mmmnn", ROUND_RAISE, 401,
                3);                          /* above the marks of those that say no, too */
    check_voted("bbb..", ROUND_WAITS, 0, 0); /* for all that can be given a mark */
    check_voted("bbbbb", ROUND_RAISE, 100, 5); /* first use */
    check_voted("bbbff", ROUND_RAISE, 100, 3);
    check_voted("oooff", ROUND_RAISE, 301, 3); /* all were started again */
    check_voted("ttb..", ROUND_WAITS, 0, 0);   /* the other two may know more */
    check_voted("ttbf.", ROUND_WAITS, 0, 0);
    check_voted("ttbff", ROUND_LOST, 0, 0);
    check_voted("mtbnf", ROUND_RAISE, 401, 3); /* three marks are known */
    check_voted("mmbbb", ROUND_RAISE, 202, 5); /* seeding that stopped half-way */
    check_voted("mmbb", ROUND_RAISE, 202, 4);  /* two of four are in every majority */
    check_voted("mbbf", ROUND_LOST, 0, 0);
    check_voted("ttxxx", ROUND_LOST, 0, 0);
    check_voted("xxxxx", ROUND_LOST, 0, 0);
}

/* By a winner, afterwards; but not before it counts. */
static void seeded_by_winner(void **state)
{
    struct round r = voted(5, "tttbx");

    (void)state;
    assert_int_equal(hf__redis_round_verdict(&r), ROUND_WON);
    assert_false(hf__redis_round_seeds(&r, 0));
    assert_true(hf__redis_round_seeds(&r, 3));
    assert_int_equal(hf__redis_round_floor(&r), 500); /* not the fence */
    assert_false(hf__redis_round_seeds(&r, 4));
    r = voted(5, "ttt..");
    r.nodes[3].awaited = true;
    assert_int_equal(hf__redis_round_verdict(&r), ROUND_WAITS);
    hf__redis_round_time_over(&r);
    assert_int_equal(hf__redis_round_verdict(&r), ROUND_WON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_without_clocks), cmocka_unit_test(sound_with_skewed_clocks),
        cmocka_unit_test(naive_fails),          cmocka_unit_test(no_guard_fails),
        cmocka_unit_test(old_marks_fail),       cmocka_unit_test(counted_fails),
        cmocka_unit_test(repeated_fails),       cmocka_unit_test(floorless_fails),
        cmocka_unit_test(seeded_later_fails),   cmocka_unit_test(verdicts),
        cmocka_unit_test(seeded_by_winner),
    };

    return cmocka_run_group_tests_name("round", tests, NULL, NULL);
}
