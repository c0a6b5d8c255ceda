/* glue/glib.h: drives a client from a GLib main context. Header only; compile with
 * glib-2.0.
 *
 *     hf_open(url, HF_OPTIONS(.drive = HF_DRIVE_APP), &client, &err);
 *     source = hf_glib_attach(NULL, client);
 *     ... hf_acquire_start() and the rest of async.h; callbacks run in the context ...
 *     hf_glib_detach(source);
 *     hf_close(client);
 *
 * Order of the end: detach, then hf_close. Detach may be called in a holdfast callback,
 * hf_close may not: leave the main loop (or use g_idle_add) and close there. hf_close
 * runs the callbacks that are still owed, with HF_ECLOSED, in the thread that calls it.
 *
 * The source has default priority; g_source_set_priority() changes it. Sources of higher
 * priority that never rest, and callbacks that run longer than a third of the ttl, stop
 * renewal.
 * The manual: hf_glue(3), hf_async(3).
 */
#ifndef HOLDFAST_GLUE_GLIB_H
#define HOLDFAST_GLUE_GLIB_H

#include <glib-unix.h>
#include <glib.h>
#include <holdfast/async.h>

static inline gboolean hf__glib_ready(gint fd, GIOCondition condition, gpointer client)
{
    int rc = hf_client_process((hf_client *)client);
    (void)fd;
    (void)condition;
    /* A closed or forked client would keep the descriptor readable: do not spin. */
    return rc < 0 && rc != HF_EREENTRANT ? G_SOURCE_REMOVE : G_SOURCE_CONTINUE;
}

/* context NULL: the default one. The source is yours until hf_glib_detach. */
static inline GSource *hf_glib_attach(GMainContext *context, hf_client *client)
{
    GSource *source = g_unix_fd_source_new(hf_client_fd(client), G_IO_IN);
    /* GLib's documented way to set a callback with another signature. */
    g_source_set_callback(source, (GSourceFunc)(void (*)(void))hf__glib_ready, client,
                          NULL);
    g_source_set_name(source, "holdfast");
    g_source_attach(source, context);
    return source;
}

/* Takes NULL. */
static inline void hf_glib_detach(GSource *source)
{
    if (!source)
        return;
    g_source_destroy(source);
    g_source_unref(source);
}

#endif
