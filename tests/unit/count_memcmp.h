/* count_memcmp.h: how often memory was compared, in a program whose sources are compiled
 * with -Dmemcmp=count_memcmp. */
#ifndef HF_TESTS_COUNT_MEMCMP_H
#define HF_TESTS_COUNT_MEMCMP_H

#include <stddef.h>

extern size_t compared;

#endif
