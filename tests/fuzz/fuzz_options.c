/* Any bytes as hf_request and hf_options: checked without a crash, and what passes is
 * sound. */
#include "core/core.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct store store = { .least_ttl_ms = 10, .most_ttl_ms = 1000000, .name_max = 512 };

static void try_request(const uint8_t *data, size_t size, uint32_t caps)
{
    struct client c = { .store = &store, .caps = caps, .ttl_ms = 30000 };
    unsigned char given[sizeof(hf_request) + 16] = { 0 };
    char note[64] = { 0 };
    hf_request *in = (hf_request *)(void *)given;
    struct acquire_spec out;
    hf_error err;

    memcpy(given, data, size < sizeof given ? size : sizeof given);
    if (in->size > sizeof given)
        in->size = (uint32_t)sizeof given;
    memcpy(note, data, size < sizeof note - 1 ? size : sizeof note - 1);
    in->note = in->note ? note : NULL;
    in->cancel = NULL;
    if (hf__check_request(&c, in, in->owner & 1, &out, &err) == 0)
        if (out.weight < 1 || out.weight > out.capacity || out.ttl_ms < 10 || !out.note)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char given[sizeof(hf_options) + 16] = { 0 };
    hf_options *in = (hf_options *)(void *)given, out;
    hf_error err;

    try_request(data, size, 0x7ff);
    try_request(data, size, 0);
    memcpy(given, data, size < sizeof given ? size : sizeof given);
    if (in->size > sizeof given)
        in->size = (uint32_t)sizeof given;
    if (hf__check_options(in, &out, &err) == 0 &&
        ((out.drive & ~(uint32_t)HF_OPEN_EXISTING) > HF_DRIVE_APP || out.ttl_ms < 0))
        abort();
    return 0;
}
