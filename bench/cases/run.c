/* run.c: many runs of `holdfast run NAME -- true`, beside `flock FILE true`, which
 * is the least that a command can do for the same. Without flock(1) there is no ratio. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct runs {
    const struct bench *bench;
    char name[128], file[sizeof((struct bench *)0)->dir + 16];
    posix_spawn_file_actions_t quiet;
    char **env;
    struct slice *slice;
};

static int one_run(const struct runs *r, bool raw)
{
    char *ours[] = { "holdfast", "run", (char *)r->name, "--", "true", NULL };
    char *theirs[] = { "flock", (char *)r->file, "true", NULL };
    const char *path = raw ? "flock" : r->bench->command;
    pid_t pid;
    int rc = posix_spawnp(&pid, path, &r->quiet, NULL, raw ? theirs : ours, r->env), status;

    if (rc) {
        cli_say("cannot run %s: %s", raw ? "flock" : "holdfast", strerror(rc));
        return EXIT_SYSTEM;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return EXIT_SYSTEM;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    cli_say("%s true ended with %d", raw ? "flock FILE" : "holdfast run NAME --",
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return EXIT_SYSTEM;
}

static int slice(void *ctx, bool raw, int64_t ns, struct tally *t)
{
    struct runs *r = ctx;
    int64_t start = bench_now(), now = start;
    int status = 0;

    memset(r->slice, 0, sizeof *r->slice);
    while (status == 0 && now < start + ns) {
        int64_t begin = now;

        status = one_run(r, raw);
        now = bench_now();
        r->slice->pairs++;
        samples_add(&r->slice->samples, (double)(now - begin) / 1e3);
    }
    r->slice->ns = now - start;
    if (status == 0)
        tally_add(t, r->slice, 1);
    return status;
}

static bool have_flock(void)
{
    const char *path = getenv("PATH");
    char file[4096];

    while (path && *path) {
        size_t len = strcspn(path, ":");

        snprintf(file, sizeof file, "%.*s/flock", (int)len, path);
        if (access(file, X_OK) == 0)
            return true;
        path += len + (path[len] == ':');
    }
    return false;
}

/* Our environment with the store of this bench in it. */
static char **make_env(const char *url)
{
    extern char **environ;
    size_t n = 0, used = 0;
    char **env;

    while (environ[n])
        n++;
    env = calloc(n + 2, sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "HOLDFAST_URL=", 13) != 0)
            env[used++] = environ[i];
    if (asprintf(&env[used], "HOLDFAST_URL=%s", url) >= 0)
        return env;
    free(env);
    return NULL;
}

static void free_env(char **env)
{
    size_t n = 0;

    if (!env)
        return;
    while (env[n + 1])
        n++;
    free(env[n]); /* only the last is ours */
    free(env);
}

static int measure(struct runs *r, struct tally *t)
{
    struct bench_row row = { .threads = 1, .processes = 1, .setup = "true" };
    bool raw = have_flock();
    int status = bench_alternate(r->bench, "run", slice, r, &t[0], raw ? &t[1] : NULL);

    if (status)
        return status;
    bench_fill(&row, "run", &t[0], raw ? &t[1] : NULL);
    if (r->bench->local && raw) {
        row.limit_of = "ratio_to_raw";
        row.value = row.ratio;
        row.limit = 2.0;
    }
    bench_print(r->bench, &row);
    return 0;
}

int bench_run(const struct bench *b)
{
    struct tally *t = calloc(2, sizeof *t);
    struct runs r = { .bench = b, .slice = calloc(1, sizeof *r.slice) };
    int status = EXIT_SYSTEM;

    snprintf(r.name, sizeof r.name, "%s/run", b->prefix);
    snprintf(r.file, sizeof r.file, "%s/flock-run", b->dir);
    r.env = make_env(b->url);
    posix_spawn_file_actions_init(&r.quiet);
    /* not a terminal: neither command has to hand it over */
    posix_spawn_file_actions_addopen(&r.quiet, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&r.quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (t && r.slice && r.env)
        status = measure(&r, t);
    else
        cli_say("out of memory");
    posix_spawn_file_actions_destroy(&r.quiet);
    free_env(r.env);
    free(r.slice);
    free(t);
    return status;
}
