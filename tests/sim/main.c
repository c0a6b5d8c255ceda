/* main.c: the simulator's command line, and its face as a test program.
 *
 *   sim --time SECONDS [--seed N] [--mutation NAME]   runs seeds from N on (fresh if not
 *   given) sim --seed N [--verbose]                          repeats one seed sim
 *   --mutations SECONDS [NAME...]                 how long until each mutation is found sim
 *   --tap SEEDS_FILE SECONDS few|all              for ./check
 *
 * A failing seed is shrunk and told as a history that ends with the guarantee that broke.
 * */
#include "sim.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static struct plan plan;
static volatile sig_atomic_t running; /* a seed is being run: w.plan->seed */

static const struct mutation {
    int number;
    const char *word, *text;
} mutations[] = {
#define HF_X(name, word, text) { MUTANT_##name, word, text },
    HF_CORE_MUTANTS(HF_X) SIM_MUTANTS(HF_X) HF_LINK_MUTANTS(HF_X) HF_SCRIPTED_MUTANTS(HF_X)
        HF_ORDERED_MUTANTS(HF_X)
#undef HF_X
};
enum { MUTATIONS = sizeof mutations / sizeof mutations[0] };

static double seconds_of(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

static const struct mutation *mutation_named(const char *word)
{
    for (size_t i = 0; i < MUTATIONS; i++)
        if (strcmp(mutations[i].word, word) == 0)
            return &mutations[i];
    fprintf(stderr, "sim: no mutation %s; there are:\n", word);
    for (size_t i = 0; i < MUTATIONS; i++)
        fprintf(stderr, "  %-20s %s\n", mutations[i].word, mutations[i].text);
    exit(64);
}

static const char *mutation_word(int number)
{
    for (size_t i = 0; i < MUTATIONS; i++)
        if (mutations[i].number == number)
            return mutations[i].word;
    return "";
}

static uint64_t fresh_seed(void)
{
    uint64_t x = (uint64_t)time(NULL);

    (void)!getrandom(&x, sizeof x, 0);
    return x >> 24;
}

/* ---- telling --------------------------------------------------------------------- */

static void describe(const struct plan *p)
{
    static const char *const families[] = { "answers inside the call (local)",
                                            "scripted (redis, sql)",
                                            "ordered (zookeeper, etcd)",
                                            "may end a hold at any moment" };

    printf("# store: %s%s; %d processes of %d clients (0 to %d in the first), %d lines, "
           "ttl",
           families[p->family], p->eager ? ", ends what expired at once" : "", p->procs,
           p->slots, p->slots - 1, p->lines);
    for (int i = 0; i < p->nttls; i++)
        printf("%s %lld", i ? "," : "", (long long)p->ttl_ms[i]);
    printf(" ms; a message takes %lld to %lld us\n", (long long)p->delay_us,
           (long long)(p->delay_us + p->jitter_us));
}

/* What the history ends with, in words. */
static const char *meaning(const char *id)
{
    static const struct {
        const char *id, *text;
    } all[] = {
        { "G1", "exclusion: check says held only while nobody else can have the place" },
        { "G2", "fences grow with every grant of a name" },
        { "G3", "first come, first served" },
        { "G6", "loss is told, before the deadline, and not without a cause" },
        { "G7", "nothing is left in a line by those who gave up or have gone" },
        { "G8", "a request means one ticket, and takes nobody else's place" },
        { "G9", "re-entered by its owner alone, and left with the last handle" },
        { "G10", "every deadlock is found, and nothing else is called one" },
        { "G11", "bad input is refused, with a reason, and changes nothing" },
        { "G12", "in a forked child the parent's handles are worth nothing" },
        { "liveness", "when all goes well again, everybody is served, once (G4, G5, G10)" },
        { "link", "a call is answered once, and a connection that is wanted is there" },
        { "memory", "the core frees what it has once" },
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].id, id) == 0)
            return all[i].text;
    return "";
}

static void tell_failure(uint64_t seed, int mutant)
{
    printf("# seed %" PRIu64 ": %s is broken after %" PRIu64 " steps: %s\n", seed, w.broke,
           w.steps, w.why);
    plan_make(&plan, seed);
    shrink(&plan, mutant);
    describe(&plan);
    run_world(&plan, mutant, true);
    if (w.broke)
        printf("# %s: %s\n", w.broke, meaning(w.broke));
    printf("# repeat: tools/sim --seed %" PRIu64 "%s%s (the whole: --verbose)\n", seed,
           mutant ? " --mutation " : "", mutation_word(mutant));
    fflush(stdout);
}

