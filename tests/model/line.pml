/* line.pml: the protocol of one line, for spin. See docs/verification.md, "Model".
 *
 * N clients stand in one line of one store. Each has at most one ticket, a slot for a
 * request on its way to the store, one for the answer, one for a wake. Every message may
 * stay in its slot for any time, and may be lost at any moment; wakes and answers overtake
 * each other, as they do where the wake has a connection of its own. An answer that comes
 * while an older one is still on its way replaces it. What the client repeats, the store
 * sees twice.
 *
 * Time is a tick that everybody ages by: nothing is absolute, so runs are endless and the
 * state space is finite. A ttl is T ticks of the store's clock, from the arrival of the
 * request. The client counts on its own clock from the sending, and that clock is slow by up
 * to one tick (DRIFT), always in the way that does harm; it subtracts ALLOW for that.
 *
 * A client need not move: a paused client is one that does not, while time goes on. Nothing
 * here tells a pause from a slow message, and the store cannot tell either from death.
 *
 * Two forms. Safety: any delay, loss, pause and death at any time; the assertions are the
 * properties (G1, G2, G7). LIVE: all of these come from a purse of FAULTS, everything else
 * happens before the next tick; whoever wants is served or gone in the end (G4).
 *
 * A token is random, so that old messages never fit a new ticket. That is assumed, not
 * checked: starting anew voids all that is on its way. A fence is kept as the number of writers' grants since it was given,
 * and FAR stands for "many": comparing FAR with FAR counts as a breach, so that rounding can
 * raise a false alarm but never hide a true one.
 *
 * What the model takes for granted, the driver must see to: a client has one request under
 * way at a time; a request is executed after an
 * earlier one of the same ticket or not at all, and once a leave is given up (one ttl), the
 * requests before it are executed or impossible (G7: CLIENT KILL and its like).
 *
 * Broken on purpose:
 *   MOVED      a grant moves the expiry, and the lease is counted from the receipt of the wake
 *   NOLOOK     the renewal of a waiting life proves it alive but does not look
 *   NOTOKEN    a leave names the line, not the ticket
 *   ALLOW=0    the deadline leaves no room for drift
 *   STALE      the look of a ticket that was granted meanwhile does not renew the hold, but
 *              the client counts from it all the same
 *   OUTDATED   a wake counts from the last answered request, even if that came to the store
 *              after the grant (which may have expired, and the ticket stand in line again)
 *   REJOIN     who holds counts from the answer to a repeated join
 *   KEEPLATE   a grant that comes after a cancel is kept
 */

#ifndef N
#define N 2
#endif
#ifndef T
#define T 3
#endif
#ifndef ALLOW
#define ALLOW 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef HOLD_TICKS
#define HOLD_TICKS 2 /* LIVE: who has held for so long releases */
#endif

#define DRIFT 1
#define OLD   (T + 1 - ALLOW) /* older makes no difference */
#define FAR   2

/* Readers weigh 1, a writer the capacity. READERS: so many clients read, the rest write. */
#ifndef READERS
#define READERS 0
#endif
#define CAP       N
#define READS(i)  ((i) < READERS)
#define WEIGHT(i) (READS(i) -> 1 : CAP)

/* ---- properties: all of them, or the one that is asked for ---------------------------- */

#ifndef ONLY
#define ONLY 0
#endif
#define exclusive(x)       assert((ONLY != 0 && ONLY != 1) || (x)) /* G1 */
#define within_capacity(x) assert((ONLY != 0 && ONLY != 2) || (x)) /* G1, the store's half */
#define in_order(x)        assert((ONLY != 0 && ONLY != 3) || (x)) /* G2 */
#define nothing_left(x)    assert((ONLY != 0 && ONLY != 4) || (x)) /* G7 */

/* ---- what happens, for the reader of a trail ---------------------------------------- */

hidden short time;
#define me _pid
#define say(what) printf("%d  client %d", time, me); printf(what)

#ifdef COVER
c_decl { extern long hits[]; extern void cover_begin(void); }
c_code {
    long hits[32];
    static void cover_print(void)
    {
        int n;
        for (n = 0; n < 32; n++)
            if (hits[n] > 0)
                printf("cover %d %ld\n", n, hits[n]);
    }
    void cover_begin(void) { if (hits[0]++ == 0) atexit(cover_print); }
}
#define cover(n) c_code { cover_begin(); hits[n]++; }
#else
#define cover(n) skip
#endif

