/* with_store.c: runs a command on a store of its own.
 *
 *     with-store [--with PROGRAM] SETUP COMMAND...
 *     with-store --serve SETUP
 *
 * Starts the set-up of that name (setup.h), runs the command with HOLDFAST_URL naming it
 * and with the folder of PROGRAM first in PATH, and ends with the command's status.
 *
 * With --serve it prints the URL and then does what the lines of its input ask for:
 * `restart`, `block`, `unblock`, `work`, `leader`. Each is answered by one line, when it is
 * done: `work` by the number, `leader` by a process (-1: such a store has none), the others
 * by 0. It ends with its input. */
#include "check.h"
#include "setup.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct setup *find(const char *name)
{
    for (size_t i = 0; setups[i]; i++)
        if (strcmp(setups[i]->name, name) == 0)
            return setups[i];
    fprintf(stderr, "with-store: no set-up '%s'\n", name);
    exit(2);
}

/* The whole path: the command may go to another folder. */
static void put_first(const char *program)
{
    char path[8192], *whole = realpath(program, NULL);

    CHECK(whole);
    snprintf(path, sizeof path, "%s:%s", dirname(whole), getenv("PATH"));
    setenv("PATH", path, 1);
    free(whole);
}

static int run(char **argv)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execvp(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* What the line asks for; what is answered. */
static int64_t obey(const struct setup *setup, struct place *place, const char *line)
{
    if (strcmp(line, "work\n") == 0)
        return setup->work ? setup->work(place) : -1;
    if (strcmp(line, "leader\n") == 0)
        return setup->leader ? setup->leader(place) : -1;
    if (strcmp(line, "restart\n") == 0)
        setup->restart(place);
    else if (strcmp(line, "block\n") == 0)
        setup->block(place);
    else if (strcmp(line, "unblock\n") == 0)
        setup->unblock(place);
    else
        check_failed(__FILE__, __LINE__, "cannot do: %s", line);
    return 0;
}

static int serve(const struct setup *setup, struct place *place)
{
    char line[64];

    setup->start(place);
    printf("%s\n", place->url);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        printf("%lld\n", (long long)obey(setup, place, line));
        fflush(stdout);
    }
    setup->stop(place);
    return 0;
}

int main(int argc, char **argv)
{
    static struct place place;
    const struct setup *setup;
    int at = 1, status;

    if (argc == 3 && strcmp(argv[1], "--serve") == 0)
        return serve(find(argv[2]), &place);

    if (argc > 2 && strcmp(argv[1], "--with") == 0) {
        put_first(argv[2]);
        at = 3;
    }
    if (argc < at + 2) {
        fprintf(stderr,
                "usage: %s [--with PROGRAM] SETUP COMMAND...\n"
                "       %s --serve SETUP\n",
                argv[0], argv[0]);
        return 2;
    }
    setup = find(argv[at]);
    setup->start(&place);
    setenv("HOLDFAST_URL", place.url, 1);
    status = run(argv + at + 1);
    setup->stop(&place);
    return status;
}
