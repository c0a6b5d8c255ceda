/* redis_fake.h: a Redis server that greets, and answers all else with one error. */
#ifndef HF_TESTS_REDIS_FAKE_H
#define HF_TESTS_REDIS_FAKE_H

extern _Atomic(const char *) redis_fake_error; /* "OOM ..." */
void redis_fake_talk(int fd);

#endif
