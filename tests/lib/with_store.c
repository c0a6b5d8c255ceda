/* with_store.c: runs a command on a store of its own.
 *
 *     with-store [--with PROGRAM] SETUP COMMAND...
 *
 * Starts the set-up of that name (setup.h), runs the command with HOLDFAST_URL naming it
 * and with the folder of PROGRAM first in PATH, and ends with the command's status. */
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

int main(int argc, char **argv)
{
    static struct place place;
    const struct setup *setup;
    int at = 1, status;

    if (argc > 2 && strcmp(argv[1], "--with") == 0) {
        put_first(argv[2]);
        at = 3;
    }
    if (argc < at + 2) {
        fprintf(stderr, "usage: %s [--with PROGRAM] SETUP COMMAND...\n", argv[0]);
        return 2;
    }
    setup = find(argv[at]);
    setup->start(&place);
    setenv("HOLDFAST_URL", place.url, 1);
    status = run(argv + at + 1);
    setup->stop(&place);
    return status;
}
