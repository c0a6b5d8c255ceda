/* Ordered lines: the whole table of a seat, who holds, and whom to watch. */
#include "unit.h"

#include "kit/ordered.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table ------------------------------------------------------------------- */

static const struct row_of_table {
    enum seat_state from;
    enum seat_event event;
    enum seat_state to;
    unsigned effects;
} table[] = {
    { SEAT_NEW, SEAT_JOIN, SEAT_CREATING, SEAT_DO_CREATE },
    { SEAT_NEW, SEAT_JOIN_TRY, SEAT_TRYING, SEAT_DO_TRY },
    { SEAT_NEW, SEAT_LEAVE, SEAT_SEEKING, SEAT_DO_FIND },
    { SEAT_NEW, SEAT_SESSION_OVER, SEAT_OVER, 0 },
    { SEAT_UNSURE, SEAT_JOIN, SEAT_FINDING, SEAT_DO_FIND },
    { SEAT_UNSURE, SEAT_JOIN_TRY, SEAT_FINDING, SEAT_DO_FIND },
    { SEAT_UNSURE, SEAT_LEAVE, SEAT_SEEKING, SEAT_DO_FIND },
    { SEAT_UNSURE, SEAT_SESSION_OVER, SEAT_OVER, 0 },
    { SEAT_TRYING, SEAT_LEAVE, SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_TRYING, SEAT_LOST, SEAT_NEW, 0 },
    { SEAT_TRYING, SEAT_ROOM, SEAT_CREATING, SEAT_DO_CREATE },
    { SEAT_TRYING, SEAT_NO_ROOM, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_FINDING, SEAT_LEAVE, SEAT_SEEKING, 0 },
    { SEAT_FINDING, SEAT_LOST, SEAT_UNSURE, 0 },
    { SEAT_FINDING, SEAT_FOUND, SEAT_CREATED, 0 },
    { SEAT_FINDING, SEAT_FOUND_OLD, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_FINDING, SEAT_FOUND_NONE, SEAT_CREATING, SEAT_DO_CREATE },
    { SEAT_FINDING, SEAT_NOT_FOUND, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_FINDING, SEAT_GONE, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_CREATING, SEAT_LEAVE, SEAT_ABORTING, 0 },
    { SEAT_CREATING, SEAT_LOST, SEAT_UNSURE, 0 },
    { SEAT_CREATING, SEAT_MADE, SEAT_CREATED, 0 },
    { SEAT_CREATING, SEAT_NOT_MADE, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_CREATED, SEAT_JOIN, SEAT_CREATED, SEAT_DO_LIST },
    { SEAT_CREATED, SEAT_JOIN_TRY, SEAT_CREATED, SEAT_DO_LIST },
    { SEAT_CREATED, SEAT_UP, SEAT_CREATED, SEAT_DO_LIST },
    { SEAT_CREATED, SEAT_LEAVE, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_CREATED, SEAT_PLACED, SEAT_WAITING, 0 },
    { SEAT_CREATED, SEAT_GONE, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_CREATED, SEAT_WITHDRAW, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_CREATED, SEAT_MARKED, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_CREATED, SEAT_SESSION_OVER, SEAT_OVER, 0 },
    { SEAT_WAITING, SEAT_JOIN, SEAT_WAITING, SEAT_TELL_WAITING },
    { SEAT_WAITING, SEAT_JOIN_TRY, SEAT_WAITING, SEAT_TELL_WAITING },
    { SEAT_WAITING, SEAT_UP, SEAT_WAITING, SEAT_DO_WATCH },
    { SEAT_WAITING, SEAT_LEAVE, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_WAITING, SEAT_ADMITTED, SEAT_HELD, SEAT_TELL_GRANTED },
    { SEAT_WAITING, SEAT_GONE, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_WAITING, SEAT_WITHDRAW, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_WAITING, SEAT_MARKED, SEAT_WITHDRAWING, SEAT_KEEP_WHY | SEAT_DO_ERASE },
    { SEAT_WAITING, SEAT_SESSION_OVER, SEAT_OVER, 0 },
    { SEAT_HELD, SEAT_JOIN, SEAT_HELD, SEAT_TELL_GRANTED },
    { SEAT_HELD, SEAT_JOIN_TRY, SEAT_HELD, SEAT_TELL_GRANTED },
    { SEAT_HELD, SEAT_UP, SEAT_HELD, SEAT_DO_WATCH },
    { SEAT_HELD, SEAT_LEAVE, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_HELD, SEAT_GONE, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_HELD, SEAT_MARKED, SEAT_HELD, SEAT_TELL_MARKED },
    { SEAT_HELD, SEAT_RENAME, SEAT_RENAMING, 0 },
    { SEAT_HELD, SEAT_SESSION_OVER, SEAT_OVER, 0 },
    { SEAT_RENAMING, SEAT_LEAVE, SEAT_PARTING, 0 },
    { SEAT_RENAMING, SEAT_UP, SEAT_RENAMING, SEAT_DO_CHECK },
    { SEAT_RENAMING, SEAT_MARKED, SEAT_RENAMING, SEAT_TELL_MARKED },
    { SEAT_RENAMING, SEAT_RENAMED, SEAT_HELD, SEAT_DO_WATCH },
    { SEAT_RENAMING, SEAT_RENAME_GONE, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_RENAMING, SEAT_SESSION_OVER, SEAT_OVER, 0 },
    { SEAT_WITHDRAWING, SEAT_LEAVE, SEAT_DELETING, 0 },
    { SEAT_WITHDRAWING, SEAT_LOST, SEAT_DOOMED, 0 },
    { SEAT_WITHDRAWING, SEAT_DELETED, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_WITHDRAWING, SEAT_NOT_DELETED, SEAT_ORPHAN, SEAT_TELL_GONE },
    { SEAT_DOOMED, SEAT_JOIN, SEAT_WITHDRAWING, SEAT_DO_ERASE },
    { SEAT_DOOMED, SEAT_JOIN_TRY, SEAT_WITHDRAWING, SEAT_DO_ERASE },
    { SEAT_DOOMED, SEAT_UP, SEAT_WITHDRAWING, SEAT_DO_ERASE },
    { SEAT_DOOMED, SEAT_LEAVE, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_DOOMED, SEAT_GONE, SEAT_OUT, SEAT_TELL_GONE },
    { SEAT_DOOMED, SEAT_SESSION_OVER, SEAT_OVER, 0 },
    { SEAT_SEEKING, SEAT_LOST, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_SEEKING, SEAT_FOUND, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_SEEKING, SEAT_FOUND_OLD, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_SEEKING, SEAT_FOUND_NONE, SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_SEEKING, SEAT_GONE, SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_SEEKING, SEAT_NOT_FOUND, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_ABORTING, SEAT_LOST, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_ABORTING, SEAT_MADE, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_ABORTING, SEAT_NOT_MADE, SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_PARTING, SEAT_LOST, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_PARTING, SEAT_RENAMED, SEAT_DELETING, SEAT_DO_ERASE },
    { SEAT_PARTING, SEAT_RENAME_GONE, SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_DELETING, SEAT_LOST, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_DELETING, SEAT_DELETED, SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_DELETING, SEAT_NOT_DELETED, SEAT_OUT, SEAT_TELL_UNKNOWN },
    { SEAT_ORPHAN, SEAT_UP, SEAT_ORPHAN, SEAT_DO_ERASE },
    { SEAT_ORPHAN, SEAT_DELETED, SEAT_OUT, 0 },
    { SEAT_ORPHAN, SEAT_SESSION_OVER, SEAT_OUT, 0 },
    { SEAT_OVER, SEAT_LEAVE, SEAT_OUT, SEAT_TELL_LEFT },
    { SEAT_OVER, SEAT_LEAVE_DOWN, SEAT_OUT, SEAT_TELL_LEFT },
};

