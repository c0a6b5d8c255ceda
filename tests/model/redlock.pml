/* redlock.pml: Redlock's votes and fences, for spin: the protocol of src/driver/redis/redlock/round.h. See
 * docs/verification.md, "Model".
 *
 * C clients run rounds for one name over N nodes. Between a client and a node there is one request
 * on its way; it may stay there for any time, and may be lost. An answer is heard at once: a late
 * one is a late request, and between the vote and the raise anything may happen. A round may be
 * given up at any moment; what it left on the way is executed later.
 *
 * Time is what matters of it only: a round has a deadline, which may pass at any moment (`over`), and
 * a key expires at any moment after that, never before. A node that forgets counts again when
 * every round that had begun before is over: that is the guard. Clocks help with nothing: the first
 * candidate is what the client has seen and one more. No more nodes have forgotten at a time than
 * leave a majority that remembers; beyond that fences rest on clocks by definition.
 *
 * KEEP: the first client, while it holds, gives the key to nodes that did not vote for it, at any
 * moment before its deadline, and renews once. A renewal that a majority has answered before the
 * deadline moves it; keys that it did not extend may go at any moment from then on, and so may those
 * that were asked for before it and given after it.
 *
 * Checked at every grant: nobody else's lease is valid (G1), and the fence is greater than that of
 * the last grant (G2), so none is given twice. At every renewal: nobody else's is valid, and nobody
 * was granted it since.
 *
 * Broken on purpose:
 *   NAIVE      each node counts up with its vote, and the fence is the greatest of the votes
 *   NOGUARD    a node that has forgotten counts at once
 *   ANYSEED    a node without a mark is given one by whoever comes
 *   LATE       a round that took too long is won all the same
 *   SAMEROUND  (with KEEP) a renewal takes the key where it is missing and counts that, late or not
 */

#ifndef N
#define N 3
#endif
#ifndef C
#define C 2
#endif
#ifndef ROUNDS
#define ROUNDS 1 /* of the first client */
#endif
#ifndef OTHERS
#define OTHERS 1 /* of each other */
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef FIRST
#define FIRST 1 /* marks in the beginning; 0: first use */
#endif
/* BEHIND, with FIRST=3: the last node, and what the clients have seen, are behind the others */
#define NEED (N / 2 + 1)

#define NOBODY C
#define STALE(c) (C + 1 + c)   /* of a round of c that is no more: goes at any moment */
#define OLD(c) (2 * C + 1 + c) /* of its round, but not of its last renewal: the same */

#define LOCK 1
#define RAISE 2
#define ASSERT 3
#define EXTEND 4

/* answers and votes */
#define NO 1
#define YES 2
#define TAKEN 3
#define FAILED 4
#define ASKED 5 /* to raise */

#define IDLE 0
#define VOTES 1
#define RAISES 2
#define HELD 3

typedef Client {
    byte state, rounds, cand, high;
    bool over;
    byte req[N], rcand[N]; /* on its way to the node */
    bool rseed[N];
    byte ans[N], amark[N]; /* on its way back */
    byte vote[N], told[N], raise[N];
    bool counts[N], blank[N];
#ifdef KEEP
    byte won, renewals;
    bool renews; /* `raise` has the answers to that */
    bool hit;    /* a node forgot meanwhile */
#endif
};

Client cl[C];
byte key[N], mark[N]; /* mark 0: none */
byte before[N];       /* clients whose rounds began before it forgot, a bit each */
byte last, restarts;

#ifdef COVER
c_code {
    static unsigned long hits[16];
    static void cover_end(void)
    {
        for (int i = 1; i < 16; i++)
            if (hits[i])
                printf("cover %d %lu\n", i, hits[i]);
    }
    static void cover_begin(void)
    {
        static int begun;
        if (!begun++)
            atexit(cover_end);
    }
}
#define cover(n) c_code { cover_begin(); hits[n]++; }
#else
#define cover(n) skip
#endif

#define MINE(c, i) (key[i] == c || key[i] == STALE(c) || key[i] == OLD(c))

/* ---- a node does what is asked ---------------------------------------------------------------- */

inline do_lock(c, i)
{
    cl[c].amark[i] = mark[i];
    if
    :: key[i] != NOBODY -> cl[c].ans[i] = NO
    :: else ->
        key[i] = (cl[c].state == IDLE || cl[c].rcand[i] != cl[c].cand -> STALE(c) : c);
        cl[c].ans[i] = YES;
#ifdef NAIVE
        mark[i]++;
        cl[c].amark[i] = mark[i];
#else
        if
        :: mark[i] > 0 && mark[i] < cl[c].rcand[i] ->
            mark[i] = cl[c].rcand[i];
            cl[c].amark[i] = mark[i];
            cl[c].ans[i] = TAKEN
        :: else
        fi
#endif
    fi
}

