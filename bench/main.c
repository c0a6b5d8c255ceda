/* main.c: how fast is it here, beside what this machine could do at best?
 *
 * Started by `holdfast bench` as "COMMAND [-u URL] bench [options] [CASE...]", where
 * COMMAND is the path of that holdfast: the case `run` starts it again.
 *
 * Goes well: one row per case, in the order asked for; 0 also when a target was missed,
 * because the figures are the answer. Without a URL everything happens in a private
 * folder, and a first process stays behind only to remove it, however the second one
 * ends. Goes wrong: a case that cannot be measured ends the run with the status of its
 * error; one that hangs is ended by an alarm, so the load is bounded. */
#include "bench.h"
#include "util/text.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    bench_case *run;
} cases[] = {
    { "uncontended", bench_uncontended },
    { "inflight", bench_inflight },
    { "contended", bench_contended },
    { "hand-off", bench_handoff },
    { "waiters", bench_waiters },
    { "held", bench_held },
#ifdef BENCH_REDIS
    { "server", bench_server },
#endif
    { "run", bench_run },
};
enum { CASES = sizeof cases / sizeof *cases, HANG_S = 120, HANG_FAR_S = 600 };

static int set(void *ctx, const struct cli_option *o, const char *value)
{
    const struct cli cli = { .verb = "bench" };
    struct bench *b = ctx;
    int64_t ms;

    if (o->name[0] == 'j') {
        b->json = true;
        return 0;
    }
    if (hf__parse_time(value, &ms) && ms >= 10 && ms <= 600000) {
        b->time_ns = ms * 1000000;
        return 0;
    }
    cli_usage(&cli, "--time: a time from 10ms to 10m is needed");
    return -1;
}

static int find_case(const char *name)
{
    for (int i = 0; i < CASES; i++)
        if (strcmp(cases[i].name, name) == 0)
            return i;
    return -1;
}

/* ---- the private folder ---------------------------------------------------------- */

static char *folder_url(const char *dir)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "0123456789/-_.~";
    static const char start[] = "local://", end[] = "/store";
    char *url = malloc(sizeof start + 3 * strlen(dir) + sizeof end), *o;

    if (!url)
        return NULL;
    o = stpcpy(url, start);
    for (; *dir; dir++)
        if (strchr(safe, *dir))
            *o++ = *dir;
        else
            o += sprintf(o, "%%%02X", (unsigned char)*dir);
    strcpy(o, end);
    return url;
}

static int make_folder(struct bench *b)
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(b->dir, sizeof b->dir, "%s/holdfast-bench-XXXXXX",
                     tmp && tmp[0] == '/' ? tmp : "/tmp");

    if (n >= (int)sizeof b->dir - 16 || !mkdtemp(b->dir)) {
        cli_say("cannot make a private folder: %s",
                strerror(n < 400 ? errno : ENAMETOOLONG));
        return EXIT_SYSTEM;
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    remove(path); /* what stays behind shows as a folder that stays */
    return 0;
}