static struct row_of_table expected(enum seat_state from, enum seat_event event)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].from == from && table[i].event == event)
            return table[i];
    if (event == SEAT_LEAVE_DOWN && from < SEAT_ORPHAN)
        return (struct row_of_table){ from, event, SEAT_OUT, SEAT_TELL_UNKNOWN };
    return (struct row_of_table){ from, event, from, 0 }; /* it means nothing */
}

static void every_step_is_in_the_table(void **state)
{
    (void)state;
    for (int from = 0; from < SEAT_STATES; from++)
        for (int e = 0; e < SEAT_EVENTS; e++) {
            struct row_of_table row = expected((enum seat_state)from, (enum seat_event)e);
            enum seat_state s = (enum seat_state)from;
            unsigned effects = hf__seat_step(&s, (enum seat_event)e);

            if (s != row.to || effects != row.effects)
                fail_msg("state %d, event %d: state %d, effects %x, not %d, %x", from, e, s,
                         effects, row.to, row.effects);
        }
}

/* In which states the store may have a node of the ticket. */
static bool may_be_there(enum seat_state s)
{
    return s != SEAT_NEW && s != SEAT_TRYING && s != SEAT_OVER && s != SEAT_OUT;
}

/* Whatever happens: only WAITING becomes HELD, and it is told; what may be in the store is
 * forgotten only by an answer that says that it is not, or by telling so. */
