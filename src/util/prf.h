/* prf.h: a pseudo-random function: ChaCha20's block function (RFC 8439, 2.3). */
#ifndef HF_UTIL_PRF_H
#define HF_UTIL_PRF_H

#include <stdint.h>

enum { PRF_KEY = 32, PRF_BLOCK = 64 };

/* Another block for each number. Without the key the blocks cannot be told from
 * random bytes, nor one from the others. */
void hf__prf(unsigned char out[PRF_BLOCK], const unsigned char key[PRF_KEY],
             uint64_t number);

#endif
