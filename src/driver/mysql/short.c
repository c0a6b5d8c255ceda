/* short.c: the short ways: to take a free line, and to give it back, each an UPDATE of the
 * line's row (schema.sql: folded holds).
 *
 *   join   TAKE: one row was changed: it holds. None: somebody is in the line, or there is
 *          none yet, or another session has the ticket's user lock: CALL holdfast_join
 *   leave  GIVE: one row was changed: it has left. None: somebody waits, or the hold is not
 *          folded (any more), or not there: CALL holdfast_leave
 *
 * Both are repeatable, as the procedures are: a join whose answer was lost finds the line
 * taken, by itself, which the procedure tells; a leave finds no row with this token.
 *
 * A statement that finds no row was in vain, and has cost a trip: so a name for which that
 * has happened goes the long way until it is free again. (By a hash of the name: names that
 * share one only cost time.)
 *
 * An UPDATE answers one number beside its count: the fence. The number of the line's row
 * stays unknown: for renewals it is found by the hash (holdfast_renew). */
#include "driver/mysql/short.h"

#include "driver/mysql/mysql.h"

#include <string.h>

/* Arguments of join, and of leave (../sql/ticket.c). */
enum { NS, NAME, TOKEN, KIND, CAPACITY, WEIGHT };
enum { KEEP = 3 };

/* As the function CRC32 of the server. */
static uint32_t crc_more(uint32_t crc, const unsigned char *at, size_t n)
{
    static const uint32_t nibbles[16] = { 0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                          0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                          0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                          0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c };

    for (; n > 0; at++, n--) {
        crc = nibbles[(crc ^ *at) & 15] ^ crc >> 4;
        crc = nibbles[(crc ^ *at >> 4) & 15] ^ crc >> 4;
    }
    return crc;
}

static uint32_t crc_of(const struct sql_args *a)
{
    uint32_t crc = crc_more(UINT32_MAX, a->at[NS].at, a->at[NS].n);

    crc = crc_more(crc, (const unsigned char *)"", 1);
    return ~crc_more(crc, a->at[NAME].at, a->at[NAME].n);
}

static uint64_t *word_of(struct my_conn *c)
{
    return &mysql_of(c->c.sql)->crowded[c->crc / 64 % MY_CROWDED];
}

static uint64_t bit_of(const struct my_conn *c)
{
    return UINT64_C(1) << c->crc % 64;
}

static void rearrange(struct sql_args *a, const unsigned char *order, size_t n)
{
    struct sql_args was = *a;

    for (size_t i = 0; i < n; i++)
        a->at[i] = was.at[order[i]];
    a->n = n;
}

unsigned hf__mysql_shorten(struct my_conn *c, unsigned verb, struct sql_args *a)
{
    static const unsigned char take[] = { MY_TAKE_ARGS }, give[] = { MY_GIVE_ARGS };

    if (c->c.sql->mode != SQL_LINE || mysql_of(c->c.sql)->fast ||
        (verb != SQL_JOIN && verb != SQL_LEAVE))
        return verb;
    c->crc = crc_of(a);
    if (*word_of(c) & bit_of(c))
        return verb;
    if (verb == SQL_JOIN && a->at[KIND].number == LINE_LOCK &&
        a->at[WEIGHT].number == a->at[CAPACITY].number) {
        rearrange(a, take, sizeof take);
        return MY_TAKE;
    }
    if (verb == SQL_LEAVE && a->at[KEEP].number == 0) {
        rearrange(a, give, sizeof give);
        return MY_GIVE;
    }
    return verb;
}

void hf__mysql_missed(struct my_conn *c)
{
    *word_of(c) |= bit_of(c);
}

size_t hf__mysql_short_answer(struct my_conn *c, uint64_t inserted, int64_t *numbers)
{
    numbers[0] = c->verb == MY_GIVE;
    numbers[1] = (int64_t)inserted;
    numbers[2] = numbers[3] = numbers[4] = 0;
    numbers[5] = -1 - (int64_t)c->crc;
    return c->verb == MY_GIVE ? 1 : 6;
}

/* Of a join that went the long way: it holds: so nobody else was there. */
void hf__mysql_joined(struct my_conn *c, int64_t answer)
{
    if (answer == 0)
        *word_of(c) &= ~bit_of(c);
    else
        *word_of(c) |= bit_of(c);
}
