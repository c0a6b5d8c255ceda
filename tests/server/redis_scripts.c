/* redis_scripts.c: the scripts of a line at random, and what must be true after each call.
 *
 * Three clients with eight tokens call the scripts themselves, in any order that a network
 * or a person might produce: joins and leaves come twice, late, with every flag; time
 * passes. After each call the keys are read in one step and compared with those before:
 *
 *   counts    the header says how many hold, wait, and how much; never above the capacity
 *             (G1)
 *   expiry    no key ends before somebody in it; who is granted gets its group's time, no
 *             more (G1)
 *   fences    every grant's is above all before it (G2)
 *   order     only the first of the queue go in, and nobody waits who would fit (G3, G4)
 *   fields    who holds is in its field or beside it, and nothing is left behind
 *   others    who is not named by the call stays, unless its time is over (G8)
 *
 * Goes wrong: the seed and the number of the step are printed. */
#include "counts.h"
#include "driver/redis/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS = 8,
    CLIENTS = 3,
    STEPS = 3000,
    TOKEN = 16,
    HEAD = 58,
    HOLDER = 57,
    BRIEF_MS = 30,
    LONGER_MS = 120000
};
enum { PLACE_NONE, PLACE_HOLDS, PLACE_WAITS };

struct seat {
    int place;
    int64_t weight, expiry; /* ms; of who waits: its group's */
    uint64_t fence;
    size_t rank;
    bool kept, broken;
};

struct line_seen {
    int64_t now;
    bool there;
    int64_t capacity, sum, holders, waiters, soonest;
    int64_t ends[3];      /* of the keys: ms, 0 if not there */
    int64_t apart, whose; /* holders without who they are, and fields that say it */
    struct seat seats[TOKENS];
};

static redisContext *way;
static unsigned seed, seed0;
static int step;
static const char *call_name;
static char keys[5][32];
static int kind, capacity;
static uint64_t highest; /* fence */
static bool barges;      /* the join that is made */

