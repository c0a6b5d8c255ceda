/* script.h: the scripts, made from lua/ at build time. */
#ifndef HF_REDIS_SCRIPT_H
#define HF_REDIS_SCRIPT_H

#include <stddef.h>

enum script_id {
    SCRIPT_JOIN,
    SCRIPT_LEAVE,
    SCRIPT_AMEND,
    SCRIPT_RENEW,
    SCRIPT_WAIT,
    SCRIPT_LOOK,
    SCRIPT_EVICT,
    SCRIPT_CELL,
    SCRIPT_BRIEF,
    SCRIPT_LIST,
    SCRIPT_KEEP,
    SCRIPT_LOCK, /* redlock, from here on */
    SCRIPT_RAISE,
    SCRIPT_EXTEND,
    SCRIPT_FREE,
    SCRIPT_PEEK
};

struct script {
    const char *name, *sha;
    size_t len;
    const char *text;
};

extern const struct script hf__redis_scripts[];

#endif
