/* redis_fake.h: a Redis server that greets, and answers all else with one error. */
#ifndef HF_TESTS_REDIS_FAKE_H
#define HF_TESTS_REDIS_FAKE_H

extern _Atomic(const char *) redis_fake_error; /* "OOM ..." */
void redis_fake_talk(int fd);

/* The store at `url` has only such servers: each kind of error ends a call with its code.
 */
void redis_only_errors(const char *url);

#endif