#define MUST(cond)                                                                         \
    do {                                                                                   \
        if (!(cond))                                                                       \
            check_failed(__FILE__, __LINE__, "seed %u, step %d, %s: not true: %s", seed0,  \
                         step, call_name, #cond);                                          \
    } while (0)

static unsigned below(unsigned n)
{
    return (unsigned)rand_r(&seed) % n;
}

static void token_of(int t, char token[TOKEN + 1])
{
    snprintf(token, TOKEN + 1, "token-%010d", t);
}

static const char *client_of(int t)
{
    static const char *const ids[CLIENTS] = { "client-a--------", "client-b--------",
                                              "client-c--------" };

    return ids[t % CLIENTS];
}

/* Of a lock all weigh the same; of readers and writers two of three are readers. */
static int weight_of(int t)
{
    return kind == 0 ? capacity : kind == 1 ? (t % 3 ? 1 : capacity) : 1 + t % capacity;
}

/* ---- asking ---------------------------------------------------------------------- */

struct words {
    const char *argv[40];
    size_t len[40];
    int n;
    char numbers[8][24];
    int nnumbers;
};

static void word(struct words *w, const void *bytes, size_t len)
{
    w->argv[w->n] = bytes;
    w->len[w->n++] = len;
}

static void text(struct words *w, const char *s)
{
    word(w, s, strlen(s));
}

static void number(struct words *w, int64_t number)
{
    char *s = w->numbers[w->nnumbers++];

    snprintf(s, sizeof(w->numbers[0]), "%lld", (long long)number);
    text(w, s);
}

static redisReply *ask(struct words *w)
{
    redisReply *r = redisCommandArgv(way, w->n, w->argv, w->len);

    MUST(r && r->type != REDIS_REPLY_ERROR);
    return r;
}

static struct words script(enum script_id id, int nkeys)
{
    struct words w = { .n = 0 };

    call_name = hf__redis_scripts[id].name;
    text(&w, "EVAL");
    word(&w, hf__redis_scripts[id].text, hf__redis_scripts[id].len);
    text(&w, nkeys == 5 ? "5" : nkeys == 4 ? "4" : "1");
    for (int i = 0; i < nkeys; i++)
        text(&w, keys[i]);
    if (nkeys > 1)
        text(&w, "pwake:");
    return w;
}

/* ---- looking --------------------------------------------------------------------- */

/* The time is read last: what a key has left is then at most too much by what has passed.
 */
static const char look_script[] =
    "local all = {}\n"
    "for i = 1, 3 do all[i] = redis.call('PTTL', KEYS[i]) end\n"
    "all[4] = redis.call('HGETALL', KEYS[1])\n"
    "all[5] = redis.call('HGETALL', KEYS[2])\n"
    "all[6] = redis.call('ZRANGE', KEYS[3], 0, -1)\n"
    "local t = redis.call('TIME')\n"
    "all[7] = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "return all";

static int64_t get(const char *at, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | (unsigned char)at[i];
    return (int64_t)value;
}

static struct seat *seat_of(struct line_seen *l, const redisReply *token)
{
    MUST(token->len == TOKEN);
    return &l->seats[strtol(token->str + 6, NULL, 10)];
}

static void read_holders(struct line_seen *l, const redisReply *all)
{
    for (size_t i = 0; i < all->elements; i += 2) {
        const redisReply *field = all->element[i], *value = all->element[i + 1];
        const char *at = value->str;

        if (field->len == 0) {
            MUST(value->len == HEAD && at[0] == 2);
            l->there = true;
            l->capacity = get(at + 2, 8);
            l->sum = get(at + 10, 8);
            l->holders = get(at + 18, 4);
            l->waiters = get(at + 22, 4);
            l->soonest = get(at + 34, 8);
        } else if (field->len == 1 + TOKEN) { /* who it is: never without the other field */
            MUST(field->str[0] == 'r' && value->len > 0);
            l->whose++;
        } else {
            MUST(value->len >= HOLDER);
            l->apart += value->len == HOLDER;
            *seat_of(l, field) = (struct seat){ .place = PLACE_HOLDS,
                                                .weight = get(at, 8),
                                                .fence = (uint64_t)get(at + 8, 8),
                                                .expiry = get(at + 16, 8),
                                                .kept = at[40] & 2,
                                                .broken = at[40] & 1 };
        }
    }
}

static int64_t group_end(const redisReply *all, const char *waiter)
{
    char name[25] = "g";

    memcpy(name + 1, waiter + 32, 16);
    memcpy(name + 17, waiter + 24, 8);
    for (size_t i = 0; i < all->elements; i += 2)
        if (all->element[i]->len == sizeof(name) &&
            memcmp(all->element[i]->str, name, sizeof(name)) == 0)
            return get(all->element[i + 1]->str, 8);
    return 0;
}

static void read_waiters(struct line_seen *l, const redisReply *all,
                         const redisReply *queue)
{
    for (size_t i = 0; i < all->elements; i += 2) {
        const char *at = all->element[i + 1]->str;

        if (all->element[i]->len == TOKEN)
            *seat_of(l, all->element[i]) = (struct seat){ .place = PLACE_WAITS,
                                                          .weight = get(at, 8),
                                                          .expiry = group_end(all, at),
                                                          .rank = SIZE_MAX };
    }
    for (size_t i = 0; i < queue->elements; i++) {
        MUST(seat_of(l, queue->element[i])->place == PLACE_WAITS);
        seat_of(l, queue->element[i])->rank = i;
    }
}

static struct line_seen look(void)
{
    struct line_seen l = { 0 };
    struct words w = { .n = 0 };
    redisReply *r;

    text(&w, "EVAL");
    text(&w, look_script);
    text(&w, "3");
    for (int i = 0; i < 3; i++)
        text(&w, keys[i]);
    r = ask(&w);
    l.now = r->element[6]->integer;
    read_waiters(&l, r->element[4], r->element[5]);
    read_holders(&l, r->element[3]);
    for (int i = 0; i < 3; i++)
        l.ends[i] = r->element[i]->integer < 0 ? 0 : l.now + r->element[i]->integer;
    freeReplyObject(r);
    return l;
}

/* ---- what must be true ----------------------------------------------------------- */

static void judge_state(const struct line_seen *l)
{
    int64_t holders = 0, waiters = 0, sum = 0;

    for (int t = 0; t < TOKENS; t++) {
        const struct seat *s = &l->seats[t];

        if (s->place == PLACE_HOLDS) {
            holders++;
            sum += s->weight;
            MUST(l->soonest <= s->expiry);
            MUST(s->expiry <= l->now || l->ends[0] >= s->expiry);
        } else if (s->place == PLACE_WAITS) {
            waiters++;
            MUST(s->rank != SIZE_MAX);
            MUST(s->expiry <= l->now ||
                 (l->ends[0] >= s->expiry && l->ends[1] >= s->expiry &&
                  l->ends[2] >= s->expiry));
            MUST(s->rank > 0 || s->expiry <= l->now || l->sum + s->weight > l->capacity);
        }
    }
    /* their keys may have ended with the last of them (judge_change: not before); then the
     * next call that changes the line counts anew */
    if (waiters == 0 && l->ends[1] == 0)
        waiters = l->waiters;
    if (l->there)
        MUST(holders == l->holders && waiters == l->waiters && sum == l->sum);
    else
        MUST(holders == 0 && waiters == 0);
    MUST(l->whose == l->apart);
    MUST(sum <= l->capacity);
}

/* Does one still wait who stood before `rank`? */
static bool passed_over(const struct line_seen *was, const struct line_seen *is,
                        size_t rank)
{
    for (int u = 0; u < TOKENS; u++)
        if (was->seats[u].place == PLACE_WAITS && was->seats[u].rank < rank &&
            was->seats[u].expiry > is->now && is->seats[u].place == PLACE_WAITS)
            return true;
    return false;
}

/* `named`: the tokens that the call speaks of, as bits. */
static void judge_change(const struct line_seen *was, const struct line_seen *is,
                         unsigned named)
{
    uint64_t above = highest;

    for (int t = 0; t < TOKENS; t++) {
        const struct seat *a = &was->seats[t], *b = &is->seats[t];
        bool other = !(named >> t & 1);

        if (b->place == PLACE_HOLDS && a->place == PLACE_HOLDS && a->fence == b->fence)
            MUST(!other || a->expiry == b->expiry);
        else if (b->place == PLACE_HOLDS)
            MUST(b->fence > above);
        if (b->place == PLACE_HOLDS && a->place == PLACE_HOLDS && a->fence != b->fence)
            MUST(!other && a->expiry <= is->now); /* over, and come again */
        if (b->place == PLACE_HOLDS && b->fence > highest)
            highest = b->fence;
        if (a->place == PLACE_WAITS && b->place == PLACE_HOLDS) {
            MUST(!passed_over(was, is, a->rank));
            MUST(!other || b->expiry == a->expiry);
        }
        if (a->place == PLACE_NONE && b->place == PLACE_HOLDS)
            MUST(barges || !passed_over(was, is, SIZE_MAX));
        if (other && a->place == PLACE_HOLDS && b->place != PLACE_HOLDS)
            MUST(a->expiry <= is->now);
        if (other && a->place == PLACE_WAITS && b->place == PLACE_NONE)
            MUST(a->expiry <= is->now);
        MUST(!(other && a->place == PLACE_NONE && b->place != PLACE_NONE));
    }
}

/* ---- doing ----------------------------------------------------------------------- */

/* After a call. */
static void judge(struct line_seen *was, unsigned named)
{
    struct line_seen is = look();

    judge_state(&is);
    judge_change(was, &is, named);
    *was = is;
}

static void call(struct words *w, struct line_seen *was, unsigned named)
{
    freeReplyObject(ask(w));
    judge(was, named);
}

static int64_t ttl_of_token(int t)
{
    return t < 3 ? BRIEF_MS : t < 6 ? 60000 : 90000;
}

static void put(char *at, int64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)((uint64_t)value >> 8 * (bytes - 1 - i));
}

