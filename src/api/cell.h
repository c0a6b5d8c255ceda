/* cell.h: requests about cells (seam.h), as they are. The recipes have their own
 * (composite.h). */
#ifndef HF_API_CELL_H
#define HF_API_CELL_H

#include "api/api.h"

#include <holdfast/async.h>

/* One request, waited for. Fill verb, name, and what the verb needs; the rest is the
 * answer. 0, or HF_EBUSY (the version differs; the cell has the present state), HF_ENOTSUP
 * ... */
int hf__cell_call(hf_client *, struct cell *, hf_error *);

/* Fill the name. seen() runs in process() or wait(), now and after each change, until
 * hf_op_free; the cell must stay until then. */
int hf__cell_follow(hf_client *, struct cell *, hf__cell_seen *, void *user, hf_op **ret,
                    hf_error *);

#endif
