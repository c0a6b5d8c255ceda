/* inbox.c: telling other members, and being told.
 *
 * News for a ticket goes into the inbox of its member, in the transaction that makes it
 * true; then, outside the gate, the member is woken (wake.c). Nothing depends on the
 * wake: the safety look reads the inbox too (G4).
 *
 * A inbox has one record per ticket and kind, so it does not grow while its owner
 * sleeps; it goes when the member closes or its process is removed. The entry of a grant
 * that came with the wake is deleted a little later (wait.c); to read it again harms
 * nobody, like every entry for a ticket that knows already or has left. News for tickets of
 * the very same client takes no such way: it is told directly when the gate has been
 * left.
 */
#include "driver/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing, inside the gate ---------------------------------------------------- */

static size_t inbox_key(unsigned char key[KEY_INBOX], uint64_t process, uint64_t member,
                        enum inbox_kind kind, const unsigned char *token)
{
    const uint64_t n[] = { process, member };
    size_t len = hf__local_key_numbers(key, TABLE_INBOX, n, 2);

    key[len++] = (unsigned char)kind;
    memcpy(key + len, token, HF_TOKEN);
    return len + HF_TOKEN;
}

static int no_memory(struct tx *tx)
{
    return hf__fail(tx->err, HF_ENOMEM, ENOMEM, tx->sh->path, "no memory");
}

int hf__local_note(struct tx *tx, enum inbox_kind kind, const unsigned char *token,
                   uint64_t value, int64_t expires_at)
{
    struct local *ls = tx->ls;
    void *notes = ls->notes;
    struct note *n;

    if (hf__local_room(&notes, &ls->notes_room, ls->nnotes + 1, sizeof *ls->notes) < 0)
        return no_memory(tx);
    ls->notes = notes;
    n = &ls->notes[ls->nnotes++];
    n->kind = kind;
    n->fix = (struct inbox_fix){ value, expires_at };
    memcpy(n->token, token, HF_TOKEN);
    return 0;
}

/* One message for each member: a grant that is all the news, or "see the inbox". A
 * client of our own process always sees the inbox: its thread goes on where ours left
 * off, and the gate is what tells the C library, and tools that look for races, so. */
static int add_poke(struct tx *tx, uint64_t process, uint64_t member, enum inbox_kind kind,
                    const unsigned char *token, const struct inbox_fix *fix)
{
    struct local *ls = tx->ls;
    void *pokes = ls->pokes;
    struct poke *p;

    for (size_t i = 0; i < ls->npokes; i++)
        if (ls->pokes[i].process == process && ls->pokes[i].member == member) {
            memset(&ls->pokes[i].wake, 0, sizeof ls->pokes[i].wake);
            return 0;
        }
    if (hf__local_room(&pokes, &ls->pokes_room, ls->npokes + 1, sizeof *ls->pokes) < 0)
        return no_memory(tx);
    ls->pokes = pokes;
    p = &ls->pokes[ls->npokes++];
    *p = (struct poke){ .process = process, .member = member };
    if (kind == INBOX_GRANTED && process != tx->sh->process) {
        p->wake.kind = INBOX_GRANTED;
        p->wake.fix = *fix;
        memcpy(p->wake.token, token, HF_TOKEN);
    }
    return 0;
}

int hf__local_tell(struct tx *tx, uint64_t process, uint64_t member, enum inbox_kind kind,
                   const unsigned char *token, uint64_t value, int64_t expires_at)
{
    const struct inbox_fix fix = { value, expires_at };
    unsigned char key[KEY_INBOX];
    void *room;
    int rc;

    if (process == 0)
        return 0; /* kept: nobody is left to be told */
    if (tx->ls && process == tx->sh->process && member == tx->ls->member)
        return hf__local_note(tx, kind, token, value, expires_at);
    rc = hf__local_db_put(tx, key, inbox_key(key, process, member, kind, token), sizeof fix,
                          &room);
    if (rc < 0)
        return rc;
    memcpy(room, &fix, sizeof fix);
    return tx->ls ? add_poke(tx, process, member, kind, token, &fix) : 0;
}

int hf__local_tell_followers(struct tx *tx, enum table table, uint64_t hash)
{
    unsigned char prefix[KEY_FOLLOW], token[HF_TOKEN] = { 0 };
    size_t len = hf__local_key_numbers(prefix, TABLE_FOLLOW, &hash, 1);
    struct poke *who = NULL;
    size_t n = 0, room = 0;
    struct scan s;
    int rc;

    prefix[len++] = (unsigned char)table;
    token[0] = (unsigned char)table;
    memcpy(token + 1, &hash, sizeof hash);
    if ((rc = hf__local_scan_open(&s, tx, prefix, len)) < 0)
        return rc;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s)) {
        const unsigned char *key = s.key.mv_data;
        void *more = who;

        if (s.key.mv_size != KEY_FOLLOW)
            continue;
        if (hf__local_room(&more, &room, n + 1, sizeof *who) < 0) {
            rc = no_memory(tx);
            break;
        }
        who = more;
        who[n++] = (struct poke){ .process = hf__local_key_number(key + len),
                                  .member = hf__local_key_number(key + len + 8) };
    }
    hf__local_scan_close(&s);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = hf__local_tell(tx, who[i].process, who[i].member, INBOX_CHANGED, token, hash,
                            0);
    free(who);
    return rc < 0 ? rc : 0;
}