static void remove_folder(const struct bench *b)
{
    nftw(b->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The first process: hands signals on to the second, removes the folder when it has
 * ended, and ends as it did. */
static _Noreturn void stay_behind(const struct bench *b, pid_t child, const sigset_t *set)
{
    int status = 0, sig;

    while (waitpid(child, &status, WNOHANG) == 0) {
        sig = sigwaitinfo(set, NULL);
        if (sig > 0 && sig != SIGCHLD)
            kill(child, sig);
    }
    remove_folder(b);
    if (WIFSIGNALED(status)) {
        sigset_t all;

        cli_say("bench was ended by signal %d", WTERMSIG(status));
        signal(WTERMSIG(status), SIG_DFL);
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        raise(WTERMSIG(status));
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SYSTEM);
}

/* Returns in the second process only. */
static int split(const struct bench *b)
{
    static const int signals[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    sigset_t set_, old;
    pid_t parent = getpid(), child;

    signal(SIGCHLD, SIG_DFL); /* ignored it would reap for us, and the status be lost */
    sigemptyset(&set_);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&set_, signals[i]);
    sigprocmask(SIG_BLOCK, &set_, &old);
    child = fork();
    if (child > 0)
        stay_behind(b, child, &set_);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(EXIT_SYSTEM);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (child < 0) {
        cli_say("cannot make a process: %s", strerror(errno));
        remove_folder(b);
        return EXIT_SYSTEM;
    }
    return 0;
}

/* ---- the run --------------------------------------------------------------------- */

static void choose_raw(struct bench *b)
{
    const struct bench_raw *const *raw = bench_raws;

    while (*raw && !(*raw)->serves(b->url))
        raw++;
    b->raw = *raw;
    b->local = strcmp(b->backend, "local") == 0;
    if (!b->raw)
        cli_say("bench: raw limits are not measured for this URL; 'holdfast bench --help' "
                "says for which they are");
}

/* Goes on as the program that can measure the limits of this URL, if that is another one.
 */
static int choose_program(const struct bench *b)
{
    const struct bench_apart *a = bench_aparts;
    char path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);

    while (a->scheme && strncmp(b->url, a->scheme, strlen(a->scheme)) != 0)
        a++;
    if (!a->scheme)
        return 0;
    while (n > 0 && path[n - 1] != '/')
        n--;
    snprintf(path + (n > 0 ? n : 0), 64, "%s", a->program);
    execv(path, b->args);
    cli_say("bench: cannot start %s: %s", path, strerror(errno));
    return EXIT_SYSTEM;
}

static int choose_store(struct cli *cli, struct bench *b)
{
    struct cli_source source = { .url = NULL };
    int status = 0;

    b->own = !cli->url && !getenv("HOLDFAST_URL") && !getenv("HOLDFAST_URL_FILE");
    if (!b->own)
        status = cli_find_source(cli, &source);
    b->url = source.url;
    if (status == 0 && b->url)
        status = choose_program(b);
    if (status == 0)
        status = make_folder(b);
    if (status)
        return status;
    if (b->own)
        b->url = folder_url(b->dir);
    if (!b->url) {
        remove_folder(b);
        cli_say("out of memory");
        return EXIT_SYSTEM;
    }
    snprintf(b->backend, sizeof b->backend, "%.*s", (int)strcspn(b->url, ":"), b->url);
    snprintf(b->prefix, sizeof b->prefix, "holdfast-bench/%d", (int)getpid());
    choose_raw(b);
    return 0;
}

static int run_cases(struct bench *b, int n, char **names)
{
    int status = 0;

    bench_machine(b);
    bench_head(b);
    for (int i = 0; i < (n ? n : CASES) && status == 0; i++) {
        alarm((unsigned)(b->time_ns / 1000000000 * 10) + (b->local ? HANG_S : HANG_FAR_S));
        status = cases[n ? find_case(names[i]) : i].run(b);
    }
    bench_quiet(b);
    return status;
}

static const struct cli_option options[] = {
    { 0, "json", NULL, "print one object per line" },
    { 0, "time", "T", "measure each case for about so long (2s)" },
    { 0, NULL, NULL, NULL },
};

static const struct cli_verb verb = {
    .name = "bench",
    .usage = "holdfast [-u URL] bench [--json] [--time T] [CASE...]",
    .help = CLI_BENCH_HELP,
    .details =
        "Cases:\n"
        "  uncontended  acquire and release, one thread; raw: flock(2) and unlock\n"
        "  inflight     64 of them at once by one client, with callbacks\n"
        "  contended    the same by 4 threads, then by 4 processes on one name\n"
        "  hand-off     between two processes, there and back; raw: a byte over a "
        "socket\n"
        "  waiters      hand-offs in a queue of 10 to 10,000; raw: the queue of 10\n"
        "  held         beside 10,000 and 100,000 held names; raw: with nothing held\n"
        "  server       redis: time of the server for a pair; raw: a lock that is neither\n"
        "               fair nor fenced, by Redisson's scheme\n"
        "  run          'holdfast run NAME -- true'; raw: flock(1) FILE true\n"
        "Without a URL a private store in a temporary folder is used and removed again. "
        "On\n"
        "redis: and redis+unix: raw is the same scripts on a plain socket: two EVALSHA, "
        "one\n"
        "connection with 64 in flight, EVALSHA and PUBLISH to a subscriber. On zk: raw is\n"
        "create and delete of such a node, 64 of them in flight, and a delete, its event\n"
        "and one read by the other. On etcd: raw is a put and a deletion, each as a\n"
        "transaction, 64 of them in flight, and a deletion and its event; in a second row\n"
        "beside a writer, for a client that watches from the revision that it has read.\n"
        "On redlock: raw is PING to a majority of the nodes (the limit), and in a second\n"
        "row the same scripts to all of them. Of a server there is one row beside a raw\n"
        "client that sleeps, and one beside one that polls.\n"
        "The figures are medians of alternating rounds; ratio is our time / raw time.",
    .options = options,
};

static int measure(struct cli *cli, char **args, int argc, char **argv)
{
    struct bench b = { .time_ns = INT64_C(2000000000), .command = args[0], .args = args };
    int at = cli_arguments(&verb, argc, argv, set, &b, 0, 64, "CASE"), status;

    if (at < 0)
        return cli_ended(at);
    for (int i = at; i < argc; i++)
        if (find_case(argv[i]) < 0) {
            char shown[256];

            return cli_usage(cli, "there is no case %s",
                             cli_word(shown, sizeof shown, argv[i]));
        }
    b.named = argc > at;
    b.progress = isatty(STDERR_FILENO);
    status = choose_store(cli, &b);
    if (status == 0)
        status = split(&b);
    if (status == 0)
        status = run_cases(&b, argc - at, argv + at);
    free(b.url);
    return status;
}

int main(int argc, char **argv)
{
    struct cli cli = { .verb = "bench" };
    char **args = calloc((size_t)argc + 1, sizeof *args); /* reading them changes them */
    int at = 1;

    cli_begin();
    if (!args) {
        cli_say("out of memory");
        return cli_end(EXIT_SYSTEM);
    }
    memcpy(args, argv, (size_t)argc * sizeof *args);
    if (argc > 2 && strcmp(argv[1], "-u") == 0) {
        cli.url = argv[2];
        at = 3;
    }
    if (at >= argc || strcmp(argv[at], cli.verb) != 0)
        return cli_usage(&cli, "this program is started by 'holdfast bench'");
    return cli_end(measure(&cli, args, argc - at, argv + at));
}