static void every_step_is_sound(void **state)
{
    static const enum seat_event not_there[] = { SEAT_NOT_MADE,    SEAT_FOUND_NONE,
                                                 SEAT_GONE,        SEAT_DELETED,
                                                 SEAT_RENAME_GONE, SEAT_SESSION_OVER,
                                                 SEAT_NOT_FOUND };

    (void)state;
    for (int from = 0; from < SEAT_STATES; from++)
        for (int e = 0; e < SEAT_EVENTS; e++) {
            enum seat_state s = (enum seat_state)from;
            unsigned effects = hf__seat_step(&s, (enum seat_event)e);
            bool known = false;

            if (s == SEAT_HELD && from != SEAT_HELD && from != SEAT_RENAMING)
                assert_true(from == SEAT_WAITING && effects == SEAT_TELL_GRANTED);
            for (size_t i = 0; i < sizeof not_there / sizeof not_there[0]; i++)
                known = known || e == (int)not_there[i];
            if (may_be_there((enum seat_state)from) && !may_be_there(s) && !known)
                assert_int_equal(effects, SEAT_TELL_UNKNOWN);
            if (effects & SEAT_DO_CREATE)
                assert_true(!may_be_there((enum seat_state)from) || e == SEAT_FOUND_NONE);
            if (s == SEAT_OUT && from != SEAT_OUT && from != SEAT_ORPHAN)
                assert_true(effects & SEAT_TELL_LAST);
            if (effects & SEAT_TELL_LAST)
                assert_true(s == SEAT_OUT || s == SEAT_ORPHAN);
        }
}

/* ---- views ----------------------------------------------------------------------- */

enum { MOST = 12 };

static struct ordered_entry *ticket_of(int64_t seq, enum line_kind kind, int64_t weight,
                                       int64_t capacity)
{
    struct ordered_place place = { seq, kind, weight, capacity };
    struct ordered_entry *e = hf__ordered_entry(&place, (const char *)&seq, sizeof seq);

    assert_non_null(e);
    return e;
}

static struct ordered_entry *writer(int64_t seq)
{
    return ticket_of(seq, LINE_LOCK, HF_FULL, HF_FULL);
}

static struct ordered_entry *reader(int64_t seq)
{
    return ticket_of(seq, LINE_LOCK, 1, HF_FULL);
}

