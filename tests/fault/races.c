/* races.c: see races.h. */
#include "races.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRY = 1 };

static const struct race_store *store;

static int64_t number(const char *query)
{
    return store->number(query);
}

static int meet(const char *one, const char *other)
{
    store->begin(one);
    return store->come(other);
}

/* ---- races: true if all is well --------------------------------------------------- */

/* The line is there, and free. */
static bool two_join(void)
{
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('x', RACE_TTL_MS, TRY)), ==, 0);
    CHECK_NUM(store->asked(0, store->leave('x')), ==, 1);
    got = meet(store->join('a', RACE_LONG_MS, TRY), store->join('b', RACE_LONG_MS, TRY));
    return got == 2 && store->lines_whole();
}

/* The line is not there: both make it. */
static bool two_begin(void)
{
    int got;

    store->clear();
    got = meet(store->join('a', RACE_LONG_MS, TRY), store->join('b', RACE_LONG_MS, TRY));
    return got == 2 && store->lines_whole();
}

static bool leave_and_join(void)
{
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_LONG_MS, TRY)), ==, 0);
    got = meet(store->leave('a'), store->join('b', RACE_LONG_MS, TRY));
    return got == 0 && number(store->tickets) == 1 && store->lines_whole();
}

/* One that has left already leaves again while the next one comes. */
static bool late_leave_and_join(void)
{
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_LONG_MS, TRY)), ==, 0);
    CHECK_NUM(store->asked(0, store->leave('a')), ==, 1);
    got = meet(store->join('b', RACE_LONG_MS, TRY), store->leave('a'));
    return got == 0 && store->asked(1, store->leave('a')) == 0 &&
           number(store->tickets) == 1 && store->lines_whole();
}

/* The expiry that the second one sees is over; the renewal that moves it is not visible
 * yet. */
static bool renewed_meanwhile(int before)
{
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_TTL_MS, TRY)), ==, 0);
    for (int i = 1; i <= before; i++)
        CHECK_NUM(store->asked(0, store->renew('a', i, RACE_TTL_MS)), ==, 1);
    store->begin(store->renew('a', before + 1, RACE_LONG_MS));
    AWAIT(number(store->left_ms) < 0);
    got = store->come(store->join('b', RACE_LONG_MS, TRY));
    return got == 2 && number(store->tickets) == 1 &&
           number(store->left_ms) > RACE_TTL_MS && store->lines_whole();
}

static bool renewal_first(void)
{
    return renewed_meanwhile(0);
}

static bool second_renewal_first(void)
{
    return renewed_meanwhile(1);
}

/* It is over, and another has the place: it is not revived. */
static bool removal_first(void)
{
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_TTL_MS, TRY)), ==, 0);
    AWAIT(number(store->left_ms) < 0);
    got = meet(store->join('b', RACE_LONG_MS, TRY), store->renew('a', 1, RACE_LONG_MS));
    return got == 0 && number(store->tickets) == 1 &&
           store->asked(1, store->renew('b', 1, RACE_LONG_MS)) == 1 && store->lines_whole();
}

static bool left_meanwhile(int before)
{
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_LONG_MS, TRY)), ==, 0);
    for (int i = 1; i <= before; i++)
        CHECK_NUM(store->asked(0, store->renew('a', i, RACE_LONG_MS)), ==, 1);
    got = meet(store->leave('a'), store->renew('a', before + 1, RACE_LONG_MS));
    return got == 0 && number(store->tickets) == 0 && store->lines_whole();
}

static bool leave_and_renew(void)
{
    return left_meanwhile(0);
}

static bool leave_and_renew_again(void)
{
    return left_meanwhile(1);
}

/* The line is swept while somebody comes; its fence is not given again. */
static bool swept_and_joined(void)
{
    int64_t fence;
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_LONG_MS, TRY)), ==, 0);
    CHECK_NUM(store->asked(0, store->leave('a')), ==, 1);
    number(store->to_sweep);
    fence = number(store->line_fence);
    got = meet(store->sweep, store->join('b', RACE_LONG_MS, TRY));
    return got == 0 && number(store->tickets) == 1 && store->lines_whole() &&
           number(store->ticket_fence) > fence;
}