/* ---- the client's side -------------------------------------------------------------- */

#define OUT        0
#define JOINING    1
#define WAITING    2
#define CONFIRMING 3
#define HELD       4
#define LEAVING    5
#define DEAD       6

byte st[N];
byte age[N];   /* of the sending of the last answered request; JOINING: of the first join;
                  LEAVING: since the last request that could renew left its slot */
#ifdef LIVE
bool wants[N]; /* asked for the lock; neither served, nor cancelled, nor dead since */
bool asked[N]; /* a request went out in this tick */
byte held[N];  /* ticks */
byte faults = FAULTS;
#define set_asked(c, yes) asked[c] = yes
#define ASKED(c)          asked[c]
#define set_wants(c, yes) wants[c] = yes
#else
#define set_asked(c, yes) skip
#define ASKED(c)          false
#define set_wants(c, yes) skip
#endif

#define SEEN(a) ((a) > DRIFT -> (a) - DRIFT : 0)
#define LEFT(a) (SEEN(a) < T - ALLOW -> T - ALLOW - SEEN(a) : 0)
#define SAYS_HELD(i) (st[i] == HELD && LEFT(age[i]) > 0)

#define WANTING(x) (st[x] == JOINING || st[x] == WAITING || st[x] == CONFIRMING)
#define IN_LINE(x) (WANTING(x) || st[x] == HELD || st[x] == LEAVING)
/* ---- the wire ------------------------------------------------------------------------ */

#define NONE  0
#define JOIN  1 /* requests */
#define LOOK  2 /* renewal of a waiting life */
#define RENEW 3 /* of a life of one's own */
#define LEAVE 4
#define HOLD  1 /* answers, and the wake */
#define WAIT  2
#define GONE  3
#define GAVE  4 /* has left */
#define ALIVE 5 /* renewed: the answer to RENEW */

byte req[N];
byte req_age[N];
byte ans[N];
byte ans_age[N]; /* of the sending of the request that it answers */
byte ans_back[N];
bool ans_later[N]; /* than the wake that is on its way: what that says is outdated */
byte wake[N];
byte wake_back[N];

/* ---- the store's side ---------------------------------------------------------------- */

#define HOLDS 9 /* place: 0 not in line, 1.. in the queue */

byte place[N];
byte left[N];  /* ticks until it expires */
byte since[N]; /* its owner's own last request, in ticks: what left may depend on (G7) */
byte back[N];  /* of a holder: writers' grants since its own */

/* What a resource that checks fences has seen: writers' grants since the greatest fence of
 * anybody, and of a writer, who was told that it holds. */
byte last_any = FAR;
#if READERS > 0
byte last_writer = FAR;
#else
#define last_writer last_any
#endif

hidden byte k, sum, head, place_was, left_was, since_was;

inline older(x) { if :: x < FAR -> x++ :: else fi }

inline remove(x)
{
    place_was = place[x];
    place[x] = 0; left[x] = 0; since[x] = 0; back[x] = 0;
    if
    :: place_was != 0 && place_was != HOLDS ->
        for (k : 0 .. N - 1) {
            if :: place[k] != HOLDS && place[k] > place_was -> place[k]-- :: else fi
        }
    :: else
    fi
}

inline count_holders()
{
    sum = 0;
    for (k : 0 .. N - 1) {
        if :: place[k] == HOLDS -> sum = sum + WEIGHT(k) :: else fi
    }
}

inline find_head()
{
    head = N;
    for (k : 0 .. N - 1) { if :: place[k] == 1 -> head = k :: else fi }
}

inline new_fence()
{
    for (k : 0 .. N - 1) {
        if :: place[k] == HOLDS -> older(back[k]) :: else fi;
        if :: ans[k] == HOLD || ans[k] == ALIVE -> older(ans_back[k]) :: else fi;
        if :: wake[k] == HOLD -> older(wake_back[k]) :: else fi
    }
    older(last_any);
#if READERS > 0
    older(last_writer);
#endif
}

