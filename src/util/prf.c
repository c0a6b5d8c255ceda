/* prf.c: see prf.h. The number is the block counter and the first word of the nonce: 96
 * bits, of which 64 are used. */
#include "util/prf.h"

static uint32_t word(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static uint32_t turn(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

static void quarter_round(uint32_t s[16], int a, int b, int c, int d)
{
    s[a] += s[b];
    s[d] = turn(s[d] ^ s[a], 16);
    s[c] += s[d];
    s[b] = turn(s[b] ^ s[c], 12);
    s[a] += s[b];
    s[d] = turn(s[d] ^ s[a], 8);
    s[c] += s[d];
    s[b] = turn(s[b] ^ s[c], 7);
}

void hf__prf(unsigned char out[PRF_BLOCK], const unsigned char key[PRF_KEY],
             uint64_t number)
{
    uint32_t s[16] = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 }, t[16];

    for (int i = 0; i < 8; i++)
        s[4 + i] = word(key + 4 * i);
    s[12] = (uint32_t)number;
    s[13] = (uint32_t)(number >> 32);
    for (int i = 0; i < 16; i++)
        t[i] = s[i];
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 4; k++)
            quarter_round(t, k, 4 + k, 8 + k, 12 + k);
        for (int k = 0; k < 4; k++)
            quarter_round(t, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4);
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 4; k++)
            out[4 * i + k] = (unsigned char)((t[i] + s[i]) >> 8 * k);
}
