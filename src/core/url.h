/* url.h: the parser of store URLs. */
#ifndef HF_CORE_URL_H
#define HF_CORE_URL_H

#include "driver/seam.h"

enum { HF_URL_MAX = 8192 };

/* Takes the common parameters (namespace, ttl, connect_timeout) out of params. HF_EINVAL says
 * which part is wrong and never contains a password. */
int hf__url_parse(struct url *, const char *text, hf_error *);
void hf__url_done(struct url *);

/* "2.5" (seconds), "500ms", "30s", "5m", "1h"; false: not a time, or beyond a year. */
bool hf__parse_time(const char *, int64_t *ret_ms);

#endif