static void crashed(int sig)
{
    char text[80];
    int n = snprintf(text, sizeof text, "# seed %" PRIu64 " crashes\n",
                     running ? w.plan->seed : 0);

    (void)!write(STDOUT_FILENO, text, (size_t)n);
    signal(sig, SIG_DFL);
    raise(sig);
}

/* ---- running --------------------------------------------------------------------- */

struct tally {
    uint64_t steps, runs, seed; /* seed: the failing one */
    double took;
    bool failed;
    char broke[16];
};

static struct tally search(uint64_t seed, double limit, int mutant)
{
    struct tally t = { .seed = seed };
    double start = seconds();

    running = 1;
    do {
        plan_make(&plan, t.seed);
        run_world(&plan, mutant, false);
        t.steps += w.steps;
        t.runs++;
        t.took = seconds() - start;
        if (w.broke) {
            t.failed = true;
            snprintf(t.broke, sizeof t.broke, "%s", w.broke);
            return t;
        }
        t.seed++;
    } while (t.took < limit);
    return t;
}

/* ret_rate, if not NULL: million steps in a minute of the processor */
static int run_time(uint64_t seed, double limit, int mutant, double *ret_rate)
{
    double start = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    struct tally t = search(seed, limit, mutant);

    if (ret_rate)
        *ret_rate =
            (double)t.steps * 60 / 1e6 / (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start);

    printf("# %" PRIu64 " runs from seed %" PRIu64 ", %" PRIu64
           " steps, %.1f s: %.1f million "
           "steps a minute\n",
           t.runs, seed, t.steps, t.took, (double)t.steps / t.took * 60 / 1e6);
    tally_tell();
    if (t.failed)
        tell_failure(t.seed, mutant);
    return t.failed;
}

static int run_seed(uint64_t seed, int mutant, bool verbose)
{
    running = 1;
    plan_make(&plan, seed);
    run_world(&plan, mutant, verbose);
    printf("# seed %" PRIu64 ": %" PRIu64 " steps\n", seed, w.steps);
    if (!w.broke)
        return 0;
    if (verbose)
        printf("# %s is broken: %s\n", w.broke, w.why);
    else
        tell_failure(seed, mutant);
    return 1;
}

/* A seed that fails without the mutation, too, shows nothing. */
static struct tally hunt(const struct mutation *m, double limit)
{
    struct tally t = search(1, limit, m->number); /* fixed: the table can be repeated */

    if (t.failed) {
        plan_make(&plan, t.seed);
        run_world(&plan, 0, false);
        t.failed = !w.broke;
    }
    return t;
}

static int hunt_all(double limit, char **names, int n)
{
    int missed = 0;

    printf("| mutation | what is broken | steps until found | found as |\n"
           "|---|---|---|---|\n");
    for (size_t i = 0; i < MUTATIONS; i++) {
        const struct mutation *m = &mutations[i];
        bool wanted = n == 0;
        struct tally t;

        for (int k = 0; k < n; k++)
            wanted = wanted || mutation_named(names[k]) == m;
        if (!wanted)
            continue;
        t = hunt(m, limit);
        missed += !t.failed;
        printf("| `%s` | %s | %" PRIu64 " | %s |\n", m->word, m->text, t.steps,
               t.failed ? t.broke : "NOT FOUND");
        fflush(stdout);
    }
    return missed > 0;
}

/* ---- as a test ------------------------------------------------------------------- */

enum { LEAST_RATE = 20 }; /* million steps a minute */

static int cases;

static int result(bool ok, double took, const char *name)
{
    printf("%sok %d - %s # time=%.3fs\n", ok ? "" : "not ", ++cases, name, took);
    fflush(stdout);
    return !ok;
}

/* A line: SEED STORY */
static int replay(const char *file)
{
    char line[400], name[500];
    FILE *f = fopen(file, "r");
    int failed = 0;

    if (!f)
        return result(false, 0, "the file of seeds can be read");
    while (fgets(line, sizeof line, f)) {
        char *story;
        uint64_t seed = strtoull(line, &story, 10);
        double start = seconds();
        int bad;

        if (story == line)
            continue;
        line[strcspn(line, "\n")] = '\0';
        bad = run_seed(seed, 0, false);
        snprintf(name, sizeof name, "seed %" PRIu64 ":%s", seed, story);
        failed += result(!bad, seconds() - start, name);
    }
    fclose(f);
    return failed;
}

