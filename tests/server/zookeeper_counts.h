/* zookeeper_counts.h: what a ZooKeeper server has done so far, by its own count. */
#ifndef HF_TESTS_ZOOKEEPER_COUNTS_H
#define HF_TESTS_ZOOKEEPER_COUNTS_H

#include <stdint.h>

struct server;

struct counts {
    int64_t requests, reads, writes; /* answered; requests: both; a ping is a read */
    int64_t events, bytes, connections, watches;
    int64_t at_ms;
};

struct counts counts_of(const struct server *);

#endif