static size_t holders_of(const char *line) /* w, r; p, q: a permit of 3, of 2 */
{
    struct ordered_entry *entries[MOST] = { NULL };
    size_t n = strlen(line), holders;

    for (size_t i = 0; i < n; i++)
        entries[i] = line[i] == 'w' ? writer((int64_t)i)
                     : line[i] == 'r'
                         ? reader((int64_t)i)
                         : ticket_of((int64_t)i, LINE_PERMITS, 1, line[i] == 'p' ? 3 : 2);
    holders = hf__ordered_holders(entries, n);
    for (size_t i = 0; i < n; i++)
        free(entries[i]);
    return holders;
}

static void the_longest_prefix_holds(void **state)
{
    (void)state;
    assert_int_equal(holders_of(""), 0);
    assert_int_equal(holders_of("w"), 1);
    assert_int_equal(holders_of("ww"), 1);
    assert_int_equal(holders_of("wr"), 1);
    assert_int_equal(holders_of("rrwr"), 2);
    assert_int_equal(holders_of("pppp"), 3);
    assert_int_equal(holders_of("ppqp"),
                     2); /* another capacity keeps those behind it out */
    assert_int_equal(holders_of("prp"), 1);
    assert_int_equal(holders_of("rpr"), 1);
}

/* Against the definition, with lines made at random: as long as all of the span are there,
 * whatever else goes, entry i does not hold; and it is as small as it can be. */
static void whom_to_watch_is_enough(void **state)
{
    uint64_t x = 88172645463325252u;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct ordered_entry *all[MOST], *left[MOST];
        size_t n = 2, i, k = 0;
        struct ordered_span on;
        bool locks;
        int64_t capacity;

        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        n += x % (MOST - 2);
        locks = x >> 8 & 1;
        capacity = locks ? HF_FULL : 1 + (int64_t)(x >> 9 & 3);
        for (i = 0; i < n; i++) {
            uint64_t r = x >> (10 + 3 * i) & 7;

            all[i] = locks    ? (r < 3 ? writer((int64_t)i) : reader((int64_t)i))
                     : r == 0 ? reader((int64_t)i) /* of another kind */
                              : ticket_of((int64_t)i, LINE_PERMITS,
                                          1 + (int64_t)r % capacity, capacity);
        }
        i = n - 1;
        if (hf__ordered_holders(all, n) <= i && hf__ordered_same_kind(all[0], all[i])) {
            on = hf__ordered_whom(all, i);
            assert_true(on.from < on.to && on.to <= i);
            for (size_t j = on.from; j < on.to; j++)
                left[k++] = all[j];
            left[k++] = all[i];
            /* nothing but the span and itself; its head may be of another kind */
            if (hf__ordered_same_kind(left[0], all[i]))
                assert_int_equal(hf__ordered_holders(left, k) < k, 1);
            if (k > 2) { /* one less, and it would */
                memmove(left, left + 1, --k * sizeof left[0]);
                assert_int_equal(hf__ordered_holders(left, k), k);
            }
        }
        for (size_t j = 0; j < n; j++)
            free(all[j]);
    }
}

static void a_try_needs_room_at_the_end(void **state)
{
    struct ticket t = { .kind = LINE_LOCK, .weight = 1, .capacity = HF_FULL };
    struct ordered_entry *entries[] = { reader(1), writer(2) };

    (void)state;
    assert_int_equal(hf__ordered_would_hold(entries, 0, &t), 0);
    assert_int_equal(hf__ordered_would_hold(entries, 1, &t), 0);
    assert_int_equal(hf__ordered_would_hold(entries, 2, &t), HF_EBUSY);
    t.weight = HF_FULL;
    assert_int_equal(hf__ordered_would_hold(entries, 1, &t), HF_EBUSY);
    t = (struct ticket){ .kind = LINE_PERMITS, .weight = 1, .capacity = 3 };
    assert_int_equal(hf__ordered_would_hold(entries, 1, &t), HF_EMISMATCH);
    free(entries[0]);
    free(entries[1]);
}

