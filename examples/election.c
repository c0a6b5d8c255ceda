/* election.c: three processes elect a leader; a fourth one follows who leads.
 *
 * Goes well: each candidate leads once, until the follower has seen it. The first one in
 * office dies without resigning, which local: sees at once, and a server when the ttl of
 * 5 s is over; the others resign. Goes wrong: if a candidate fails, or the follower has not
 * seen all of them within a minute, the program ends with 1. Needs a store whose line can
 * be looked at: all but redlock:, mode=plain and mode=ephemeral.
 */
#include <holdfast/recipes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANDIDATES = 3 };

/* In a process of its own: open after fork, never before (rule 7). A byte from `orders`
 * ends its term; only the leader reads it. */
static int candidate(const char *url, int number, int orders)
{
    hf_client *client;
    hf_lease *office;
    hf_error e;
    char value[32], order;

    snprintf(value, sizeof(value), "10.0.0.%d:7000", number);
    /* the ttl of the client, not of the request: ZooKeeper has one for a whole session */
    if (hf_open(url, HF_OPTIONS(.ttl_ms = 5000), &client, &e) < 0 ||
        hf_campaign(client, "leader", value, 60000, NULL, &office, &e) < 0) {
        fprintf(stderr, "candidate %d: %s: %s\n", number, hf_errname(e.code), e.text);
        return 1;
    }
    if (read(orders, &order, 1) != 1)
        return 1;
    printf("candidate %d %s\n", number, order == 'd' ? "dies in office" : "resigns");
    fflush(stdout);
    if (order == 'd')
        _exit(0);
    hf_resign(office, NULL);
    hf_close(client);
    return 0;
}

/* Ends the term of each leader that it sees; between two of them perhaps nobody leads. */
static int follow(const char *url, int orders)
{
    hf_leader_info now = HF_LEADER_NONE;
    hf_client *client;
    hf_error e;
    int terms = 0;

    if (hf_open(url, NULL, &client, &e) < 0) {
        fprintf(stderr, "follower: %s: %s\n", hf_errname(e.code), e.text);
        return 1;
    }
    while (terms < CANDIDATES) {
        if (hf_observe(client, "leader", &now, 60000, NULL, &now, &e) < 0) {
            fprintf(stderr, "follower: %s: %s\n", hf_errname(e.code), e.text);
            return 1;
        }
        if (now.fence == 0)
            continue;
        printf("leader is %s (fence %llu)\n", now.value, (unsigned long long)now.fence);
        fflush(stdout);
        if (write(orders, terms++ == 0 ? "d" : "r", 1) != 1)
            return 1;
    }
    hf_close(client);
    return 0;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("HOLDFAST_URL");
    int rc, status, orders[2];

    if (!url)
        url = "local:";
    if (pipe(orders) < 0)
        return 1;
    for (int i = 1; i <= CANDIDATES; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0) {
            close(orders[1]); /* so that the end of the follower ends it, too */
            exit(candidate(url, i, orders[0]));
        }
    }
    close(orders[0]);
    rc = follow(url, orders[1]);
    close(orders[1]);
    while (wait(&status) > 0)
        rc |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return rc;
}