/* What comes late, from a connection that was lost, takes nothing from its owner. */
static bool late_ones_shorten_nothing(void)
{
    bool good;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_TTL_MS, TRY)), ==, 0);
    CHECK_NUM(store->asked(0, store->renew('a', 7, RACE_LONG_MS)), ==, 1);
    CHECK_NUM(store->asked(1, store->renew('a', 6, RACE_TTL_MS)), ==, 1);
    good = number(store->left_ms) > RACE_LONG_MS / 2;
    CHECK_NUM(store->asked(0, store->renew('a', 7, RACE_LONG_MS)), ==, 1);
    CHECK_NUM(store->asked(1, store->join('a', RACE_TTL_MS, TRY)), ==, 0);
    good = good && number(store->left_ms) > RACE_LONG_MS / 2;
    CHECK_NUM(store->asked(0, store->renew('a', 8, RACE_LONG_MS / 4)), ==,
              1); /* its owner may */
    return good && number(store->left_ms) < RACE_LONG_MS / 2 && store->lines_whole();
}

/* A hold that shall end sooner ends sooner, and the line knows it. */
static bool shorter_renewal(void)
{
    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_LONG_MS, TRY)), ==, 0);
    CHECK_NUM(store->asked(0, store->renew('a', 1, RACE_TTL_MS)), ==, 1);
    AWAIT(number(store->left_ms) < 0);
    return store->asked(1, store->join('b', RACE_LONG_MS, TRY)) == 0 &&
           number(store->tickets) == 1 && store->lines_whole();
}

/* Somebody begins to wait while the holder leaves: it is let in (G4). */
static bool wait_and_leave(void)
{
    int got;

    store->clear();
    CHECK_NUM(store->asked(0, store->join('a', RACE_LONG_MS, TRY)), ==, 0);
    got = meet(store->join('b', RACE_LONG_MS, 0), store->leave('a'));
    return got == 1 && number(store->tickets) == 1 && number(store->holders) == 1 &&
           store->lines_whole();
}

static const struct race races[] = {
    { "two join", two_join },
    { "two begin", two_begin },
    { "leave and join", leave_and_join },
    { "wait and leave", wait_and_leave },
    { "late leave and join", late_leave_and_join },
    { "renewal first", renewal_first },
    { "second renewal first", second_renewal_first },
    { "removal first", removal_first },
    { "leave and renew", leave_and_renew },
    { "leave and renew again", leave_and_renew_again },
    { "swept and joined", swept_and_joined },
    { "late ones shorten nothing", late_ones_shorten_nothing },
    { "shorter renewal", shorter_renewal },
    { NULL, NULL },
};

/* ---- the schema without one of its locks or conditions ---------------------------- */

/* Puts the schema into the server, changed at one place. */
static void make_changed(const char *text, const struct mutation *m)
{
    const char *at = strstr(text, m->what);
    char *changed = NULL;

    if (!at)
        check_failed(__FILE__, __LINE__, "no such place in the schema: %s", m->name);
    CHECK(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, m->with,
                   at + strlen(m->what)) > 0);
    store->make(changed);
    free(changed);
}

/* The name of one that goes wrong, or NULL. */
static const char *wrong_of(const struct race *r)
{
    for (; r && r->name; r++)
        if (!r->run())
            return r->name;
    return NULL;
}

static const char *wrong(void)
{
    const char *name = wrong_of(store->more);

    for (int way = 0; !name && way < (store->go ? store->ways : 1); way++) {
        if (store->go)
            store->go(way);
        name = wrong_of(races);
    }
    return name;
}

void races_run(const struct race_store *s, unsigned level, const char *schema)
{
    const char *name;

    store = s;
    s->make(schema);
    name = wrong();
    if (name)
        check_failed(__FILE__, __LINE__, "%s", name);
    for (const struct mutation *m = s->mutations; m->name; m++) {
        if (!(m->levels & level))
            continue;
        make_changed(schema, m);
        name = wrong();
        if (!name)
            check_failed(__FILE__, __LINE__, "not found: %s", m->name);
        fprintf(stderr, "%s: found by %s\n", m->name, name);
    }
}
