/* env.h: all that the core, the drivers and their streams may use of the world; the
 * simulator replaces it. */
#ifndef HF_LOOP_ENV_H
#define HF_LOOP_ENV_H

#include "loop/loop.h"

#include <holdfast/holdfast.h>
#include <stddef.h>
#include <stdint.h>

struct tls_module;

/* A table of functions, so that the simulator and tests can have other clocks and wires.
 * Its owner embeds it in a struct of its own. */
struct env {
    int64_t (*now)(struct env *); /* µs, CLOCK_BOOTTIME */
    /* µs since 1970, CLOCK_REALTIME: for fence floors only */
    int64_t (*wall)(struct env *);
    void (*random)(struct env *, void *, size_t);
    /* 0 or HF_ESYS. Unwatch before the descriptor is closed, also before every call of a
     * library that may close and open it anew: the new one may have the same number, and a
     * watch for the events that it has already is not made again. */
    int (*watch)(struct env *, struct watch *, int fd, uint32_t events);
    void (*unwatch)(struct env *, struct watch *);
    /* Instead, if a library has closed it already: the number may be another thread's file
     * by now. */
    void (*forget)(struct env *, struct watch *);
    void (*timer)(struct env *, struct timer *, int64_t at); /* LOOP_NEVER: stop */
    void (*log)(struct env *, int level, const char *name, const char *text);
    /* the module that does TLS; 0, or HF_E* if it is not installed */
    int (*tls)(struct env *, const struct tls_module **, hf_error *);
};

#endif