inline do_raise(c, i)
{
    cl[c].amark[i] = mark[i];
    cl[c].ans[i] = NO;
    if
    :: !MINE(c, i) -> skip
    :: else ->
        if
        :: mark[i] == 0 && !cl[c].rseed[i] -> skip
        :: mark[i] >= cl[c].rcand[i] -> skip
        :: else ->
            if
            :: mark[i] == 0 -> cover(1)
            :: else
            fi;
            mark[i] = cl[c].rcand[i];
            cl[c].ans[i] = YES
        fi
    fi
}

#ifdef KEEP
/* rseed: it was asked for since the renewal. Nobody waits for the answer. */
inline do_assert(c, i)
{
    if
    :: key[i] != NOBODY -> skip
    :: cl[c].state == IDLE || cl[c].rcand[i] != cl[c].cand -> key[i] = STALE(c)
    :: else ->
        key[i] = (cl[c].rseed[i] == (cl[c].renewals > 0) -> c : OLD(c));
        cover(8)
    fi
}

inline do_extend(c, i)
{
    cl[c].ans[i] = NO;
    if
    :: cl[c].state == IDLE || cl[c].rcand[i] != cl[c].cand -> skip
    :: key[i] == c || key[i] == OLD(c) ->
        key[i] = c;
        cl[c].ans[i] = YES
#ifdef SAMEROUND
    :: key[i] == NOBODY ->
        key[i] = c;
        cl[c].ans[i] = YES
#endif
    :: else
    fi
}
#endif

inline serve(c, i)
{
    if
    :: cl[c].req[i] == LOCK -> do_lock(c, i)
    :: cl[c].req[i] == RAISE -> do_raise(c, i)
#ifdef KEEP
    :: cl[c].req[i] == ASSERT -> do_assert(c, i)
    :: cl[c].req[i] == EXTEND -> do_extend(c, i)
#endif
    fi;
    if
    :: cl[c].state == IDLE || cl[c].rcand[i] != cl[c].cand ->
        cl[c].ans[i] = 0; /* nobody waits for it any more */
        cover(2)
    :: else
    fi;
    cl[c].req[i] = 0;
    cl[c].rcand[i] = 0;
    cl[c].rseed[i] = false
}

/* ---- a client --------------------------------------------------------------------------------- */

inline forget_round(c)
{
    for (k : 0 .. N - 1) {
        before[k] = before[k] & ~(1 << c)
    }
}

inline end_round(c)
{
    for (k : 0 .. N - 1) {
        if
        :: key[k] == c || key[k] == OLD(c) -> key[k] = STALE(c)
        :: else
        fi;
        cl[c].ans[k] = 0;
        cl[c].amark[k] = 0;
        cl[c].vote[k] = 0;
        cl[c].told[k] = 0;
        cl[c].raise[k] = 0;
        cl[c].counts[k] = false;
        cl[c].blank[k] = false
    }
    forget_round(c);
#ifdef KEEP
    cl[c].won = 0;
    cl[c].renewals = 0;
    cl[c].renews = false;
    cl[c].hit = false;
#endif
    cl[c].state = IDLE;
    cl[c].over = false
}

inline start_round(c)
{
    cl[c].rounds++;
    cl[c].state = VOTES;
    cl[c].cand = cl[c].high + 1;
    for (k : 0 .. N - 1) {
#ifdef NOGUARD
        cl[c].counts[k] = true;
#else
        cl[c].counts[k] = (before[k] == 0);
#endif
        if
        :: cl[c].req[k] == 0 ->
            cl[c].req[k] = LOCK;
            cl[c].rcand[k] = cl[c].cand
        :: else -> cl[c].vote[k] = FAILED /* there is still something on the way */
        fi
    }
}

inline count(c)
{
    yes = 0; taken = 0; unheard = 0; marked = 0; none = 0; able = 0; raised = 0; asked = 0;
    high = 0;
    for (k : 0 .. N - 1) {
        if
        :: cl[c].told[k] > high -> high = cl[c].told[k]
        :: else
        fi;
        if
        :: cl[c].counts[k] ->
            yes = yes + (cl[c].vote[k] == YES || cl[c].vote[k] == TAKEN -> 1 : 0);
            taken = taken + (cl[c].vote[k] == TAKEN -> 1 : 0);
            unheard = unheard + (cl[c].vote[k] == 0 -> 1 : 0);
            marked = marked + (cl[c].told[k] > 0 -> 1 : 0);
            none = none + (cl[c].blank[k] -> 1 : 0);
            raised = raised + (cl[c].raise[k] == YES -> 1 : 0);
            asked = asked + (cl[c].raise[k] == ASKED -> 1 : 0)
        :: else
        fi
    }
#ifdef ANYSEED
    seed = 1
#else
    seed = (marked > N - NEED || none >= NEED -> 1 : 0)
#endif
}

