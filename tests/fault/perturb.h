/* perturb.h: the program that is shaken says by which seed. */
#ifndef HF_TESTS_PERTURB_H
#define HF_TESTS_PERTURB_H

#ifdef HF_PERTURB
void perturb_seed(unsigned); /* before there are threads */
#else
#define perturb_seed(seed) ((void)(seed))
#endif

#endif
