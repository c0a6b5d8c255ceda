/* mem.h: the core's memory in the simulator (forced into its sources by the compiler):
 * pools that belong to one simulated process, can be told to fail, and are all counted. */
#ifndef HF_SIM_MEM_H
#define HF_SIM_MEM_H

#include <stdlib.h>
#include <string.h>

void *sim_malloc(size_t);
void *sim_calloc(size_t, size_t);
void *sim_realloc(void *, size_t);
void sim_free(void *);
char *sim_strdup(const char *);
char *sim_strndup(const char *, size_t);

#undef strdup
#undef strndup
#define malloc sim_malloc
#define calloc sim_calloc
#define realloc sim_realloc
#define free sim_free
#define strdup sim_strdup
#define strndup sim_strndup

#endif
