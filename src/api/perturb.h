/* perturb.h: points at which a test may let other threads run: where a wake-up could be
 * lost, a lead dropped or taken twice. Nothing in a normal build; with HF_PERTURB the test
 * program (tests/fault/perturb.c) yields or sleeps there at random. */
#ifndef HF_API_PERTURB_H
#define HF_API_PERTURB_H

#ifdef HF_PERTURB
void hf__perturb(void);
#define PERTURB() hf__perturb()
#else
#define PERTURB() ((void)0)
#endif

#endif