int hf__local_poke_unread(struct tx *tx, void *arg)
{
    const unsigned char table = TABLE_INBOX;
    uint64_t process = 0, member = 0;
    struct scan s;
    int rc = hf__local_scan_open(&s, tx, &table, 1);

    (void)arg;
    if (rc < 0)
        return rc;
    for (rc = hf__local_scan_first(&s); rc == 0; rc = hf__local_scan_next(&s)) {
        const unsigned char *key = s.key.mv_data;

        if (s.key.mv_size != KEY_INBOX || (hf__local_key_number(key + 1) == process &&
                                           hf__local_key_number(key + 9) == member))
            continue;
        process = hf__local_key_number(key + 1);
        member = hf__local_key_number(key + 9);
        if ((rc = add_poke(tx, process, member, INBOX_LOOK, NULL, NULL)) < 0)
            break;
    }
    hf__local_scan_close(&s);
    return rc < 0 ? rc : 0;
}

int hf__local_inbox_forget(struct tx *tx, enum inbox_kind kind, const unsigned char *token)
{
    unsigned char key[KEY_INBOX];
    int rc;

    if (tx->ls->member == 0)
        return 0;
    rc = hf__local_db_del(tx, key,
                          inbox_key(key, tx->sh->process, tx->ls->member, kind, token));
    return rc < 0 ? rc : 0;
}

int hf__local_inbox_read(struct tx *tx)
{
    unsigned char prefix[KEY_INBOX];
    const uint64_t n[] = { tx->sh->process, tx->ls->member };
    struct scan s;
    int rc;

    if (tx->ls->member == 0)
        return 0;
    rc = hf__local_scan_open(&s, tx, prefix,
                             hf__local_key_numbers(prefix, TABLE_INBOX, n, 2));
    if (rc < 0)
        return rc;
    while ((rc = hf__local_scan_first(&s)) == 0) {
        const unsigned char *key = s.key.mv_data;
        struct inbox_fix fix;

        if (s.key.mv_size == KEY_INBOX && s.value.mv_size == sizeof fix) {
            memcpy(&fix, s.value.mv_data, sizeof fix);
            if ((rc = hf__local_note(tx, (enum inbox_kind)key[17], key + 18, fix.value,
                                     fix.expires_at)) < 0)
                break;
        }
        if ((rc = hf__local_scan_del(&s)) < 0)
            break;
    }
    hf__local_scan_close(&s);
    return rc < 0 ? rc : 0;
}

/* ---- after the gate -------------------------------------------------------------- */

void hf__local_hear(struct local *ls, const struct note *n)
{
    struct ticket *t;

    if (n->kind == INBOX_CHANGED) {
        hf__local_follow_changed(ls, (enum table)n->token[0], n->fix.value);
        return;
    }
    if ((t = hf__local_ticket_find(ls, n->token)) == NULL)
        return; /* it has left meanwhile */
    switch (n->kind) {
    case INBOX_GRANTED:
        if (t->life && t->life->kind == LIFE_WAIT) { /* else it knows */
            t->drv[1] = 0;
            hf__local_ticket_granted(ls, t, n->fix.value, n->fix.expires_at);
        }
        break;
    case INBOX_MARKED:
        if (t->life == t->own)
            ev_marked(t);
        break;
    case INBOX_EVICTED:
        hf__local_ticket_out(ls, t);
        ev_gone(t, HF_EEVICTED, -1, NULL);
        break;
    case INBOX_EXPIRED:
        hf__local_ticket_out(ls, t);
        ev_gone(t, HF_ELOST, 0, NULL);
        break;
    default:
        hf__local_attend(ls, n->token);
        break;
    }
}

/* Others first: what we tell our own client may take long. Telling may lead to other
 * entries, which fill the arrays anew: so ours is taken out of the way. */
void hf__local_deliver(struct local *ls)
{
    struct note *notes = ls->notes;
    size_t n = ls->nnotes;

    hf__local_poke(ls);
    if (n == 0)
        return;
    ls->notes = NULL;
    ls->nnotes = ls->notes_room = 0;
    for (size_t i = 0; i < n; i++)
        hf__local_hear(ls, &notes[i]);
    free(notes);
}