static void join(int t, struct line_seen *was)
{
    static const char *const flags[] = { NULL, NULL, NULL, "t", "b", "tb" };
    struct words w = script(SCRIPT_JOIN, 4);
    char token[TOKEN + 1], head[34] = { 2 }, whose[256];
    const char *flag = flags[below(sizeof(flags) / sizeof(flags[0]))];

    token_of(t, token);
    head[1] = (char)(below(30) ? kind : (kind + 1) % 3);
    put(head + 2, capacity, 8);
    put(head + 10, weight_of(t), 8);
    put(head + 18, 1, 4);
    snprintf(whose, sizeof(whose), "%srecord%0*d", client_of(t), below(2) ? 200 : 1, 0);
    text(&w, token);
    word(&w, head, sizeof(head));
    number(&w, ttl_of_token(t));
    text(&w, whose);
    if (flag)
        text(&w, flag);
    barges = flag && strchr(flag, 'b');
    call(&w, was, 1u << t);
}

static void leave(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_LEAVE, 4);
    char token[TOKEN + 1];

    token_of(t, token);
    text(&w, token);
    if (below(5) == 0)
        number(&w, below(2) ? BRIEF_MS : 60000);
    call(&w, was, 1u << t);
}

static void amend(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_AMEND, 4);
    char token[TOKEN + 1], record[256];

    token_of(t, token);
    text(&w, token);
    number(&w, 1 + (int)below((unsigned)weight_of(t)));
    snprintf(record, sizeof(record), "another record%0*d", below(2) ? 200 : 1, 0);
    text(&w, record);
    call(&w, was, 1u << t);
}