/* What is known of an entry stays known when a list replaces the view. */
static void a_list_keeps_what_is_known(void **state)
{
    struct ordered_line line = { 0 };
    struct ordered_seat seat = { 0 };
    struct ordered_entry **entries = calloc(2, sizeof *entries), *e, *known;
    int64_t five = 5;

    (void)state;
    assert_non_null(entries);
    assert_true(hf__ordered_insert(&line, writer(9)));
    assert_true(hf__ordered_insert(&line, writer(5)));
    assert_true(hf__ordered_insert(&line, writer(7)));
    assert_int_equal(line.entries[0]->seq, 5);
    assert_int_equal(line.entries[2]->seq, 9);
    line.entries[0]->watch = WATCH_SET;
    line.entries[1]->seat = &seat;
    seat.entry = line.entries[1];
    known = line.entries[0];
    entries[0] = reader(5); /* it has become shared */
    entries[1] = writer(7);
    hf__ordered_replace(&line, entries, 2);
    e = hf__ordered_find(&line, 5, (const char *)&five, sizeof five);
    assert_true(e == known && e == line.entries[0]);
    assert_true(e->watch == WATCH_SET && e->weight == 1);
    assert_true(seat.entry == line.entries[1] && seat.entry->seat == &seat);
    hf__ordered_cut(&line, seat.entry);
    assert_null(seat.entry);
    assert_int_equal(line.n, 1);
    hf__ordered_entries_free(line.entries, line.n);
}

/* ---- lists that are not in order with what else is told -------------------------- */

static int lists;

static void count_list(struct ordered_line *l, bool watch)
{
    (void)l;
    (void)watch;
    lists++;
}

static bool no_watch(struct ordered_line *l, struct ordered_entry *e)
{
    (void)l;
    (void)e;
    return true;
}

/* One of ours waits, made at 7, behind that of 5. */
static void one_waits(struct ordered *o, struct ordered_line *line, struct ordered_seat *s)
{
    static const struct ordered_ops ops = { .list = count_list, .watch = no_watch };

    *o = (struct ordered){ .ops = &ops, .up = true };
    list_init(&o->lines);
    memset(line, 0, sizeof *line);
    hf__ordered_line_init(o, line);
    *s = (struct ordered_seat){ .of = o, .line = line, .state = SEAT_WAITING, .fence = 7 };
    list_push(&line->seats, &s->in_line);
    assert_true(hf__ordered_insert(line, writer(5)));
    assert_true(hf__ordered_insert(line, writer(7)));
    s->entry = line->entries[1];
    s->entry->seat = s;
    line->revision = 0;
    line->lists = 1;
    lists = 0;
}

static struct ordered_entry **list_of_five(void)
{
    struct ordered_entry **entries = calloc(1, sizeof *entries);

    assert_non_null(entries);
    entries[0] = writer(5);
    return entries;
}

/* A list that is older than a node of ours takes it out of the view: the line is listed
 * once more, or nobody would ever look at it again. */
static void an_older_list_is_followed_by_another(void **state)
{
    struct ordered_line line;
    struct ordered_seat seat;
    struct ordered o;

    (void)state;
    one_waits(&o, &line, &seat);
    hf__ordered_listed(&line, list_of_five(), 1, 6, false);
    assert_null(seat.entry);
    assert_int_equal(seat.state, SEAT_WAITING);
    assert_int_equal(lists, 1);
    hf__ordered_entries_free(line.entries, line.n);
}

/* One that is older than an event decides nothing, and is asked for again. */
static void a_list_before_an_event_is_dropped(void **state)
{
    struct ordered_line line;
    struct ordered_seat seat;
    struct ordered o;

    (void)state;
    one_waits(&o, &line, &seat);
    line.revision = 9;
    hf__ordered_listed(&line, list_of_five(), 1, 8, false);
    assert_non_null(seat.entry);
    assert_int_equal(line.n, 2);
    assert_true(line.stale);
    assert_int_equal(lists, 1);
    hf__ordered_entries_free(line.entries, line.n);
}