/* A grant moves nothing (G1): what is left of its time stays. */
inline admit()
{
    left_was = left[head]; since_was = since[head];
    remove(head);
    if :: READS(head) -> skip :: else -> new_fence() fi;
    place[head] = HOLDS; left[head] = left_was; since[head] = since_was;
#ifdef MOVED
    left[head] = T;
#endif
    printf("%d  store: client %d is granted, expires in %d\n", time, head, left[head])
}

/* The rule: while the head fits it is admitted. who: whose request this is; he has an
 * answer, the others are woken. */
inline step(who)
{
    count_holders(); find_head();
    do
    :: head < N && sum + WEIGHT(head) <= CAP ->
        admit();
        if
        :: head != who ->
            cover(1); wake[head] = HOLD; wake_back[head] = 0;
            ans_later[head] = false
        :: else
        fi;
        count_holders(); find_head()
    :: else -> break
    od;
    within_capacity(sum <= CAP)
}

inline answer(what)
{
    ans[me] = what; ans_age[me] = (what == GONE -> 0 : req_age[me]);
    ans_later[me] = wake[me] != NONE;
    ans_back[me] = (what == HOLD || what == ALIVE -> back[me] : 0)
}

inline answer_place() { if :: place[me] == HOLDS -> answer(HOLD) :: else -> answer(WAIT) fi }

inline enqueue()
{
    head = 1;
    for (k : 0 .. N - 1) {
        if :: place[k] != HOLDS && place[k] >= head -> head = place[k] + 1 :: else fi
    }
    place[me] = head
}

inline renewed() { left[me] = T; since[me] = 0 }

inline execute_leave()
{
#ifdef NOTOKEN
    head = N;
    for (k : 0 .. N - 1) { if :: place[k] == HOLDS -> head = k :: else fi }
    if :: head < N -> remove(head) :: else -> remove(me) fi;
#else
    remove(me);
#endif
    step(me)
}

inline execute()
{
    if
    :: req[me] == JOIN ->
        say("'s join arrives\n");
        if :: place[me] == 0 -> enqueue() :: else -> cover(2) fi;
        renewed(); step(me); answer_place()
    :: req[me] == LOOK && place[me] != 0 ->
#ifdef NOLOOK
        renewed(); answer(WAIT);
        ans_later[me] = false /* it says nothing about the place */
#else
        say("'s look arrives\n");
#ifdef STALE
        if :: place[me] != HOLDS -> renewed() :: else since[me] = 0 fi;
#else
        if :: place[me] == HOLDS -> cover(3) :: else fi;
        renewed();
#endif
        step(me); answer_place()
#endif
    :: req[me] == RENEW && place[me] == HOLDS ->
        say("'s renewal arrives\n");
        renewed(); step(me); answer(ALIVE)
    :: req[me] == LEAVE ->
        say("'s leave arrives\n");
        execute_leave(); answer(GAVE)
    :: else ->
        cover(4); step(me); answer(GONE)
    fi;
    sent()
}

/* The slot is free again. */
inline sent()
{
    if :: st[me] == LEAVING && req[me] != LEAVE -> age[me] = 0 :: else fi;
    req[me] = NONE; req_age[me] = 0
}

inline drop_answer()
{
    ans[me] = NONE; ans_age[me] = 0; ans_back[me] = 0; ans_later[me] = false
}

inline drop_wake()
{
    wake[me] = NONE; wake_back[me] = 0; ans_later[me] = false
}

#ifdef LIVE
#define MAY_FAIL (faults > 0)
#define FAIL     faults--
#else
#define MAY_FAIL true
#define FAIL     skip
#endif

/* ---- what a client does --------------------------------------------------------------- */

inline send(what) { req[me] = what; req_age[me] = 0; set_asked(me, true) }

inline start()
{
    drop_answer(); drop_wake(); /* they are of an earlier ticket, and fit nothing now */
    st[me] = JOINING; set_wants(me, true); age[me] = 0;
    say(" sends join\n");
    send(JOIN)
}

/* A place that is given up is not renewed any more. */
inline leave_line()
{
    st[me] = LEAVING; age[me] = 0; set_asked(me, false);
    drop_answer() /* nothing in it matters now; the wake may still come: a late grant */
}

