/* election.c: three processes elect a leader; a fourth one follows who leads.
 *
 * A leader is the holder of an exclusive lock, and its note is the value it proclaims.
 * Goes well: each candidate leads once, until the follower has seen it. The first one in
 * office dies without releasing, which local: sees at once, and a server when the ttl of
 * 5 s is over; the others resign. Goes wrong: if a candidate fails, or the follower has not
 * seen all of them within a minute, the program ends with 1. Needs a store whose line can
 * be looked at: all but redlock:, mode=plain and mode=ephemeral.
 */
#include <holdfast/async.h>
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
    hf_lease *lease;
    hf_error e;
    char value[32], order;

    snprintf(value, sizeof(value), "10.0.0.%d:7000", number);
    /* the ttl of the client, not of the request: ZooKeeper has one for a whole session */
    if (hf_open(url, HF_OPTIONS(.ttl_ms = 5000), &client, &e) < 0 ||
        hf_acquire(client, "leader", 60000, HF_REQUEST(.note = value), &lease, &e) < 0) {
        fprintf(stderr, "candidate %d: %s: %s\n", number, hf_errname(e.code), e.text);
        return 1;
    }
    if (read(orders, &order, 1) != 1)
        return 1;
    printf("candidate %d %s\n", number, order == 'd' ? "dies in office" : "resigns");
    fflush(stdout);
    if (order == 'd')
        _exit(0);
    hf_release(lease, NULL);
    hf_close(client);
    return 0;
}

struct follower {
    char leader[64];
    int terms, orders;
};

static void seen(hf_op *op, int rc, const hf_list *list, const hf_error *e, void *user)
{
    struct follower *f = user;
    (void)op;
    if (rc < 0) {
        fprintf(stderr, "watch: %s: %s\n", hf_errname(rc), e->text);
        exit(1);
    }
    const hf_line *line = hf_list_at(list, 0);
    const hf_ticket *first = line ? hf_line_ticket(line, 0) : NULL;
    if (!first || hf_ticket_position(first) != 0 ||
        strcmp(f->leader, hf_ticket_note(first)) == 0)
        return;
    snprintf(f->leader, sizeof(f->leader), "%s", hf_ticket_note(first));
    printf("leader is %s (fence %llu)\n", f->leader,
           (unsigned long long)hf_ticket_fence(first));
    fflush(stdout);
    if (write(f->orders, f->terms++ == 0 ? "d" : "r", 1) != 1)
        exit(1);
}

static int follow(const char *url, int orders)
{
    struct follower f = { "", 0, orders };
    hf_client *client;
    hf_op *watch;
    hf_error e;

    if (hf_open(url, NULL, &client, &e) < 0 ||
        hf_watch_start(client, "leader", seen, &f, &watch, &e) < 0) {
        fprintf(stderr, "follower: %s: %s\n", hf_errname(e.code), e.text);
        return 1;
    }
    for (int i = 0; i < 600 && f.terms < CANDIDATES; i++)
        hf_client_wait(client, 100);
    printf("%d terms seen\n", f.terms);
    hf_op_free(watch);
    hf_close(client);
    return f.terms == CANDIDATES ? 0 : 1;
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
        if (pid == 0)
            exit(candidate(url, i, orders[0]));
    }
    rc = follow(url, orders[1]);
    while (wait(&status) > 0)
        rc |= !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return rc;
}
