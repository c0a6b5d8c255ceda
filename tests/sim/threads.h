/* threads.h: forced into the sources of src/api by the compiler: the places at
 * which threads.c can break them. */
#ifndef HF_SIM_THREADS_H
#define HF_SIM_THREADS_H

#include "api/api.h"

int threads_signal(pthread_cond_t *, const char *in);
void threads_arm(struct loop *);
int threads_patience(int64_t at);

#define pthread_cond_signal(cond) threads_signal(cond, __func__)
#define hf__loop_arm(loop) threads_arm(loop)
#define hf__loop_patience(at) threads_patience(at)

#endif
