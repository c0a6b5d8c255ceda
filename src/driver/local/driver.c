/* driver.c: the embedded driver's face: opening, closing, and the table of its verbs.
 *
 * Opening is synchronous and complete: the store is up when it returns or it failed, and
 * the core hears of UP from the first turn of its own. Closing takes back what only lives
 * in this client (inbox, follows, sockets); the last client of a process takes the
 * process's record with it, and with that every ticket that is still in a line under its
 * number.
 */
#include "driver/local/local.h"
#include "util/text.h"

#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SPACE_MAX = 128, CLOSE_MS = 100 };

static void free_local(struct local *ls)
{
    hf__map_done(&ls->tickets);
    hf__map_done(&ls->waits);
    hf__map_done(&ls->peers);
    free(ls->notes);
    free(ls->pokes);
    free(ls->seen);
    free(ls->stale);
    free(ls->store.shown);
    free(ls->ns);
    free(ls);
}

static struct local *new_local(const struct url *url, struct env *env)
{
    struct local *ls = calloc(1, sizeof *ls);

    if (!ls)
        return NULL;
    ls->wakefd = -1;
    for (size_t i = 0; i < SENDERS; i++)
        ls->senders[i].fd = -1;
    list_init(&ls->idle);
    list_init(&ls->all_waits);
    list_init(&ls->looks);
    list_init(&ls->cells);
    ls->gate_ms = url->connect_ms > 0 ? url->connect_ms : GATE_MS;
    ls->store.env = env;
    ls->store.driver = &hf__driver_local;
    ls->store.caps = HF_CAP_DEADLINE | HF_CAP_FIFO | HF_CAP_FENCE | HF_CAP_BARGE |
                     HF_CAP_SHARED | HF_CAP_PERMITS | HF_CAP_LINE | HF_CAP_KEEP |
                     HF_CAP_CELL | HF_CAP_CELL_EXPIRY | HF_CAP_TTL;
    ls->store.least_ttl_ms = LEAST_TTL_MS;
    ls->store.most_ttl_ms = (int64_t)366 * 24 * 3600 * 1000;
    ls->store.least_cell_ttl_ms = 1;
    ls->store.most_cell_ttl_ms = ls->store.most_ttl_ms;
    ls->store.name_max = HF_NAME_MAX;
    env->random(env, ls->hash_key, sizeof ls->hash_key);
    ls->ns = strdup(url->ns ? url->ns : "");
    if (!ls->ns || hf__map_init(&ls->tickets) < 0 || hf__map_init(&ls->waits) < 0 ||
        hf__map_init(&ls->peers) < 0) {
        free_local(ls);
        return NULL;
    }
    return ls;
}

/* The URL with the folder: the one that it leaves to us is another for each user. */
static int show_folder(struct local *ls, const struct url *url, hf_error *err)
{
    char path[64];

    if (url->path[0])
        return 0;
    hf__local_folder_default(path, sizeof path);
    if (asprintf(&ls->store.shown, "local://%s%s", path,
                 url->shown + strcspn(url->shown, "?")) >= 0)
        return 0;
    ls->store.shown = NULL;
    return hf__fail(err, HF_ENOMEM, errno, NULL, "no memory");
}

static int local_open(struct store **ret, const struct url *url, struct env *env,
                      hf_error *err)
{
    struct local *ls;
    int rc;

    if (url->ns && strlen(url->ns) > NAME_SPACE_MAX)
        return hf__fail(err, HF_EINVAL, 0, url->shown,
                        "the namespace is longer than %d bytes", NAME_SPACE_MAX);
    if ((ls = new_local(url, env)) == NULL)
        return hf__fail(err, HF_ENOMEM, errno, NULL, "no memory");
    hf__local_defer_init(ls);
    if ((rc = show_folder(ls, url, err)) < 0 ||
        (rc = hf__local_shared_get(&ls->sh, url, err)) < 0)
        hf__local_defer_done(ls);
    if (rc == HF_ENOENT)
        hf__fail(err, rc, 0, ls->store.shown ? ls->store.shown : url->shown,
                 "there is no store");
    if (rc < 0) {
        free_local(ls);
        return rc;
    }
    *ret = &ls->store;
    return 0;
}

/* ---- closing --------------------------------------------------------------------- */

static void forget_tickets(struct local *ls)
{
    for (size_t i = 0; i <= ls->tickets.mask; i++)
        while (ls->tickets.slots[i])
            hf__local_ticket_out(
                ls, container_of(ls->tickets.slots[i], struct ticket, drv_node));
    while (!list_empty(&ls->all_waits))
        hf__local_wait_free(ls, container_of(list_first(&ls->all_waits), struct wait, all));
}

