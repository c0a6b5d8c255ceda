/* redis_fake.h: a Redis server that greets, and answers all else with one error. As a
 * sentinel, and as a node of a cluster, it names one master. */
#ifndef HF_TESTS_REDIS_FAKE_H
#define HF_TESTS_REDIS_FAKE_H

extern _Atomic(const char *) redis_fake_error; /* "OOM ..." */
extern _Atomic(int) redis_fake_master; /* the port of that master, of this machine */
void redis_fake_talk(int fd);

/* The store at `url` has only such servers: each kind of error ends a call with its code.
 */
void redis_only_errors(const char *url);

#endif
