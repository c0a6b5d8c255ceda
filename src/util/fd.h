/* fd.h: is a descriptor still what we opened?
 *
 * A program may close descriptors that it does not know (closefrom(3) in a daemon, close in
 * a loop), and then has other files where ours were. A pipe has an inode of its own, so a
 * look at it tells; eventfds, timerfds and epoll instances all share one, so a look at them
 * does not. */
#ifndef HF_UTIL_FD_H
#define HF_UTIL_FD_H

#include <stdbool.h>
#include <stdint.h>

struct fd_id {
    uint64_t dev, ino;
};

/* Both ends close-on-exec and non-blocking, as small as a pipe can be. 0 or -1 with errno.
 */
int hf__pipe_open(int fds[2], struct fd_id *ret);

bool hf__pipe_is(int fd, const struct fd_id *); /* any thread, any signal handler */

#endif