#define YESSED(c, i) (cl[c].counts[i] && (cl[c].vote[i] == YES || cl[c].vote[i] == TAKEN))

inline win(c, fence)
{
    if
#ifndef LATE
    :: cl[c].over -> cover(3); end_round(c)
#endif
    :: else ->
        for (k : 0 .. C - 1) {
            assert(k == c || cl[k].state != HELD || cl[k].over)
        }
        assert(fence > last);
        last = fence;
        cl[c].state = HELD;
#ifdef KEEP
        cl[c].won = fence;
#endif
        if
        :: cl[c].high < fence -> cl[c].high = fence
        :: else
        fi;
        for (k : 0 .. N - 1) {
            if
            :: YESSED(c, k) && cl[c].blank[k] && seed && cl[c].req[k] == 0 ->
                cl[c].req[k] = RAISE;
                cl[c].rcand[k] = cl[c].cand;
                cl[c].rseed[k] = true
            :: else
            fi
        }
    fi
}

inline raise_all(c)
{
    cl[c].state = RAISES;
    cl[c].cand = (high + 1 > cl[c].cand -> high + 1 : cl[c].cand);
    for (k : 0 .. N - 1) {
        if
        :: YESSED(c, k) && (cl[c].told[k] > 0 || seed) && cl[c].req[k] == 0 ->
            cl[c].req[k] = RAISE;
            cl[c].rcand[k] = cl[c].cand;
            cl[c].rseed[k] = cl[c].blank[k];
            cl[c].raise[k] = ASKED
        :: else
        fi
    }
}

inline judge(c)
{
    count(c);
    if
#ifdef NAIVE
    :: cl[c].state == VOTES && yes >= NEED -> win(c, high)
#else
    :: cl[c].state == VOTES && taken >= NEED -> cover(4); win(c, cl[c].cand)
    :: cl[c].state == VOTES && taken < NEED && yes >= NEED && (none == 0 || unheard == 0) ->
        for (k : 0 .. N - 1) {
            able = able +
                   (YESSED(c, k) && (cl[c].told[k] > 0 || seed) && cl[c].req[k] == 0 -> 1 : 0)
        }
        if
        :: able >= NEED -> raise_all(c)
        :: able < NEED && unheard == 0 -> end_round(c)
        :: else
        fi
    :: cl[c].state == RAISES && raised >= NEED -> cover(5); win(c, cl[c].cand)
    :: cl[c].state == RAISES && raised + asked < NEED -> end_round(c)
#endif
    :: cl[c].state == VOTES && yes + unheard < NEED -> end_round(c)
    :: else
    fi
}

#ifdef KEEP
#define LACKS(c, i) (cl[c].vote[i] != YES && cl[c].vote[i] != TAKEN)
#ifdef SAMEROUND
#define MAY_RENEW(c) true
#else
#define MAY_RENEW(c) (!cl[c].over)
#endif

inline spread(c, i)
{
    cl[c].req[i] = ASSERT;
    cl[c].rcand[i] = cl[c].cand;
    cl[c].rseed[i] = (cl[c].renewals > 0)
}

inline renew(c)
{
    cl[c].renews = true;
    cl[c].hit = false;
    for (k : 0 .. N - 1) {
        if
        :: cl[c].req[k] == 0 ->
            cl[c].req[k] = EXTEND;
            cl[c].rcand[k] = cl[c].cand;
            cl[c].raise[k] = ASKED
        :: else -> cl[c].raise[k] = FAILED
        fi
    }
}

/* A node that forgot before the renewal was sent counts again when the deadline before it is over. */
inline renewed(c)
{
    cover(9);
    for (k : 0 .. C - 1) {
        assert(k == c || cl[k].state != HELD || cl[k].over)
    }
    assert(cl[c].won == last);
    for (k : 0 .. N - 1) {
        if
        :: key[k] == c && cl[c].raise[k] != YES -> key[k] = OLD(c)
        :: else
        fi;
        cl[c].raise[k] = 0
    }
    if
    :: !cl[c].hit -> forget_round(c)
    :: else
    fi;
    cl[c].over = false;
    cl[c].renews = false;
    cl[c].renewals = 1
}

inline judge_renewal(c)
{
    yes = 0;
    for (k : 0 .. N - 1) {
        yes = yes + (before[k] == 0 && cl[c].raise[k] == YES -> 1 : 0)
    }
    if
#ifndef SAMEROUND
    :: yes >= NEED && cl[c].over -> cover(10); end_round(c)
#endif
    :: yes >= NEED -> renewed(c)
    :: else
    fi
}
#endif

