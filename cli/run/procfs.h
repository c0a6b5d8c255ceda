/* procfs.h: what /proc says about processes, by system calls alone: no malloc, no stdio. */
#ifndef HF_CLI_PROCFS_H
#define HF_CLI_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One process. pid and start together name it: numbers are used again. */
struct proc {
    uint64_t start; /* clock ticks since boot */
    pid_t pid, ppid, group, session;
    bool ours; /* the caller's */
};

/* A descriptor of /proc for the others; -1: there is none, or it is that of another PID
 * namespace, whose numbers are not ours. */
int proc_open(void);

/* Does it show the processes of other users? Not with the mount option hidepid. */
bool proc_shows_all(int proc);

/* False: gone, or dead and only waiting to be reaped. */
bool proc_read(int proc, pid_t, struct proc *ret);
bool proc_has_word(int proc, pid_t, const char *word); /* in its environment */
bool proc_has_socket(int proc, pid_t, int fd, uint64_t ino);

/* Children of one thread of a process; returns how many were written. */
size_t proc_children(int proc, pid_t, pid_t thread, pid_t *ret, size_t n);

/* The numbers in a folder of /proc, in order: processes (pid 0), or threads of one. */
struct proc_list {
    int fd;
    long have, at;
    char buf[1 << 14] __attribute__((aligned(8)));
};
pid_t proc_first(struct proc_list *, int proc, pid_t); /* 0: none */
pid_t proc_next(struct proc_list *);                   /* 0: no more */
void proc_end(struct proc_list *);

#endif