/* Whoever needed a list found one under way, which does not come. */
static void a_list_that_does_not_come_is_replaced(void **state)
{
    struct ordered_line line;
    struct ordered_seat seat;
    struct ordered o;

    (void)state;
    one_waits(&o, &line, &seat);
    seat.state = SEAT_CREATED;
    hf__ordered_list(&line);
    assert_int_equal(lists, 0);
    hf__ordered_unlisted(&line);
    assert_int_equal(lists, 1);
    assert_int_equal(line.lists, 1);
    seat.state = SEAT_WAITING; /* and nobody needs one */
    hf__ordered_unlisted(&line);
    assert_int_equal(lists, 1);
    hf__ordered_entries_free(line.entries, line.n);
}

static int confirms;

static void count_confirm(struct ordered_seat *s, bool strict)
{
    (void)s;
    (void)strict;
    confirms++;
}

/* The one before ours ended at 20 and had only waited; the holder ended at 25, and that was
 * told first. That our node was there at 20 proves nothing: it may have ended at 22, and
 * then somebody behind it holds since 25. It is read. */
static void an_event_of_too_early_does_not_admit(void **state)
{
    static const struct ordered_ops ops = { .list = count_list,
                                            .watch = no_watch,
                                            .confirm = count_confirm };
    struct ordered_line line;
    struct ordered_seat seat;
    struct ordered o;

    (void)state;
    one_waits(&o, &line, &seat);
    o.ops = &ops;
    line.lists = 0;
    line.pins = 1;
    assert_true(hf__ordered_insert(&line, writer(3)));
    confirms = 0;
    hf__ordered_told(&o, 25);
    hf__ordered_cut(&line, line.entries[0]);
    assert_int_equal(line.gone, 25);
    assert_true(hf__ordered_after(&line, line.entries[0]) == seat.entry);
    hf__ordered_ended(&line, line.entries[0], &seat, 20);
    assert_int_equal(line.n, 1);
    assert_int_equal(seat.state, SEAT_WAITING);
    assert_int_equal(confirms, 1);
    assert_null(line.shown);
    hf__ordered_entries_free(line.entries, line.n);
}

static void no_timer(struct env *e, struct timer *t, int64_t at)
{
    (void)e;
    (void)t;
    (void)at;
}

static void spoil_seat(struct ordered_seat *s)
{
    memset(s, 0x5a, sizeof *s);
}

static void leave_line(struct ordered_line *l)
{
    (void)l;
}

/* A close frees the seats first, then the view in which they stood. */
static void a_seat_is_not_touched_after_its_end(void **state)
{
    static const struct ordered_ops ops = { .seat_free = spoil_seat,
                                            .line_free = leave_line };
    struct env env = { .timer = no_timer };
    struct store store = { .env = &env };
    struct ordered_seat seat, spoilt;
    struct ordered_line line;
    struct ordered o;

    (void)state;
    spoil_seat(&spoilt);
    one_waits(&o, &line, &seat);
    o.ops = &ops;
    o.store = &store;
    list_init(&seat.queue);
    hf__ordered_close(&o);
    assert_int_equal(line.n, 0);
    assert_memory_equal(&seat, &spoilt, sizeof seat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_in_the_table),
        cmocka_unit_test(every_step_is_sound),
        cmocka_unit_test(the_longest_prefix_holds),
        cmocka_unit_test(whom_to_watch_is_enough),
        cmocka_unit_test(a_try_needs_room_at_the_end),
        cmocka_unit_test(a_list_keeps_what_is_known),
        cmocka_unit_test(an_older_list_is_followed_by_another),
        cmocka_unit_test(a_list_before_an_event_is_dropped),
        cmocka_unit_test(a_list_that_does_not_come_is_replaced),
        cmocka_unit_test(an_event_of_too_early_does_not_admit),
        cmocka_unit_test(a_seat_is_not_touched_after_its_end),
    };

    return cmocka_run_group_tests_name("ordered", tests, NULL, NULL);
}