inline hear(c, i)
{
    if
#ifdef KEEP
    :: cl[c].state == HELD && cl[c].renews && cl[c].raise[i] == ASKED ->
        cl[c].raise[i] = cl[c].ans[i];
        judge_renewal(c)
#endif
    :: cl[c].state == VOTES && cl[c].vote[i] == 0 ->
        cl[c].vote[i] = cl[c].ans[i];
        cl[c].told[i] = cl[c].amark[i];
        cl[c].blank[i] = (cl[c].amark[i] == 0)
    :: cl[c].state == RAISES && cl[c].raise[i] == ASKED ->
        cl[c].raise[i] = cl[c].ans[i]
    :: else
    fi;
    if
    :: cl[c].amark[i] > cl[c].high -> cl[c].high = cl[c].amark[i]
    :: else
    fi;
    cl[c].ans[i] = 0;
    cl[c].amark[i] = 0;
    if
    :: cl[c].state == VOTES || cl[c].state == RAISES -> judge(c)
    :: else
    fi
}

inline time_over(c)
{
    for (k : 0 .. N - 1) {
        if
        :: cl[c].state == VOTES && cl[c].vote[k] == 0 -> cl[c].vote[k] = FAILED
        :: cl[c].state == RAISES && cl[c].raise[k] == ASKED -> cl[c].raise[k] = FAILED
        :: else
        fi
    }
    judge(c)
}

/* ---- everything that can happen ------------------------------------------------------------------ */

inline restart(i)
{
    restarts++;
    key[i] = NOBODY;
    mark[i] = 0;
    for (k : 0 .. C - 1) {
        if
        :: cl[k].state != IDLE && !cl[k].over -> before[i] = before[i] | (1 << k)
        :: else
        fi;
#ifdef KEEP
        if
        :: cl[k].renews -> cl[k].hit = true
        :: else
        fi;
#endif
        cl[k].req[i] = 0;
        cl[k].rcand[i] = 0;
        cl[k].rseed[i] = false;
        cl[k].ans[i] = 0;
        cl[k].amark[i] = 0
    }
}

inline forgotten(i)
{
    none = 1;
    for (k : 0 .. N - 1) {
        none = none + (k != i && mark[k] == 0 -> 1 : 0)
    }
}

/* What is counted, and loops: of no meaning between steps. */
hidden byte k, yes, taken, unheard, marked, none, able, raised, asked, high, seed;

proctype Link(byte c, i)
{
end:
    do
    :: d_step { cl[c].req[i] != 0 ->
                serve(c, i);
                if
                :: cl[c].ans[i] != 0 -> hear(c, i)
                :: else
                fi;
                skip }
#ifdef KEEP
    :: d_step { c == 0 && cl[c].state == HELD && !cl[c].over && LACKS(c, i) && cl[c].req[i] == 0 ->
                spread(c, i); skip }
#endif
    :: d_step { cl[c].req[i] != 0 && cl[c].state == IDLE -> /* lost; before, not being served is as bad */
                cl[c].req[i] = 0; cl[c].rcand[i] = 0; cl[c].rseed[i] = false }
    od
}

proctype Bidder(byte c)
{
end:
    do
    :: d_step { cl[c].state == IDLE && cl[c].rounds < (c == 0 -> ROUNDS : OTHERS) -> start_round(c); skip }
    :: d_step { cl[c].state == VOTES || cl[c].state == RAISES -> time_over(c); skip }
    :: d_step { cl[c].state == HELD -> end_round(c); skip }
#ifdef KEEP
    :: d_step { c == 0 && cl[c].state == HELD && MAY_RENEW(c) && !cl[c].renews &&
                cl[c].renewals == 0 -> renew(c); skip }
#endif
    :: d_step { cl[c].state != IDLE && !cl[c].over -> cl[c].over = true; forget_round(c); skip }
    od
}

proctype Node(byte i)
{
end:
    do
    :: d_step { key[i] > NOBODY -> key[i] = NOBODY }
    :: d_step { key[i] < NOBODY && cl[key[i]].over -> key[i] = NOBODY; cover(6) }
    :: d_step { restarts < RESTARTS && mark[i] > 0 ->
                forgotten(i);
                if
                :: none <= N - NEED -> restart(i); cover(7)
                :: else
                fi;
                skip }
    od
}

init
{
    atomic {
        for (k : 0 .. N - 1) {
            key[k] = NOBODY;
            mark[k] = FIRST
        }
        for (k : 0 .. C - 1) {
            cl[k].high = FIRST
        }
        last = FIRST;
#ifdef BEHIND
        mark[N - 1] = 1;
        for (k : 0 .. C - 1) {
            cl[k].high = 1
        }
#endif
        for (k : 0 .. N - 1) {
            run Node(k)
        }
        for (k : 0 .. C - 1) {
            run Bidder(k);
            for (able : 0 .. N - 1) {
                run Link(k, able)
            }
        }
        k = 0;
        able = 0
    }
}