inline go_out()
{
    drop_wake();
    nothing_left(place[me] == 0); /* what is said to be out, is */
    st[me] = OUT; age[me] = 0
}

/* The only place where a client begins to say that it holds. */
inline now_holds(fence_back)
{
    st[me] = HELD; set_wants(me, false);
#ifdef LIVE
    held[me] = 0;
#endif
    say(" holds\n");
    if
    :: READS(me) -> in_order(fence_back < FAR && fence_back <= last_writer)
    :: else -> in_order(fence_back < last_any); last_writer = fence_back
    fi;
    if :: fence_back < last_any -> last_any = fence_back :: else fi;
    sum = 0;
    for (k : 0 .. N - 1) { if :: SAYS_HELD(k) -> sum = sum + WEIGHT(k) :: else fi }
    exclusive(sum <= CAP)
}

inline granted(fence_back)
{
    if
    :: LEFT(age[me]) * 4 < T ->
        cover(5); say(" has a grant, too late to trust: confirms\n");
        st[me] = CONFIRMING; set_asked(me, false)
    :: else ->
        if :: LEFT(age[me]) * 2 < T -> cover(6); set_asked(me, false) :: else fi;
        now_holds(fence_back)
    fi
}

/* The owner's own last answered request. */
inline count_from_answer()
{
    if :: ans_age[me] < age[me] -> age[me] = ans_age[me] :: else fi
}

/* Who holds already does not count from the answer to a repeated join: that may be of
 * another grant, or of a place in the queue. */
inline hear_place()
{
    if
    :: st[me] == JOINING || st[me] == WAITING ->
        count_from_answer();
#ifndef OUTDATED
        if :: ans_later[me] -> cover(14); drop_wake() :: else fi;
#endif
        if
        :: ans[me] == HOLD -> granted(ans_back[me])
        :: else -> st[me] = WAITING; say(" is told to wait\n")
        fi
#ifdef REJOIN
    :: st[me] == HELD -> count_from_answer()
#endif
    :: else -> cover(8)
    fi
}

inline hear_alive()
{
    if
    :: st[me] == CONFIRMING ->
        count_from_answer();
        if
        :: LEFT(age[me]) * 4 >= T -> cover(7); now_holds(ans_back[me])
        :: else -> set_asked(me, false)
        fi
    :: st[me] == HELD ->
        count_from_answer(); say(" is told that it is renewed\n");
        /* the hold that it was told of, not a later one */
        in_order(READS(me) || LEFT(age[me]) == 0 || ans_back[me] == last_any)
    :: else -> skip
    fi
}

/* A dead life: of a place in the queue, then it wants to stand in line anew; or of a hold.
 * It leaves either way: a join that was repeated may have come after the expiry. */
inline hear_gone()
{
    say(" hears that its place has gone\n");
    if :: WANTING(me) || st[me] == HELD -> leave_line() :: else fi
}

inline hear_answer()
{
    if
    :: ans[me] == HOLD || ans[me] == WAIT -> hear_place()
    :: ans[me] == ALIVE -> hear_alive()
    :: ans[me] == GONE -> hear_gone()
    :: ans[me] == GAVE -> go_out()
    fi;
    drop_answer()
}

inline hear_wake()
{
    if
    :: st[me] == JOINING || st[me] == WAITING ->
        cover(9); say(" is woken: granted\n");
#ifdef MOVED
        age[me] = 0;
#endif
        granted(wake_back[me])
#ifdef KEEPLATE
    :: st[me] == LEAVING -> granted(wake_back[me])
#endif
    :: else -> cover(10)
    fi;
    drop_wake()
}

inline repeat_or_renew()
{
    if
    :: st[me] == JOINING -> say(" repeats join\n"); send(JOIN)
    :: st[me] == WAITING -> say(" looks\n"); send(LOOK)
    :: st[me] == LEAVING -> say(" sends leave\n"); send(LEAVE)
    :: else -> say(" renews\n"); send(RENEW)
    fi
}

inline die()
{
    say(" dies\n");
    st[me] = DEAD; set_wants(me, false); set_asked(me, false); age[me] = 0;
    drop_answer(); drop_wake()
}

