/* url.h: the parser of store URLs. */
#ifndef HF_CORE_URL_H
#define HF_CORE_URL_H

#include "seam/seam.h"

enum { HF_URL_MAX = 8192 };

/* Takes the common parameters (namespace, ttl, connect_timeout) out of params. HF_EINVAL
 * says which part is wrong and never contains a password. */
int hf__url_parse(struct url *, const char *text, hf_error *);
/* After a driver has refused to open it: takes the URL out of the error. */
void hf__url_refused(const struct url *, hf_error *);
void hf__url_done(struct url *);

#endif
