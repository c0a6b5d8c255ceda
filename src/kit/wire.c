/* wire.c: what a link asks of its stream, and what a stream tells its link; see wire.h. */
#include "kit/wire.h"

void hf__wire_join(struct link *k, struct stream *s)
{
    k->stream = s;
    s->user = k;
}

void hf__wire_close(struct link *k)
{
    hf__stream_close(k->stream);
}

void hf__wire_flush(struct link *k)
{
    hf__stream_flush(k->stream);
}

bool hf__wire_read(struct link *k)
{
    return hf__stream_read(k->stream);
}

void hf__wire_up(struct stream *s)
{
    hf__link_opened(s->user);
}

void hf__wire_down(struct stream *s, const hf_error *err)
{
    hf__link_lost(s->user, err);
}
