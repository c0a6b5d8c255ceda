/* runner.c: runs cases, several at a time, each in a process group of its own.
 *
 * Goes well: one TAP line per case in the order of their ends, "1..N" last, status 0.
 * Goes wrong: a case that fails, or outlives its limit (then its group is killed), is
 * "not ok" and its output follows as comments; status 1. A case for which the store
 * lacks a capability runs as its negative, under the same name: nothing is skipped.
 */
#include "rig.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASE_LIMIT_MS = 120000, CASES_MAX = 256, JOBS_MAX = 64 };

struct job {
    const struct test_case *test;
    pid_t pid; /* 0: free */
    int out;
    int64_t started_ms, limit_ms;
    struct place own;
    bool killed;
};

struct run {
    const struct face *face;
    const struct setup *setup;
    struct place shared;
    const struct test_case *todo[CASES_MAX];
    size_t ntodo, next;
    struct job jobs[JOBS_MAX];
    int njobs, running, number, failed;
    bool all, brief, list, verbose;
};

static unsigned face_bit(const struct face *f)
{
    return f == &face_blocking   ? ON_BLOCKING
           : f == &face_callback ? ON_CALLBACK
                                 : ON_FOREIGN;
}

static bool wanted(const struct run *r, const struct test_case *t, char **names, int n)
{
    bool brief = r->brief || (!r->all && (r->setup->traits & SETUP_TOPOLOGY));

    if (!(t->faces & face_bit(r->face)))
        return false;
    if (n == 0)
        return !brief || (t->flags & CASE_TOPOLOGY);
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], t->name) == 0)
            return true;
    return false;
}

/* The long ones first, so that the end of the run is not one of them alone. */
static void choose(struct run *r, char **names, int n)
{
    for (int pass = 0; pass < 2; pass++)
        for (const struct test_case *const *table = tables; *table; table++)
            for (const struct test_case *t = *table; t->name; t++) {
                if (!(t->flags & CASE_LONG) != (pass == 1) || !wanted(r, t, names, n))
                    continue;
                CHECK(r->ntodo < CASES_MAX);
                r->todo[r->ntodo++] = t;
            }
}

static const struct test_case *find(const char *name)
{
    for (const struct test_case *const *table = tables; *table; table++)
        for (const struct test_case *t = *table; t->name; t++)
            if (strcmp(t->name, name) == 0)
                return t;
    return NULL;
}

_Noreturn static void case_main(const struct run *r, struct job *j, pid_t runner)
{
    char base[128];
    uint32_t missing = j->test->needs & ~r->setup->caps;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != runner)
        _exit(1);
    setpgid(0, 0);
    dup2(j->out, 1);
    dup2(j->out, 2);
    snprintf(base, sizeof(base), "%s/%d", j->test->name, (int)getpid());
    rig.face = r->face;
    rig.setup = r->setup;
    rig.all = r->all;
    rig.base = base;
    rig.place = j->own.dir[0] || j->own.url[0] ? &j->own : (struct place *)&r->shared;
    if (missing)
        negative_run(missing);
    else
        j->test->run();
    exit(0);
}

static void start_next(struct run *r, struct job *j)
{
    pid_t runner = getpid();

    memset(j, 0, sizeof(*j));
    j->test = r->todo[r->next++];
    j->out = memfd_create("output", MFD_CLOEXEC);
    CHECK(j->out >= 0);
    if (j->test->flags & CASE_OWN_STORE)
        r->setup->start(&j->own);
    j->started_ms = now_ms();
    j->limit_ms = CASE_LIMIT_MS * TEST_SLOW;
    if (j->test->flags & CASE_LONG)
        j->limit_ms *= r->all ? 20 : 2;
    fflush(NULL);
    j->pid = fork();
    CHECK(j->pid >= 0);
    if (j->pid == 0)
        case_main(r, j, runner);
    setpgid(j->pid, j->pid); /* whichever of the two comes first */
    r->running++;
}

/* A case that could not say itself what its servers said. */
static void tell_into(int fd)
{
    int was = dup(2);

    dup2(fd, 2);
    check_tell();
    dup2(was, 2);
    close(was);
}

static void print_output(int fd)
{
    FILE *f = fdopen(dup(fd), "r");
    char line[2048];

    CHECK(f);
    rewind(f);
    while (fgets(line, sizeof(line), f))
        printf("#   %s%s", line, strchr(line, '\n') ? "" : "\n");
    fclose(f);
}

