/* builtin.h: the tables that the build makes (builtin.c): the drivers linked into the
 * library, and every driver it knows of, also those that are modules or were left out. */
#ifndef HF_DRIVER_BUILTIN_H
#define HF_DRIVER_BUILTIN_H

#include "seam/seam.h"

#include <holdfast/tool.h>

struct known_driver {
    const char *name;    /* "local" */
    const char *schemes; /* words */
    int state;           /* HF_BACKEND_*: as it was configured */
};

extern const struct hf_driver *const hf__builtin_drivers[]; /* ends with NULL */
extern const struct known_driver hf__known_drivers[];       /* ends with name NULL */

extern const struct tls_module *const hf__builtin_tls; /* NULL: a module, or left out */
/* HF_BACKEND_*: as it was configured */
extern const int hf__tls_state;

#endif
