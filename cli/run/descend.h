/* descend.h: the processes of a run, and how to end them all. */
#ifndef HF_CLI_DESCEND_H
#define HF_CLI_DESCEND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { FAMILY_WORD = 24, FAMILY_KIN = 64 };

struct kin {   /* the start time tells a process from a later one with its number */
    pid_t pid; /* 0: the end of the list */
    uint64_t start;
};

/* By what the processes of a run are known. In memory that supervisor and guard share. */
struct family {
    pid_t supervisor; /* its children are ours; 0: it is dead */
    pid_t guard;      /* is not ours */
    pid_t child;      /* the command; 0: it has ended */
    pid_t group;      /* 0: the command stayed in our group, which has other members */
    pid_t session;
    uint64_t since;         /* clock ticks since boot: none of ours is older */
    char word[FAMILY_WORD]; /* stands in the environment of each, in HOLDFAST_RUN */
    int life_fd;            /* number of the inherited life descriptor in each; -1: none */
    uint64_t life_ino;
    struct kin orphans[FAMILY_KIN];   /* seen as children of the supervisor */
    struct kin strangers[FAMILY_KIN]; /* its children from before, if it came by exec */
};

uint64_t descend_ticks(void); /* now, as start times are counted */

/* Sends sig (0: only counts) to each of them, returns to how many. */
int descend_signal(const struct family *, int sig);

/* Asks the command and what hangs below it to end: TERM and CONT. Quick, so that it does
 * not put off the kill that follows; whatever has left the tree is killed then. */
void descend_ask(const struct family *);

struct ending {
    int denied; /* how many may not be signalled; they are not counted as still there */
    bool whole; /* every process of the machine was looked at */
};

/* One round of freeze and kill. Returns how many were still there: repeat until 0. */
int descend_kill(const struct family *, struct ending *ret);

/* Notes the children that the supervisor has now. Of its life before exec they are
 * strangers and never touched; later ones are orphans that came to it, and are found
 * after its death. True: the list is full, there may be more. */
bool descend_note(const struct family *, struct kin list[FAMILY_KIN]);

#endif
