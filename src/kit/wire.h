/* wire.h: a link (link.h) whose bytes go through a stream of src/net. The driver has both,
 * opens the stream, writes calls into it and reads what comes; these pass the rest on. */
#ifndef HF_KIT_WIRE_H
#define HF_KIT_WIRE_H

#include "kit/link.h"
#include "net/stream.h"

/* Both are initialised, with tables that have the functions below. */
void hf__wire_join(struct link *, struct stream *);

/* struct link_transport */
void hf__wire_close(struct link *);
void hf__wire_flush(struct link *);
bool hf__wire_read(struct link *);

/* struct stream_events */
void hf__wire_up(struct stream *);
void hf__wire_down(struct stream *, const hf_error *);

#endif