#define CAN_START(x) (st[x] == OUT && !ASKED(x) && (req[x] == NONE || req[x] == LEAVE))
#define CAN_SEND(x) (IN_LINE(x) && !IS_LOST(x) && !ASKED(x) && req[x] == NONE)
#define IS_LOST(x) (st[x] == HELD && LEFT(age[x]) == 0)
#define IS_SETTLED(x) (st[x] == LEAVING && req[x] == NONE && age[x] >= T)

/* One process for a client and its wires: its number is the client's. */
active [N] proctype Client()
{
    do
    /* the client */
    :: d_step { CAN_START(me) -> start() }
    :: d_step { CAN_SEND(me) -> repeat_or_renew() }
    :: d_step { WANTING(me) -> say(" cancels\n"); set_wants(me, false); leave_line() }
    :: d_step { st[me] == HELD -> say(" releases\n"); leave_line() }
    :: d_step { IS_LOST(me) -> cover(11); say(" is past its deadline\n"); leave_line() }
    :: d_step { IS_SETTLED(me) -> cover(12); say(" gives up leaving: out by ttl\n"); go_out() }
    :: d_step { ans[me] != NONE && st[me] != DEAD -> hear_answer() }
    :: d_step { wake[me] != NONE && st[me] != DEAD -> hear_wake() }
#if defined(LIVE) && !defined(NODEATH) /* safety: the same as never moving again */
    :: d_step { st[me] != DEAD && MAY_FAIL -> FAIL; die() }
#endif
    /* its wires */
    :: d_step { req[me] != NONE -> execute() }
    :: d_step { req[me] != NONE && MAY_FAIL -> FAIL; say("'s request is lost\n"); sent() }
    :: d_step { ans[me] != NONE && MAY_FAIL -> FAIL; say("'s answer is lost\n"); drop_answer() }
    :: d_step { wake[me] != NONE && MAY_FAIL -> FAIL; say("'s wake is lost\n"); drop_wake() }
    od
}

/* ---- time ----------------------------------------------------------------------------- */

inline grow(x) { if :: x < OLD -> x++ :: else fi }

inline tick_store(c)
{
    if
    :: place[c] != 0 ->
        since[c]++;
        left[c]--;
        if
        :: left[c] == 0 ->
            cover(13); printf("%d  store: client %d has expired\n", time, c);
            remove(c)
        :: else -> nothing_left(since[c] < T) /* only its owner's requests keep a ticket */
        fi
    :: else
    fi
}

inline tick_client(c)
{
    set_asked(c, false);
    if :: IN_LINE(c) -> grow(age[c]) :: else fi;
    if :: req[c] != NONE && req[c] != LEAVE -> grow(req_age[c]) :: else fi;
    if :: ans[c] != NONE && ans[c] != GONE && ans[c] != GAVE -> grow(ans_age[c]) :: else fi;
#ifdef LIVE
    if :: st[c] == HELD && held[c] < HOLD_TICKS -> held[c]++ :: else fi
#endif
}

/* LIVE: what has to happen before time may go on, unless a fault is spent on it. A pause, a
 * slow message and a slow store all look like that. */
#define BUSY(x) (req[x] != NONE || \
    (st[x] != DEAD && (ans[x] != NONE || wake[x] != NONE || CAN_SEND(x) || IS_LOST(x) || \
     IS_SETTLED(x) || (CAN_START(x) && wants[x]) || \
     (st[x] == HELD && held[x] >= HOLD_TICKS))))
#if N == 2
#define ANY_BUSY (BUSY(0) || BUSY(1))
#else
#define ANY_BUSY (BUSY(0) || BUSY(1) || BUSY(2))
#endif

hidden byte c;

inline tick()
{
    time++;
    for (c : 0 .. N - 1) { tick_store(c); tick_client(c) };
    skip /* the end of a loop may not be the end of a d_step */
}

active proctype Clock()
{
#ifdef LIVE
end:
    do
    :: d_step { !ANY_BUSY -> tick() }
    :: d_step { ANY_BUSY && faults > 0 -> faults--; printf("%d  a stall\n", time); tick() }
    od
#else
    do
    :: d_step { tick() }
    od
#endif
}

#ifdef LIVE
/* G4: whoever wants is served in the end, or gave up, or died. */
ltl served { [] (wants[0] -> <> !wants[0]) }
#endif
