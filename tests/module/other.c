/* other.c: a module made for another build of the seam; the loader refuses it before it
 * looks at anything else in it. */
#include "seam/seam.h"

extern const struct hf_module hf_module;

const struct hf_module hf_module = { .build_id = "0.0.0-made-elsewhere" };