static void evict(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_EVICT, 5);
    char token[TOKEN + 1];

    token_of(t, token);
    text(&w, token);
    text(&w, below(2) ? "1" : "0");
    call(&w, was, 1u << t);
}

/* What is kept, and lives, gets another end; nothing else changes. */
static void keep(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_KEEP, 4);
    const struct seat before = was->seats[t], *is = &was->seats[t];
    int64_t ms = below(2) ? BRIEF_MS : 60000;
    char token[TOKEN + 1];
    redisReply *r;
    bool done;

    token_of(t, token);
    text(&w, token);
    number(&w, ms);
    r = ask(&w);
    MUST(r->type == REDIS_REPLY_INTEGER);
    done = r->integer == 1;
    freeReplyObject(r);
    judge(was, done ? 1u << t : 0);
    MUST(!done || (before.place == PLACE_HOLDS && before.kept));
    if (done && is->place == PLACE_HOLDS)
        MUST(is->kept && is->fence == before.fence && is->expiry <= was->now + ms &&
             is->expiry > before.expiry - 60000);
    if (!done && before.place == PLACE_HOLDS && before.kept && !before.broken)
        MUST(before.expiry <= was->now);
}

static int64_t taken_by(const struct line_seen *l, int64_t now)
{
    int64_t sum = 0;

    for (int t = 0; t < TOKENS; t++)
        if (l->seats[t].place == PLACE_HOLDS && l->seats[t].expiry > now)
            sum += l->seats[t].weight;
    return sum;
}

/* Those that hold, less those whose time is over. */
static void brief(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_BRIEF, 4);
    int64_t most = taken_by(was, was->now), sum;
    redisReply *r = ask(&w);

    (void)t;
    MUST(r->type == REDIS_REPLY_ARRAY && r->elements == 5);
    sum = r->element[2]->integer;
    MUST((sum == 0) == (r->element[3]->integer == 0));
    MUST(!was->there || r->element[1]->integer == was->capacity ||
         r->element[1]->integer == 0);
    freeReplyObject(r);
    judge(was, 0);
    MUST(sum <= most && sum >= taken_by(was, was->now));
}