static int forget_inbox(struct tx *tx, void *arg)
{
    unsigned char prefix[KEY_INBOX];
    const uint64_t n[] = { tx->sh->process, tx->ls->member };
    int rc = hf__local_stale_drop(tx);

    (void)arg;
    if (rc < 0)
        return rc;
    return hf__local_db_del_prefix(tx, prefix,
                                   hf__local_key_numbers(prefix, TABLE_INBOX, n, 2));
}

/* Waits in vain once, and not at all if the gate was closed a moment ago: what stays of us
 * then goes with the process. */
static void local_close(struct store *store)
{
    struct local *ls = local_of(store);
    struct list *n;

    ls->wait_ms = ls->gate_ms < CLOSE_MS ? ls->gate_ms : CLOSE_MS;
    while ((n = list_first(&ls->looks)) != NULL)
        hf__local_stop(store, container_of(n, struct look, drv_node), NULL);
    while ((n = list_first(&ls->cells)) != NULL)
        hf__local_stop(store, NULL, container_of(n, struct cell, drv_node));
    forget_tickets(ls);
    if (ls->member != 0)
        hf__local_tx_run(ls, forget_inbox, NULL, false, NULL);
    hf__local_defer_done(ls);
    hf__local_wake_close(ls);
    hf__local_peers_done(ls);
    hf__local_shared_put(ls->sh);
    free_local(ls);
}

static void free_follow(struct local_follow *f)
{
    free(f->post);
    free(f);
}

/* In the child the descriptors are closed already (shared.c); what LMDB has is left alone.
 */
static void local_forked(struct store *store)
{
    struct local *ls = local_of(store);

    for (size_t i = 0; i <= ls->tickets.mask; i++)
        for (struct map_node *m = ls->tickets.slots[i]; m; m = m->next)
            free(container_of(m, struct ticket, drv_node)->drv_ptr);
    for (size_t i = 0; i <= ls->peers.mask; i++)
        for (struct map_node *m = ls->peers.slots[i], *next; m; m = next) {
            next = m->next;
            free(container_of(m, struct peer, node));
        }
    list_for_safe(n, &ls->all_waits) {
        struct wait *w = container_of(n, struct wait, all);

        free(w->life);
        free(w);
    }
    hf__local_defer_free(ls);
    list_for(n, &ls->looks)
        free_follow(container_of(n, struct look, drv_node)->drv_ptr);
    list_for(n, &ls->cells)
        free_follow(container_of(n, struct cell, drv_node)->drv_ptr);
    free_local(ls);
}

static int local_life_fds(struct store *store)
{
    struct local *ls = local_of(store);
    hf_error err = { 0 };
    int rc = hf__local_process_register(ls, &err);

    if (rc < 0 || (rc = hf__local_process_socket(ls, &err)) < 0) {
        errno = err.sys;
        return rc;
    }
    store->life_fds[0] = ls->sh->lifefd;
    store->nlife_fds = 1;
    return 0;
}

static int local_stalled(struct store *store, const struct ticket *t, hf_error *err)
{
    return t->drv[2] != 0 ? hf__local_gate_blocked(local_of(store)->sh, err) : 0;
}

static void local_detail(char *text, size_t size)
{
    char path[64];

    hf__local_folder_default(path, sizeof path);
    snprintf(text, size, "%s, LMDB %d.%d.%d", path, MDB_VERSION_MAJOR, MDB_VERSION_MINOR,
             MDB_VERSION_PATCH);
}

/* As a shell reads it. The group of a shared folder is not named by the URL. */
static char *local_admin(const struct url *url, hf_error *err)
{
    const char *share = hf__url_param(url, "share");
    const char *const words[] = { "mkdir -p -m 0700", share && strcmp(share, "group") == 0
                                                          ? "chmod 0770"
                                                          : "chmod 0700" };
    char folder[64], *made;
    struct text t = { 0 };

    hf__local_folder_default(folder, sizeof folder);
    for (int i = 0; i < 2; i++) {
        hf__text_add(&t, "%s '", words[i]);
        for (const char *p = url->path[0] ? url->path : folder; *p; p++)
            if (*p == '\'')
                hf__text_add(&t, "'\\''");
            else
                hf__text_add(&t, "%c", *p);
        hf__text_add(&t, "'\n");
    }
    made = hf__text_take(&t);
    if (!made)
        hf__fail(err, HF_ENOMEM, errno, NULL, "no memory");
    return made;
}

const struct hf_driver hf__driver_local = { .name = "local",
                                            .schemes = "local",
                                            .open = local_open,
                                            .close = local_close,
                                            .join = hf__local_join,
                                            .leave = hf__local_leave,
                                            .amend = hf__local_amend,
                                            .renew = hf__local_renew,
                                            .look = hf__local_look,
                                            .cell = hf__local_cell,
                                            .evict = hf__local_evict,
                                            .stop = hf__local_stop,
                                            .life_fds = local_life_fds,
                                            .stalled = local_stalled,
                                            .forked = local_forked,
                                            .detail = local_detail,
                                            .admin = local_admin };
