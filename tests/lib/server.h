/* server.h: a real server for a test: in a folder of its own, on a port of its own.
 *
 * Nothing outlives the test: a server is killed with the thread that spawned it (so spawn
 * from the main thread), its port is ours as long as the struct is in use, its folder goes
 * with server_remove(). The struct lies in memory that forked cases share with the runner,
 * because a case may restart what the runner started and will stop.
 */
#ifndef HF_TESTS_SERVER_H
#define HF_TESTS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct server {
    char name[16];    /* shown before the lines of its log */
    char dir[160];    /* configuration, data, log */
    char socket[200]; /* of the unix domain; the test's own way in */
    char login[128];  /* "USER PASSWORD" of the test's own way in; "": none */
    int port, reserved_fd;
    bool clock;    /* its wall clock can be stepped */
    bool sentinel; /* of redis */
    pid_t pid, parent;
};

/* Memory, all zero, that processes forked later share. */
void *shared_new(size_t size);
void shared_free(void *, size_t size);

void server_init(struct server *, const char *name); /* folder and port; starts nothing */
void server_remove(struct server *);                 /* kills it, removes its folder */

/* Starts it in its folder, output appended to its log. The caller awaits its readiness by
 * asking it, and server_must_run(). */
void server_spawn(struct server *, const char *program, char *const argv[]);
void server_must_run(struct server *); /* fails the test if it has ended */
bool server_runs(const struct server *);

void server_kill(struct server *);     /* SIGKILL, and it is gone; its folder stays */
void server_freeze(struct server *);   /* SIGSTOP, and it has stopped */
void server_continue(struct server *); /* SIGCONT */

/* The wall clock of a server, if it was made able before the start (clockshim.c). A step
 * takes effect at once, and steps add up. Its other clocks are left alone. */
void server_clock_able(struct server *);
void server_clock_step(struct server *, int64_t ms);

/* A port of the loopback that no other test takes while *ret_fd is open. It and the one
 * 10,000 above are free, and not among those that the system gives to anybody. */
int port_reserve(int *ret_fd);

void file_put(const char *dir, const char *name, const char *mode, const char *text);
void folder_remove(const char *dir);

#endif