static void finish(struct run *r, struct job *j, int status)
{
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;

    kill(-j->pid, SIGKILL); /* kids that a failed case left */
    printf("%s %d - %s # time=%.3fs\n", ok ? "ok" : "not ok", ++r->number, j->test->name,
           (double)(now_ms() - j->started_ms) / 1000);
    r->failed += !ok;
    if (j->killed || WIFSIGNALED(status))
        tell_into(j->out);
    if (j->killed)
        printf("#   did not end within %lld s\n", (long long)j->limit_ms / 1000);
    else if (WIFSIGNALED(status))
        printf("#   ended by signal %d (%s)\n", WTERMSIG(status),
               strsignal(WTERMSIG(status)));
    if (!ok || r->verbose)
        print_output(j->out);
    close(j->out);
    fflush(stdout);
    if (j->test->flags & CASE_OWN_STORE)
        r->setup->stop(&j->own);
    j->pid = 0;
    r->running--;
}

static void reap(struct run *r)
{
    for (int i = 0; i < r->njobs; i++) {
        struct job *j = &r->jobs[i];
        int status;

        if (!j->pid)
            continue;
        if (waitpid(j->pid, &status, WNOHANG) == j->pid) {
            finish(r, j, status);
        } else if (!j->killed && now_ms() > j->started_ms + j->limit_ms) {
            j->killed = true;
            kill(-j->pid, SIGKILL);
        }
    }
}

static int run_all(struct run *r)
{
    r->setup->start(&r->shared);
    while (r->running || r->next < r->ntodo) {
        /* The first one alone: a server that has just been started is slow, and may be too
         * slow for eight at once (a Java machine has nothing compiled yet). */
        int njobs = r->number == 0 ? 1 : r->njobs;

        for (int i = 0; i < njobs && r->next < r->ntodo; i++)
            if (!r->jobs[i].pid)
                start_next(r, &r->jobs[i]);
        nap();
        reap(r);
    }
    r->setup->stop(&r->shared);
    printf("1..%d\n", r->number);
    return r->failed ? 1 : 0;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: contract [--face blocking|callback|foreign] [--setup NAME]\n"
            "                [--jobs N] [--all|--brief] [--list] [--verbose] [CASE...]\n");
    return 64;
}

static bool set_face(struct run *r, const char *name)
{
    static const struct face *const faces[] = { &face_blocking, &face_callback,
                                                &face_foreign };

    r->face = NULL;
    for (size_t i = 0; i < sizeof(faces) / sizeof(faces[0]); i++)
        if (strcmp(faces[i]->name, name) == 0)
            r->face = faces[i];
    return r->face != NULL;
}

static bool set_setup(struct run *r, const char *name)
{
    static struct setup newer;

    r->setup = NULL;
    for (size_t i = 0; setups[i]; i++)
        if (strcmp(setups[i]->name, name) == 0)
            r->setup = setups[i];
    if (r->setup && r->setup->server && getenv(r->setup->server)) {
        newer = *r->setup;
        newer.caps |= newer.newer_caps;
        r->setup = &newer;
    }
    return r->setup != NULL;
}

static bool set_option(struct run *r, int letter)
{
    switch (letter) {
    case 'f':
        return set_face(r, optarg);
    case 's':
        return set_setup(r, optarg);
    case 'j':
        r->njobs = (int)strtol(optarg, NULL, 10);
        return r->njobs >= 1 && r->njobs <= JOBS_MAX;
    case 'v':
        r->verbose = true;
        return true;
    case 'a':
        r->all = true;
        return true;
    case 'b':
        r->brief = true;
        return true;
    case 'l':
        r->list = true;
        return true;
    default:
        return false;
    }
}

int run_cases(int argc, char **argv)
{
    static const struct option options[] = {
        { "face", required_argument, NULL, 'f' }, { "setup", required_argument, NULL, 's' },
        { "jobs", required_argument, NULL, 'j' }, { "list", no_argument, NULL, 'l' },
        { "all", no_argument, NULL, 'a' },        { "brief", no_argument, NULL, 'b' },
        { "verbose", no_argument, NULL, 'v' },    { NULL, 0, NULL, 0 }
    };
    static struct run r;
    int letter;

    r.face = &face_blocking;
    r.setup = setups[0];
    r.njobs = 8;
    while ((letter = getopt_long(argc, argv, "", options, NULL)) >= 0)
        if (!set_option(&r, letter))
            return usage();
    for (int i = optind; i < argc; i++) {
        const struct test_case *t = find(argv[i]);

        if (!t || !(t->faces & face_bit(r.face))) {
            fprintf(stderr, "contract: no case %s in the %s face\n", argv[i], r.face->name);
            return 64;
        }
    }
    choose(&r, argv + optind, argc - optind);
    for (size_t i = 0; r.list && i < r.ntodo; i++)
        printf("%s\n", r.todo[i]->name);
    return r.list ? 0 : run_all(&r);
}