/* A failure becomes a short history of the same failure. */
static int shortens(const struct mutation *m)
{
    double start = seconds();
    struct tally t = hunt(m, 60);
    size_t before, after;
    char name[200];
    bool same;

    plan_make(&plan, t.seed);
    before = plan.n;
    after = shrink(&plan, m->number);
    run_world(&plan, m->number, false);
    same = w.broke && strcmp(w.broke, t.broke) == 0;
    snprintf(name, sizeof name, "shortens a failure (%zu acts of %zu, %s)", after, before,
             same ? w.broke : "another one");
    return result(t.failed && same && after > 0 && after < before / 4, seconds() - start,
                  name);
}

static int tap(const char *file, double limit, bool all)
{
    static const char *const few[] = { "receipt", "forget-join", "no-hints",
                                       "stop-no-renew" };
    uint64_t seed = fresh_seed();
    char name[200];
    int failed = replay(file), bad;
    double start = seconds(), rate;

    bad = run_time(seed, limit, 0, &rate);
    snprintf(name, sizeof name, "fresh seeds from %" PRIu64, seed);
    failed += result(!bad, seconds() - start, name);
    snprintf(name, sizeof name, "%d million steps a minute (%.0f)", LEAST_RATE, rate);
    failed += result(rate >= LEAST_RATE, 0, name);
    failed += result(!tally_missing(), 0, "every fault and every kind of event has come");
    for (size_t i = 0; i < MUTATIONS; i++) {
        bool wanted = all;
        struct tally t;

        for (size_t k = 0; k < sizeof few / sizeof few[0]; k++)
            wanted = wanted || strcmp(few[k], mutations[i].word) == 0;
        if (!wanted)
            continue;
        t = hunt(&mutations[i], 60);
        snprintf(name, sizeof name, "finds the mutation %s (%s, %" PRIu64 " steps)",
                 mutations[i].word, t.failed ? t.broke : "not found", t.steps);
        failed += result(t.failed, t.took, name);
    }
    failed += shortens(mutation_named("forget-join"));
    printf("1..%d\n", cases);
    return failed > 0;
}

static _Noreturn void usage(void)
{
    fprintf(stderr, "usage: sim [--time T] [--seed N] [--verbose] [--mutation NAME]\n"
                    "       sim --mutations T [NAME...]\n"
                    "T: seconds, or 10m, 2h\n");
    exit(64);
}

static double parse_seconds(const char *s)
{
    char *end;
    double t = strtod(s, &end), unit = *end == 'm' ? 60 : *end == 'h' ? 3600 : 1;

    if (!(t > 0) || (*end && (end[1] || !strchr("smh", *end))))
        usage();
    return t * unit;
}

static uint64_t parse_seed(const char *s)
{
    char *end;
    uint64_t seed = strtoull(s, &end, 10);

    if (*s < '0' || *s > '9' || *end)
        usage();
    return seed;
}

int main(int argc, char **argv)
{
    uint64_t seed = 0;
    double limit = 0;
    bool verbose = false, one = false;
    int mutant = 0;

    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(arg, "--verbose") == 0) {
            verbose = true;
            continue;
        }
        if (strcmp(arg, "--tap") == 0 && i + 3 < argc)
            return tap(value, parse_seconds(argv[i + 2]), strcmp(argv[i + 3], "all") == 0);
        if (strcmp(arg, "--mutations") == 0)
            return hunt_all(parse_seconds(value), argv + i + 2, argc - i - 2);
        if (strcmp(arg, "--time") == 0)
            limit = parse_seconds(value);
        else if (strcmp(arg, "--seed") == 0)
            one = true, seed = parse_seed(value);
        else if (strcmp(arg, "--mutation") == 0)
            mutant = mutation_named(value)->number;
        else
            usage();
        i++;
    }
    if (one && limit <= 0)
        return run_seed(seed, mutant, verbose);
    return run_time(one ? seed : fresh_seed(), limit > 0 ? limit : 60, mutant, NULL);
}