static void renew(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_RENEW, 1);
    char token[TOKEN + 1];

    token_of(t, token);
    text(&w, token);
    /* only asked; by hand, with a longer time than before; as ever */
    number(&w, below(4) == 0 ? 0 : below(4) == 0 ? LONGER_MS : ttl_of_token(t));
    call(&w, was, 1u << t);
}

/* Of all tokens with this one's client and ttl: one group. It may come late, and one of
 * them hold already, renewed for longer: no time becomes shorter (G1). */
static void stay(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_WAIT, 5);
    char tokens[TOKENS][TOKEN + 1];
    const struct line_seen before = *was;
    unsigned named = 0;

    text(&w, client_of(t));
    number(&w, ttl_of_token(t));
    for (int u = 0; u < TOKENS; u++)
        if (u % CLIENTS == t % CLIENTS && ttl_of_token(u) == ttl_of_token(t)) {
            token_of(u, tokens[u]);
            text(&w, tokens[u]);
            named |= 1u << u;
        }
    call(&w, was, named);
    for (int u = 0; u < TOKENS; u++)
        if (was->seats[u].place == PLACE_HOLDS && before.seats[u].place == PLACE_HOLDS &&
            was->seats[u].fence == before.seats[u].fence)
            MUST(was->seats[u].expiry >= before.seats[u].expiry);
}

static void follow(int t, struct line_seen *was)
{
    struct words w = script(SCRIPT_LOOK, 4);

    (void)t;
    number(&w, below(2) ? BRIEF_MS : 0);
    call(&w, was, 0);
}

static void time_passes(int t, struct line_seen *was)
{
    int64_t until = was->now + BRIEF_MS + 1;

    (void)t;
    call_name = "time";
    while (look().now < until)
        nap();
    *was = look();
}

/* Somebody removes the line by hand; then another kind of line may begin. The mark may be
 * ahead of the clock. */
static void begin_anew(struct line_seen *was)
{
    uint64_t ahead = (uint64_t)redis_time_us(&server) + 1000000;

    if (below(3) == 0 && ahead > highest) {
        redis_do(&server, "SET %s %llu", keys[3], (unsigned long long)ahead);
        highest = ahead;
    }
    redis_do(&server, "DEL %s %s %s", keys[0], keys[1], keys[2]);
    kind = (int)below(3);
    capacity = kind == 2 ? 4 : 8;
    *was = (struct line_seen){ 0 };
}

static void scripts_at_random(void)
{
    static void (*const deeds[])(int, struct line_seen *) = {
        join, join, join,  join,  join,  join,   leave,       leave, leave, leave, stay,
        stay, stay, amend, evict, renew, follow, time_passes, keep,  keep,  brief,
    };
    enum { DEEDS = sizeof(deeds) / sizeof(deeds[0]) };
    struct line_seen was;

    seed = seed0 = (unsigned)now_ms();
    printf("# seed %u\n", seed0);
    begin();
    way = redisConnectUnix(server.socket);
    CHECK(way && !way->err);
    for (int i = 0; i < 5; i++)
        snprintf(keys[i], sizeof(keys[i]), "{0}%c", "lwqme"[i]);
    begin_anew(&was);
    for (step = 0; step < STEPS; step++) {
        if (below(200) == 0)
            begin_anew(&was);
        deeds[below(DEEDS)]((int)below(TOKENS), &was);
    }
    redisFree(way);
    end();
}

const struct test_case script_cases[] = {
    { "scripts_at_random", scripts_at_random, ON_BLOCKING, 0, CASE_LONG },
    { NULL, NULL, 0, 0, 0 },
};
